//! The event ring of one lane: one producer (the lane's thread), one consumer (the
//! agent), neither ever waits for the other.
//!
//! Positions are byte counts that only grow. Each side keeps its own position privately
//! and publishes it; what it reads of the other's is checked, because the other side can
//! write anything. What does not fit is counted by the producer, exactly.

use crate::record::{self, Head, Value};
use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes before a ring's data, so that data begins on a page of its own.
pub const HEADER_BYTES: usize = 4096;
/// The smallest and the largest data part of a ring, in bytes; a power of two.
pub const DATA_BYTES_MIN: usize = 64 * 1024;
/// See [`DATA_BYTES_MIN`].
pub const DATA_BYTES_MAX: usize = 4 * 1024 * 1024;

const _: () = assert!(record::RECORD_BYTES_MAX * 2 <= DATA_BYTES_MIN);

/// The words that both sides see, each in a cache line of its own.
#[repr(C, align(4096))]
pub struct Header {
    head: Line,
    tail: Line,
    lost: Line,
}

#[repr(C, align(64))]
struct Line(AtomicU64);

const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

/// Whether this build takes a ring with so many bytes of data.
pub const fn data_bytes_valid(bytes: usize) -> bool {
    bytes.is_power_of_two() && bytes >= DATA_BYTES_MIN && bytes <= DATA_BYTES_MAX
}

/// Size in bytes of a memory with one ring for each lane.
pub const fn memory_bytes(lanes: usize, data_bytes: usize) -> usize {
    lanes * (HEADER_BYTES + data_bytes)
}

/// Where the ring of a lane begins in that memory.
pub const fn lane_offset(lane: usize, data_bytes: usize) -> usize {
    lane * (HEADER_BYTES + data_bytes)
}

/// One ring in mapped memory.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    header: *const Header,
    data: *mut u8,
    bytes: usize,
}

// SAFETY: a ring is an address; what it points to is shared memory that is reached through
// atomics (the header) or by the one producer and the one consumer (the data).
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// The ring at `base`, a [`Header`] followed by `data_bytes` of data.
    ///
    /// # Safety
    /// `base` is aligned to 4096 and readable and writable for `HEADER_BYTES + data_bytes`
    /// for as long as this value or a copy is used; `data_bytes` is valid
    /// ([`data_bytes_valid`]). At most one producer writes and one consumer reads.
    pub unsafe fn at(base: *mut u8, data_bytes: usize) -> Self {
        debug_assert!(data_bytes_valid(data_bytes) && (base as usize).is_multiple_of(HEADER_BYTES));
        // SAFETY: in bounds by the caller's promise.
        let data = unsafe { base.add(HEADER_BYTES) };
        Self { header: base.cast(), data, bytes: data_bytes }
    }

    fn header(&self) -> &Header {
        // SAFETY: `at` was promised a mapped, aligned header, made of atomics alone.
        unsafe { &*self.header }
    }

    fn offset(&self, position: u64) -> usize {
        position as usize & (self.bytes - 1)
    }
}

/// The writing side, owned by the lane's thread.
#[derive(Debug)]
pub struct Producer {
    ring: Ring,
    head: u64,
    tail_seen: u64,
    lost: u64,
}

impl Producer {
    /// Goes on where the ring's last producer stopped.
    pub fn new(ring: Ring) -> Self {
        let head = ring.header().head.0.load(Ordering::Relaxed) & !7;
        let lost = ring.header().lost.0.load(Ordering::Relaxed);
        let tail_seen = ring.header().tail.0.load(Ordering::Acquire);
        Self { ring, head, tail_seen, lost }
    }

