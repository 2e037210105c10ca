//! Who is at the other end of a Unix socket, in the kernel's words.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Since Linux 6.5; absent from the headers that libc follows.
const SO_PEERPIDFD: libc::c_int = 77;

/// The process that connected, as it was when it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its id; 0 where this process cannot see it (another PID namespace).
    pub pid: u32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

/// Asks who connected.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of_val(&found) as libc::socklen_t;
    // SAFETY: `found` is writable for `len` bytes.
    super::check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut found).cast(), &raw mut len)
    })?;
    Ok(Peer { pid: u32::try_from(found.pid).unwrap_or(0), uid: found.uid, gid: found.gid })
}

/// The supplementary groups of whoever connected.
pub fn groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; 64];
    loop {
        let mut len = (groups.len() * size_of::<u32>()) as libc::socklen_t;
        // SAFETY: `groups` is writable for `len` bytes.
        let result = super::check(unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut len,
            )
        });
        let needed = len as usize / size_of::<u32>();
        match result {
            Ok(_) => {
                groups.truncate(needed);
                return Ok(groups);
            }
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) && needed > groups.len() => {
                groups.resize(needed, 0);
            }
            Err(error) => return Err(error),
        }
    }
}

/// A descriptor of the process that connected, which becomes readable when it ends. Before
/// Linux 6.5 it is opened by id, so the caller has to look whether it is still alive.
pub fn pidfd(socket: BorrowedFd<'_>, pid: u32) -> io::Result<OwnedFd> {
    let mut found: libc::c_int = -1;
    let mut len = size_of_val(&found) as libc::socklen_t;
    // SAFETY: `found` is writable for `len` bytes.
    let asked = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, (&raw mut found).cast(), &raw mut len)
    };
    let fd = match super::check(asked) {
        Ok(_) => found,
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            // SAFETY: takes two numbers.
            let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
            super::check(opened as libc::c_int)?
        }
        Err(error) => return Err(error),
    };
    // SAFETY: the kernel just made this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether the process of a pidfd still lives.
pub fn lives(pidfd: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one writable pollfd; returns at once.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 0 }
}

/// A pidfd that a task can wait on.
pub fn wait_on(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` names the same descriptor until it is dropped, and the `AsyncFd`
    // that owns it takes it off the poll before that.
    Ok(unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?)
}

/// The effective user of this process.
pub fn own_uid() -> u32 {
    // SAFETY: always succeeds and touches no memory.
    unsafe { libc::geteuid() }
}
