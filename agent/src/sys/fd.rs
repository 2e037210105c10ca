//! Descriptors: moving them high, passing them on, locking files.

use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::size_of_val;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Descriptors passed at once, at most.
const PASSED_MAX: usize = 2;

/// Moves a descriptor to a number of at least `floor`, where such a number is free; else
/// leaves it where it is. Close-on-exec either way.
pub fn move_above<F: Into<OwnedFd> + From<OwnedFd>>(fd: F, floor: libc::c_int) -> F {
    let low: OwnedFd = fd.into();
    // SAFETY: duplicates a descriptor we own; no memory is involved.
    match super::check(unsafe { libc::fcntl(low.as_raw_fd(), libc::F_DUPFD_CLOEXEC, floor) }) {
        // SAFETY: the kernel just made this descriptor, and nobody else knows it.
        Ok(high) => unsafe { OwnedFd::from_raw_fd(high) }.into(),
        Err(_) => low.into(),
    }
}

/// Sends bytes with descriptors beside them, without blocking. A short write is an error.
pub fn send_with(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>; PASSED_MAX]) -> io::Result<()> {
    let raw: [libc::c_int; PASSED_MAX] = fds.map(|fd| fd.as_raw_fd());
    let mut parts = [IoSlice::new(bytes)];
    // Words, so that the control header in it is aligned.
    let mut control = [0u64; 8];
    // SAFETY: computes a size; no memory is involved.
    let (space, len) = unsafe {
        (libc::CMSG_SPACE(size_of_val(&raw) as u32) as usize, libc::CMSG_LEN(size_of_val(&raw) as u32) as usize)
    };
    assert!(space <= size_of_val(&control));
    // SAFETY: a msghdr of zeros is valid: no name, no parts, no control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr().cast();
    message.msg_iovlen = parts.len();
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = space;
    // SAFETY: `control` has room for one header with these descriptors (asserted above),
    // so the first header exists and its data lies inside.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = len;
        libc::CMSG_DATA(header).cast::<[libc::c_int; PASSED_MAX]>().write_unaligned(raw);
    }
    // SAFETY: `message` points to live buffers of the lengths it names.
    let sent =
        unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    match usize::try_from(sent) {
        Ok(sent) if sent == bytes.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Takes the exclusive lock of a file; `false` where somebody else holds it.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(std::fs::TryLockError::WouldBlock) => Ok(false),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Sets the mask of permission bits that new files and sockets do not get.
pub fn umask(mask: u32) -> u32 {
    // SAFETY: changes one number of the process.
    unsafe { libc::umask(mask) }
}
