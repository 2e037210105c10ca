//! A process that joins, for tests: what a runtime does, from the other side of the socket.

use super::memfd::{SharedPage, SharedRings};
use runtime_core_abi::handshake::{HELLO_BYTES, Hello, JOINED, REGISTER_SOCKET, WELCOME_BYTES, Welcome};
use runtime_core_abi::page::{NODE_HTTP, Owner, Page};
use runtime_core_abi::record::{Head, Value};
use runtime_core_abi::ring::Producer;
use std::io::{self, IoSliceMut, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;

/// A process with a lease.
#[derive(Debug)]
pub struct Fake {
    /// The lease; closing it is leaving.
    pub socket: UnixStream,
    page: SharedPage,
    rings: SharedRings,
}

/// What became of an attempt to join.
#[derive(Debug)]
pub enum Joining {
    /// Page and rings were handed over, and `JOINED` sent.
    Joined(Box<Fake>),
    /// The agent said why not.
    Refused(String),
    /// The agent closed the connection.
    Closed,
}

impl Fake {
    /// Connects, and asks to join as `service`.
    pub fn join(run_dir: &Path, service: &str) -> io::Result<Joining> {
        Self::join_with(run_dir, &Hello::new(service).encode())
    }

    /// The same with any hello.
    pub fn join_with(run_dir: &Path, hello: &[u8; HELLO_BYTES]) -> io::Result<Joining> {
        let mut socket = UnixStream::connect(run_dir.join(REGISTER_SOCKET))?;
        socket.write_all(hello)?;
        let mut welcome = [0; WELCOME_BYTES];
        let (read, mut fds) = receive(&socket, &mut welcome)?;
        if read < WELCOME_BYTES {
            return Ok(Joining::Closed);
        }
        match Welcome::decode(&welcome).expect("the agent speaks the protocol") {
            Welcome::Refused(reason) => Ok(Joining::Refused(String::from_utf8_lossy(reason.bytes()).into_owned())),
            Welcome::Accepted { lanes, ring_data_bytes, .. } => {
                let rings = fds.pop().expect("the rings come second");
                let page = SharedPage::new(fds.pop().expect("the page comes first"))?;
                let rings = SharedRings::map(rings, lanes as usize, ring_data_bytes as usize)?;
                socket.write_all(&[JOINED])?;
                Ok(Joining::Joined(Box::new(Self { socket, page, rings })))
            }
        }
    }

    /// The page.
    pub fn page(&self) -> &Page {
        self.page.page()
    }

    /// Whether the operator has `node.http` on.
    pub fn is_on(&self) -> bool {
        self.page().enable_byte(NODE_HTTP, Owner::Operator).load(Ordering::Acquire) != 0
    }

    /// Writes the two events of a request, stamped now; whether they fit.
    pub fn request(&self, producer: &mut Producer, id: u64) -> bool {
        let head = |phase| Head { phase, id, tid: 1, ts_ns: super::clock::monotonic_ns(), ..Head::default() };
        let begin = [("method", Value::Str(b"GET")), ("url", Value::Str(b"/"))];
        let name = b"http.server.request";
        producer.push(&head(b'b'), name, &begin)
            && producer.push(&head(b'e'), name, &[("statusCode", Value::Uint(200))])
    }

    /// The writing side of a lane. At most one at a time.
    pub fn producer(&self, lane: usize) -> Producer {
        self.rings.producer(lane)
    }
}

fn receive(socket: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut parts = [IoSliceMut::new(bytes)];
    let mut control = [0u64; 8];
    // SAFETY: a msghdr of zeros is valid; then it points to live buffers of the lengths named.
    let (read, message) = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = parts.as_mut_ptr().cast();
        message.msg_iovlen = parts.len();
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_WAITALL;
        (libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags), message)
    };
    let Ok(read) = usize::try_from(read) else {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::ConnectionReset { Ok((0, Vec::new())) } else { Err(error) };
    };
    // SAFETY: the kernel wrote at most one header into `control`, with two descriptors that
    // are ours from now on.
    let fds = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null() || (*header).cmsg_type != libc::SCM_RIGHTS {
            Vec::new()
        } else {
            let raw = libc::CMSG_DATA(header).cast::<[libc::c_int; 2]>().read_unaligned();
            raw.map(|fd| OwnedFd::from_raw_fd(fd)).into()
        }
    };
    Ok((read, fds))
}
