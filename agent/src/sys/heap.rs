//! The heap of this process.

/// Gives memory that was freed back to the kernel. A profile's symbols take tens of
/// megabytes for a moment, which the allocator would keep for good.
pub fn trim() {
    // SAFETY: takes a number; the allocator locks itself.
    unsafe { libc::malloc_trim(0) };
}
