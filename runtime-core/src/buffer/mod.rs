//! Byte buffers as Node's are, for Rust: cheap to make, cheap to share, sound to write.
//!
//! **Shared bytes never change.** In Node every slice of a buffer sees every write to it.
//! Here a [`Buffer`] is a handle: clones and slices share its bytes without a copy, and a
//! handle that shares its bytes copies them before it writes ([`Buffer::make_mut`]), or says
//! that it would have to ([`Buffer::get_mut`]). To write into a part of a buffer, borrow it:
//! `&mut buffer.make_mut()[4..8]`. So a buffer is `Send` and `Sync`, moves to another thread
//! without a copy, and can be read by the kernel while others hold it.
//!
//! **Where the bytes are** ([`Home`]) depends on their number: in the handle, in a pool of the
//! thread, or in memory of their own; `home` gives the sizes and the measurements behind them.
//! Bytes **in place move with the handle**: an address taken from [`Buffer::as_slice`] holds
//! until the handle is moved, as the borrow says. Who needs an address that outlives a move
//! (a request that the kernel finishes later) calls [`Buffer::into_stable`] first.
//!
//! **What they cost** is counted for each thread in [`Counters`].
//!
//! ```
//! use runtime_core::buffer::{Buffer, Encoding};
//!
//! let buffer = Buffer::of(&[256 + 104, 105]);
//! assert_eq!(buffer.to_text(Encoding::Utf8), "hi");
//! assert_eq!(Buffer::from_text("aGk", Encoding::Base64), buffer);
//! ```

mod counters;
mod encoding;
mod home;
mod numbers;
mod pool;
mod repr;
mod search;
mod to_uint8;
mod wide;

#[cfg(test)]
mod tests;

pub use counters::{Counters, Tally};
pub use encoding::{Encoding, UnknownEncoding};
pub use home::Home;
pub use numbers::OutOfBounds;
pub use search::Needle;
pub use to_uint8::ToUint8;

use repr::Repr;
use std::{
    borrow::Borrow,
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    ops::{Bound, Deref, RangeBounds},
};

/// A handle on bytes. The module's page says how it shares, moves and writes.
pub struct Buffer(Repr);

impl Buffer {
    /// An empty buffer, which has no memory.
    pub const fn new() -> Buffer {
        Buffer(Repr::empty())
    }

    /// One byte for each number, by JavaScript's ToUint8: truncated toward zero, modulo 256;
    /// 0 for NaN and the infinities.
    #[inline]
    pub fn of<T: ToUint8>(items: &[T]) -> Buffer {
        Buffer(Repr::of(items))
    }

    /// As [`of`](Self::of), in a home of the caller's choice. `None` where that home cannot
    /// hold so many bytes. Small bytes that will live long are better off in
    /// [`Home::Own`], where they keep nothing alive but themselves.
    #[inline]
    pub fn of_in<T: ToUint8>(home: Home, items: &[T]) -> Option<Buffer> {
        Repr::of_in(home, items).map(Buffer)
    }

    /// Bytes that are never freed, without a copy.
    pub const fn from_static(bytes: &'static [u8]) -> Buffer {
        Buffer(Repr::fixed(bytes))
    }

    /// `text` in `encoding`; what an encoding cannot read is left out as Node leaves it out.
    pub fn from_text(text: &str, encoding: Encoding) -> Buffer {
        encoding.encode(text)
    }

    /// `len` zero bytes.
    pub fn alloc(len: usize) -> Buffer {
        Buffer(Repr::zeroed(len))
    }

    /// `len` bytes that may show **what earlier buffers held**, for who writes all of them.
    /// Never uninitialised memory, so it is unsafe in Node's sense only.
    pub fn alloc_unsafe(len: usize) -> Buffer {
        Buffer(Repr::uncleared(len))
    }

    /// All parts, one after the other.
    ///
    /// # Panics
    /// If the sum of their lengths does not fit a `usize`.
    pub fn concat<B: AsRef<[u8]>>(parts: &[B]) -> Buffer {
        let len = parts.iter().try_fold(0usize, |sum, part| sum.checked_add(part.as_ref().len()));
        Buffer::concat_to(parts, len.expect("the parts' lengths add up to more than a usize holds"))
    }

    /// The first `len` bytes of all parts, one after the other, continued with zeros.
    pub fn concat_to<B: AsRef<[u8]>>(parts: &[B], len: usize) -> Buffer {
        Buffer(Repr::joined(len, parts.iter().map(AsRef::as_ref)))
    }

    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes. Their address holds until the handle is moved, and beyond that only if
    /// the home is not [`Home::InPlace`].
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// Where the bytes are.
    pub fn home(&self) -> Home {
        self.0.home()
    }

    /// The same bytes at an address that moves of the handle do not change.
    pub fn into_stable(self) -> Buffer {
        match self.home() {
            Home::InPlace => Buffer::of_in(Home::Pool, &self).expect("a pool holds more than a handle"),
            Home::Pool | Home::Own | Home::Static => self,
        }
    }

