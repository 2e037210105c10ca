//! Memory that the agent makes and a process maps: pages and rings.
//!
//! Both are sealed against resizing before anybody else sees them, so that no access of
//! ours can fault, whatever the other side does.

use runtime_core_abi::page::{PAGE_BYTES, Page};
use runtime_core_abi::record::RECORD_BYTES_MAX;
use runtime_core_abi::ring::{self, Consumer, Drained, Ring};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A sealed memfd of so many bytes, all zero and none of them allocated yet.
pub fn sealed(name: &CStr, bytes: usize) -> io::Result<OwnedFd> {
    // SAFETY: `name` is a C string.
    let fd = super::check(unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) })?;
    // SAFETY: the kernel just made this descriptor, and nobody else knows it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: calls on our own descriptor; no memory is involved.
    unsafe {
        super::check(libc::ftruncate(fd.as_raw_fd(), bytes as libc::off_t))?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        super::check(libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals))?;
    }
    Ok(fd)
}

/// A shared, writable mapping; it ends with this value.
#[derive(Debug)]
struct Mapping {
    at: *mut u8,
    bytes: usize,
}

// SAFETY: a mapping is an address range of the whole process; what lies in it is reached
// through atomics or through the ring's one consumer.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing of ours.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED | libc::MAP_NORESERVE, fd.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { at: at.cast(), bytes }) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; whoever borrowed from it is gone.
        unsafe { libc::munmap(self.at.cast(), self.bytes) };
    }
}

/// A process's page, mapped here for as long as this value lives. The mapping is writable
/// from the start, which keeps the holder of the descriptor from freezing a BPF map.
#[derive(Debug)]
pub struct SharedPage {
    mapping: Mapping,
    fd: OwnedFd,
}

impl SharedPage {
    /// Maps a descriptor of [`PAGE_BYTES`] zeros and stamps it as a page.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let page = Self { mapping: Mapping::new(fd.as_fd(), PAGE_BYTES)?, fd };
        page.page().stamp();
        Ok(page)
    }

    /// The page itself, which its process writes too.
    pub fn page(&self) -> &Page {
        // SAFETY: the mapping has the size of a page, is aligned to the machine's pages
        // (4096 bytes), lives as long as `self`, and a `Page` is made of atomics alone.
        unsafe { &*self.mapping.at.cast::<Page>() }
    }
}

impl AsFd for SharedPage {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The event rings of a process, one a lane, and the one consumer of each.
#[derive(Debug)]
pub struct SharedRings {
    // Before the mapping they point into, so that they go first.
    consumers: Vec<Consumer>,
    mapping: Mapping,
    fd: OwnedFd,
    data_bytes: usize,
}

impl SharedRings {
    /// Makes rings for `lanes` lanes of `data_bytes` each. Memory is allocated by use only.
    pub fn new(lanes: usize, data_bytes: usize) -> io::Result<Self> {
        assert!(ring::data_bytes_valid(data_bytes));
        let bytes = ring::memory_bytes(lanes, data_bytes);
        let fd = sealed(c"tracebyte-rings", bytes)?;
        let mapping = Mapping::new(fd.as_fd(), bytes)?;
        Ok(Self { consumers: Vec::new(), mapping, fd, data_bytes })
    }

    /// Maps rings that an agent made.
    #[cfg(test)]
    pub fn map(fd: OwnedFd, lanes: usize, data_bytes: usize) -> io::Result<Self> {
        let mapping = Mapping::new(fd.as_fd(), ring::memory_bytes(lanes, data_bytes))?;
        Ok(Self { consumers: Vec::new(), mapping, fd, data_bytes })
    }

    /// The writing side of a lane, for as long as `self` lives.
    #[cfg(test)]
    pub fn producer(&self, lane: usize) -> ring::Producer {
        assert!(lane < self.lanes());
        // SAFETY: the lane lies inside the mapping; tests keep it, and have one producer a lane.
        ring::Producer::new(unsafe {
            Ring::at(self.mapping.at.add(ring::lane_offset(lane, self.data_bytes)), self.data_bytes)
        })
    }

    /// Bytes of data in each ring.
    pub fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    /// Rings in this memory.
    pub fn lanes(&self) -> usize {
        self.mapping.bytes / ring::memory_bytes(1, self.data_bytes)
    }

