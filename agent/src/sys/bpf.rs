//! The three `bpf()` commands that pages need, raw: these maps carry no BTF, which old
//! kernels demand of maps that are to be put into another map.

use runtime_core_abi::page::PAGE_BYTES;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_GET_FD_BY_ID: libc::c_long = 14;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_F_MMAPABLE: u32 = 1 << 10;

/// The kernel's `union bpf_attr` for `BPF_MAP_CREATE`, up to the map's name.
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    map_name: [u8; 16],
}

#[repr(C)]
struct GetById {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

#[repr(C)]
struct InfoByFd {
    fd: u32,
    info_len: u32,
    info: u64,
}

/// Makes an array map of one page that processes can map.
pub fn create_page() -> io::Result<OwnedFd> {
    let attr = MapCreate {
        map_type: BPF_MAP_TYPE_ARRAY,
        key_size: 4,
        value_size: PAGE_BYTES as u32,
        max_entries: 1,
        map_flags: BPF_F_MMAPABLE,
        inner_map_fd: 0,
        numa_node: 0,
        map_name: *b"tracebyte_page\0\0",
    };
    let fd = bpf(BPF_MAP_CREATE, &attr)?;
    // SAFETY: the kernel just made this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The kernel's id of a map.
pub fn map_id(map: BorrowedFd<'_>) -> io::Result<u32> {
    // `struct bpf_map_info` begins with the type and the id; the kernel writes as much of
    // it as there is room for.
    let mut info = [0u32; 2];
    let attr = InfoByFd {
        fd: map.as_raw_fd() as u32,
        info_len: size_of_val(&info) as u32,
        info: (&raw mut info).addr() as u64,
    };
    (&raw mut info).expose_provenance();
    bpf(BPF_OBJ_GET_INFO_BY_FD, &attr)?;
    // SAFETY: our own array, which the kernel has filled; read anew since it did so
    // through an address the compiler did not see passed.
    let [_, id] = unsafe { (&raw const info).read_volatile() };
    Ok(id)
}

/// Whether a map with this id still exists. Ids are not used again soon. Where the kernel
/// does not let us ask, the answer is yes.
pub fn map_lives(id: u32) -> bool {
    match bpf(BPF_MAP_GET_FD_BY_ID, &GetById { id, next_id: 0, open_flags: 0 }) {
        Ok(fd) => {
            // SAFETY: the kernel just made this descriptor, and nobody else knows it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            true
        }
        Err(error) => error.raw_os_error() != Some(libc::ENOENT),
    }
}

fn bpf<T>(command: libc::c_long, attr: &T) -> io::Result<libc::c_int> {
    // SAFETY: `attr` is a readable prefix of `union bpf_attr` of the size given; the kernel
    // takes what is missing as zeros.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attr), size_of::<T>()) };
    super::check(result as libc::c_int)
}

/// Whether pages can be BPF maps here; else why not.
pub fn probe_page() -> io::Result<()> {
    let page = super::memfd::SharedPage::new(create_page()?)?;
    map_id(page.as_fd()).map(drop)
}
