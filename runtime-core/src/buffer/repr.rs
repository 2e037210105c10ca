//! A buffer's handle: three words that hold the bytes themselves, or say where they are.
//!
//! | last byte | first word | second word | rest of the third |
//! |---|---|---|---|
//! | [`IN_PLACE`] + length | bytes 0 to 7 | bytes 8 to 15 | bytes 16 to 22 |
//! | [`STATIC`] | null | first byte's address | length |
//! | [`POOL_SOLE`], [`POOL_SHARED`] | its chunk | first byte's address | length |
//! | [`OWN`] | its header | first byte's address | length |
//!
//! The third word is atomic for one reason: to share a pooled buffer turns `POOL_SOLE` into
//! `POOL_SHARED` through a shared reference. It never turns back. A sole handle is the only
//! one that shows its part of the chunk and may write there. Memory of its own needs no such
//! mark: its count says whether there is one handle.

pub(super) mod sets;

use super::{
    home::{self, Home, IN_PLACE_BYTES_MAX, POOL_BYTES_MAX},
    pool::{self, Chunk, Own},
    to_uint8::{ToUint8, sealed::Element},
};
use std::{
    mem::MaybeUninit,
    ptr::{self, NonNull},
    slice,
    sync::atomic::{AtomicU64, Ordering},
};

const STATIC: u64 = 0;
const IN_PLACE: u64 = 0x40;
/// The bit of all that is counted, and the highest, so that one look at the sign tells
/// whether a drop has anything to do.
const COUNTED: u64 = 0x80;
const POOL_SOLE: u64 = COUNTED;
const POOL_SHARED: u64 = COUNTED | 1;
const OWN: u64 = COUNTED | 2;

const TAG_SHIFT: u32 = 56;
const LEN_MASK: u64 = (1 << TAG_SHIFT) - 1;

/// The handle. Public operations are in the parent module; what needs `unsafe` is here.
#[repr(C)]
pub(super) struct Repr {
    owner: *mut (),
    start: *mut u8,
    meta: AtomicU64,
}

const _: () = assert!(size_of::<Repr>() == 24 && IN_PLACE_BYTES_MAX < size_of::<Repr>());
const _: () = assert!(cfg!(target_endian = "little"), "the tag is the last byte of the handle");

// SAFETY: bytes that more than one handle shows are never written, a sole handle writes only
// through `&mut`, and the counts of the memory behind it are made for several threads.
unsafe impl Send for Repr {}
// SAFETY: as above; through `&Repr` only the mark in `meta` changes, which is atomic.
unsafe impl Sync for Repr {}

impl Repr {
    /// No bytes, no memory.
    #[inline(always)]
    pub(super) const fn empty() -> Repr {
        Repr::fixed(&[])
    }

    /// Bytes that are never freed.
    pub(super) const fn fixed(bytes: &'static [u8]) -> Repr {
        Repr {
            owner: ptr::null_mut(),
            start: bytes.as_ptr().cast_mut(),
            meta: AtomicU64::new(bytes.len() as u64 | STATIC << TAG_SHIFT),
        }
    }

    #[inline(always)]
    fn heap(owner: *mut (), start: *mut u8, len: usize, tag: u64) -> Repr {
        Repr { owner, start, meta: AtomicU64::new(len as u64 | tag << TAG_SHIFT) }
    }

    #[inline(always)]
    fn in_place(words: [u64; 3], len: usize) -> Repr {
        pool::local(|local| local.in_place.make(len));
        Repr {
            owner: ptr::without_provenance_mut(words[0] as usize),
            start: ptr::without_provenance_mut(words[1] as usize),
            meta: AtomicU64::new(words[2] | (IN_PLACE | len as u64) << TAG_SHIFT),
        }
    }

    /// Memory behind a handle for `len` bytes, with `len` and where it is from. Pool memory
    /// is initialised; memory of its own is not, unless it is to be `zeroed`.
    #[inline(always)]
    fn take(home: Home, len: usize, zeroed: bool) -> Repr {
        pool::local(|local| {
            if home == Home::Pool
                && let Some((chunk, start)) = local.carve(len)
            {
                return Repr::heap(chunk.as_ptr().cast(), start.as_ptr(), len, POOL_SOLE);
            }
            let own = local.allocate(len, zeroed);
            // SAFETY: the first handle on it is ours.
            Repr::heap(own.as_ptr().cast(), unsafe { Own::data(own) }, len, OWN)
        })
    }

    /// `len` bytes behind a handle, which `fill` writes.
    ///
    /// # Safety
    /// `fill` writes every byte; `len` is not 0, and a pool takes it if `home` is one.
    #[inline(always)]
    unsafe fn build_behind(home: Home, len: usize, fill: impl FnOnce(&mut [MaybeUninit<u8>])) -> Repr {
        let repr = Repr::take(home, len, false);
        // SAFETY: `take` gives `len` bytes that no other handle shows.
        fill(unsafe { slice::from_raw_parts_mut(repr.start.cast(), len) });
        repr
    }

