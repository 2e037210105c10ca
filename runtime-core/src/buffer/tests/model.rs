//! Any sequence of operations on handles that share memory shows what plain vectors show.

use crate::buffer::{Buffer, Counters, Home, home};
use proptest::prelude::*;
use std::thread;

#[derive(Clone, Debug)]
enum Step {
    Of(Vec<u8>),
    OfIn(u8, Vec<u8>),
    FromVec(Vec<u8>),
    Alloc(usize),
    Concat(usize, usize, Option<usize>),
    Slice(usize, isize, isize),
    Narrow(usize, usize, usize),
    Clone(usize),
    WriteU8(usize, usize, u8),
    WriteWide(usize, usize, u64),
    Fill(usize, Vec<u8>, usize, usize),
    Copy(usize, usize, usize, usize, usize),
    IntoStable(usize),
    Drop(usize),
    /// Cloned on another thread, one of both dropped there, the other one comes back.
    Visit(usize, bool),
}

fn lens() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0..30usize, 3 => 30..300usize, 1 => 4000..4200usize, 1 => 4200..9000usize]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    (lens(), any::<u8>()).prop_map(|(len, seed)| (0..len).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect())
}

fn steps() -> impl Strategy<Value = Step> {
    let which = || any::<usize>();
    let at = || prop_oneof![0..30usize, 0..9000usize];
    let signed = || prop_oneof![-30..30isize, -9000..9000isize];
    prop_oneof![
        3 => bytes().prop_map(Step::Of),
        1 => (0..3u8, bytes()).prop_map(|(home, bytes)| Step::OfIn(home, bytes)),
        1 => bytes().prop_map(Step::FromVec),
        1 => lens().prop_map(Step::Alloc),
        1 => (which(), which(), prop::option::of(lens())).prop_map(|(a, b, len)| Step::Concat(a, b, len)),
        4 => (which(), signed(), signed()).prop_map(|(a, from, to)| Step::Slice(a, from, to)),
        2 => (which(), at(), at()).prop_map(|(a, from, to)| Step::Narrow(a, from, to)),
        2 => which().prop_map(Step::Clone),
        2 => (which(), at(), any::<u8>()).prop_map(|(a, at, value)| Step::WriteU8(a, at, value)),
        2 => (which(), at(), any::<u64>()).prop_map(|(a, at, value)| Step::WriteWide(a, at, value)),
        1 => (which(), prop::collection::vec(any::<u8>(), 0..5), at(), at())
            .prop_map(|(a, pattern, from, to)| Step::Fill(a, pattern, from, to)),
        1 => (which(), which(), at(), at(), at()).prop_map(|(a, b, at, from, to)| Step::Copy(a, b, at, from, to)),
        1 => which().prop_map(Step::IntoStable),
        3 => which().prop_map(Step::Drop),
        1 => (which(), any::<bool>()).prop_map(|(a, back)| Step::Visit(a, back)),
    ]
}

type Pair = (Buffer, Vec<u8>);

