//! Any chunks, corked anyhow, written anyhow: what arrives is their concatenation, and every
//! callback is told once and in order.

use super::fake::{Does, Fake, Told, scripted, turn};
use crate::buffer::{Buffer, Encoding};
use crate::stream::{Error, Stream};
use proptest::prelude::*;
use std::io::ErrorKind;

#[derive(Clone, Debug)]
enum Op {
    Write { len: usize, by: By, callback: bool },
    Text(String, Encoding, bool),
    Cork,
    Uncork,
    Writable,
    Turn,
    Destroy,
    End,
}

/// How the bytes are given.
#[derive(Clone, Copy, Debug)]
enum By {
    Slice,
    Reference,
    Value,
    Vec,
}

fn op(ends: bool) -> impl Strategy<Value = Op> {
    let by = prop_oneof![Just(By::Slice), Just(By::Reference), Just(By::Value), Just(By::Vec)];
    let len = prop_oneof![6 => 0..40_usize, 2 => 1000..1100_usize, 1 => 3000..9000_usize];
    let encoding = prop_oneof![
        Just(Encoding::Utf8),
        Just(Encoding::Latin1),
        Just(Encoding::Hex),
        Just(Encoding::Base64),
        Just(Encoding::Ucs2),
    ];
    let text = prop_oneof![3 => "[a-f0-9]{0,20}", 1 => "\\PC{0,30}", 1 => "[a-f0-9]{1000,3000}"];
    let ends = u32::from(ends);
    prop_oneof![
        20 => (len, by, any::<bool>()).prop_map(|(len, by, callback)| Op::Write { len, by, callback }),
        4 => (text, encoding, any::<bool>()).prop_map(|(text, encoding, callback)| Op::Text(text, encoding, callback)),
        4 => Just(Op::Cork),
        5 => Just(Op::Uncork),
        4 => Just(Op::Writable),
        4 => Just(Op::Turn),
        ends => Just(Op::Destroy),
        ends => Just(Op::End),
    ]
}

fn does(fails: bool) -> impl Strategy<Value = Does> {
    prop_oneof![
        6 => (1..64_usize).prop_map(Does::Take),
        3 => (1..5000_usize).prop_map(Does::Take),
        3 => Just(Does::Block),
        1 => Just(Does::Interrupt),
        u32::from(fails) => prop_oneof![Just(ErrorKind::BrokenPipe), Just(ErrorKind::ConnectionReset)].prop_map(Does::Fail),
    ]
}

/// One run: the stream, and what should come of it.
struct Run {
    stream: Stream<super::fake::Ours>,
    fake: Fake,
    told: Told,
    expected: Vec<u8>,
    /// Of each callback of a chunk that was taken: where its chunk ends.
    ends: Vec<(usize, usize)>,
    next: usize,
    /// No chunk is taken any more.
    over: bool,
}

impl Run {
    fn new(script: Vec<Does>) -> Self {
        let (stream, fake, told) = scripted(script, 2048);
        Self { stream, fake, told, expected: Vec::new(), ends: Vec::new(), next: 0, over: false }
    }

    fn callback(&mut self, wanted: bool) -> Option<impl FnOnce(&Stream<super::fake::Ours>, Result<(), Error>) + use<>> {
        let (told, number) = (self.told.clone(), self.next);
        let over = self.over || self.stream.is_destroyed();
        wanted.then(|| {
            self.next += 1;
            if !over {
                self.ends.push((number, self.expected.len()));
            }
            move |_: &Stream<_>, result: Result<(), Error>| {
                told.note(format!("{} {number}", if result.is_ok() { "ok" } else { "failed" }));
            }
        })
    }

    fn note(&mut self, bytes: &[u8]) {
        if !self.over && !self.stream.is_destroyed() {
            self.expected.extend_from_slice(bytes);
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Write { len, by, callback } => {
                let bytes: Vec<u8> = (0..len).map(|at| (self.expected.len() + at).wrapping_mul(31) as u8).collect();
                self.note(&bytes);
                let callback = self.callback(callback);
                let buffer = Buffer::from(&bytes[..]);
                let more = match (by, callback) {
                    (By::Slice, None) => self.stream.write(&bytes[..]),
                    (By::Slice, Some(callback)) => self.stream.write_then(&bytes[..], callback),
                    (By::Reference, None) => self.stream.write(&buffer),
                    (By::Reference, Some(callback)) => self.stream.write_then(&buffer, callback),
                    (By::Value, None) => self.stream.write(buffer),
                    (By::Value, Some(callback)) => self.stream.write_then(buffer, callback),
                    (By::Vec, None) => self.stream.write(bytes),
                    (By::Vec, Some(callback)) => self.stream.write_then(bytes, callback),
                };
                if more {
                    assert!(self.stream.pending() < 2048);
                }
            }
            Op::Text(text, encoding, callback) => {
                self.note(&Buffer::from_text(&text, encoding));
                match self.callback(callback) {
                    None => self.stream.write((&text[..], encoding)),
                    Some(callback) => self.stream.write_then((&text[..], encoding), callback),
                };
            }
            Op::Cork => self.stream.cork(),
            Op::Uncork => self.stream.uncork(),
            Op::Writable => self.stream.on_writable(),
            Op::Turn => turn(),
            Op::Destroy => {
                self.stream.destroy();
                self.over = true;
            }
            Op::End => {
                self.stream.end();
                self.over = true;
            }
        }
        if self.stream.is_destroyed() {
            self.over = true;
        }
    }

