//! The doors into code for one instruction set: which sets this machine has, and conversions
//! by the widest of them.

use crate::buffer::{to_uint8::sealed::Integer, wide};
use std::{
    mem::MaybeUninit,
    sync::atomic::{AtomicU8, Ordering},
};

/// The widest instruction set that this machine has, of those with a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(in crate::buffer) enum Set {
    /// What every x86-64 has.
    Base = 1,
    Avx2,
    Avx512,
}

impl Set {
    /// Asked of the processor once; a load and a compare after that.
    #[inline(always)]
    pub(in crate::buffer) fn of_this_machine() -> Set {
        match SET.load(Ordering::Relaxed) {
            3 => Set::Avx512,
            2 => Set::Avx2,
            1 => Set::Base,
            _ => detect(),
        }
    }
}

/// A [`Set`], or 0 before it is known.
static SET: AtomicU8 = AtomicU8::new(0);

#[cold]
#[inline(never)]
fn detect() -> Set {
    let avx2 = is_x86_feature_detected!("avx2");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl");
    let set = match (avx2, avx512) {
        (true, true) => Set::Avx512,
        (true, false) => Set::Avx2,
        _ => Set::Base,
    };
    SET.store(set as u8, Ordering::Relaxed);
    set
}

/// Converts integers with what this machine has.
///
/// Not inlined, as its twin for doubles: one call in place of three leaves registers to the
/// small buffers, which are made beside it.
#[inline(never)]
pub(in crate::buffer) fn convert_integers<T: Integer>(items: &[T], bytes: &mut [MaybeUninit<u8>]) {
    // SAFETY: the set is this machine's.
    unsafe { convert_integers_with(Set::of_this_machine(), items, bytes) }
}

/// Converts doubles with what this machine has.
#[inline(never)]
pub(in crate::buffer) fn convert_doubles(items: &[f64], bytes: &mut [MaybeUninit<u8>]) {
    // SAFETY: the set is this machine's.
    unsafe { convert_doubles_with(Set::of_this_machine(), items, bytes) }
}

/// # Safety
/// The machine has `set`.
#[inline(always)]
unsafe fn convert_integers_with<T: Integer>(set: Set, items: &[T], bytes: &mut [MaybeUninit<u8>]) {
    match set {
        Set::Base => wide::base(items, bytes),
        // SAFETY: the caller's promise.
        Set::Avx2 => unsafe { wide::integers_avx2(items, bytes) },
        // SAFETY: the caller's promise.
        Set::Avx512 => unsafe { wide::integers_avx512(items, bytes) },
    }
}

/// # Safety
/// The machine has `set`.
#[inline(always)]
unsafe fn convert_doubles_with(set: Set, items: &[f64], bytes: &mut [MaybeUninit<u8>]) {
    match set {
        Set::Base => wide::base(items, bytes),
        // SAFETY: the caller's promise.
        Set::Avx2 => unsafe { wide::doubles_avx2(items, bytes) },
        // SAFETY: the caller's promise.
        Set::Avx512 => unsafe { wide::doubles_avx512(items, bytes) },
    }
}

/// The low bytes of four words, the first one's lowest.
#[inline(always)]
pub(in crate::buffer) fn pack_words4(words: [i32; 4]) -> u32 {
    // SAFETY: every x86-64 has SSE2.
    unsafe { wide::words4(words) }
}

/// The low bytes of eight words, the first one's lowest.
#[inline(always)]
pub(in crate::buffer) fn pack_words8(words: [i32; 8]) -> u64 {
    // SAFETY: every x86-64 has SSE2.
    unsafe { wide::words8(words) }
}

/// The bytes of eight doubles, the first one's lowest.
#[inline(always)]
pub(in crate::buffer) fn pack_doubles8(doubles: &[f64; 8]) -> u64 {
    // SAFETY: every x86-64 has SSE2.
    unsafe { wide::doubles8(doubles) }
}

/// The bytes of four doubles, the first one's lowest.
#[inline(always)]
pub(in crate::buffer) fn pack_doubles4(doubles: &[f64; 4]) -> u32 {
    // SAFETY: every x86-64 has SSE2.
    unsafe { wide::doubles4(doubles) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::ToUint8;
    use proptest::prelude::*;

    /// Runs `convert` with every set that this machine has.
    fn with_each_set(len: usize, convert: impl Fn(Set, &mut [MaybeUninit<u8>])) -> Vec<Vec<u8>> {
        let sets = [Set::Base, Set::Avx2, Set::Avx512];
        let present = sets.into_iter().filter(|&set| set <= Set::of_this_machine());
        present
            .map(|set| {
                // Not what any conversion writes by chance.
                let mut bytes = vec![MaybeUninit::new(0x5a); len + 2];
                convert(set, &mut bytes[1..=len]);
                // SAFETY: initialised above, and a conversion only writes.
                let bytes: Vec<u8> = bytes.iter().map(|byte| unsafe { byte.assume_init() }).collect();
                assert_eq!((bytes[0], bytes[len + 1]), (0x5a, 0x5a), "written out of bounds");
                bytes[1..=len].to_vec()
            })
            .collect()
    }

    fn check<T: Integer>(items: &[T]) {
        let expected: Vec<u8> = items.iter().map(|item| item.to_uint8()).collect();
        // SAFETY: only sets of this machine are asked for.
        let all = with_each_set(items.len(), |set, bytes| unsafe { convert_integers_with(set, items, bytes) });
        assert!(all.iter().all(|bytes| *bytes == expected));
    }

    proptest! {
        #[test]
        fn each_set_converts_as_the_scalar_rule(
            words in prop::collection::vec(any::<i32>(), 0..150),
            unsigned in prop::collection::vec(any::<u32>(), 0..150),
            long in prop::collection::vec(any::<i64>(), 0..150),
            doubles in prop::collection::vec(prop_oneof![20 => -1e6..1e6f64, 1 => -1e20..1e20f64], 0..150),
        ) {
            check(&words);
            check(&unsigned);
            check(&long);
            let expected: Vec<u8> = doubles.iter().map(|item| item.to_uint8()).collect();
            // SAFETY: only sets of this machine are asked for.
            let all = with_each_set(doubles.len(), |set, bytes| unsafe { convert_doubles_with(set, &doubles, bytes) });
            prop_assert!(all.iter().all(|bytes| *bytes == expected));
        }
    }
}