    /// The bytes for writing, or `None` where another handle may show them.
    ///
    /// Static bytes never can be written. A pooled buffer that was ever shared counts as
    /// shared from then on; one with memory of its own, only while another handle is alive.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        self.0.get_mut()
    }

    /// The bytes for writing; copies them first where another handle may show them. Such
    /// copies are counted ([`Counters::copies_on_write`]).
    #[inline]
    pub fn make_mut(&mut self) -> &mut [u8] {
        if self.0.get_mut().is_none() {
            self.unshare();
        }
        self.0.get_mut().expect("a fresh copy has one handle")
    }

    #[cold]
    fn unshare(&mut self) {
        *self = Buffer::of(self.as_slice());
        pool::local(|local| local.copies_on_write.set(local.copies_on_write.get().wrapping_add(1)));
    }

    /// A part of the bytes, shared. Bounds past the end mean the end, and bounds in the
    /// wrong order an empty part; it never panics.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Buffer {
        let (from, to) = clamp(range, self.len());
        Buffer(self.0.slice(from, to))
    }

    /// As [`slice`](Self::slice); negative bounds count from the end, as in JavaScript.
    pub fn subarray(&self, from: isize, to: isize) -> Buffer {
        let absolute = |bound: isize| match bound {
            0.. => bound.unsigned_abs(),
            _ => self.len().saturating_sub(bound.unsigned_abs()),
        };
        self.slice(absolute(from)..absolute(to))
    }

    /// Shows only this part from now on; bounds as for [`slice`](Self::slice).
    pub fn narrow(&mut self, range: impl RangeBounds<usize>) {
        let (from, to) = clamp(range, self.len());
        self.0.narrow(from, to);
    }

    /// Copies `source` of this buffer to `target` from `at` on, as much as there is and as
    /// fits; returns the number of bytes.
    pub fn copy(&self, target: &mut [u8], at: usize, source: impl RangeBounds<usize>) -> usize {
        let (from, to) = clamp(source, self.len());
        let Some(place) = target.get_mut(at..) else { return 0 };
        let len = (to - from).min(place.len());
        place[..len].copy_from_slice(&self[from..from + len]);
        len
    }

    /// Which of the two comes first, byte by byte; a prefix comes before what it begins.
    pub fn compare(&self, other: impl AsRef<[u8]>) -> Ordering {
        self.as_slice().cmp(other.as_ref())
    }

    /// Whether the bytes are the same.
    pub fn equals(&self, other: impl AsRef<[u8]>) -> bool {
        self.as_slice() == other.as_ref()
    }

    /// The bytes as text: see [`Encoding`] for what each makes of bytes that it cannot show.
    pub fn to_text(&self, encoding: Encoding) -> String {
        encoding.decode(self)
    }
}

/// Bounds within `len`, the first not after the second.
fn clamp(range: impl RangeBounds<usize>, len: usize) -> (usize, usize) {
    let to = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    let from = match range.start_bound() {
        Bound::Included(&first) => first,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let to = to.min(len);
    (from.min(to), to)
}

impl Clone for Buffer {
    #[inline]
    fn clone(&self) -> Buffer {
        Buffer(self.0.slice(0, self.len()))
    }
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer::new()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for Buffer {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Buffer {
    fn borrow(&self) -> &[u8] {
        self
    }
}

/// The first bytes in hexadecimal, and how many more there are.
impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 50;
        f.write_str("<Buffer")?;
        for byte in self.iter().take(SHOWN_MAX) {
            write!(f, " {byte:02x}")?;
        }
        match self.len().saturating_sub(SHOWN_MAX) {
            0 => f.write_str(">"),
            1 => f.write_str(" ... 1 more byte>"),
            more => write!(f, " ... {more} more bytes>"),
        }
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Buffer) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Buffer {}

impl PartialEq<[u8]> for Buffer {
    fn eq(&self, other: &[u8]) -> bool {
        self.as_slice() == other
    }
}

impl PartialOrd for Buffer {
    fn partial_cmp(&self, other: &Buffer) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Buffer {
    fn cmp(&self, other: &Buffer) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl Hash for Buffer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl From<&[u8]> for Buffer {
    /// Copies the bytes.
    #[inline]
    fn from(bytes: &[u8]) -> Buffer {
        Buffer::of(bytes)
    }
}

impl<const N: usize> From<[u8; N]> for Buffer {
    /// Copies the bytes.
    #[inline]
    fn from(bytes: [u8; N]) -> Buffer {
        Buffer::of(&bytes)
    }
}

impl From<&str> for Buffer {
    /// Copies the text, as UTF-8.
    fn from(text: &str) -> Buffer {
        Buffer::of(text.as_bytes())
    }
}

impl From<Vec<u8>> for Buffer {
    /// Takes the memory over without a copy, spare capacity included, if it has more bytes
    /// than a pool would hold; else copies them.
    fn from(bytes: Vec<u8>) -> Buffer {
        Buffer(Repr::adopt(bytes))
    }
}

impl From<Box<[u8]>> for Buffer {
    /// As from a `Vec`.
    fn from(bytes: Box<[u8]>) -> Buffer {
        Buffer::from(bytes.into_vec())
    }
}

impl From<String> for Buffer {
    /// As from a `Vec`; the text is UTF-8.
    fn from(text: String) -> Buffer {
        Buffer::from(text.into_bytes())
    }
}
