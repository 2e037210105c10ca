//! The harness: starts agents, servers and load on private run directories and loopback
//! ports, and ends them all, also when a test panics.

pub mod rounds;