/// Runs a step on buffers and vectors; what a visit counted on its thread is added up.
fn run(step: Step, pairs: &mut Vec<Pair>, elsewhere: &mut Counters) {
    let count = pairs.len();
    let index = |which: usize| which % count.max(1);
    if count == 0 && !matches!(step, Step::Of(_) | Step::OfIn(..) | Step::FromVec(_) | Step::Alloc(_)) {
        return;
    }
    let clamp = |from: usize, to: usize, len: usize| (from.min(to.min(len)), to.min(len));
    match step {
        Step::Of(bytes) => pairs.push((Buffer::of(&bytes), bytes)),
        Step::OfIn(home, bytes) => {
            let home = [Home::InPlace, Home::Pool, Home::Own][usize::from(home)];
            if let Some(buffer) = Buffer::of_in(home, &bytes) {
                assert_eq!(buffer.home(), if bytes.is_empty() { Home::Static } else { home });
                pairs.push((buffer, bytes));
            }
        }
        Step::FromVec(bytes) => pairs.push((Buffer::from(bytes.clone()), bytes)),
        Step::Alloc(len) => pairs.push((Buffer::alloc(len), vec![0; len])),
        Step::Concat(a, b, len) => {
            let (a, b) = (&pairs[index(a)], &pairs[index(b)]);
            let mut expected = [a.1.as_slice(), b.1.as_slice()].concat();
            let buffer = match len {
                None => Buffer::concat(&[&a.0, &b.0]),
                Some(len) => {
                    expected.resize(len, 0);
                    Buffer::concat_to(&[&a.0, &b.0], len)
                }
            };
            pairs.push((buffer, expected));
        }
        Step::Slice(a, from, to) => {
            let (buffer, bytes) = &pairs[index(a)];
            let absolute = |at: isize| if at < 0 { (bytes.len() as isize + at).max(0) } else { at } as usize;
            let (start, end) = clamp(absolute(from), absolute(to), bytes.len());
            pairs.push((buffer.subarray(from, to), bytes[start..end].to_vec()));
        }
        Step::Narrow(a, from, to) => {
            let (buffer, bytes) = &mut pairs[index(a)];
            let (start, end) = clamp(from, to, bytes.len());
            buffer.narrow(from..to);
            *bytes = bytes[start..end].to_vec();
        }
        Step::Clone(a) => pairs.push(pairs[index(a)].clone()),
        Step::WriteU8(a, at, value) => {
            let (buffer, bytes) = &mut pairs[index(a)];
            let written = buffer.write_u8(value, at);
            match bytes.get_mut(at) {
                Some(byte) => {
                    *byte = value;
                    assert_eq!((written, buffer.read_u8(at)), (Ok(at + 1), Ok(value)));
                }
                None => assert!(written.is_err()),
            }
        }
        Step::WriteWide(a, at, value) => {
            let (buffer, bytes) = &mut pairs[index(a)];
            let written = buffer.write_f64_be(f64::from_bits(value), at);
            match bytes.get_mut(at..).and_then(|rest| rest.get_mut(..8)) {
                Some(place) => {
                    place.copy_from_slice(&value.to_be_bytes());
                    assert_eq!((written, buffer.read_u64_be(at)), (Ok(at + 8), Ok(value)));
                    assert_eq!(buffer.read_u64_le(at), Ok(value.swap_bytes()));
                    assert_eq!(buffer.read_i16_le(at + 6), Ok((value as i16).swap_bytes()));
                }
                None => assert!(written.is_err() && buffer.read_u64_le(at).is_err()),
            }
        }
        Step::Fill(a, pattern, from, to) => {
            let (buffer, bytes) = &mut pairs[index(a)];
            let (start, end) = clamp(from, to, bytes.len());
            buffer.fill(pattern.as_slice(), from..to);
            for (at, byte) in bytes[start..end].iter_mut().enumerate() {
                *byte = if pattern.is_empty() { 0 } else { pattern[at % pattern.len()] };
            }
        }
        Step::Copy(a, b, at, from, to) => {
            let source = pairs[index(a)].clone();
            let (buffer, bytes) = &mut pairs[index(b)];
            let (start, end) = clamp(from, to, source.1.len());
            let expected = (end - start).min(bytes.len().saturating_sub(at));
            assert_eq!(source.0.copy(buffer.make_mut(), at, from..to), expected);
            if expected > 0 {
                bytes[at..at + expected].copy_from_slice(&source.1[start..start + expected]);
            }
        }
        Step::IntoStable(a) => {
            let (buffer, bytes) = pairs.swap_remove(index(a));
            let buffer = buffer.into_stable();
            let address = buffer.as_ptr();
            pairs.push((buffer, bytes));
            let moved = &pairs.last().expect("just pushed").0;
            assert!(moved.is_empty() || moved.as_ptr() == address);
        }
        Step::Drop(a) => drop(pairs.swap_remove(index(a))),
        Step::Visit(a, clone_comes_back) => {
            let (buffer, bytes) = pairs.swap_remove(index(a));
            let visit = thread::spawn(move || {
                let clone = buffer.clone();
                let (back, dropped) = if clone_comes_back { (clone, buffer) } else { (buffer, clone) };
                drop(dropped);
                (back, Counters::of_this_thread())
            });
            let (buffer, counters) = visit.join().expect("the visit ends");
            *elsewhere = *elsewhere + counters;
            pairs.push((buffer, bytes));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 100 }))]

    #[test]
    fn any_steps_show_what_vectors_show(steps in prop::collection::vec(steps(), 1..80)) {
        // A thread of its own, so that its counters begin at zero and its pool ends.
        let counters = thread::spawn(move || {
            let (mut pairs, mut elsewhere) = (Vec::new(), Counters::default());
            for step in steps {
                run(step, &mut pairs, &mut elsewhere);
                for (buffer, bytes) in &pairs {
                    assert_eq!(buffer.as_slice(), bytes);
                    assert_eq!((buffer.len(), buffer.is_empty()), (bytes.len(), bytes.is_empty()));
                }
            }
            for pair in pairs.windows(2) {
                let [a, b] = pair else { unreachable!("windows of two") };
                assert_eq!(a.0.compare(&b.0), a.1.cmp(&b.1));
                assert_eq!(a.0.equals(&b.0), a.1 == b.1);
            }
            drop(pairs);
            elsewhere + Counters::of_this_thread()
        });
        let counters = counters.join().expect("the steps end");
        for tally in [counters.pool, counters.own] {
            prop_assert_eq!((tally.live(), tally.live_bytes(), tally.held_bytes()), (0, 0, 0));
        }
    }

    #[test]
    fn searches_agree_with_windows(
        bytes in prop::collection::vec(0..3u8, 0..40),
        needle in prop::collection::vec(0..3u8, 1..4),
        from in -50..50isize,
    ) {
        let buffer = Buffer::of(&bytes);
        let found: Vec<usize> =
            (0..bytes.len()).filter(|&at| bytes[at..].starts_with(&needle)).collect();
        let from_start = if from < 0 { (bytes.len() as isize + from).max(0) } else { from } as usize;
        let first = found.iter().copied().find(|&at| at >= from_start);
        prop_assert_eq!(buffer.index_of(needle.as_slice(), from), first);
        prop_assert_eq!(buffer.includes(needle.as_slice(), from), first.is_some());
        let limit = if from < 0 { bytes.len() as isize + from } else { from };
        let last = found.iter().copied().rev().find(|&at| at as isize <= limit);
        prop_assert_eq!(buffer.last_index_of(needle.as_slice(), from), last);
        if let [byte] = *needle {
            prop_assert_eq!(buffer.index_of(byte, from), first);
            prop_assert_eq!(buffer.last_index_of(byte, from), last);
        }
    }
}

#[test]
fn homes_follow_the_length() {
    let home = |len: usize| Buffer::alloc(len).home();
    assert_eq!((home(0), home(1)), (Home::Static, Home::InPlace));
    assert_eq!(home(home::IN_PLACE_BYTES_MAX), Home::InPlace);
    assert_eq!(home(home::IN_PLACE_BYTES_MAX + 1), Home::Pool);
    assert_eq!(home(home::POOL_BYTES_MAX), Home::Pool);
    assert_eq!(home(home::POOL_BYTES_MAX + 1), Home::Own);
    assert_eq!(Buffer::from_static(b"never freed").home(), Home::Static);
    assert_eq!(Buffer::from(vec![1; 10_000]).home(), Home::Own);
}
