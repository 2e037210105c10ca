//! Every raw system call of the runtime core, behind safe or narrowly unsafe functions.
//!
//! The steady state of a request needs none of them beyond reading and writing its socket.
//! Joining an agent needs `socket connect setsockopt sendto write poll recvmsg recvfrom fstat
//! fcntl mmap mremap munmap madvise clone futex close`, leaving and `fork` a subset. Under a
//! seccomp filter either allow these, or join before the filter, or do not join at all. A
//! recording of the process's own (`trace::Session`) needs `openat pwrite64 ftruncate lstat
//! unlink close mmap madvise clone futex`, from a thread of its own. A stream needs `fcntl fstat
//! read sendto sendmsg shutdown`, and on a pipe `writev rt_sigprocmask rt_sigpending
//! rt_sigtimedwait`.

pub(crate) mod direct;
pub mod memory;
pub mod process;
pub mod socket;
pub mod stream;
