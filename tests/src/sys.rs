//! The system calls of the harness that the standard library has no name for.

use runtime_core_abi::handshake::WELCOME_BYTES;
use std::collections::BTreeSet;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

/// The effective user id.
pub fn effective_uid() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Time that the calling thread has run on a CPU, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the struct is ours to fill; a thread's own clock always exists on Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sends a signal to one process; one that is gone already is no error.
pub fn signal(pid: u32, signal: i32) {
    let pid = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 1).expect("a process id of a child");
    // SAFETY: no memory is passed; the id is positive, so one process is meant.
    unsafe { libc::kill(pid, signal) };
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C and SIGTERM do not end this process but set the returned flag.
pub fn catch_interrupts() -> &'static AtomicBool {
    extern "C" fn note(_signal: i32) {
        INTERRUPTED.store(true, Ordering::Release);
    }
    let handler: extern "C" fn(i32) = note;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only stores to an atomic, which a signal may interrupt anywhere.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
    &INTERRUPTED
}

/// What BPF objects there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BpfKind {
    /// Programs.
    Program,
    /// Maps.
    Map,
    /// Links.
    Link,
}

impl BpfKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Program, Self::Map, Self::Link];

    const fn next_command(self) -> i64 {
        match self {
            Self::Program => 11,
            Self::Map => 12,
            Self::Link => 31,
        }
    }
}

/// The start of the kernel's `union bpf_attr`, as far as the commands below use it.
#[repr(C)]
#[derive(Default)]
struct BpfAttr {
    words: [u64; 16],
}

const BPF_OBJ_PIN: i64 = 6;
const BPF_MAP_FREEZE: i64 = 22;

fn bpf(command: i64, attr: &mut BpfAttr) -> io::Result<i64> {
    // SAFETY: the attribute is larger than what these commands read, zero beyond what they
    // use, and lives through the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attr, size_of::<BpfAttr>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The ids of the BPF objects of a kind; an error without the privilege to list them.
pub fn bpf_ids(kind: BpfKind) -> io::Result<BTreeSet<u32>> {
    let mut ids = BTreeSet::new();
    let mut last = 0;
    loop {
        let mut attr = BpfAttr::default();
        attr.words[0] = u64::from(last);
        match bpf(kind.next_command(), &mut attr) {
            // `next_id` is the second 32-bit word.
            Ok(_) => last = (attr.words[0] >> 32) as u32,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(ids),
            Err(error) => return Err(error),
        }
        ids.insert(last);
    }
}

/// Tries to freeze a map: what a hostile holder of a page may do.
pub fn bpf_freeze(map: &OwnedFd) -> io::Result<()> {
    let mut attr = BpfAttr::default();
    attr.words[0] = map.as_raw_fd() as u64;
    bpf(BPF_MAP_FREEZE, &mut attr).map(drop)
}

/// Tries to pin a map in the BPF file system.
pub fn bpf_pin(map: &OwnedFd, path: &std::ffi::CStr) -> io::Result<()> {
    let mut attr = BpfAttr::default();
    attr.words[0] = path.as_ptr() as u64;
    attr.words[1] = map.as_raw_fd() as u64;
    bpf(BPF_OBJ_PIN, &mut attr).map(drop)
}

/// Receives an answer of the registration socket and the descriptors beside it.
pub fn receive_welcome(socket: &UnixStream) -> io::Result<([u8; WELCOME_BYTES], Vec<OwnedFd>)> {
    let mut bytes = [0u8; WELCOME_BYTES];
    let mut control = [0u64; 16];
    let mut iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros is a value of this struct of integers and pointers.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: the message points to buffers above, of the lengths given.
    let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_WAITALL | libc::MSG_CMSG_CLOEXEC) };
    match n {
        -1 => return Err(io::Error::last_os_error()),
        n if n as usize != bytes.len() => return Err(io::ErrorKind::UnexpectedEof.into()),
        _ => {}
    }
    let mut descriptors = Vec::new();
    // SAFETY: the kernel filled in the message; the macros walk within its length.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: not null, hence a whole header within the control buffer.
        let (level, kind, len) = unsafe { ((*header).cmsg_level, (*header).cmsg_type, (*header).cmsg_len) };
        if (level, kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // SAFETY: pure arithmetic.
            let count = (len - unsafe { libc::CMSG_LEN(0) } as usize) / size_of::<RawFd>();
            for i in 0..count {
                // SAFETY: `count` descriptors lie in the data; each is new and ours alone.
                descriptors.push(unsafe {
                    OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<RawFd>().add(i).read_unaligned())
                });
            }
        }
        // SAFETY: as above.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    Ok((bytes, descriptors))
}

/// A shared, writable mapping of a descriptor, unmapped with the value.
#[derive(Debug)]
pub struct Mapped {
    base: *mut u8,
    bytes: usize,
}

