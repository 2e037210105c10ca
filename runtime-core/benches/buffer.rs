//! What it costs to make and drop a buffer, beside what people use and what the machine
//! can do.
//!
//! `cargo bench -p runtime-core --bench buffer -- [--json] [--quick] [--homes]`: by default
//! the rows of workload `buffer-of`; with `--homes` the figures that decide which home a
//! length gets, as a table. Everything runs on one CPU, in interleaved rounds; every loop
//! keeps a reachable store and gets its input through a black box.

use bytes::Bytes;
use runtime_core::buffer::{Buffer, Home, ToUint8};
use std::{env, hint::black_box, mem::MaybeUninit};
use tracebyte_tests::rounds::{Figures, Limit, Row, Variant, interleave, pin, time_ns};

const LENS: [usize; 8] = [0, 1, 2, 8, 64, 256, 1024, 2048];
const LEN_MAX: usize = 8192;

/// Nanoseconds that a buffer may take over 1.25 times the bare conversion.
const ALLOWANCE_NS: f64 = 3.0;

fn main() {
    let asked = |flag: &str| env::args().any(|argument| argument == flag);
    if let Err(error) = pin(1).or_else(|_| pin(0)) {
        eprintln!("not pinned to one CPU, so figures are noisier: {error:#}");
    }
    let rounds = if asked("--quick") { 7 } else { 21 };
    if asked("--homes") {
        homes(rounds);
        return;
    }
    let rows = [
        rows_of::<i32>("i32", rounds, |at| at as i32 * 7919 - 1_000_000, stack_i32),
        rows_of::<u8>(
            "u8",
            rounds,
            |at| at as u8,
            |items, bytes| {
                bytes.write_copy_of_slice(items);
            },
        ),
        rows_of::<f64>("f64", rounds, |at| at as f64 * 1234.75 - 1_000_000.0, scalar_f64),
    ];
    for row in rows.into_iter().flatten() {
        if asked("--json") {
            println!("{}", row.json());
        } else {
            let limit = row.limit.map_or(String::new(), |limit| format!("{limit:?}"));
            println!(
                "{:<10} {:<32} {:<22} median {:>8.2} min {:>8.2} {:<4} ratio {:>6.2} {limit} {}",
                row.workload,
                row.variant,
                row.peer,
                row.median,
                row.min,
                row.unit,
                row.ratio.unwrap_or(f64::NAN),
                row.met().map_or("", |met| if met { "met" } else { "MISSED" }),
            );
        }
    }
}

/// Calls in one round: about a millisecond.
fn calls(len: usize) -> u64 {
    1_000_000 / (5 + len as u64 / 8)
}

/// Times `make`, whose result is looked at and dropped.
#[inline(always)]
fn time<T: Copy, R>(items: &[T], mut make: impl FnMut(&[T]) -> R) -> f64 {
    time_ns(calls(items.len()), |_| {
        let made = make(black_box(items));
        black_box(&made);
    })
}

type Convert<T> = fn(&[T], &mut [MaybeUninit<u8>]);

/// All lengths of one element type. `bare` is the conversion to the stack: for doubles the
/// scalar cast that the limit names, else the widest there is.
fn rows_of<T: ToUint8>(name: &str, rounds: usize, item: fn(usize) -> T, bare: Convert<T>) -> Vec<Row> {
    LENS.iter().flat_map(|&len| rows_of_len(name, rounds, len, item, bare)).collect()
}

fn rows_of_len<T: ToUint8>(name: &str, rounds: usize, len: usize, item: fn(usize) -> T, bare: Convert<T>) -> Vec<Row> {
    let items: Vec<T> = (0..len).map(item).collect();
    let octets: Vec<u8> = items.iter().map(|item| item.to_uint8()).collect();
    let (items, octets) = (items.as_slice(), octets.as_slice());
    let mut empty = || time(items, |items| items.len());
    let mut buffer = || time(items, Buffer::of);
    let mut stack = || {
        time(items, |items| {
            let mut bytes = [const { MaybeUninit::<u8>::uninit() }; LEN_MAX];
            bare(items, &mut bytes[..items.len()]);
            black_box(&bytes);
        })
    };
    let mut peer_bytes = || time(octets, Bytes::copy_from_slice);
    let mut peer_box = || time(octets, |octets| Box::<[u8]>::from(octets));
    let mut variants: [Variant<'_>; 5] = [
        ("empty loop", &mut empty),
        ("Buffer::of", &mut buffer),
        ("stack", &mut stack),
        ("Bytes::copy_from_slice", &mut peer_bytes),
        ("Box<[u8]>", &mut peer_box),
    ];
    let figures = interleave(rounds, &mut variants);
    let [empty, buffer, stack, bytes, boxed] = &figures[..] else { unreachable!("five variants") };
    let row = |figures: &Figures| {
        let mut row = Row::new("buffer-of", figures, "ns");
        row.variant = format!("{} {name} {len}", figures.variant);
        row
    };
    let mut rows = vec![row(empty), row(stack), row(bytes), row(boxed), row(buffer)];
    // What is absolute is judged without the loop around it.
    match len {
        0 => rows.push(row(buffer).against(&empty.variant, buffer.over(empty)).limit(Limit::AtMost(1.0))),
        1..=8 => rows.push(row(buffer).against(&empty.variant, buffer.over(empty)).limit(Limit::AtMost(4.5))),
        _ => {}
    }
    let against_bytes = row(buffer).against(&bytes.variant, buffer.ratio_to(bytes));
    rows.push(if len > 0 && len <= 8 { against_bytes.limit(Limit::AtMost(0.70)) } else { against_bytes });
    rows.push(row(buffer).against(&boxed.variant, buffer.ratio_to(boxed)));
    match name {
        "f64" if len >= 256 => {
            rows.push(row(buffer).against("scalar cast", stack.ratio_to(buffer)).limit(Limit::AtLeast(4.0)));
        }
        "i32" if len >= 64 => {
            let mut less = buffer.clone();
            less.rounds.iter_mut().for_each(|round| *round -= ALLOWANCE_NS);
            rows.push(row(buffer).against("stack, 3 ns less", less.ratio_to(stack)).limit(Limit::AtMost(1.25)));
        }
        _ => {}
    }
    rows
}

