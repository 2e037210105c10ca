//! Conversions of many numbers to bytes, once for each instruction set.
//!
//! All of it is safe code: the bodies for AVX2 and AVX-512 are functions with that target
//! feature, and only entering them needs proof that the machine has it, which `repr` holds.
//! Doubles name the conversion instruction, because the language's own cast saturates and
//! costs several times as much. Integers name the narrowing ones: of a loop the compiler makes
//! three times as many shuffles between the halves of a register as it takes.
//!
//! The last, partial block is converted as a whole block that ends with the last value:
//! some bytes are written twice, and no scalar loop is left.

use super::to_uint8::{
    ToUint8, double,
    sealed::{Element, Integer},
};
use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_and_si128, _mm_cmpeq_epi32, _mm_cvtsi128_si32, _mm_cvtsi128_si64, _mm_cvttpd_epi32,
    _mm_movemask_epi8, _mm_or_si128, _mm_packs_epi32, _mm_packus_epi16, _mm_set_epi32, _mm_set_pd, _mm_set1_epi32,
    _mm_unpackhi_epi64, _mm_unpacklo_epi64, _mm256_and_si256, _mm256_castsi256_si128, _mm256_cmpeq_epi32,
    _mm256_cvttpd_epi32, _mm256_extracti128_si256, _mm256_movemask_epi8, _mm256_or_si256, _mm256_packus_epi16,
    _mm256_packus_epi32, _mm256_permutevar8x32_epi32, _mm256_set_epi32, _mm256_set_m128i, _mm256_set_pd,
    _mm256_set1_epi32, _mm512_castsi256_si512, _mm512_cmpeq_epi32_mask, _mm512_cvtepi32_epi8, _mm512_cvttpd_epi32,
    _mm512_inserti64x4, _mm512_set_pd, _mm512_set1_epi32,
};
use std::mem::MaybeUninit;

/// Values in one block of the wide sets.
const BLOCK: usize = 32;

/// Any type and count with what every x86-64 has: eight values at a time.
#[inline(never)]
pub(super) fn base<T: Element + ToUint8>(items: &[T], bytes: &mut [MaybeUninit<u8>]) {
    by_blocks(items, bytes, |eight: &[T; 8]| T::pack8(eight).to_le_bytes());
}

/// The low bytes of four words, the first one's lowest.
#[inline]
#[target_feature(enable = "sse2")]
pub(super) fn words4([a, b, c, d]: [i32; 4]) -> u32 {
    let words = _mm_set_epi32(d, c, b, a);
    _mm_cvtsi128_si32(low_bytes(words, words)) as u32
}

/// The low bytes of eight words, the first one's lowest.
#[inline]
#[target_feature(enable = "sse2")]
pub(super) fn words8([a, b, c, d, e, f, g, h]: [i32; 8]) -> u64 {
    _mm_cvtsi128_si64(low_bytes(_mm_set_epi32(d, c, b, a), _mm_set_epi32(h, g, f, e))) as u64
}

/// The bytes of four doubles, the first one's lowest.
#[inline]
#[target_feature(enable = "sse2")]
pub(super) fn doubles4(items: &[f64; 4]) -> u32 {
    let [a, b, c, d] = *items;
    let words = _mm_unpacklo_epi64(_mm_cvttpd_epi32(_mm_set_pd(b, a)), _mm_cvttpd_epi32(_mm_set_pd(d, c)));
    // What does not fit an i32 converts to the most negative one.
    if _mm_movemask_epi8(_mm_cmpeq_epi32(words, _mm_set1_epi32(i32::MIN))) != 0 {
        return u32::from_le_bytes(items.map(double));
    }
    _mm_cvtsi128_si32(low_bytes(words, words)) as u32
}

