//! ToUint8 against arithmetic on the bits of the number.

use crate::buffer::{Buffer, ToUint8};
use proptest::prelude::*;

/// Truncation toward zero, modulo 256, from sign, exponent and mantissa.
fn model(value: f64) -> u8 {
    let bits = value.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i32;
    if exponent == 0x7ff || exponent == 0 {
        return 0;
    }
    let mantissa = u128::from(bits & ((1 << 52) - 1) | 1 << 52);
    let magnitude = match exponent - 1075 {
        shift @ 0..64 => mantissa << shift,
        64.. => 0,
        shift => mantissa.checked_shr(shift.unsigned_abs()).unwrap_or(0),
    };
    if value.is_sign_negative() { (magnitude as u8).wrapping_neg() } else { magnitude as u8 }
}

pub fn doubles() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -3000.0..3000.0f64,
        1 => any::<u64>().prop_map(f64::from_bits),
        1 => (0..70i32, -3.0..3.0f64).prop_map(|(power, off)| 2f64.powi(power) + off),
        1 => (0..70i32, -3.0..3.0f64).prop_map(|(power, off)| off - 2f64.powi(power)),
        1 => prop::sample::select(vec![
            0.0, -0.0, -0.5, -0.99, 0.99, 255.5, 256.0, -1.0, -256.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY,
            f64::MIN_POSITIVE, f64::MAX, f64::MIN, 9007199254740992.0, -9007199254740992.0, 9007199254740991.0,
            2147483647.0, 2147483648.0, -2147483648.0, -2147483649.0, 4294967295.0, 9223372036854775807.0,
            -9223372036854775808.0, 1.152921504606847e18,
        ]),
    ]
}

fn same<T: ToUint8>(items: &[T], model: impl Fn(T) -> u8) {
    let expected: Vec<u8> = items.iter().map(|&item| model(item)).collect();
    assert_eq!(Buffer::of(items).as_slice(), expected);
}

proptest! {
    #[test]
    fn doubles_as_their_bits_say(items in prop::collection::vec(doubles(), 0..200)) {
        same(&items, model);
    }

    #[test]
    fn integers_modulo_256(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        signed in prop::collection::vec(any::<i8>(), 0..200),
        words in prop::collection::vec(any::<i32>(), 0..200),
        unsigned in prop::collection::vec(any::<u32>(), 0..200),
        long in prop::collection::vec(any::<i64>(), 0..200),
    ) {
        same(&bytes, |item| item);
        same(&signed, |item| i64::from(item).rem_euclid(256) as u8);
        same(&words, |item| i64::from(item).rem_euclid(256) as u8);
        same(&unsigned, |item| i64::from(item).rem_euclid(256) as u8);
        same(&long, |item| i128::from(item).rem_euclid(256) as u8);
    }
}

#[test]
fn every_length_up_to_many_blocks() {
    let items: Vec<i32> = (0..4200).map(|at| at * 77 - 5000).collect();
    let doubles: Vec<f64> = items.iter().map(|&item| f64::from(item) * 1.5).collect();
    for len in (0..300).chain([4095, 4096, 4097, 4200]) {
        same(&items[..len], |item| item.rem_euclid(256) as u8);
        same(&doubles[..len], model);
    }
}
