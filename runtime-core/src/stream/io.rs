//! What a stream writes to: a small trait, so that tests can put in what the operating system
//! does rarely, and its one implementation for descriptors.

use crate::sys::stream as sys;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Something nonblocking to write to and perhaps read from. Dropping it closes it.
///
/// `WouldBlock` and `Interrupted` mean what they mean for descriptors; the stream handles both.
pub trait Io {
    /// Takes some bytes from the front of `slices` (1 to [`SLICES_MAX`] of them, none empty).
    fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Fills the front of `buffer`; 0 is the end.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Tells the peer that no more will be written.
    fn end(&mut self) -> io::Result<()>;

    /// Whether an end of what can be read is to be waited for before the stream closes.
    fn is_readable(&self) -> bool {
        true
    }
}

/// Slices in one write at most: Linux's `IOV_MAX`.
pub const SLICES_MAX: usize = 1024;

/// A TCP or Unix socket, a pipe, or any other descriptor that can be nonblocking.
#[derive(Debug)]
pub struct Descriptor {
    fd: OwnedFd,
    kind: sys::Kind,
}

impl Descriptor {
    /// Takes a descriptor over and makes it nonblocking. Nagle's algorithm is the caller's
    /// choice: a stream gathers by itself what is written while it is corked.
    pub fn new(fd: impl Into<OwnedFd>) -> io::Result<Self> {
        let fd = fd.into();
        let kind = sys::prepare(fd.as_fd())?;
        Ok(Self { fd, kind })
    }
}

impl Io for Descriptor {
    #[inline]
    fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.kind.socket { sys::send(self.fd.as_fd(), slices) } else { sys::write(self.fd.as_fd(), slices) }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        sys::read(self.fd.as_fd(), buffer)
    }

    /// What is no socket has no half to shut: its end is seen when the stream closes it.
    fn end(&mut self) -> io::Result<()> {
        match sys::shutdown_writes(self.fd.as_fd()) {
            _ if !self.kind.socket => Ok(()),
            // The peer is gone already: it needs no telling.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            done => done,
        }
    }

    fn is_readable(&self) -> bool {
        self.kind.readable
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