/// The bytes of eight doubles, the first one's lowest.
#[inline]
#[target_feature(enable = "sse2")]
pub(super) fn doubles8(items: &[f64; 8]) -> u64 {
    let [a, b, c, d, e, f, g, h] = *items;
    let low = _mm_unpacklo_epi64(_mm_cvttpd_epi32(_mm_set_pd(b, a)), _mm_cvttpd_epi32(_mm_set_pd(d, c)));
    let high = _mm_unpacklo_epi64(_mm_cvttpd_epi32(_mm_set_pd(f, e)), _mm_cvttpd_epi32(_mm_set_pd(h, g)));
    let least = _mm_set1_epi32(i32::MIN);
    if _mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi32(low, least), _mm_cmpeq_epi32(high, least))) != 0 {
        return u64::from_le_bytes(items.map(double));
    }
    _mm_cvtsi128_si64(low_bytes(low, high)) as u64
}

/// The low bytes of two times four words, in the low half.
#[inline]
#[target_feature(enable = "sse2")]
fn low_bytes(first: __m128i, second: __m128i) -> __m128i {
    let mask = _mm_set1_epi32(0xff);
    let halves = _mm_packs_epi32(_mm_and_si128(first, mask), _mm_and_si128(second, mask));
    _mm_packus_epi16(halves, halves)
}

/// Integers with AVX2.
#[target_feature(enable = "avx2")]
pub(super) fn integers_avx2<T: Integer>(items: &[T], bytes: &mut [MaybeUninit<u8>]) {
    if items.len() < BLOCK {
        return base(items, bytes);
    }
    by_blocks(items, bytes, |block| integers_block_avx2(block));
}

/// Integers with AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) fn integers_avx512<T: Integer>(items: &[T], bytes: &mut [MaybeUninit<u8>]) {
    if items.len() < BLOCK {
        return base(items, bytes);
    }
    by_blocks(items, bytes, |block| integers_block_avx512(block));
}

/// Doubles with AVX2.
#[target_feature(enable = "avx2")]
pub(super) fn doubles_avx2(items: &[f64], bytes: &mut [MaybeUninit<u8>]) {
    if items.len() < BLOCK {
        return base(items, bytes);
    }
    by_blocks(items, bytes, |block| doubles_block_avx2(block));
}

/// Doubles with AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) fn doubles_avx512(items: &[f64], bytes: &mut [MaybeUninit<u8>]) {
    if items.len() < BLOCK {
        return base(items, bytes);
    }
    by_blocks(items, bytes, |block| doubles_block_avx512(block));
}

