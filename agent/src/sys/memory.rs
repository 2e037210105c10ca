//! Gives memory back to the system.

/// Returns what the allocator holds and nobody uses; after a burst of allocations that will
/// not come again soon, such as symbol tables, or the queue of a reader who was slow.
pub fn release_freed() {
    // SAFETY: takes no pointer and may be called at any time, from any thread.
    unsafe { libc::malloc_trim(0) };
}
