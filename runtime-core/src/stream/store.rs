//! The memory that small chunks are copied into, one behind the other, so that the kernel gets
//! them as one slice. A thread's streams take it from one another: a stream that has nothing
//! queued holds none.

use std::cell::Cell;

/// The first size of a store, in bytes; it grows by doubling.
const FIRST_BYTES: usize = 16 * 1024;
/// A store larger than this is given back to the allocator, not to other streams, in bytes.
const SPARE_BYTES_MAX: usize = 256 * 1024;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Copied bytes that wait: those from `start` to `end`.
#[derive(Debug, Default)]
pub(super) struct Store {
    /// Initialised to its full length, so that room in it is a slice.
    memory: Vec<u8>,
    start: usize,
    end: usize,
    /// Where bytes that are added without a question have to end before; 0 where there are
    /// none such. One compare with it stands for all that a stream would have to ask.
    open_to: usize,
}

impl Store {
    /// Bytes that wait.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// The bytes that wait, from the one at `from` on.
    #[inline]
    pub fn bytes(&self, from: usize) -> &[u8] {
        &self.memory[self.start + from..self.end]
    }

    /// Adds bytes if they end in the open room; `false`: they do not.
    #[inline(always)]
    pub fn try_put(&mut self, bytes: &[u8]) -> bool {
        let end = self.end + bytes.len();
        if end >= self.open_to {
            return false;
        }
        let Some(place) = self.memory.get_mut(self.end..end) else { return false };
        copy_few(place, bytes);
        self.end = end;
        true
    }

    /// Opens room for fewer than `len` bytes to [`try_put`](Self::try_put), until the store
    /// changes otherwise or is closed.
    pub fn open(&mut self, len: usize) {
        self.open_to = self.end.saturating_add(len).min(self.memory.len());
    }

    /// Closes the open room.
    #[inline]
    pub fn close(&mut self) {
        self.open_to = 0;
    }

    /// Adds what `fill` writes to the front of `len_max` bytes of room; it returns how much.
    pub fn put_with(&mut self, len_max: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> usize {
        self.close();
        if self.memory.len() - self.end < len_max {
            self.make_room(len_max);
        }
        let len = fill(&mut self.memory[self.end..][..len_max]);
        self.end += len;
        len
    }

    #[cold]
    fn make_room(&mut self, len: usize) {
        if self.memory.is_empty() {
            self.memory = SPARE.take();
        }
        // Moving less than what is free by it costs less than it brings.
        if self.start > self.len() {
            self.memory.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.len());
        }
        let needed = self.end + len;
        if needed > self.memory.len() {
            self.memory.resize(needed.next_power_of_two().max(FIRST_BYTES), 0);
        }
    }

    /// Takes bytes off the front.
    #[inline]
    pub fn take(&mut self, len: usize) {
        self.close();
        self.start += len;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Leaves the memory of an empty store to the next stream that needs some.
    #[inline]
    pub fn release(&mut self) {
        if !self.memory.is_empty() {
            debug_assert_eq!(self.len(), 0);
            let memory = std::mem::take(&mut self.memory);
            if memory.len() <= SPARE_BYTES_MAX {
                // At the thread's very end it is freed instead.
                let _ = SPARE.try_with(|spare| spare.set(memory));
            }
        }
    }
}

/// Copies a few bytes as two runs that may overlap: a call of `memcpy` takes longer than the
/// copy itself. Both slices are of one length.
#[inline(always)]
fn copy_few(to: &mut [u8], from: &[u8]) {
    fn runs<const N: usize>(to: &mut [u8], from: &[u8]) -> Option<()> {
        let (first, last) = (from.first_chunk::<N>()?, from.last_chunk::<N>()?);
        *to.first_chunk_mut::<N>()? = *first;
        *to.last_chunk_mut::<N>()? = *last;
        Some(())
    }
    let done = match from.len() {
        4..=8 => runs::<4>(to, from),
        9..=16 => runs::<8>(to, from),
        17..=32 => runs::<16>(to, from),
        33..=64 => runs::<32>(to, from),
        _ => None,
    };
    if done.is_none() {
        to.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn every_length_is_copied_whole() {
        for len in 0..200 {
            let bytes: Vec<u8> = (0..len).map(|at| at as u8 + 1).collect();
            let mut to = vec![0; len];
            copy_few(&mut to, &bytes);
            assert_eq!(to, bytes);
        }
    }

    #[test]
    fn bytes_come_out_as_they_went_in_while_the_store_moves_and_grows() {
        let (mut store, mut expected, mut next) = (Store::default(), VecDeque::new(), 0_u8);
        let mut most = FIRST_BYTES;
        for turn in 0..2_000 {
            for _ in 0..turn % 97 {
                next = next.wrapping_mul(7).wrapping_add(1);
                let chunk = [next; 37];
                if !store.try_put(&chunk) {
                    store.put_with(chunk.len(), |room| {
                        room.copy_from_slice(&chunk);
                        chunk.len()
                    });
                    store.open(500);
                }
                expected.extend(chunk);
            }
            most = most.max(store.len());
            let taken = store.len().min(turn * 2);
            assert!(store.bytes(0)[..taken].iter().copied().eq(expected.drain(..taken)));
            store.take(taken);
        }
        assert!(store.memory.len() <= 4 * most, "free room is used again");
    }

    #[test]
    fn bytes_without_a_question_end_before_the_open_room_does() {
        let mut store = Store::default();
        assert!(!store.try_put(b"a"));
        store.put_with(3, |_| 3);
        store.open(3);
        assert!(store.try_put(b"ab") && !store.try_put(b"c") && store.try_put(b""));
        store.open(usize::MAX);
        assert!(store.try_put(&[0; 1000]) && !store.try_put(&[0; FIRST_BYTES]));
        store.take(1);
        assert!(!store.try_put(b""), "what changes the store closes it");
    }

    #[test]
    fn an_empty_store_leaves_its_memory_to_the_next() {
        let mut first = Store::default();
        first.put_with(100, |_| 100);
        let memory = first.memory.as_ptr();
        first.take(100);
        first.release();
        let mut second = Store::default();
        second.put_with(1, |_| 1);
        assert_eq!((second.memory.as_ptr(), first.memory.len()), (memory, 0));
    }
}