impl Mapped {
    /// Maps the first `bytes` of `fd`.
    pub fn new(fd: &OwnedFd, bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { base: base.cast(), bytes }) }
    }

    /// Overwrites bytes at an offset.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.bytes));
        // SAFETY: within the mapping, by the line above; shared memory is reached only by copies.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(offset), bytes.len()) };
    }

    /// Copies bytes out.
    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.bytes));
        let mut out = vec![0; len];
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(self.base.add(offset), out.as_mut_ptr(), len) };
        out
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of which no reference is handed out.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// Sends bytes with descriptors beside them.
pub fn send_with(socket: &UnixStream, bytes: &[u8], descriptors: &[OwnedFd]) -> io::Result<()> {
    let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let mut control = [0u64; 16];
    // SAFETY: pure arithmetic.
    let space = unsafe { libc::CMSG_SPACE(size_of_val(raw.as_slice()) as u32) } as usize;
    assert!(space <= size_of_val(&control));
    let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros is a value of this struct of integers and pointers.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = space;
    // SAFETY: the control buffer has room for one header and its data, as asserted above.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of_val(raw.as_slice()) as u32) as usize;
        std::ptr::copy_nonoverlapping(raw.as_ptr().cast::<u8>(), libc::CMSG_DATA(header), size_of_val(raw.as_slice()));
    }
    // SAFETY: the message points to buffers above, of the lengths given.
    let n = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    match n {
        -1 => Err(io::Error::last_os_error()),
        n if n as usize == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// A new memfd of this size.
pub fn memfd(bytes: u64) -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string that lives through the call.
    let fd = unsafe { libc::memfd_create(c"tracebyte-test".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor just made, ours alone.
    let file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(bytes)?;
    Ok(file.into())
}

const BPF_PROG_LOAD: i64 = 5;
const BPF_PROG_TYPE_PERF_EVENT: u64 = 7;
/// `r0 = 0`, `exit`.
static EMPTY_PROGRAM: [u64; 2] = [0xb7, 0x95];

/// Loads a program for perf events that does nothing.
pub fn bpf_load_empty() -> io::Result<OwnedFd> {
    let mut attr = BpfAttr::default();
    attr.words[0] = BPF_PROG_TYPE_PERF_EVENT | (EMPTY_PROGRAM.len() as u64) << 32;
    attr.words[1] = EMPTY_PROGRAM.as_ptr() as u64;
    attr.words[2] = c"GPL".as_ptr() as u64;
    let fd = bpf(BPF_PROG_LOAD, &mut attr)?;
    // SAFETY: the kernel just gave us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

const PERF_TYPE_SOFTWARE: u64 = 1;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
const PERF_SAMPLE_RAW: u64 = 1 << 10;
const PERF_ATTR_FREQ: u64 = 1 << 10;
const PERF_FLAG_FD_CLOEXEC: u64 = 8;
const PERF_EVENT_IOC_SET_BPF: u64 = 0x4004_2408;
const PERF_EVENT_IOC_ENABLE: u64 = 0x2400;

/// Opens the software clock of a CPU at a frequency and runs a program on it.
pub fn perf_open_clock(cpu: usize, freq_hz: u64, program: &OwnedFd) -> io::Result<OwnedFd> {
    // The kernel's `perf_event_attr`: type and size, config, frequency, sample type, read
    // format, flags; zeros beyond.
    let mut attr = [0_u64; 16];
    let bytes = size_of_val(&attr) as u64;
    attr[..4].copy_from_slice(&[PERF_TYPE_SOFTWARE | bytes << 32, PERF_COUNT_SW_CPU_CLOCK, freq_hz, PERF_SAMPLE_RAW]);
    attr[5] = PERF_ATTR_FREQ;
    // SAFETY: the attribute says its own size and lives through the call.
    let fd =
        unsafe { libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), -1, cpu as i32, -1, PERF_FLAG_FD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor.
    let event = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    for (request, argument) in [(PERF_EVENT_IOC_SET_BPF, program.as_raw_fd()), (PERF_EVENT_IOC_ENABLE, 0)] {
        // SAFETY: both requests take a number, and no memory of ours.
        if unsafe { libc::ioctl(event.as_raw_fd(), request as libc::Ioctl, argument) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(event)
}

/// Pins the calling thread, and what it starts, to one CPU.
pub fn pin(cpu: usize) -> io::Result<()> {
    // SAFETY: `cpu_set_t` is plain bits, for which zeros are a value.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    if cpu >= 8 * size_of::<libc::cpu_set_t>() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no CPU {cpu}")));
    }
    // SAFETY: the index lies in the set (above).
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the pointer and the size describe `set`.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
