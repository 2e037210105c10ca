//! Memory: mappings that can be moved, and the question whether a descriptor is safe to map.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// A mapping that is unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    base: *mut libc::c_void,
    bytes: usize,
    /// The advice that gives the memory back: what is shared has to be taken from the file.
    punch: libc::c_int,
}

// SAFETY: a mapping is an address range; nothing in it belongs to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; what is stored in it is reached through atomics or by one owner.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` of a descriptor, shared, readable and writable.
    pub fn shared(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        Self::map(libc::MAP_SHARED, fd.as_raw_fd(), bytes)
    }

    /// Maps fresh memory that is this process's own, filled with zeros.
    pub fn private(bytes: usize) -> io::Result<Self> {
        Self::map(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, bytes)
    }

    fn map(flags: libc::c_int, fd: libc::c_int, bytes: usize) -> io::Result<Self> {
        let punch = if flags & libc::MAP_SHARED != 0 { libc::MADV_REMOVE } else { libc::MADV_DONTNEED };
        // SAFETY: without MAP_FIXED the kernel picks unused addresses, so nothing that exists changes.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) };
        if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { base, bytes, punch }) }
    }

    /// The first byte.
    pub fn base(&self) -> *mut u8 {
        self.base.cast()
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Touches every page now, so that memory which cannot be had is an error here and not
    /// a signal later. Kernels before 5.14 and memory that is always present answer EINVAL:
    /// nothing to do.
    pub fn populate(&self) -> io::Result<()> {
        // SAFETY: the range is this mapping; populating changes no content.
        let done = unsafe { libc::madvise(self.base, self.bytes, libc::MADV_POPULATE_WRITE) };
        match io::Error::last_os_error() {
            _ if done == 0 => Ok(()),
            error if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            error => Err(error),
        }
    }

    /// Gives the memory behind a part of a mapping back; it reads as zeros from now on.
    pub fn punch(&self, offset: usize, bytes: usize) -> io::Result<()> {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset);
        // SAFETY: the range lies in this mapping, which stays mapped.
        let done = unsafe { libc::madvise(self.base.byte_add(offset), bytes, self.punch) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Moves the mapping over `target`, in one step as other threads see it, whatever was
    /// mapped there before. On failure the mapping is gone and `target` is as it was, save
    /// for the failures the kernel meets too late, which leave a hole.
    ///
    /// # Safety
    /// `target` is aligned to the page size and the start of as many bytes that the caller
    /// owns and that hold nothing which must survive.
    pub unsafe fn move_over(self, target: *mut u8) -> io::Result<()> {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: the source is this mapping; the target is the caller's by the contract above.
        let moved = unsafe { libc::mremap(self.base, self.bytes, self.bytes, flags, target) };
        if moved == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        std::mem::forget(self);
        Ok(())
    }

    /// Unmaps in a child of `fork`, where other owners of this value exist only as memory of
    /// threads that are no more.
    pub fn unmap_in_child(&self) {
        // SAFETY: the range is this mapping; no thread of the child reaches it again, and the
        // caller sees to it that the value is not dropped.
        unsafe { libc::munmap(self.base, self.bytes) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping, and its last owner is gone.
        unsafe { libc::munmap(self.base, self.bytes) };
    }
}

/// Puts fresh zeros at `target`: the rescue after a `move_over` that failed too late.
///
/// # Safety
/// As for [`Mapping::move_over`].
pub unsafe fn zeros_over(target: *mut u8, bytes: usize) -> io::Result<()> {
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
    // SAFETY: the target is the caller's by the contract above.
    let base = unsafe { libc::mmap(target.cast(), bytes, protection, flags, -1, 0) };
    if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether `bytes` of a descriptor, once mapped, stay there: a file must have them and be
/// sealed against shrinking, or an access could end in a signal. What is no file (a BPF map)
/// checks the size itself when it is mapped.
pub fn check_stable(fd: BorrowedFd<'_>, bytes: usize) -> Result<(), Unstable> {
    // SAFETY: all zeros is a value of this plain C struct.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is borrowed, the struct is ours to fill.
    if unsafe { libc::fstat(fd.as_raw_fd(), &mut stat) } != 0 {
        return Err(Unstable::Stat(io::Error::last_os_error()));
    }
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Ok(());
    }
    if (stat.st_size as u64) < bytes as u64 {
        return Err(Unstable::Short { found: stat.st_size as u64, wanted: bytes as u64 });
    }
    // SAFETY: asks the kernel for a number.
    let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 { Err(Unstable::NotSealed) } else { Ok(()) }
}

/// Why a descriptor is not mapped.
#[derive(Debug, thiserror::Error)]
pub enum Unstable {
    /// It could not be looked at.
    #[error("cannot look at the descriptor")]
    Stat(#[source] io::Error),
    /// Too few bytes.
    #[error("the descriptor has {found} bytes, expected {wanted}")]
    Short {
        /// Bytes there are.
        found: u64,
        /// Bytes there must be.
        wanted: u64,
    },
    /// It could shrink under the process.
    #[error("the descriptor is not sealed against shrinking")]
    NotSealed,
}
