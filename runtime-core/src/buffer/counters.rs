//! What a thread's buffers cost: counts by home, plain additions, no atomics.
//!
//! A thread counts what **it** does. A buffer that is made on one thread and dropped on
//! another is counted as made here and as dropped there, so live figures are right for the
//! sum over threads ([`Counters`] can be added up), not for each thread alone.

use super::home::IN_PLACE_BYTES_MAX;
use std::{
    cell::Cell,
    ops::{Add, AddAssign},
};

/// Buffers of one home, as one thread has counted them. All values only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Handles made: new buffers, clones and slices.
    pub made: u64,
    /// Bytes that those handles showed when they were made.
    pub made_bytes: u64,
    /// Handles dropped. Not counted in place, where a drop does nothing.
    pub dropped: u64,
    /// Bytes that those handles showed, and what a handle ceased to show when it was cut.
    pub dropped_bytes: u64,
    /// Memory that only handles keep alive, in bytes: allocations of their own, and chunks
    /// that their pool has done with while buffers were still in them.
    pub kept_bytes: u64,
    /// The part of `kept_bytes` that has been freed.
    pub released_bytes: u64,
}

impl Tally {
    /// Handles that are alive.
    pub fn live(&self) -> u64 {
        self.made.wrapping_sub(self.dropped)
    }

    /// Bytes that live handles show; shared bytes count once for each handle.
    pub fn live_bytes(&self) -> u64 {
        self.made_bytes.wrapping_sub(self.dropped_bytes)
    }

    /// Bytes of memory that only live handles keep from being freed. Much more than
    /// [`live_bytes`](Self::live_bytes) says that small slices hold large memory.
    pub fn held_bytes(&self) -> u64 {
        self.kept_bytes.wrapping_sub(self.released_bytes)
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.made = self.made.wrapping_add(other.made);
        self.made_bytes = self.made_bytes.wrapping_add(other.made_bytes);
        self.dropped = self.dropped.wrapping_add(other.dropped);
        self.dropped_bytes = self.dropped_bytes.wrapping_add(other.dropped_bytes);
        self.kept_bytes = self.kept_bytes.wrapping_add(other.kept_bytes);
        self.released_bytes = self.released_bytes.wrapping_add(other.released_bytes);
    }
}

/// A thread's counts, by home. Empty and static buffers cost nothing and are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes in the handle itself.
    pub in_place: Tally,
    /// Bytes in a chunk that many buffers share.
    pub pool: Tally,
    /// Bytes in memory of their own.
    pub own: Tally,
    /// Writes to a shared buffer that had to copy it first.
    pub copies_on_write: u64,
}

impl Counters {
    /// The calling thread's counts.
    pub fn of_this_thread() -> Counters {
        super::pool::counters()
    }
}

impl Add for Counters {
    type Output = Counters;

    fn add(mut self, other: Counters) -> Counters {
        self.in_place += other.in_place;
        self.pool += other.pool;
        self.own += other.own;
        self.copies_on_write = self.copies_on_write.wrapping_add(other.copies_on_write);
        self
    }
}

/// The cells behind a [`Tally`].
pub(super) struct Cells {
    made: Cell<u64>,
    made_bytes: Cell<u64>,
    dropped: Cell<u64>,
    dropped_bytes: Cell<u64>,
    kept_bytes: Cell<u64>,
    released_bytes: Cell<u64>,
}

#[inline(always)]
fn bump(cell: &Cell<u64>, by: u64) {
    cell.set(cell.get().wrapping_add(by));
}

impl Cells {
    pub(super) const fn new() -> Cells {
        Cells {
            made: Cell::new(0),
            made_bytes: Cell::new(0),
            dropped: Cell::new(0),
            dropped_bytes: Cell::new(0),
            kept_bytes: Cell::new(0),
            released_bytes: Cell::new(0),
        }
    }

    /// Counts a handle that shows `bytes`.
    #[inline(always)]
    pub(super) fn make(&self, bytes: usize) {
        bump(&self.made, 1);
        bump(&self.made_bytes, bytes as u64);
    }

    /// Counts the end of a handle that showed `bytes`.
    #[inline(always)]
    pub(super) fn end(&self, bytes: usize) {
        bump(&self.dropped, 1);
        bump(&self.dropped_bytes, bytes as u64);
    }

    /// Counts `bytes` that a handle shows no more.
    pub(super) fn cut(&self, bytes: usize) {
        bump(&self.dropped_bytes, bytes as u64);
    }

    /// Counts memory that from now on only handles keep alive.
    pub(super) fn keep(&self, bytes: usize) {
        bump(&self.kept_bytes, bytes as u64);
    }

    /// Counts such memory that is free again.
    pub(super) fn release(&self, bytes: usize) {
        bump(&self.released_bytes, bytes as u64);
    }

    /// Handles made minus handles dropped here, modulo 2^64.
    #[inline(always)]
    pub(super) fn balance(&self) -> u64 {
        self.made.get().wrapping_sub(self.dropped.get())
    }

    pub(super) fn read(&self) -> Tally {
        Tally {
            made: self.made.get(),
            made_bytes: self.made_bytes.get(),
            dropped: self.dropped.get(),
            dropped_bytes: self.dropped_bytes.get(),
            kept_bytes: self.kept_bytes.get(),
            released_bytes: self.released_bytes.get(),
        }
    }
}

/// Buffers in place, by length: one addition a buffer, each length a word of its own, so that
/// one buffer's count does not wait for the last one's.
pub(super) struct Lengths([Cell<u64>; IN_PLACE_BYTES_MAX + 1]);

impl Lengths {
    pub(super) const fn new() -> Lengths {
        Lengths([const { Cell::new(0) }; IN_PLACE_BYTES_MAX + 1])
    }

    /// Counts a buffer of `len` bytes.
    #[inline(always)]
    pub(super) fn make(&self, len: usize) {
        bump(&self.0[len], 1);
    }

    pub(super) fn read(&self) -> Tally {
        let mut tally = Tally::default();
        for (len, made) in self.0.iter().enumerate() {
            tally.made = tally.made.wrapping_add(made.get());
            tally.made_bytes = tally.made_bytes.wrapping_add(made.get().wrapping_mul(len as u64));
        }
        tally
    }
}
