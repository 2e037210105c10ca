//! Reading from and writing to nonblocking sockets and pipes, never with a SIGPIPE.
//!
//! The calls are made in place, see [`direct`](super::direct).
//!
//! A socket's send can be told to raise no signal. A pipe's write cannot on most kernels: there
//! the signal is blocked in the calling thread, and the one that was raised is taken back.

use super::direct::Direct;
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsRawFd, BorrowedFd};

/// What a descriptor is and may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// A socket, not a pipe or anything else.
    pub socket: bool,
    /// Open for reading.
    pub readable: bool,
}

/// Makes a descriptor nonblocking, and looks at what it is.
pub fn prepare(fd: BorrowedFd<'_>) -> io::Result<Kind> {
    // SAFETY: asks for and sets flags of a borrowed descriptor.
    let flags = unsafe {
        let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
        if flags < 0 || libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) < 0 {
            return Err(io::Error::last_os_error());
        }
        flags
    };
    // SAFETY: all zeros is a value of this plain C struct.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is borrowed, the struct is ours to fill.
    if unsafe { libc::fstat(fd.as_raw_fd(), &mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Kind {
        socket: stat.st_mode & libc::S_IFMT == libc::S_IFSOCK,
        readable: flags & libc::O_ACCMODE != libc::O_WRONLY,
    })
}

/// Sends the front of the slices on a socket; at most `IOV_MAX` of them.
#[inline]
pub fn send(socket: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    match slices {
        [one] => Direct(&socket).write(one),
        _ => Direct(&socket).write_vectored(slices),
    }
}

/// Writes the front of the slices to what is no socket; at most `IOV_MAX` of them.
pub fn write(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    without_sigpipe(|| Ok(rustix::io::writev(fd, slices)?))
}

/// Reads into `buffer`; 0 is the end.
pub fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::read(fd, buffer)?)
}

/// Tells a socket's peer that no more will be sent.
pub fn shutdown_writes(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::shutdown(socket, rustix::net::Shutdown::Write)?)
}

fn without_sigpipe<T>(write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    // SAFETY: all zeros is a value of these plain C structs, the sets are initialised before
    // they are used, and only the calling thread's mask changes. A pipe's SIGPIPE goes to the
    // thread that wrote, so the one that is taken back is the one that this write raised,
    // unless one was pending before, which then stays so.
    unsafe {
        let (mut sigpipe, mut before, mut pending): (libc::sigset_t, libc::sigset_t, libc::sigset_t) =
            std::mem::zeroed();
        libc::sigemptyset(&mut sigpipe);
        libc::sigaddset(&mut sigpipe, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &sigpipe, &mut before);
        libc::sigpending(&mut pending);
        let result = write();
        let raised = matches!(&result, Err(error) if error.raw_os_error() == Some(libc::EPIPE));
        if raised && libc::sigismember(&pending, libc::SIGPIPE) == 0 {
            let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&sigpipe, std::ptr::null_mut(), &no_time);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, OwnedFd};

    /// Says that this process is the one with the default SIGPIPE.
    const CHILD: &str = "RUNTIME_CORE_TEST_SIGPIPE";

    #[test]
    fn nobody_is_killed_by_a_peer_that_is_gone() {
        if std::env::var_os(CHILD).is_none() {
            let this = std::env::current_exe().unwrap();
            let name = std::thread::current().name().map(str::to_owned).unwrap();
            let status = std::process::Command::new(this).args(["--exact", &name]).env(CHILD, "1").output().unwrap();
            assert!(status.status.success(), "{status:?}");
            return;
        }
        // SAFETY: the default is what a C program begins with.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let bytes = [IoSlice::new(b"a"), IoSlice::new(b"b")];
        let (theirs, pipe) = io::pipe().unwrap();
        let (unix, peer) = std::os::unix::net::UnixStream::pair().unwrap();
        drop((theirs, peer));
        let (pipe, unix) = (OwnedFd::from(pipe), OwnedFd::from(unix));
        assert!(prepare(unix.as_fd()).unwrap().socket && !prepare(pipe.as_fd()).unwrap().socket);
        for slices in [&bytes[..1], &bytes] {
            assert_eq!(write(pipe.as_fd(), slices).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
            assert_eq!(send(unix.as_fd(), slices).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        }
        // SAFETY: all zeros is a value of these plain C structs, which are ours to fill.
        unsafe {
            let (mut mask, mut pending): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
            libc::sigpending(&mut pending);
            assert_eq!(libc::sigismember(&mask, libc::SIGPIPE), 0, "the mask is as it was");
            assert_eq!(libc::sigismember(&pending, libc::SIGPIPE), 0, "none is left to come");
        }
    }
}
