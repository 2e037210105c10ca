//! A socket read and written with the system call made in place.
//!
//! glibc's `recv` and `send` keep something else in the frame pointer while the call runs,
//! so a kernel sample taken there, which is most of a server's, would end at `send` and
//! never show who sent. Here the caller's own frame is the one that enters the kernel.

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::AsFd;

/// Reads and writes a socket directly. A write to a closed one is an error, never a signal.
pub(crate) struct Direct<'a, S>(pub(crate) &'a S);

impl<S: AsFd> Read for Direct<'_, S> {
    #[inline]
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self.0, room, RecvFlags::empty())?.0)
    }
}

impl<S: AsFd> Write for Direct<'_, S> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    #[inline]
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(sendmsg(self.0, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