    /// Drives it until nothing is left to do.
    fn finish(&mut self) {
        self.stream.end();
        for _ in 0..100_000 {
            self.stream.on_writable();
            turn();
            if self.told.count("close") > 0 {
                break;
            }
        }
        turn();
    }

    /// The numbers told with a word, in order.
    fn numbers(&self, word: &str) -> Vec<usize> {
        let told = self.told.all();
        told.iter().filter_map(|told| told.strip_prefix(word)?.trim().parse().ok()).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn all_arrives_and_is_told_once_in_order(
        ops in prop::collection::vec(op(false), 0..60),
        script in prop::collection::vec(does(false), 0..120),
    ) {
        let mut run = Run::new(script);
        ops.into_iter().for_each(|op| run.apply(op));
        run.finish();
        prop_assert_eq!(&run.fake.bytes(), &run.expected);
        prop_assert_eq!(run.stream.bytes_written(), run.expected.len() as u64);
        prop_assert_eq!(run.numbers("ok"), (0..run.next).collect::<Vec<_>>());
        prop_assert_eq!(run.numbers("failed"), Vec::<usize>::new());
        prop_assert_eq!(run.told.count("finish"), 1);
        let told = run.told.all();
        prop_assert_eq!(&told[told.len() - 2..], &["finish", "close"]);
        prop_assert!(run.fake.0.borrow().ended && run.fake.0.borrow().closed);
    }

    #[test]
    fn a_failure_is_told_to_each_once_after_what_succeeded(
        ops in prop::collection::vec(op(true), 0..60),
        script in prop::collection::vec(does(true), 0..60),
    ) {
        let mut run = Run::new(script);
        ops.into_iter().for_each(|op| run.apply(op));
        run.finish();
        let bytes = run.fake.bytes();
        prop_assert!(run.expected.starts_with(&bytes));
        let (ok, failed) = (run.numbers("ok"), run.numbers("failed"));
        // Each once; those of chunks that were taken in order, and success before failure.
        let mut all: Vec<usize> = ok.iter().chain(&failed).copied().collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..run.next).collect::<Vec<_>>());
        let taken: Vec<usize> =
            ok.iter().chain(&failed).copied().filter(|number| run.ends.iter().any(|(taken, _)| taken == number)).collect();
        prop_assert!(taken.is_sorted(), "{taken:?}");
        for (number, end) in &run.ends {
            if ok.contains(number) {
                prop_assert!(*end <= bytes.len());
            }
        }
        let told = run.told.all();
        prop_assert_eq!(told.iter().filter(|told| *told == "close").count(), 1);
        prop_assert!(told.iter().filter(|told| told.starts_with("error")).count() <= 1);
        prop_assert!(run.fake.0.borrow().closed);
    }
}

#[test]
fn a_partial_write_at_every_byte_position() {
    let long = |value: u8| Buffer::from(vec![value; 1500]);
    let write = |stream: &Stream<super::fake::Ours>| {
        stream.cork();
        stream.write(b"short");
        let shared = long(1);
        stream.write(&shared);
        stream.write("text");
        stream.write(b"more");
        stream.write(long(2));
        stream.write(long(3));
        stream.write(("666f6f", Encoding::Hex));
        stream.uncork();
    };
    let (stream, fake, _) = scripted([], 1 << 20);
    write(&stream);
    let expected = fake.bytes();
    assert_eq!(fake.0.borrow().slices, [6]);
    for split in 1..expected.len() {
        let (stream, fake, _) = scripted([Does::Take(split), Does::Block], 1 << 20);
        write(&stream);
        assert_eq!(fake.bytes(), expected[..split]);
        stream.write(b"behind");
        stream.on_writable();
        assert_eq!(fake.bytes(), [&expected[..], b"behind"].concat(), "split at {split}");
        assert_eq!(stream.pending(), 0);
        turn();
    }
}

#[test]
fn one_byte_at_a_time() {
    let (stream, fake, told) = scripted((0..12_000).flat_map(|_| [Does::Take(1), Does::Block]), 100);
    stream.cork();
    stream.write(Buffer::from(vec![7; 2000]));
    stream.write(b"abc");
    stream.uncork();
    while stream.pending() > 0 {
        stream.on_writable();
        turn();
    }
    assert_eq!(fake.bytes(), [&[7; 2000][..], b"abc"].concat());
    assert_eq!(told.all(), ["drain"]);
}

