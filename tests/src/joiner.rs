//! The registration protocol spoken by hand, on both sides: a process that joins and then
//! does what it likes with the memory, and an agent that welcomes with what it likes.

use crate::sys::{self, Mapped};
use runtime_core_abi::handshake::{HELLO_BYTES, Hello, JOINED, REGISTER_SOCKET, Welcome};
use runtime_core_abi::page::PAGE_BYTES;
use runtime_core_abi::ring;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// How long the other side may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// A lease that this process holds.
#[derive(Debug)]
pub struct Joined {
    /// The lease itself.
    pub socket: UnixStream,
    /// The page's descriptor.
    pub page_fd: OwnedFd,
    /// The page, writable.
    pub page: Mapped,
    /// All rings, writable.
    pub rings: Mapped,
    /// Bytes of the rings' memory.
    pub rings_bytes: usize,
}

/// Connects to the registration socket, with a limit on every read and write.
pub fn connect(run_dir: &Path) -> io::Result<UnixStream> {
    let socket = UnixStream::connect(run_dir.join(REGISTER_SOCKET))?;
    socket.set_read_timeout(Some(ANSWER_LIMIT))?;
    socket.set_write_timeout(Some(ANSWER_LIMIT))?;
    Ok(socket)
}

/// Says hello; the answer and what came beside it.
pub fn greet(socket: &mut UnixStream, hello: &[u8; HELLO_BYTES]) -> io::Result<(Welcome, Vec<OwnedFd>)> {
    socket.write_all(hello)?;
    let (bytes, descriptors) = sys::receive_welcome(socket)?;
    let welcome = Welcome::decode(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok((welcome, descriptors))
}

/// Joins as `service`; the reason as an error where the agent refuses.
pub fn join(run_dir: &Path, service: &str) -> io::Result<Joined> {
    let mut socket = connect(run_dir)?;
    let (welcome, descriptors) = greet(&mut socket, &Hello::new(service).encode())?;
    let (lanes, data_bytes) = match welcome {
        Welcome::Accepted { lanes, ring_data_bytes, .. } => (lanes as usize, ring_data_bytes as usize),
        Welcome::Refused(reason) => {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, String::from_utf8_lossy(reason.bytes())));
        }
    };
    let [page_fd, rings_fd] = <[OwnedFd; 2]>::try_from(descriptors)
        .map_err(|fds| io::Error::new(io::ErrorKind::InvalidData, format!("{} descriptors", fds.len())))?;
    let rings_bytes = ring::memory_bytes(lanes, data_bytes);
    let (page, rings) = (Mapped::new(&page_fd, PAGE_BYTES)?, Mapped::new(&rings_fd, rings_bytes)?);
    socket.write_all(&[JOINED])?;
    Ok(Joined { socket, page_fd, page, rings, rings_bytes })
}

/// Stands in for an agent once: answers the next hello with these descriptors, and keeps
/// the connection.
pub fn welcome_once(listener: &UnixListener, welcome: &Welcome, descriptors: &[OwnedFd]) -> io::Result<UnixStream> {
    let (mut socket, _) = listener.accept()?;
    socket.set_read_timeout(Some(ANSWER_LIMIT))?;
    let mut hello = [0; HELLO_BYTES];
    socket.read_exact(&mut hello)?;
    sys::send_with(&socket, &welcome.encode(), descriptors)?;
    Ok(socket)
}
