//! JavaScript's ToUint8 for the element types that [`Buffer::of`](super::Buffer::of) takes.
//!
//! A value is truncated toward zero and taken modulo 256; NaN and the infinities are 0.
//! Beside the scalar rule each type packs four or eight values into one register: small
//! buffers are put together from such words, because bytes that are stored one by one and
//! then read back as a word stall the processor for longer than the whole call takes.

use super::{repr::sets, wide};
use std::mem::MaybeUninit;

/// A number that becomes one byte of a buffer by JavaScript's ToUint8.
///
/// Sealed: the implementations are `u8`, `i8`, `i32`, `u32`, `i64` and `f64`.
pub trait ToUint8: sealed::Element {
    /// The byte: truncated toward zero, modulo 256; 0 for NaN and the infinities.
    fn to_uint8(self) -> u8;
}

pub(super) mod sealed {
    use std::mem::MaybeUninit;

    /// What the wide conversions need of an element type.
    pub trait Element: Copy {
        /// Four bytes, the first value's lowest.
        fn pack4(items: &[Self; 4]) -> u32;

        /// Eight bytes, the first value's lowest.
        #[inline(always)]
        fn pack8(items: &[Self; 8]) -> u64 {
            let [a, b, c, d, e, f, g, h] = *items;
            u64::from(Self::pack4(&[a, b, c, d])) | u64::from(Self::pack4(&[e, f, g, h])) << 32
        }

        /// Converts all of `items`; writes every byte of `bytes`, which is as long.
        fn convert(items: &[Self], bytes: &mut [MaybeUninit<u8>]);
    }

    /// An integer with more than a byte.
    pub trait Integer: Element + super::ToUint8 {
        /// The low 32 bits.
        fn word(self) -> i32;
    }
}

/// The scalar rule for a double.
///
/// Below 2^63 the cast to `i64` is the exact truncation. From 2^60 on a double is a multiple
/// of 256, so everything that the cast would clamp is 0, as are NaN and the infinities.
#[inline(always)]
pub(super) fn double(value: f64) -> u8 {
    const BEYOND: f64 = (1u64 << 60) as f64;
    if value.abs() < BEYOND { value as i64 as u8 } else { 0 }
}

macro_rules! integers {
    ($($type:ty),+) => {$(
        impl ToUint8 for $type {
            #[inline(always)]
            fn to_uint8(self) -> u8 {
                self as u8
            }
        }
    )+};
}
integers!(u8, i8, i32, u32, i64);

impl ToUint8 for f64 {
    #[inline(always)]
    fn to_uint8(self) -> u8 {
        double(self)
    }
}

macro_rules! words {
    ($($type:ty),+) => {$(
        impl sealed::Integer for $type {
            #[inline(always)]
            fn word(self) -> i32 {
                self as i32
            }
        }
    )+};
}
words!(i32, u32, i64);

macro_rules! packs_of_words {
    ($type:ty) => {
        #[inline(always)]
        fn pack4(items: &[$type; 4]) -> u32 {
            sets::pack_words4(items.map(|item| item as i32))
        }

        #[inline(always)]
        fn pack8(items: &[$type; 8]) -> u64 {
            sets::pack_words8(items.map(|item| item as i32))
        }
    };
}

macro_rules! packs_of_bytes {
    ($type:ty) => {
        #[inline(always)]
        fn pack4(items: &[$type; 4]) -> u32 {
            u32::from_le_bytes(items.map(|item| item as u8))
        }

        #[inline(always)]
        fn pack8(items: &[$type; 8]) -> u64 {
            u64::from_le_bytes(items.map(|item| item as u8))
        }
    };
}

impl sealed::Element for u8 {
    packs_of_bytes!(u8);

    #[inline(always)]
    fn convert(items: &[u8], bytes: &mut [MaybeUninit<u8>]) {
        bytes.write_copy_of_slice(items);
    }
}

impl sealed::Element for i8 {
    packs_of_bytes!(i8);

    #[inline(always)]
    fn convert(items: &[i8], bytes: &mut [MaybeUninit<u8>]) {
        wide::base(items, bytes);
    }
}

impl sealed::Element for i32 {
    packs_of_words!(i32);

    #[inline(always)]
    fn convert(items: &[i32], bytes: &mut [MaybeUninit<u8>]) {
        sets::convert_integers(items, bytes);
    }
}

impl sealed::Element for u32 {
    packs_of_words!(u32);

    #[inline(always)]
    fn convert(items: &[u32], bytes: &mut [MaybeUninit<u8>]) {
        sets::convert_integers(items, bytes);
    }
}

impl sealed::Element for i64 {
    #[inline(always)]
    fn pack4(items: &[i64; 4]) -> u32 {
        sets::pack_words4(items.map(|item| item as i32))
    }

    #[inline(always)]
    fn convert(items: &[i64], bytes: &mut [MaybeUninit<u8>]) {
        sets::convert_integers(items, bytes);
    }
}

impl sealed::Element for f64 {
    #[inline(always)]
    fn pack4(items: &[f64; 4]) -> u32 {
        sets::pack_doubles4(items)
    }

    #[inline(always)]
    fn pack8(items: &[f64; 8]) -> u64 {
        sets::pack_doubles8(items)
    }

    #[inline(always)]
    fn convert(items: &[f64], bytes: &mut [MaybeUninit<u8>]) {
        sets::convert_doubles(items, bytes);
    }
}
