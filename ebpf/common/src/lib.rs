//! What the kernel programs and the agent agree on: records, map names, capacities.

#![no_std]
#![warn(missing_docs)]
