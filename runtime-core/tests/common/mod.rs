//! An agent that exists only in tests: it says what a test wants it to say, and looks at the
//! page and the rings as a real one would.

#![allow(dead_code, reason = "each test binary uses its own part")]

use runtime_core_abi::handshake::{Backing, HELLO_BYTES, Hello, JOINED, REGISTER_SOCKET, Reason, Welcome};
use runtime_core_abi::page::{LANES_MAX, NAME_BYTES_MAX, NODE_HTTP, Names, Owner, PAGE_BYTES, Page};
use runtime_core_abi::record::{self, Value};
use runtime_core_abi::ring::{self, Consumer, Ring};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A directory that goes with the value.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("runtime-core-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Waits until something holds; fails the test where it does not within the time.
pub fn wait_for(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
    start.elapsed()
}

/// A memfd, sealed against resizing or not.
pub fn memfd(bytes: usize, sealed: bool) -> OwnedFd {
    // SAFETY: plain system calls on a descriptor that is then owned.
    unsafe {
        let fd = libc::memfd_create(c"runtime-core-test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        assert!(fd >= 0);
        assert_eq!(libc::ftruncate(fd, bytes as i64), 0);
        if sealed {
            assert_eq!(libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW), 0);
        }
        OwnedFd::from_raw_fd(fd)
    }
}

/// A pipe's reading end, for a descriptor that cannot be mapped.
pub fn pipe() -> OwnedFd {
    let mut ends = [0; 2];
    // SAFETY: the array is ours to fill; both descriptors are then owned.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        drop(OwnedFd::from_raw_fd(ends[1]));
        OwnedFd::from_raw_fd(ends[0])
    }
}

/// A memfd, mapped for as long as the value lives.
pub struct Shared {
    pub fd: OwnedFd,
    base: *mut u8,
    bytes: usize,
}

// SAFETY: an address range that is reached through atomics.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    pub fn new(bytes: usize) -> Self {
        let fd = memfd(bytes, true);
        // SAFETY: the kernel picks the addresses.
        let base = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        assert_ne!(base, libc::MAP_FAILED);
        Self { fd, base: base.cast(), bytes }
    }

    pub fn new_page() -> Self {
        let shared = Self::new(PAGE_BYTES);
        shared.page().stamp();
        shared
    }

    pub fn page(&self) -> &Page {
        assert_eq!(self.bytes, PAGE_BYTES);
        // SAFETY: mapped, aligned, of the right size, and made of atomics alone.
        unsafe { &*self.base.cast::<Page>() }
    }

    pub fn consumer(&self, lane: usize) -> Consumer {
        // SAFETY: in bounds for LANES_MAX rings; the test is the one consumer.
        Consumer::new(unsafe { Ring::at(self.base.add(ring::lane_offset(lane, RING_BYTES)), RING_BYTES) })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping made above.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// Bytes of data in each of the test's rings.
pub const RING_BYTES: usize = 1024 * 1024;

/// Sends bytes and descriptors in one message.
pub fn send(socket: &UnixStream, bytes: &[u8], descriptors: &[RawFd]) {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = [0u64; 64];
    // SAFETY: the message points at buffers that live until the call returns; the control
    // message is built by the macros within its room.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        if !descriptors.is_empty() {
            let bytes = size_of_val(descriptors) as u32;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(bytes) as usize;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(bytes) as usize;
            std::ptr::copy_nonoverlapping(descriptors.as_ptr(), libc::CMSG_DATA(header).cast(), descriptors.len());
        }
        // The process may have hung up already: that is its right.
        libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL);
    }
}

/// An agent of the test's own.
pub struct FakeAgent {
    listener: UnixListener,
    socket: PathBuf,
}

impl FakeAgent {
    /// Listens in a run directory.
    pub fn listen(run_dir: &Path) -> Self {
        let socket = run_dir.join(REGISTER_SOCKET);
        let _ = std::fs::remove_file(&socket);
        Self { listener: UnixListener::bind(&socket).unwrap(), socket }
    }