/// The widest conversion of integers to the stack, in the plainest way.
fn stack_i32(items: &[i32], bytes: &mut [MaybeUninit<u8>]) {
    if is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl") {
        // SAFETY: the machine has it.
        return unsafe { stack_i32_avx512(items, bytes) };
    }
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the machine has it.
        return unsafe { stack_i32_avx2(items, bytes) };
    }
    plain(items, bytes);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn stack_i32_avx512(items: &[i32], bytes: &mut [MaybeUninit<u8>]) {
    plain(items, bytes);
}

/// Thirty-two at a time, by name: a little faster than what the compiler makes of the loop.
#[target_feature(enable = "avx2")]
fn stack_i32_avx2(items: &[i32], bytes: &mut [MaybeUninit<u8>]) {
    use std::arch::x86_64::*;
    let (blocks, rest) = items.as_chunks::<32>();
    let (places, places_rest) = bytes.as_chunks_mut::<32>();
    for (block, place) in blocks.iter().zip(places) {
        // SAFETY: the block has 32 words, and `at` is at most 24.
        let eight = |at: usize| unsafe {
            _mm256_and_si256(_mm256_loadu_si256(block.as_ptr().add(at).cast()), _mm256_set1_epi32(0xff))
        };
        let mixed =
            _mm256_packus_epi16(_mm256_packus_epi32(eight(0), eight(8)), _mm256_packus_epi32(eight(16), eight(24)));
        let ordered = _mm256_permutevar8x32_epi32(mixed, _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0));
        // SAFETY: the place has 32 bytes.
        unsafe { _mm256_storeu_si256(place.as_mut_ptr().cast(), ordered) };
    }
    plain(rest, places_rest);
}

#[inline(always)]
fn plain(items: &[i32], bytes: &mut [MaybeUninit<u8>]) {
    for (byte, &item) in bytes.iter_mut().zip(items) {
        byte.write(item as u8);
    }
}

/// The cast that one would write: right as long as an `i64` holds the value.
fn scalar_f64(items: &[f64], bytes: &mut [MaybeUninit<u8>]) {
    for (byte, &item) in bytes.iter_mut().zip(items) {
        byte.write(item as i64 as u8);
    }
}

/// Prints what each home takes to copy bytes, the least of the rounds (the load of others only
/// adds): made and dropped at once, and as the newest of
/// a queue of 64, where the oldest is dropped.
fn homes(rounds: usize) {
    println!("| length | in place | pool | own | queue: in place | pool | own |\n|---|---|---|---|---|---|---|");
    for len in [1, 4, 8, 12, 16, 20, 23, 24, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192] {
        let octets: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let at_once = |home: Home| time(&octets, |octets| Buffer::of_in(home, octets).unwrap_or_default());
        let queued = |home: Home| {
            let mut queue = [const { Buffer::new() }; 64];
            let mut newest = 0;
            time(&octets, |octets| {
                newest = (newest + 1) % queue.len();
                queue[newest] = Buffer::of_in(home, octets).unwrap_or_default();
            })
        };
        let mut measures: [&mut dyn FnMut() -> f64; 6] = [
            &mut || at_once(Home::InPlace),
            &mut || at_once(Home::Pool),
            &mut || at_once(Home::Own),
            &mut || queued(Home::InPlace),
            &mut || queued(Home::Pool),
            &mut || queued(Home::Own),
        ];
        let holds = |home: Home| Buffer::of_in(home, &octets).is_some();
        let held = [Home::InPlace, Home::Pool, Home::Own].map(holds);
        let mut variants: Vec<Variant<'_>> = measures.iter_mut().map(|measure| ("", &mut **measure as _)).collect();
        let cells: Vec<String> = interleave(rounds, &mut variants)
            .iter()
            .zip(held.into_iter().cycle())
            .map(|(figures, held)| if held { format!("{:.1}", figures.min()) } else { "-".to_owned() })
            .collect();
        println!("| {len} | {} |", cells.join(" | "));
    }
}
