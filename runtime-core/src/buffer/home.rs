//! Where a buffer's bytes live, and the sizes that decide it.
//!
//! TABLE

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