    /// `len` bytes that `fill` writes, in the home that `len` asks for.
    ///
    /// # Safety
    /// `fill` writes every byte.
    unsafe fn build(len: usize, fill: impl FnOnce(&mut [MaybeUninit<u8>])) -> Repr {
        match home::choose(len) {
            Home::Static => Repr::empty(),
            Home::InPlace => {
                let mut bytes = [MaybeUninit::new(0); IN_PLACE_BYTES_MAX];
                fill(&mut bytes[..len]);
                // SAFETY: initialised above, and `fill` only writes.
                let bytes = unsafe { bytes[..len].assume_init_ref() };
                Repr::in_place(pack(bytes), len)
            }
            // SAFETY: the caller's promise, and `choose` gives a pool what it takes.
            home => unsafe { Repr::build_behind(home, len, fill) },
        }
    }

    /// Converted values, in the home that their number asks for.
    #[inline(always)]
    pub(super) fn of<T: Element + ToUint8>(items: &[T]) -> Repr {
        match home::choose(items.len()) {
            Home::Static => Repr::empty(),
            Home::InPlace => Repr::in_place(pack(items), items.len()),
            // SAFETY: `convert` writes every byte, and `choose` gives a pool what it takes.
            home => unsafe { Repr::build_behind(home, items.len(), |bytes| T::convert(items, bytes)) },
        }
    }

    /// Converted values in a home of the caller's choice; `None` where it cannot hold them.
    #[inline(always)]
    pub(super) fn of_in<T: Element + ToUint8>(home: Home, items: &[T]) -> Option<Repr> {
        let len = items.len();
        match home {
            _ if len == 0 => Some(Repr::empty()),
            Home::InPlace if len <= IN_PLACE_BYTES_MAX => Some(Repr::in_place(pack(items), len)),
            Home::Pool if len > POOL_BYTES_MAX => None,
            // SAFETY: `convert` writes every byte, and a pool takes so many.
            Home::Pool | Home::Own => Some(unsafe { Repr::build_behind(home, len, |bytes| T::convert(items, bytes)) }),
            Home::InPlace | Home::Static => None,
        }
    }

    /// `len` zero bytes.
    pub(super) fn zeroed(len: usize) -> Repr {
        match home::choose(len) {
            Home::Static => Repr::empty(),
            Home::InPlace => Repr::in_place([0; 3], len),
            Home::Own => Repr::take(Home::Own, len, true),
            // SAFETY: every byte is written, and `choose` gives a pool what it takes.
            home => unsafe { Repr::build_behind(home, len, |bytes| bytes.fill(MaybeUninit::new(0))) },
        }
    }

    /// `len` bytes that may be what other buffers of the pool have left behind.
    pub(super) fn uncleared(len: usize) -> Repr {
        match home::choose(len) {
            home @ (Home::Pool | Home::Own) => Repr::take(home, len, true),
            _ => Repr::zeroed(len),
        }
    }

    /// Takes over the memory of a `Vec` that has more bytes than a pool would take.
    pub(super) fn adopt(bytes: Vec<u8>) -> Repr {
        if bytes.len() <= POOL_BYTES_MAX {
            return Repr::of(&bytes);
        }
        let len = bytes.len();
        let own = pool::local(|local| local.adopt(bytes));
        // SAFETY: the first handle on it is ours.
        Repr::heap(own.as_ptr().cast(), unsafe { Own::data(own) }, len, OWN)
    }

