//! The Unix socket to the agent: connecting in bounded time, and receiving descriptors.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Descriptors taken from one message at most; the protocol sends two.
const DESCRIPTORS_MAX: usize = 8;
/// Room for them in a control message, in bytes.
const CONTROL_BYTES: usize = 64;
const _: () = assert!(CONTROL_BYTES >= 16 + 4 * DESCRIPTORS_MAX);

#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// Connects to a stream socket, waiting no longer than `timeout` for a listener whose queue is full.
pub fn connect(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    // SAFETY: all zeros is a value of this plain C struct.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path of the socket is too long"));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    // SAFETY: plain arguments; the result is checked and then owned.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        UnixStream::from(OwnedFd::from_raw_fd(fd))
    };
    socket.set_write_timeout(Some(timeout))?;
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the address is a filled sockaddr_un of that length.
    let done = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if done == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}

/// Fills `buffer` exactly, collecting descriptors on the way (close-on-exec, each owned, so
/// that whatever the caller does not keep is closed). Ends with `TimedOut` at the deadline,
/// and with `InvalidData` where more descriptors came than could be taken.
pub fn receive(socket: &UnixStream, buffer: &mut [u8], deadline: Instant) -> io::Result<Vec<OwnedFd>> {
    let (mut descriptors, mut filled) = (Vec::new(), 0);
    while filled < buffer.len() {
        wait_readable(socket, deadline)?;
        let (count, truncated) = receive_some(socket, &mut buffer[filled..], &mut descriptors)?;
        if truncated || descriptors.len() > DESCRIPTORS_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "more descriptors came than expected"));
        }
        if count == Some(0) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        filled += count.unwrap_or(0);
    }
    Ok(descriptors)
}

fn wait_readable(socket: &UnixStream, deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        match unsafe { libc::poll(&mut poll, 1, left.as_millis().clamp(1, 60_000) as libc::c_int) } {
            1.. => return Ok(()),
            0 => {}
            _ => interrupted_or(io::Error::last_os_error())?,
        }
    }
}

fn interrupted_or(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => Ok(()),
        _ => Err(error),
    }
}

/// One message, not waiting: its bytes (`None`: nothing there after all), and whether some
/// of its descriptors did not fit.
fn receive_some(
    socket: &UnixStream,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<(Option<usize>, bool)> {
    let mut control = Control([0; CONTROL_BYTES]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all zeros is a value of this plain C struct.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_BYTES;
    // SAFETY: the message points at buffers that live until the call returns, with their true lengths.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) };
    if count < 0 {
        interrupted_or(io::Error::last_os_error())?;
        return Ok((None, false));
    }
    // SAFETY: the kernel has written msg_controllen bytes of well-formed control messages into
    // `control`, which the macros walk within that length; each descriptor in SCM_RIGHTS is new
    // and nobody else's.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&message);
        while let Some(this) = header.as_ref() {
            if (this.cmsg_level, this.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let data = libc::CMSG_DATA(this);
                let bytes = this.cmsg_len.saturating_sub(data.offset_from((&raw const *this).cast()) as usize);
                for index in 0..bytes / size_of::<libc::c_int>() {
                    descriptors.push(OwnedFd::from_raw_fd(data.cast::<libc::c_int>().add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&message, this);
        }
    }
    Ok((Some(count as usize), message.msg_flags & libc::MSG_CTRUNC != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(50)
    }

    #[test]
    fn a_silent_or_short_peer_ends_in_time() {
        let (here, mut there) = UnixStream::pair().unwrap();
        there.write_all(b"ab").unwrap();
        assert_eq!(receive(&here, &mut [0; 3], soon()).unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(there);
        assert_eq!(receive(&here, &mut [0; 3], soon()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_message_in_pieces_is_put_together() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let sender = std::thread::spawn(move || {
            for byte in b"hello" {
                there.write_all(&[*byte]).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let mut buffer = [0; 5];
        assert!(receive(&here, &mut buffer, Instant::now() + Duration::from_secs(5)).unwrap().is_empty());
        assert_eq!(&buffer, b"hello");
        sender.join().unwrap();
    }

    #[test]
    fn an_overlong_path_is_an_error() {
        let path = "x".repeat(200);
        assert_eq!(connect(Path::new(&path), Duration::from_secs(1)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
