//! Streams against a model with an unreliable descriptor, on real ones, and beside Node's.

mod fake;
mod model;
mod node;
mod sockets;
mod steps;
