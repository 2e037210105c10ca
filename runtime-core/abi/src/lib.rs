//! What a process and the agent agree on, and nothing else: the shared page, the
//! event ring, and the handshake that passes both.
//!
//! No behaviour beyond accessors and codecs, no allocation, no dependencies, so that
//! the runtime core, the agent and the probes can all build on the same words. A
//! reader trusts nothing here: whoever maps the memory can write anything to it, so
//! each accessor bounds what it returns and none can panic on garbage.

#![no_std]
#![warn(missing_docs)]

#[cfg(test)]
extern crate std;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("tracebyte supports x86-64 Linux only: the enable check and the probe sites are x86-64 assembly");

pub mod handshake;
pub mod page;
pub mod record;
pub mod ring;
