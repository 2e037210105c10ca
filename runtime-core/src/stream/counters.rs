//! What a thread's streams did: counts, plain additions, no atomics. All values only grow.

use std::cell::Cell;

/// Counts of the calling thread's streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Writes, each of a chunk or a corked queue, that were taken whole at once.
    pub writes_whole: u64,
    /// Of which a part was taken at once.
    pub writes_partial: u64,
    /// Of which nothing was taken at once.
    pub writes_later: u64,
    /// That failed, at once or later.
    pub writes_failed: u64,
    /// Chunks copied behind others.
    pub chunks_copied: u64,
    /// Chunks kept by a handle, each a slice of its own for the kernel.
    pub chunks_kept: u64,
}

impl Counters {
    /// The calling thread's counts.
    pub fn of_this_thread() -> Self {
        CELLS.with(|cells| Self {
            writes_whole: cells.writes_whole.get(),
            writes_partial: cells.writes_partial.get(),
            writes_later: cells.writes_later.get(),
            writes_failed: cells.writes_failed.get(),
            chunks_copied: cells.chunks_copied.get(),
            chunks_kept: cells.chunks_kept.get(),
        })
    }
}

/// The cells behind [`Counters`].
pub(super) struct Cells {
    pub writes_whole: Cell<u64>,
    pub writes_partial: Cell<u64>,
    pub writes_later: Cell<u64>,
    pub writes_failed: Cell<u64>,
    pub chunks_copied: Cell<u64>,
    pub chunks_kept: Cell<u64>,
}

thread_local! {
    static CELLS: Cells = const {
        Cells {
            writes_whole: Cell::new(0),
            writes_partial: Cell::new(0),
            writes_later: Cell::new(0),
            writes_failed: Cell::new(0),
            chunks_copied: Cell::new(0),
            chunks_kept: Cell::new(0),
        }
    };
}

/// Adds to one of them.
#[inline]
pub(super) fn add(cell: impl FnOnce(&Cells) -> &Cell<u64>, by: u64) {
    CELLS.with(|cells| {
        let cell = cell(cells);
        cell.set(cell.get().wrapping_add(by));
    });
}