/// Converts whole blocks of `N`, then once more the `N` values at the end.
///
/// Fewer values than a block are converted one by one.
#[inline(always)]
fn by_blocks<T: ToUint8, const N: usize>(
    items: &[T],
    bytes: &mut [MaybeUninit<u8>],
    convert: impl Fn(&[T; N]) -> [u8; N],
) {
    assert_eq!(items.len(), bytes.len());
    let (blocks, rest) = items.as_chunks::<N>();
    let (places, _) = bytes.as_chunks_mut::<N>();
    for (block, place) in blocks.iter().zip(places) {
        place.write_copy_of_slice(&convert(block));
    }
    if rest.is_empty() {
        return;
    }
    match (items.last_chunk::<N>(), bytes.last_chunk_mut::<N>()) {
        (Some(block), Some(place)) => {
            place.write_copy_of_slice(&convert(block));
        }
        _ => {
            for (item, byte) in items.iter().zip(bytes) {
                byte.write(item.to_uint8());
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn doubles_block_avx2(block: &[f64; BLOCK]) -> [u8; BLOCK] {
    let (a, b) = (eight_avx2(block, 0), eight_avx2(block, 8));
    let (c, d) = (eight_avx2(block, 16), eight_avx2(block, 24));
    // What does not fit an i32 converts to the most negative one.
    let least = _mm256_set1_epi32(i32::MIN);
    let beyond = _mm256_or_si256(
        _mm256_or_si256(_mm256_cmpeq_epi32(a, least), _mm256_cmpeq_epi32(b, least)),
        _mm256_or_si256(_mm256_cmpeq_epi32(c, least), _mm256_cmpeq_epi32(d, least)),
    );
    if _mm256_movemask_epi8(beyond) != 0 {
        return beyond_i32(block);
    }
    narrow_avx2(a, b, c, d)
}

/// The low bytes of thirty-two words.
#[inline]
#[target_feature(enable = "avx2")]
fn narrow_avx2(a: __m256i, b: __m256i, c: __m256i, d: __m256i) -> [u8; BLOCK] {
    let low = _mm256_set1_epi32(0xff);
    let first = _mm256_packus_epi32(_mm256_and_si256(a, low), _mm256_and_si256(b, low));
    let second = _mm256_packus_epi32(_mm256_and_si256(c, low), _mm256_and_si256(d, low));
    // The packs work on each half alone: put the groups of four in order, once, at the end.
    let mixed = _mm256_packus_epi16(first, second);
    bytes_of(_mm256_permutevar8x32_epi32(mixed, _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn integers_block_avx2<T: Integer>(block: &[T; BLOCK]) -> [u8; BLOCK] {
    narrow_avx2(words_avx2(block, 0), words_avx2(block, 8), words_avx2(block, 16), words_avx2(block, 24))
}

/// Eight integers from `at` on, as words.
#[inline]
#[target_feature(enable = "avx2")]
fn words_avx2<T: Integer>(block: &[T; BLOCK], at: usize) -> __m256i {
    let [a, b, c, d, e, f, g, h] = *block[at..].first_chunk().expect("eight values in the block");
    _mm256_set_epi32(h.word(), g.word(), f.word(), e.word(), d.word(), c.word(), b.word(), a.word())
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn integers_block_avx512<T: Integer>(block: &[T; BLOCK]) -> [u8; BLOCK] {
    let sixteen = |at: usize| {
        let low = _mm512_castsi256_si512(words_avx2(block, at));
        _mm512_cvtepi32_epi8(_mm512_inserti64x4::<1>(low, words_avx2(block, at + 8)))
    };
    bytes_of(_mm256_set_m128i(sixteen(16), sixteen(0)))
}

/// Eight doubles from `at` on, as words.
#[inline]
#[target_feature(enable = "avx2")]
fn eight_avx2(block: &[f64; BLOCK], at: usize) -> __m256i {
    let [a, b, c, d, e, f, g, h] = *block[at..].first_chunk().expect("eight values in the block");
    _mm256_set_m128i(_mm256_cvttpd_epi32(_mm256_set_pd(h, g, f, e)), _mm256_cvttpd_epi32(_mm256_set_pd(d, c, b, a)))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn doubles_block_avx512(block: &[f64; BLOCK]) -> [u8; BLOCK] {
    let (low, high) = (sixteen_avx512(block, 0), sixteen_avx512(block, 16));
    let least = _mm512_set1_epi32(i32::MIN);
    if (_mm512_cmpeq_epi32_mask(low, least) | _mm512_cmpeq_epi32_mask(high, least)) != 0 {
        return beyond_i32(block);
    }
    bytes_of(_mm256_set_m128i(_mm512_cvtepi32_epi8(high), _mm512_cvtepi32_epi8(low)))
}

/// Sixteen doubles from `at` on, as words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn sixteen_avx512(block: &[f64; BLOCK], at: usize) -> __m512i {
    let low = _mm512_castsi256_si512(eight_avx512(block, at));
    _mm512_inserti64x4::<1>(low, eight_avx512(block, at + 8))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn eight_avx512(block: &[f64; BLOCK], at: usize) -> __m256i {
    let [a, b, c, d, e, f, g, h] = *block[at..].first_chunk().expect("eight values in the block");
    _mm512_cvttpd_epi32(_mm512_set_pd(h, g, f, e, d, c, b, a))
}

/// A block with a value that no `i32` holds: exact, one value at a time.
#[cold]
#[inline(never)]
fn beyond_i32(block: &[f64; BLOCK]) -> [u8; BLOCK] {
    block.map(double)
}

/// The bytes of a vector, in memory's order; one store after optimisation.
#[inline]
#[target_feature(enable = "avx2")]
fn bytes_of(vector: __m256i) -> [u8; 32] {
    let (low, high) = (_mm256_castsi256_si128(vector), _mm256_extracti128_si256::<1>(vector));
    let words = [
        _mm_cvtsi128_si64(low),
        _mm_cvtsi128_si64(_mm_unpackhi_epi64(low, low)),
        _mm_cvtsi128_si64(high),
        _mm_cvtsi128_si64(_mm_unpackhi_epi64(high, high)),
    ];
    let mut bytes = [0; 32];
    for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    bytes
}