    /// `len` bytes: the parts one after the other, cut or continued with zeros.
    pub(super) fn joined<'a>(len: usize, parts: impl Iterator<Item = &'a [u8]>) -> Repr {
        let fill = |bytes: &mut [MaybeUninit<u8>]| {
            let mut room = bytes;
            for part in parts {
                let taken = part.len().min(room.len());
                let (place, rest) = room.split_at_mut(taken);
                place.write_copy_of_slice(&part[..taken]);
                room = rest;
            }
            room.fill(MaybeUninit::new(0));
        };
        // SAFETY: the parts and then the zeros write every byte, whatever the parts are.
        unsafe { Repr::build(len, fill) }
    }

    #[inline(always)]
    fn tag(&self) -> u64 {
        self.meta.load(Ordering::Relaxed) >> TAG_SHIFT
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        let meta = self.meta.load(Ordering::Relaxed);
        let tag = meta >> TAG_SHIFT;
        (if tag & IN_PLACE != 0 { tag & !IN_PLACE } else { meta & LEN_MASK }) as usize
    }

    #[inline(always)]
    pub(super) fn as_slice(&self) -> &[u8] {
        let in_place = self.tag() & IN_PLACE != 0;
        let start = if in_place { ptr::from_ref(self).cast::<u8>() } else { self.start.cast_const() };
        // SAFETY: in place, `len` bytes of the handle itself hold them, which live as long as
        // `self` and are written through `&mut self` only. Elsewhere the handle keeps alive
        // `len` initialised bytes from `start` on, which nobody writes as long as they are
        // shared, and only through `&mut self` if they are not.
        unsafe { slice::from_raw_parts(start, self.len()) }
    }

    pub(super) fn home(&self) -> Home {
        match self.tag() {
            STATIC => Home::Static,
            POOL_SOLE | POOL_SHARED => Home::Pool,
            OWN => Home::Own,
            _ => Home::InPlace,
        }
    }

    /// The bytes for writing, if no other handle shows them.
    #[inline(always)]
    pub(super) fn get_mut(&mut self) -> Option<&mut [u8]> {
        let len = self.len();
        let start = match self.tag() {
            STATIC if len == 0 => return Some(&mut []),
            STATIC | POOL_SHARED => return None,
            POOL_SOLE => self.start,
            // SAFETY: this handle is one on it.
            OWN if !unsafe { Own::is_sole(self.owner_as()) } => return None,
            OWN => self.start,
            _ => ptr::from_mut(self).cast::<u8>(),
        };
        // SAFETY: `len` initialised bytes as in `as_slice`, and this handle, which is borrowed
        // mutably, is the only one that shows them.
        Some(unsafe { slice::from_raw_parts_mut(start, len) })
    }

    /// A handle on the bytes from `from` to `to`; both are in bounds.
    ///
    /// Few bytes are copied in place instead: bytes that are shared never change, so nobody
    /// can tell, and no memory is kept for them.
    #[inline]
    pub(super) fn slice(&self, from: usize, to: usize) -> Repr {
        let bytes = &self.as_slice()[from..to];
        if bytes.is_empty() {
            return Repr::empty();
        }
        if bytes.len() <= IN_PLACE_BYTES_MAX {
            return Repr::in_place(pack(bytes), bytes.len());
        }
        let (start, len) = (self.start.wrapping_add(from), bytes.len());
        match self.tag() {
            STATIC => Repr::heap(ptr::null_mut(), start, len, STATIC),
            OWN => {
                // SAFETY: `self` is a handle on it.
                pool::local(|local| unsafe { local.share_own(self.owner_as(), len) });
                Repr::heap(self.owner, start, len, OWN)
            }
            _ => {
                self.meta.store(self.len() as u64 | POOL_SHARED << TAG_SHIFT, Ordering::Relaxed);
                // SAFETY: `self` is a handle on it.
                pool::local(|local| unsafe { local.share(self.owner_as(), len) });
                Repr::heap(self.owner, start, len, POOL_SHARED)
            }
        }
    }

    /// Shows only the bytes from `from` to `to` from now on; both are in bounds.
    pub(super) fn narrow(&mut self, from: usize, to: usize) {
        let len = to - from;
        if len == self.len() {
            return;
        }
        if len <= IN_PLACE_BYTES_MAX {
            *self = self.slice(from, to);
            return;
        }
        let cut = self.len() - len;
        self.start = self.start.wrapping_add(from);
        *self.meta.get_mut() = len as u64 | self.tag() << TAG_SHIFT;
        pool::local(|local| local.cut(self.home(), cut));
    }

    /// The first word as what the tag says it is.
    #[inline(always)]
    fn owner_as<T>(&self) -> NonNull<T> {
        // SAFETY: only asked where the tag says that the word is an owner, which is never null.
        unsafe { NonNull::new_unchecked(self.owner.cast()) }
    }
}

impl Drop for Repr {
    #[inline(always)]
    fn drop(&mut self) {
        let meta = *self.meta.get_mut();
        let (tag, len) = (meta >> TAG_SHIFT, (meta & LEN_MASK) as usize);
        if tag & COUNTED == 0 {
            return;
        }
        pool::local(|local| {
            if tag != OWN {
                // SAFETY: the handle on the chunk ends here.
                unsafe { local.release(self.owner_as::<Chunk>(), len) };
            } else {
                // SAFETY: the handle on the memory ends here.
                unsafe { local.release_own(self.owner_as::<Own>(), len) };
            }
        });
    }
}

/// Up to [`IN_PLACE_BYTES_MAX`] values as three words, put together in registers.
///
/// Runs whose length is no multiple are read twice where they overlap: the same bytes, or-ed.
#[inline(always)]
fn pack<T: Element + ToUint8>(items: &[T]) -> [u64; 3] {
    let len = items.len();
    debug_assert!(len <= IN_PLACE_BYTES_MAX);
    if let (Some((first, rest)), Some(last)) = (items.split_first_chunk::<8>(), items.last_chunk::<8>()) {
        // Of the last eight, those after a multiple of eight.
        let tail = if len.is_multiple_of(8) { 0 } else { T::pack8(last) >> (64 - len % 8 * 8) };
        return match rest.first_chunk::<8>() {
            None => [T::pack8(first), tail, 0],
            Some(second) => [T::pack8(first), T::pack8(second), tail],
        };
    }
    let word = match (items.first_chunk::<4>(), items.last_chunk::<4>()) {
        (Some(first), Some(last)) => u64::from(T::pack4(first)) | u64::from(T::pack4(last)) << (len * 8 - 32),
        _ if len == 0 => 0,
        _ => {
            let middle = len / 2;
            let [first, middle_byte, last, _] =
                T::pack4(&[items[0], items[middle], items[len - 1], items[0]]).to_le_bytes().map(u64::from);
            first | middle_byte << (middle * 8) | last << (len * 8 - 8)
        }
    };
    [word, 0, 0]
}
