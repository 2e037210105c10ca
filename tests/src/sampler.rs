//! An empty kernel program on a sampling event: what a real one is compared with.

use crate::sys::{bpf_load_empty, perf_open_clock};
use std::io;
use std::os::fd::OwnedFd;

/// Samples one CPU, and does nothing with it, until it is dropped.
#[derive(Debug)]
pub struct EmptySampler {
    _event: OwnedFd,
}

impl EmptySampler {
    /// Starts it on the software clock.
    ///
    /// # Errors
    /// Without the privilege to load a program or to sample a CPU.
    pub fn start(cpu: usize, freq_hz: u64) -> io::Result<Self> {
        let program = bpf_load_empty()?;
        Ok(Self { _event: perf_open_clock(cpu, freq_hz, &program)? })
    }
}
