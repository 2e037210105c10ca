//! The memory behind buffers: chunks that a thread's small buffers share, and allocations
//! of their own for the large.
//!
//! **The pool.** Each thread carves buffers from the front of one current chunk. While a
//! chunk is current, its owner counts handles in plain thread-local words and every other
//! thread counts in the chunk's atomic word, which starts at [`BIAS`] so that nobody can see
//! it reach zero. Live handles are always the sum of both, so
//!
//! * when the owner's balance is zero and the word is exactly `BIAS`, nobody is left, and
//!   the chunk is carved from its front again: memory stays in the first-level cache;
//! * when a chunk is full its owner *retires* it: it adds its own balance to the word and
//!   takes the bias off in one step. From then on the word alone counts, for all threads,
//!   and whoever brings it to zero frees the chunk.
//!
//! So to make and to drop a buffer on one thread takes no atomic read-modify-write, and
//! buffers can still move to other threads as they are.
//!
//! **Old bytes.** Chunks are zeroed when they are allocated, so memory is never
//! uninitialised; it holds old bytes of other buffers, which `repr` writes over entirely,
//! unless `alloc_unsafe` was asked for.

use super::{
    counters::{Cells, Counters, Lengths},
    home::{CHUNK_BYTES, Home},
};
use std::{
    alloc::{self, Layout},
    cell::Cell,
    ptr::{self, NonNull},
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// What the word of a chunk starts at. 2^62 clones take longer than a century.
const BIAS: u64 = 1 << 62;

/// Alignment of a carved buffer, in bytes.
const ALIGN: usize = 8;

/// The head of a chunk; buffers follow in the same allocation.
#[repr(C, align(64))]
pub(super) struct Chunk {
    count: AtomicU64,
}

const CHUNK_LAYOUT: Layout = match Layout::from_size_align(CHUNK_BYTES, align_of::<Chunk>()) {
    Ok(layout) => layout,
    Err(_) => panic!("the size of a chunk fits its alignment"),
};

/// One thread's pool and counters. Nothing here is dropped: [`Closer`] does it, so that an
/// access is a load from the thread's own segment and no more.
pub(super) struct Local {
    chunk: Cell<*mut Chunk>,
    /// The first free byte of the current chunk, and its end.
    free: Cell<*mut u8>,
    end: Cell<*mut u8>,
    /// The part of the pool's balance that belongs to other chunks than the current one.
    elsewhere: Cell<u64>,
    /// One free chunk, so that a steady stream of buffers does not go to the allocator.
    spare: Cell<*mut Chunk>,
    /// Whether this thread will run [`Closer`]; a spare is kept only then.
    open: Cell<bool>,
    pub(super) in_place: Lengths,
    pool: Cells,
    own: Cells,
    pub(super) copies_on_write: Cell<u64>,
}

thread_local! {
    static LOCAL: Local = const {
        Local {
            chunk: Cell::new(ptr::null_mut()),
            free: Cell::new(ptr::null_mut()),
            end: Cell::new(ptr::null_mut()),
            elsewhere: Cell::new(0),
            spare: Cell::new(ptr::null_mut()),
            open: Cell::new(false),
            in_place: Lengths::new(),
            pool: Cells::new(),
            own: Cells::new(),
            copies_on_write: Cell::new(0),
        }
    };
    static CLOSER: Closer = const { Closer };
}

/// Calls `f` with the thread's pool and counters.
#[inline(always)]
pub(super) fn local<R>(f: impl FnOnce(&Local) -> R) -> R {
    LOCAL.with(f)
}

/// The calling thread's counts.
pub(super) fn counters() -> Counters {
    local(|local| Counters {
        in_place: local.in_place.read(),
        pool: local.pool.read(),
        own: local.own.read(),
        copies_on_write: local.copies_on_write.get(),
    })
}

/// Gives the thread's chunks back when the thread ends.
struct Closer;

impl Drop for Closer {
    fn drop(&mut self) {
        local(|local| {
            local.open.set(false);
            let (current, spare) = (local.chunk.get(), local.spare.replace(ptr::null_mut()));
            if !current.is_null() && local.retire(current) {
                // SAFETY: the last handle is gone, so nobody but us knows the chunk.
                unsafe { Chunk::free(current) };
            }
            if !spare.is_null() {
                // SAFETY: a spare chunk has no handles.
                unsafe { Chunk::free(spare) };
            }
        });
    }
}

impl Chunk {
    fn allocate() -> *mut Chunk {
        // SAFETY: the layout is not empty.
        let chunk = unsafe { alloc::alloc_zeroed(CHUNK_LAYOUT) }.cast::<Chunk>();
        if chunk.is_null() {
            alloc::handle_alloc_error(CHUNK_LAYOUT);
        }
        // SAFETY: freshly allocated, aligned for a chunk, and at least as large.
        unsafe { chunk.write(Chunk { count: AtomicU64::new(BIAS) }) };
        chunk
    }

    /// # Safety
    /// `chunk` came from [`allocate`](Self::allocate) and no handle to it is left.
    unsafe fn free(chunk: *mut Chunk) {
        // SAFETY: allocated with this layout, and the caller says nobody uses it.
        unsafe { alloc::dealloc(chunk.cast(), CHUNK_LAYOUT) };
    }

    /// The first byte for buffers.
    #[inline(always)]
    fn start(chunk: *mut Chunk) -> *mut u8 {
        chunk.cast::<u8>().wrapping_add(size_of::<Chunk>())
    }
}

impl Local {
    /// Takes `len` bytes, at least 1, from the current chunk: initialised memory that no
    /// other handle shows, with old bytes in it, and a handle's count on its chunk.
    ///
    /// `None` when the thread is ending and has no pool any more.
    #[inline(always)]
    pub(super) fn carve(&self, len: usize) -> Option<(NonNull<Chunk>, NonNull<u8>)> {
        let size = len.next_multiple_of(ALIGN);
        let mut at = self.free.get();
        if self.end.get().addr() - at.addr() < size {
            at = self.refill()?.as_ptr();
        }
        self.free.set(at.wrapping_add(size));
        self.pool.make(len);
        // SAFETY: `at` is in the current chunk: there was room for `size` after it, or
        // `refill` has just made it, and a chunk has room for the longest pooled buffer.
        Some(unsafe { (NonNull::new_unchecked(self.chunk.get()), NonNull::new_unchecked(at)) })
    }

    /// Makes a chunk with room current and returns its first free byte.
    #[cold]
    #[inline(never)]
    fn refill(&self) -> Option<NonNull<u8>> {
        CLOSER.try_with(|_| ()).ok()?;
        self.open.set(true);
        let old = self.chunk.get();
        let chunk = if !old.is_null() && self.retire(old) {
            // SAFETY: the last handle is gone: only this thread knows the chunk.
            unsafe { (*old).count.store(BIAS, Ordering::Relaxed) };
            old
        } else {
            let spare = self.spare.replace(ptr::null_mut());
            if spare.is_null() { Chunk::allocate() } else { spare }
        };
        let start = Chunk::start(chunk);
        self.chunk.set(chunk);
        self.end.set(chunk.cast::<u8>().wrapping_add(CHUNK_BYTES));
        NonNull::new(start)
    }

    /// Ends the time of the current chunk; true when no handle to it is left.
    fn retire(&self, chunk: *mut Chunk) -> bool {
        let live = self.pool.balance().wrapping_sub(self.elsewhere.get());
        self.elsewhere.set(self.pool.balance());
        self.chunk.set(ptr::null_mut());
        self.free.set(ptr::null_mut());
        self.end.set(ptr::null_mut());
        // SAFETY: the current chunk is alive: the bias on its count is ours until here.
        let count = unsafe { &(*chunk).count };
        let bias = BIAS.wrapping_sub(live);
        // Release: what this thread did with the memory comes before any other thread frees
        // it. Acquire: what others did comes before this thread uses it again.
        let empty = count.fetch_sub(bias, Ordering::AcqRel) == bias;
        if !empty {
            self.pool.keep(CHUNK_BYTES);
        }
        empty
    }

    /// Counts one more handle, which shows `len` bytes.
    ///
    /// # Safety
    /// The caller has a handle on `chunk`.
    #[inline(always)]
    pub(super) unsafe fn share(&self, chunk: NonNull<Chunk>, len: usize) {
        self.pool.make(len);
        if self.chunk.get() != chunk.as_ptr() {
            self.elsewhere.set(self.elsewhere.get().wrapping_add(1));
            // SAFETY: the caller's handle keeps the chunk alive. Relaxed, as in `Arc`: a new
            // handle is made from one that exists.
            unsafe { chunk.as_ref() }.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts the end of a handle, which showed `len` bytes.
    ///
    /// # Safety
    /// The caller has a handle on `chunk` and does not use it any more.
    #[inline(always)]
    pub(super) unsafe fn release(&self, chunk: NonNull<Chunk>, len: usize) {
        self.pool.end(len);
        if self.chunk.get() != chunk.as_ptr() {
            // SAFETY: the caller's promise, and the chunk is not this thread's current one.
            return unsafe { self.release_elsewhere(chunk) };
        }
        // SAFETY: the current chunk is alive as long as it is current.
        let count = unsafe { &(*chunk.as_ptr()).count };
        // Acquire: what other threads did with their handles comes before our next carving.
        if self.pool.balance() == self.elsewhere.get() && count.load(Ordering::Acquire) == BIAS {
            self.free.set(Chunk::start(chunk.as_ptr()));
        }
    }

    /// # Safety
    /// As for [`release`](Self::release), and `chunk` is not this thread's current one.
    #[inline(never)]
    unsafe fn release_elsewhere(&self, chunk: NonNull<Chunk>) {
        self.elsewhere.set(self.elsewhere.get().wrapping_sub(1));
        // SAFETY: the handle that ends here keeps the chunk alive until the subtraction.
        // Release and acquire as in `retire`.
        if unsafe { chunk.as_ref() }.count.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // The bias is off, so the chunk is nobody's current one, and this was the last handle.
        self.pool.release(CHUNK_BYTES);
        if self.open.get() && self.spare.get().is_null() {
            // SAFETY: only this thread knows the chunk.
            unsafe { chunk.as_ref() }.count.store(BIAS, Ordering::Relaxed);
            self.spare.set(chunk.as_ptr());
        } else {
            // SAFETY: the last handle is gone.
            unsafe { Chunk::free(chunk.as_ptr()) };
        }
    }

    /// Counts `bytes` that a handle on memory in `home` shows no more.
    pub(super) fn cut(&self, home: Home, bytes: usize) {
        match home {
            Home::Pool => self.pool.cut(bytes),
            Home::Own => self.own.cut(bytes),
            Home::InPlace | Home::Static => {}
        }
    }

    /// Memory of its own for `len` bytes, one handle on it; zeroed or uninitialised.
    pub(super) fn allocate(&self, len: usize, zeroed: bool) -> NonNull<Own> {
        let layout = Own::layout(len);
        // SAFETY: the layout is not empty: the header is in it.
        let memory = unsafe { if zeroed { alloc::alloc_zeroed(layout) } else { alloc::alloc(layout) } };
        let Some(own) = NonNull::new(memory.cast::<Own>()) else { alloc::handle_alloc_error(layout) };
        let data = memory.wrapping_add(size_of::<Own>());
        // SAFETY: freshly allocated, aligned for the header, and at least as large.
        unsafe { own.write(Own { count: AtomicUsize::new(1), data, capacity: len, adopted: false }) };
        self.own.make(len);
        self.own.keep(len);
        own
    }

    /// Takes over a `Vec`'s memory without a copy; one handle on all its bytes.
    pub(super) fn adopt(&self, bytes: Vec<u8>) -> NonNull<Own> {
        let (data, len, capacity) = bytes.into_raw_parts();
        self.own.make(len);
        self.own.keep(capacity);
        NonNull::from(Box::leak(Box::new(Own { count: AtomicUsize::new(1), data, capacity, adopted: true })))
    }

    /// Counts one more handle, which shows `len` bytes.
    ///
    /// # Safety
    /// The caller has a handle on `own`.
    pub(super) unsafe fn share_own(&self, own: NonNull<Own>, len: usize) {
        self.own.make(len);
        // SAFETY: the caller's handle keeps it alive. Relaxed as in `share`.
        unsafe { own.as_ref() }.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a handle, which showed `len` bytes, and frees after the last.
    ///
    /// # Safety
    /// The caller has a handle on `own` and does not use it any more.
    pub(super) unsafe fn release_own(&self, own: NonNull<Own>, len: usize) {
        self.own.end(len);
        // A handle that sees 1 is the only one, and nobody can make another: no need for the
        // dearer subtraction. Acquire: what others did comes before the memory is freed.
        // SAFETY: the handle that ends here keeps it alive.
        let count = unsafe { &(*own.as_ptr()).count };
        if count.load(Ordering::Acquire) == 1 || count.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: the last handle is gone.
            self.own.release(unsafe { Own::free(own) });
        }
    }
}

/// The head of memory of its own. The bytes follow it, or are a `Vec`'s.
#[repr(C, align(16))]
pub(super) struct Own {
    count: AtomicUsize,
    data: *mut u8,
    capacity: usize,
    /// Whether the bytes are a `Vec`'s. Not to be told from `data`: an allocator may put a
    /// `Vec`'s memory right behind the header's.
    adopted: bool,
}

impl Own {
    fn layout(len: usize) -> Layout {
        let bytes = size_of::<Own>().checked_add(len);
        bytes
            .and_then(|bytes| Layout::from_size_align(bytes, align_of::<Own>()).ok())
            .unwrap_or_else(|| panic!("a buffer of {len} bytes is larger than the address space allows"))
    }

    /// Where the bytes begin.
    ///
    /// # Safety
    /// The caller has a handle on `own`.
    #[inline(always)]
    pub(super) unsafe fn data(own: NonNull<Own>) -> *mut u8 {
        // SAFETY: the handle keeps it alive.
        unsafe { own.as_ref() }.data
    }

    /// Whether there is one handle only.
    ///
    /// # Safety
    /// The caller has a handle on `own`.
    #[inline(always)]
    pub(super) unsafe fn is_sole(own: NonNull<Own>) -> bool {
        // SAFETY: the handle keeps it alive. Acquire: what others read through their handles
        // comes before what the caller will write.
        unsafe { own.as_ref() }.count.load(Ordering::Acquire) == 1
    }

    /// Frees the memory; returns how many bytes it kept.
    ///
    /// # Safety
    /// No handle on `own` is left.
    unsafe fn free(own: NonNull<Own>) -> usize {
        // SAFETY: alive until the end of this function, and nobody else knows it.
        let Own { data, capacity, adopted, .. } = *unsafe { own.as_ref() };
        if !adopted {
            // SAFETY: allocated by `allocate` with this layout.
            unsafe { alloc::dealloc(own.as_ptr().cast(), Own::layout(capacity)) };
        } else {
            // SAFETY: the parts of the `Vec` that `adopt` took apart, and the box it leaked.
            unsafe { drop((Vec::from_raw_parts(data, 0, capacity), Box::from_raw(own.as_ptr()))) };
        }
        capacity
    }
}
