//! Every raw system call of the agent. What a call means is decided elsewhere: here are
//! only its safe face and the reasons why the unsafe inside holds.

pub mod bpf;
pub mod clock;
#[cfg(test)]
pub mod fake;
pub mod fd;
pub mod kernel;
pub mod memfd;
pub mod memory;
pub mod peer;
pub mod probe;
pub mod proc;
pub mod rlimit;
pub mod users;

use std::io;

/// The result of a call that reports failure as -1 and `errno`.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