#[test]
fn more_chunks_than_one_call_takes() {
    let (stream, fake, _) = scripted([], usize::MAX);
    stream.cork();
    for number in 0..3000 {
        stream.write(Buffer::from(vec![number as u8; 1100]));
    }
    stream.uncork();
    assert_eq!(fake.0.borrow().slices, [1024, 1024, 952]);
    assert!(
        fake.bytes().chunks(1100).enumerate().all(|(number, chunk)| chunk.iter().all(|byte| *byte == number as u8))
    );
}

#[test]
fn short_chunks_go_as_one_slice() {
    let (stream, fake, _) = scripted([], 16 * 1024);
    let chunk = Buffer::from(*b"abcd");
    stream.cork();
    let mut count = 1;
    while stream.write(&chunk) {
        count += 1;
    }
    stream.uncork();
    assert_eq!((count, fake.0.borrow().slices.clone()), (4096, vec![1]));
}

#[test]
fn a_peer_that_never_reads_costs_bounded_memory() {
    let (stream, _, told) = scripted([Does::Take(100), Does::Block], 4096);
    let mut sent = 0;
    for _ in 0..1000 {
        if !stream.needs_drain() {
            stream.write(&[0; 64]);
            sent += 64;
        }
        turn();
    }
    assert!(stream.pending() <= 4096 + 64 && sent <= 4096 + 128, "{stream:?}, {sent}");
    assert!(told.all().is_empty());
}

#[test]
fn a_callback_that_panics_keeps_no_other_from_being_told() {
    crate::callback::on_failure(|_| crate::callback::Verdict::GoOn);
    let (stream, _, told) = scripted([Does::Block], 16);
    stream.cork();
    stream.write_then(b"a", |_, _| panic!("on purpose"));
    let note = told.clone();
    stream.write_then(b"b", move |_, _| note.note("told"));
    stream.uncork();
    stream.on_writable();
    turn();
    assert_eq!(told.all(), ["told"]);
}

#[test]
fn what_is_dropped_undestroyed_closes() {
    let (stream, fake, _) = scripted([Does::Block], 16);
    stream.write_then(b"a", |_, _| {});
    drop(stream);
    assert!(fake.0.borrow().closed);
}

#[test]
fn what_is_abandoned_is_told_after_every_earlier_write() {
    let (stream, _, told) = scripted([Does::Take(1), Does::Fail(ErrorKind::BrokenPipe)], 16);
    for name in ["first", "second", "third"] {
        let told = told.clone();
        stream.write_then(b"a", move |_, result| told.note(format!("{name} {}", result.is_ok())));
    }
    stream.destroy();
    turn();
    assert_eq!(told.all(), ["first true", "second false", "third false", "close"]);
}

#[test]
fn context_follows_a_write_to_its_callback() {
    use crate::callback::AsyncLocal;
    let (stream, _, told) = scripted([Does::Take(2), Does::Block], 16);
    let local: &'static AsyncLocal<u32> = Box::leak(Box::new(AsyncLocal::new()));
    for number in [1, 2] {
        let told = told.clone();
        local.run(number, || {
            stream.write_then(b"ab", move |_, _| {
                told.note(format!("{:?}", local.get().as_deref()));
            })
        });
    }
    turn();
    stream.on_writable();
    turn();
    assert_eq!(told.all(), ["Some(1)", "Some(2)"]);
}

#[test]
fn what_closes_the_stream_is_seen_by_the_next_short_chunk() {
    type Change = fn(&Stream<super::fake::Ours>);
    let changes: [Change; 3] = [Stream::end, Stream::destroy, |stream| stream.destroy_with(Error::WriteAfterEnd)];
    for change in changes {
        let (stream, _, told) = scripted([], 1000);
        stream.cork();
        assert!(stream.write(b"asks") && stream.write(b"need not ask"));
        change(&stream);
        assert!(!stream.write(b"refused"));
        let note = told.clone();
        stream.write_then(b"refused", move |_, result| note.note(if result.is_err() { "failed" } else { "ok" }));
        turn();
        turn();
        assert_eq!((told.count("failed"), told.count("close")), (1, 1));
    }
}

#[test]
fn the_mark_is_seen_to_the_byte() {
    for waits in [false, true] {
        let (stream, fake, _) = scripted([Does::Block], 100);
        if waits {
            stream.write(b"a");
        } else {
            stream.cork();
            stream.write(b"a");
        }
        assert!((0..98).all(|_| stream.write(b"b")) && !stream.write(b"c") && !stream.write(b"d"));
        assert_eq!((stream.pending(), stream.bytes_written(), stream.needs_drain()), (101, 101, true));
        stream.uncork();
        stream.on_writable();
        assert_eq!((stream.pending(), fake.bytes().len(), stream.bytes_written()), (0, 101, 101));
        turn();
    }
}