    /// Writes one event. `false`: it did not fit and was counted as lost.
    #[inline]
    pub fn push(&mut self, head: &Head, name: &[u8], args: &[(&str, Value<'_>)]) -> bool {
        let written = self.try_push(head, name, args);
        if !written {
            self.lose();
        }
        written
    }

    /// Counts an event that the producer did not even try to write, such as the end of an
    /// operation whose beginning was lost.
    pub fn lose(&mut self) {
        self.lost += 1;
        self.ring.header().lost.0.store(self.lost, Ordering::Release);
    }

    #[inline]
    fn try_push(&mut self, head: &Head, name: &[u8], args: &[(&str, Value<'_>)]) -> bool {
        let at = self.ring.offset(self.head);
        let to_end = self.ring.bytes - at;
        if let Some(size) = self.encode_at(at, to_end, head, name, args) {
            self.publish(size);
            return true;
        }
        // Not before the end of the data: fill up to it, and try again from its start.
        let Some(room) = self.free(to_end) else { return false };
        if room < to_end || to_end >= record::RECORD_BYTES_MAX {
            return false;
        }
        let Some(size) = self.encode_after_padding(at, to_end, head, name, args) else { return false };
        self.publish(to_end + size);
        true
    }

    fn encode_after_padding(
        &mut self,
        at: usize,
        to_end: usize,
        head: &Head,
        name: &[u8],
        args: &[(&str, Value<'_>)],
    ) -> Option<usize> {
        let room = self.free(to_end + record::RECORD_BYTES_MAX)?.checked_sub(to_end)?;
        let out = self.slice(0, room.min(self.ring.bytes));
        let size = record::encode(head, name, args, out)?;
        let padding = self.slice(at, 8);
        padding[..4].copy_from_slice(&(to_end as u32).to_le_bytes());
        padding[4..].copy_from_slice(&[record::PHASE_PADDING, 0, 0, 0]);
        Some(size)
    }

    #[inline]
    fn encode_at(
        &mut self,
        at: usize,
        to_end: usize,
        head: &Head,
        name: &[u8],
        args: &[(&str, Value<'_>)],
    ) -> Option<usize> {
        let room = self.free(record::RECORD_BYTES_MAX)?.min(to_end);
        record::encode(head, name, args, self.slice(at, room))
    }

    /// Bytes free after the head. The consumer's position is read again only when what
    /// was seen of it leaves less than `wanted`. `None` where it is garbage.
    #[inline]
    fn free(&mut self, wanted: usize) -> Option<usize> {
        let free = |tail: u64| (self.ring.bytes as u64).checked_sub(self.head.wrapping_sub(tail));
        match free(self.tail_seen) {
            Some(room) if room as usize >= wanted => Some(room as usize),
            _ => {
                let tail = self.ring.header().tail.0.load(Ordering::Acquire);
                let room = free(tail)?;
                self.tail_seen = tail;
                Some(room as usize)
            }
        }
    }

    fn slice(&mut self, at: usize, len: usize) -> &mut [u8] {
        debug_assert!(at + len <= self.ring.bytes);
        // SAFETY: in the mapped data (above); these bytes lie between head and tail, which
        // the consumer does not read before `publish`, and `self` is the one producer.
        unsafe { core::slice::from_raw_parts_mut(self.ring.data.add(at), len) }
    }

    #[inline]
    fn publish(&mut self, size: usize) {
        self.head += size as u64;
        self.ring.header().head.0.store(self.head, Ordering::Release);
    }
}

/// What a process's counter of losses says was lost between two looks. One that goes
/// backwards, or further than any process gets in a day, is garbage: it says nothing.
pub fn lost_since(seen: u64, now: u64) -> u64 {
    const PLAUSIBLE_MAX: u64 = 1 << 40;
    now.checked_sub(seen).filter(|lost| *lost <= PLAUSIBLE_MAX).unwrap_or(0)
}

/// The reading side, owned by the agent.
#[derive(Debug)]
pub struct Consumer {
    ring: Ring,
    tail: u64,
    lost_seen: u64,
}

/// What one look at a ring brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Bytes appended to the buffer.
    pub bytes: usize,
    /// Events lost since the last look.
    pub lost: u64,
    /// The producer's position made no sense; what was in the ring is dropped.
    pub garbage: bool,
}

impl Consumer {
    /// Starts at the ring's present tail: for a new ring its beginning.
    pub fn new(ring: Ring) -> Self {
        let tail = ring.header().tail.0.load(Ordering::Relaxed);
        let lost_seen = ring.header().lost.0.load(Ordering::Relaxed);
        Self { ring, tail, lost_seen }
    }

    /// How many bytes were taken since the ring was new.
    pub fn position(&self) -> u64 {
        self.tail
    }

    /// Whether something is there to take. One load.
    pub fn is_empty(&self) -> bool {
        self.ring.header().head.0.load(Ordering::Acquire) == self.tail
    }

    /// Copies all that was published to the end of `out`'s used part through `append`, so
    /// that nothing is decoded in memory the process can still change. `append` is called
    /// at most twice, with records whole in each part.
    pub fn drain(&mut self, mut append: impl FnMut(&[u8])) -> Drained {
        let head = self.ring.header().head.0.load(Ordering::Acquire);
        let lost = self.ring.header().lost.0.load(Ordering::Acquire);
        let mut drained = Drained { lost: lost_since(self.lost_seen, lost), ..Drained::default() };
        self.lost_seen = lost;
        let available = head.wrapping_sub(self.tail);
        if available > self.ring.bytes as u64 || !available.is_multiple_of(8) {
            drained.garbage = true;
        } else if available > 0 {
            let at = self.ring.offset(self.tail);
            let first = (available as usize).min(self.ring.bytes - at);
            append(self.slice(at, first));
            if first < available as usize {
                append(self.slice(0, available as usize - first));
            }
            drained.bytes = available as usize;
        }
        if drained.garbage || drained.bytes > 0 {
            self.tail = head;
            self.ring.header().tail.0.store(head, Ordering::Release);
        }
        drained
    }

    fn slice(&self, at: usize, len: usize) -> &[u8] {
        debug_assert!(at + len <= self.ring.bytes);
        // SAFETY: in the mapped data, published by the producer and not yet released to it.
        // A hostile process can still write there: callers only copy the bytes out, and
        // decode the copy.
        unsafe { core::slice::from_raw_parts(self.ring.data.add(at), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::vec::Vec;

    struct Memory(*mut u8, Layout);

    impl Memory {
        fn new() -> Self {
            let layout = Layout::from_size_align(memory_bytes(1, DATA_BYTES_MIN), 4096).unwrap();
            // SAFETY: the layout has a size.
            Self(unsafe { alloc_zeroed(layout) }, layout)
        }

        fn ring(&self) -> Ring {
            // SAFETY: the memory has room for one ring, is aligned, and outlives the test's rings.
            unsafe { Ring::at(self.0, DATA_BYTES_MIN) }
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: allocated above with this layout.
            unsafe { dealloc(self.0, self.1) }
        }
    }

    fn ids(consumer: &mut Consumer) -> (Vec<u64>, Drained) {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let drained = consumer.drain(|bytes| parts.push(bytes.to_vec()));
        let mut ids = Vec::new();
        for part in &parts {
            let mut rest = &part[..];
            while !rest.is_empty() {
                let (record, size) = record::decode(rest).unwrap();
                ids.extend(record.map(|record| record.head.id));
                rest = &rest[size..];
            }
        }
        (ids, drained)
    }

    fn head(id: u64) -> Head {
        Head { phase: b'i', id, ..Head::default() }
    }

    #[test]
    fn a_full_ring_counts_exactly_what_it_lost() {
        let memory = Memory::new();
        let (mut producer, mut consumer) = (Producer::new(memory.ring()), Consumer::new(memory.ring()));
        let kept = (0..5000).filter(|id| producer.push(&head(*id), b"event", &[])).count();
        let (ids, drained) = ids(&mut consumer);
        assert_eq!(ids, (0..kept as u64).collect::<Vec<_>>());
        assert_eq!(drained.lost, 5000 - kept as u64);
        assert!(kept < 5000);
        assert!(producer.push(&head(1), b"event", &[]), "room again after the drain");
    }

    #[test]
    fn garbage_positions_are_dropped_and_said() {
        let memory = Memory::new();
        let (mut producer, mut consumer) = (Producer::new(memory.ring()), Consumer::new(memory.ring()));
        memory.ring().header().head.0.store(u64::MAX - 3, Ordering::Relaxed);
        assert!(ids(&mut consumer).1.garbage);
        memory.ring().header().tail.0.store(12345, Ordering::Relaxed);
        for id in 0..10_000 {
            producer.push(&head(id), b"event", &[]);
        }
    }

    #[test]
    fn garbage_losses_are_not_counted() {
        let memory = Memory::new();
        let mut consumer = Consumer::new(memory.ring());
        for (now, counted) in [(5, 5), (u64::MAX, 0), (7, 0), (9, 2)] {
            memory.ring().header().lost.0.store(now, Ordering::Relaxed);
            assert_eq!(consumer.drain(|_| ()).lost, counted, "{now}");
        }
    }

    #[test]
    fn a_new_producer_goes_on_where_the_last_one_stopped() {
        let memory = Memory::new();
        let mut consumer = Consumer::new(memory.ring());
        Producer::new(memory.ring()).push(&head(1), b"a", &[]);
        Producer::new(memory.ring()).push(&head(2), b"b", &[]);
        assert_eq!(ids(&mut consumer).0, [1, 2]);
        assert!(consumer.is_empty());
    }

    proptest! {
        // Sizes up to the longest record, so that the end of the data is met at every offset.
        #[test]
        fn every_event_arrives_once_in_order_or_is_counted(
            sizes in proptest::collection::vec((0usize..4090, any::<bool>()), 1..120)
        ) {
            let memory = Memory::new();
            let (mut producer, mut consumer) = (Producer::new(memory.ring()), Consumer::new(memory.ring()));
            let (mut expected, mut seen, mut lost) = (Vec::new(), Vec::new(), 0);
            let text = [b'x'; 4096];
            for (id, (size, drain)) in sizes.iter().enumerate() {
                if producer.push(&head(id as u64), b"n", &[("text", Value::Str(&text[..*size]))]) {
                    expected.push(id as u64);
                }
                if *drain {
                    let (more, drained) = ids(&mut consumer);
                    seen.extend(more);
                    lost += drained.lost;
                }
            }
            let (more, drained) = ids(&mut consumer);
            seen.extend(more);
            lost += drained.lost;
            prop_assert_eq!(&seen, &expected);
            prop_assert_eq!(lost as usize, sizes.len() - expected.len());
        }
    }
}
