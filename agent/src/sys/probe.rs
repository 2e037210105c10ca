//! Small attempts at what the agent needs of the kernel: each asks for one thing, keeps
//! nothing, and returns the kernel's own answer.

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_MAP_TYPE_RINGBUF: u32 = 27;
const BPF_F_MMAPABLE: u32 = 1 << 10;
const BPF_PROG_TYPE_PERF_EVENT: u32 = 7;
const BPF_PROG_TYPE_TRACING: u32 = 26;
const BPF_TRACE_FENTRY: u32 = 24;
const PERF_TYPE_HARDWARE: u32 = 0;
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_HW_CPU_CYCLES: u64 = 0;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
const ATTR_DISABLED: u64 = 1 << 0;
const ATTR_EXCLUDE_KERNEL: u64 = 1 << 5;
const ATTR_EXCLUDE_HV: u64 = 1 << 6;

/// The part of `union bpf_attr` that creates a map.
#[repr(C)]
#[derive(Default)]
struct MapAttr {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

/// The part of `union bpf_attr` that loads a program.
#[repr(C)]
#[derive(Default)]
struct ProgAttr {
    kind: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
}

/// `struct perf_event_attr` as of its second version: enough for every attempt.
#[repr(C)]
#[derive(Default)]
struct PerfAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
}

/// `r0 = 0; exit`, with the opcode in the lowest byte of each instruction.
const RETURN_ZERO: [u64; 2] = [0xb7, 0x95];

/// Creates an array of one page that user space can map: the shared page of a process.
pub fn mmapable_array() -> io::Result<()> {
    create_map(MapAttr {
        kind: BPF_MAP_TYPE_ARRAY,
        key_size: 4,
        value_size: 4096,
        max_entries: 1,
        flags: BPF_F_MMAPABLE,
    })
}

/// Creates a plain array: whether eBPF maps may be made at all.
pub fn array() -> io::Result<()> {
    create_map(MapAttr { kind: BPF_MAP_TYPE_ARRAY, key_size: 4, value_size: 8, max_entries: 1, flags: 0 })
}

/// Creates a ring buffer, which carries samples to the agent.
pub fn ring_buffer() -> io::Result<()> {
    create_map(MapAttr { kind: BPF_MAP_TYPE_RINGBUF, max_entries: 64 * 1024, ..MapAttr::default() })
}

/// Loads an empty program of the sampler's type.
pub fn perf_event_program() -> io::Result<()> {
    load(ProgAttr { kind: BPF_PROG_TYPE_PERF_EVENT, ..ProgAttr::default() })
}

/// Loads an empty fentry program for the kernel function with this BTF id.
pub fn fentry_program(attach_btf_id: u32) -> io::Result<()> {
    load(ProgAttr {
        kind: BPF_PROG_TYPE_TRACING,
        expected_attach_type: BPF_TRACE_FENTRY,
        attach_btf_id,
        ..ProgAttr::default()
    })
}

/// Opens a software clock on one CPU for every process, with or without kernel samples.
pub fn cpu_clock(cpu: u32, kernel: bool) -> io::Result<()> {
    open_on_cpu(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, cpu, kernel)
}

/// Opens a hardware cycle counter on one CPU for every process.
pub fn cycles(cpu: u32) -> io::Result<()> {
    open_on_cpu(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, cpu, true)
}

/// Opens a uprobe, switched off, on this program's own entry point, which never runs again.
pub fn uprobe(pmu_type: u32, path: &str, offset: u64) -> io::Result<()> {
    let path = CString::new(path)?;
    let attr = PerfAttr {
        kind: pmu_type,
        flags: ATTR_DISABLED,
        config1: path.as_ptr() as u64,
        config2: offset,
        ..PerfAttr::default()
    };
    open(attr, 0, -1)
}

fn create_map(attr: MapAttr) -> io::Result<()> {
    // SAFETY: `attr` is a live `repr(C)` value without padding, laid out as the kernel's
    // map-creating attributes, and the size is its own.
    owned(unsafe { libc::syscall(libc::SYS_bpf, BPF_MAP_CREATE, &raw const attr, size_of::<MapAttr>()) })
}

fn load(mut attr: ProgAttr) -> io::Result<()> {
    attr.insn_cnt = RETURN_ZERO.len() as u32;
    attr.insns = RETURN_ZERO.as_ptr() as u64;
    attr.license = c"GPL".as_ptr() as u64;
    // SAFETY: `attr` is a live `repr(C)` value without padding, laid out as the kernel's
    // program-loading attributes; its two pointers are to constants, which live for ever.
    owned(unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const attr, size_of::<ProgAttr>()) })
}

fn open_on_cpu(kind: u32, config: u64, cpu: u32, kernel: bool) -> io::Result<()> {
    let exclude = if kernel { 0 } else { ATTR_EXCLUDE_KERNEL | ATTR_EXCLUDE_HV };
    let attr =
        PerfAttr { kind, config, sample_period: 1_000_000, flags: ATTR_DISABLED | exclude, ..PerfAttr::default() };
    open(attr, -1, cpu as libc::c_int)
}

fn open(mut attr: PerfAttr, pid: libc::pid_t, cpu: libc::c_int) -> io::Result<()> {
    const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
    attr.size = size_of::<PerfAttr>() as u32;
    // SAFETY: `attr` is a live `repr(C)` value whose `size` is its own; a path in it is
    // kept alive by the caller until this returns.
    owned(unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC) })
}

/// Closes what an attempt opened; an error otherwise.
fn owned(returned: libc::c_long) -> io::Result<()> {
    if returned < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, and nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(returned as libc::c_int) };
    debug_assert!(fd.as_raw_fd() >= 0);
    Ok(())
}

/// The soft and hard limit of locked memory, in bytes.
pub fn memlock() -> io::Result<(u64, u64)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a live value that the call fills in.
    match unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } {
        0 => Ok((limit.rlim_cur, limit.rlim_max)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether this process may write to a path, by its effective user.
pub fn may_write(path: &std::path::Path) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `path` is a live, null-terminated string.
    match unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK | libc::X_OK, libc::AT_EACCESS) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
