//! Where a buffer's bytes live, and the sizes that decide it.
//!
//! `cargo bench -p runtime-core --bench buffer -- --homes` prints what it takes to copy bytes
//! to each home and to drop them: at once, and as the newest of a queue of 64 whose oldest is
//! dropped. Nanoseconds, the least of 21 rounds, one core of an AMD EPYC (Zen 3) at 2.45 GHz,
//! glibc's allocator:
//!
//! | length | in place | pool | own | queue: in place | pool | own |
//! |---|---|---|---|---|---|---|
//! | 1 | 5.4 | 9.6 | 25.8 | 3.7 | 6.4 | 38.9 |
//! | 8 | 5.6 | 9.6 | 24.1 | 3.4 | 6.1 | 22.2 |
//! | 16 | 5.3 | 9.2 | 26.6 | 3.4 | 6.2 | 23.4 |
//! | 23 | 5.5 | 9.1 | 26.6 | 3.4 | 6.5 | 22.9 |
//! | 24 | - | 8.9 | 24.5 | - | 6.2 | 22.4 |
//! | 64 | - | 7.9 | 25.1 | - | 7.0 | 21.8 |
//! | 256 | - | 11.2 | 25.2 | - | 10.1 | 26.2 |
//! | 1024 | - | 18.0 | 54.4 | - | 20.8 | 44.8 |
//! | 2048 | - | 31.2 | 61.1 | - | 37.6 | 62.1 |
//! | 4096 | - | 58.1 | 92.9 | - | 85.0 | 107.4 |
//! | 8192 | - | - | 169.2 | - | - | 194.4 |
//!
//! In place wins at every length that the handle can hold, **as long as its words are put
//! together in registers**: built byte by byte in memory it took 8 to 11 in the queue, more
//! than the pool, because the move that follows reads words whose bytes are still on their
//! way. The pool wins up to
//! 2048 bytes by half and up to 4096 by a little; at 8192 (tried with a larger pool) a queue
//! was faster in memory of its own. Chunks of 16 KiB made a queue of 4096 bytes a half slower
//! than 32 KiB, and 64 or 128 KiB were no faster for anything, while each keeps more memory
//! alive for one small slice.

/// The longest buffer whose bytes are in the handle itself.
pub(super) const IN_PLACE_BYTES_MAX: usize = 23;

/// The longest buffer that is taken from a pool.
pub(super) const POOL_BYTES_MAX: usize = 4096;

/// Size of a pool's chunk, its header included.
pub(super) const CHUNK_BYTES: usize = 32 * 1024;

const _: () = assert!(POOL_BYTES_MAX * 4 <= CHUNK_BYTES, "a chunk that is given up wastes at most a quarter");

/// Where a buffer's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Home {
    /// In the handle: the address changes when the handle moves.
    InPlace,
    /// In a chunk that many buffers of one thread share.
    Pool,
    /// In memory of its own, or taken over from a `Vec` or a box.
    Own,
    /// In memory that is never freed, such as a literal; also every empty buffer.
    Static,
}

/// The home of a new buffer of `len` bytes.
#[inline(always)]
pub(super) const fn choose(len: usize) -> Home {
    match len {
        0 => Home::Static,
        1..=IN_PLACE_BYTES_MAX => Home::InPlace,
        _ if len <= POOL_BYTES_MAX => Home::Pool,
        _ => Home::Own,
    }
}
