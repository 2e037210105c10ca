//! What the kernel programs and the agent agree on: records, map names, capacities.
//!
//! Everything here is plain data with a fixed layout, compiled once for the BPF target and
//! once for the host. One module a family of probes.

#![no_std]
#![warn(missing_docs)]

pub mod sampler;