    /// Takes one connection and its hello.
    pub fn accept(&self) -> (UnixStream, Hello) {
        let (mut stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut hello = [0; HELLO_BYTES];
        stream.read_exact(&mut hello).unwrap();
        (stream, Hello::decode(&hello).unwrap())
    }

    /// Takes one connection and lets it join.
    pub fn admit(&self) -> Member {
        let (mut stream, hello) = self.accept();
        let (page, rings) = (Shared::new_page(), Shared::new(ring::memory_bytes(LANES_MAX, RING_BYTES)));
        send(&stream, &accepted(), &[page.fd.as_raw_fd(), rings.fd.as_raw_fd()]);
        let mut joined = [0];
        stream.read_exact(&mut joined).unwrap();
        assert_eq!(joined, [JOINED]);
        let consumers = (0..LANES_MAX).map(|lane| rings.consumer(lane)).collect();
        Member { stream, service: String::from_utf8(hello.service().to_vec()).unwrap(), page, rings, consumers }
    }
}

impl Drop for FakeAgent {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// A welcome, as bytes.
pub fn accepted() -> Vec<u8> {
    let (lanes, ring_data_bytes) = (LANES_MAX as u32, RING_BYTES as u32);
    Welcome::Accepted { backing: Backing::Memfd, lanes, ring_data_bytes }.encode().to_vec()
}

/// A refusal, as bytes.
pub fn refused(why: &str) -> Vec<u8> {
    Welcome::Refused(Reason::new(why)).encode().to_vec()
}

/// A process that has joined, as its agent sees it.
pub struct Member {
    pub stream: UnixStream,
    pub service: String,
    pub page: Shared,
    pub rings: Shared,
    consumers: Vec<Consumer>,
}

/// An event, decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub phase: char,
    pub id: u64,
    pub tid: u32,
    pub route: u16,
    pub ts_ns: u64,
    pub name: String,
    pub args: Vec<(String, String)>,
}

impl Event {
    pub fn arg(&self, key: &str) -> Option<&str> {
        self.args.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_str())
    }
}

impl Member {
    /// Switches `node.http` by the operator's byte.
    pub fn switch(&self, on: bool) {
        self.page.page().enable_byte(NODE_HTTP, Owner::Operator).store(on.into(), Ordering::Relaxed);
    }

    /// Takes the events of every ring, and the number lost.
    pub fn drain(&mut self) -> (Vec<Event>, u64) {
        let (mut events, mut lost) = (Vec::new(), 0);
        for consumer in &mut self.consumers {
            let mut parts: Vec<Vec<u8>> = Vec::new();
            let drained = consumer.drain(|bytes| parts.push(bytes.to_vec()));
            assert!(!drained.garbage);
            lost += drained.lost;
            for part in parts {
                let mut rest = &part[..];
                while !rest.is_empty() {
                    let (record, size) = record::decode(rest).expect("a well-formed record");
                    events.extend(record.map(|record| event(&record)));
                    rest = &rest[size..];
                }
            }
        }
        events.sort_by_key(|event| event.ts_ns);
        (events, lost)
    }

    pub fn name(&self, table: Names, index: usize) -> Option<String> {
        let mut out = [0; NAME_BYTES_MAX];
        self.page.page().name(table, index, &mut out).map(|name| String::from_utf8_lossy(name).into_owned())
    }
}

fn event(record: &record::Record<'_>) -> Event {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let value = |value| match value {
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::Str(bytes) | Value::Json(bytes) => text(bytes),
    };
    Event {
        phase: record.head.phase.into(),
        id: record.head.id,
        tid: record.head.tid,
        route: record.head.route,
        ts_ns: record.head.ts_ns,
        name: text(record.name),
        args: record.args().flatten().map(|arg| (text(arg.key), value(arg.value))).collect(),
    }
}

/// Reads one answer whose body has a length ahead: status, and body.
pub fn read_answer(stream: &mut impl Read) -> io::Result<(u16, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body)?;
    Ok((status, body))
}

/// Asks for a path on a connection that stays open.
pub fn get(stream: &mut (impl Read + Write), path: &str) -> (u16, Vec<u8>) {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes()).unwrap();
    read_answer(stream).unwrap()
}