    /// Starts to read: what is counted as lost from now on is seen by [`SharedRings::drain`].
    /// The first call touches every ring's header; until then the rings cost nothing.
    pub fn open(&mut self) {
        if !self.consumers.is_empty() {
            return;
        }
        let open = |lane| {
            // SAFETY: the lane lies inside the mapping, which is aligned and outlives the
            // consumers; the data size was checked; and these are its only consumers.
            Consumer::new(unsafe {
                Ring::at(self.mapping.at.add(ring::lane_offset(lane, self.data_bytes)), self.data_bytes)
            })
        };
        self.consumers = (0..self.lanes()).map(open).collect();
    }

    /// Takes what is in a lane's ring, in parts of whole records ([`Consumer::drain`]).
    pub fn drain(&mut self, lane: usize, append: impl FnMut(&[u8])) -> Drained {
        self.consumers.get_mut(lane).map(|consumer| consumer.drain(append)).unwrap_or_default()
    }

    /// Gives the memory of what was read back to the kernel. A thread may be in the middle
    /// of one last record, so the room for it is left alone.
    pub fn release(&self) {
        for (lane, consumer) in self.consumers.iter().enumerate() {
            if consumer.position() > 0 {
                let data = ring::lane_offset(lane, self.data_bytes) + ring::HEADER_BYTES;
                for (from, to) in unused(consumer.position() as usize & (self.data_bytes - 1), self.data_bytes) {
                    self.punch(data + from, to - from);
                }
            }
        }
        // SAFETY: drops our view of shared memory; the memory itself keeps its contents.
        unsafe { libc::madvise(self.mapping.at.cast(), self.mapping.bytes, libc::MADV_DONTNEED) };
    }

    fn punch(&self, offset: usize, bytes: usize) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a call on our own descriptor, with data that was consumed. Where it
        // fails the memory just stays in use.
        unsafe { libc::fallocate(self.fd.as_raw_fd(), mode, offset as libc::off_t, bytes as libc::off_t) };
    }
}

impl AsFd for SharedRings {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The parts of a ring's data that no record in flight can reach: all but two of the
/// longest records from `at` on, around the end, in whole pages of 4096 bytes.
fn unused(at: usize, data_bytes: usize) -> [(usize, usize); 2] {
    let keep_from = at & !4095;
    let keep_to = (at + 2 * RECORD_BYTES_MAX).next_multiple_of(4096);
    if keep_to <= data_bytes {
        [(0, keep_from), (keep_to, data_bytes)]
    } else {
        [(keep_to - data_bytes, keep_from), (0, 0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime_core_abi::record::Head;
    use runtime_core_abi::ring::DATA_BYTES_MIN;

    #[test]
    fn a_sealed_memory_cannot_be_resized() {
        let fd = sealed(c"test", 4096).unwrap();
        let file = std::fs::File::from(fd);
        assert!(file.set_len(0).is_err());
        assert!(file.set_len(8192).is_err());
    }

    #[test]
    fn the_room_of_a_record_in_flight_is_left_alone() {
        let data = DATA_BYTES_MIN;
        for at in (0..data).step_by(1000) {
            for (from, to) in unused(at, data) {
                assert!(from <= to && to <= data);
                let reach = (0..RECORD_BYTES_MAX).map(|step| (at + step) % data);
                assert!(reach.clone().all(|byte| byte < from || byte >= to), "at {at}");
            }
        }
    }

    #[test]
    fn released_rings_go_on() {
        let mut rings = SharedRings::new(2, DATA_BYTES_MIN).unwrap();
        rings.open();
        let copy = rings.as_fd().try_clone_to_owned().unwrap();
        let other = SharedRings::map(copy, 2, DATA_BYTES_MIN).unwrap();
        let mut producer = other.producer(1);
        let head = Head { phase: b'i', ..Head::default() };
        for _ in 0..1000 {
            assert!(producer.push(&head, b"event", &[]));
            assert_eq!(rings.drain(0, |_| ()).bytes, 0);
            assert!(rings.drain(1, |_| ()).bytes > 0);
            rings.release();
        }
    }
}
