//! The same cases through Node's `Buffer`: one process, cases in and results out as JSON.

use super::convert::doubles;
use crate::buffer::{Buffer, Encoding, Needle};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use std::{
    fmt::Write as _,
    io::Write as _,
    process::{Command, Stdio},
};

const SCRIPT: &str = r#"
const hex = (buffer) => buffer.toString('hex');
const bytes = (text) => Buffer.from(text, 'hex');
const double = (text) => bytes(text).readDoubleBE();
const needle = (n) => 'byte' in n ? n.byte : 'hex' in n ? bytes(n.hex) : n.text;
const run = {
  encode: (c) => hex(Buffer.from(c.text, c.encoding)),
  decode: (c) => hex(Buffer.from(bytes(c.hex).toString(c.encoding), 'utf8')),
  of: (c) => hex(Buffer.of(...c.doubles.map(double))),
  find: (c) => [c.from === null ? [] : [c.from]].map((from) => [
    bytes(c.hex).indexOf(needle(c.needle), ...from, ...(from.length ? [c.needle.encoding] : [])),
    bytes(c.hex).lastIndexOf(needle(c.needle), ...from, ...(from.length ? [c.needle.encoding] : [])),
  ].join()).join(),
  fill: (c) => hex(bytes(c.hex).fill(needle(c.needle), ...c.range, c.needle.encoding)),
  subarray: (c) => hex(bytes(c.hex).subarray(...c.range)),
  compare: (c) => String(Buffer.compare(bytes(c.hex), bytes(c.other))),
  read: (c) => {
    const b = bytes(c.hex);
    try { return String(b['read' + c.kind](c.at)); } catch (error) { return error.code; }
  },
};
const cases = JSON.parse(require('fs').readFileSync(0, 'utf8'));
process.stdout.write(cases.map((c) => run[c.run](c)).join('\n'));
"#;

/// Cases for Node, and what we make of them.
#[derive(Default)]
struct Cases {
    json: Vec<String>,
    ours: Vec<String>,
}

impl Cases {
    fn add(&mut self, json: String, ours: String) {
        self.json.push(json);
        self.ours.push(ours);
    }

    fn compare_with_node(self) {
        let spawned = Command::new("node")
            .args(["-e", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn();
        let mut node = match spawned {
            Ok(node) => node,
            Err(error) => tracebyte_tests::skip!("cannot start node: {error}"),
        };
        let mut input = node.stdin.take().expect("a pipe");
        input.write_all(format!("[{}]", self.json.join(",")).as_bytes()).expect("node reads");
        drop(input);
        let output = node.wait_with_output().expect("node ends");
        assert!(output.status.success(), "node failed");
        let text = String::from_utf8(output.stdout).expect("node prints text");
        let theirs: Vec<&str> = text.split('\n').collect();
        assert_eq!(theirs.len(), self.ours.len());
        for ((json, ours), theirs) in self.json.iter().zip(&self.ours).zip(theirs) {
            assert_eq!(ours, theirs, "{json}");
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    Encoding::Hex.decode(bytes)
}

/// Text as a JSON string, all of it escaped.
fn quoted(text: &str) -> String {
    let mut json = String::from("\"");
    for unit in text.encode_utf16() {
        write!(json, "\\u{unit:04x}").expect("a string takes it");
    }
    json + "\""
}

/// Values of a strategy, the same ones every time.
fn values<S: Strategy>(strategy: S, count: usize) -> impl Iterator<Item = S::Value> {
    let mut runner = TestRunner::deterministic();
    (0..count).map(move |_| strategy.new_tree(&mut runner).expect("a value").current())
}

const NAMES: [&str; 8] = ["utf8", "latin1", "ascii", "hex", "base64", "base64url", "ucs2", "utf16le"];

fn encoding(name: &str) -> Encoding {
    name.parse().expect("Node's name")
}

#[test]
fn text_to_bytes() {
    let mut cases = Cases::default();
    let texts = prop_oneof![
        any::<String>(),
        "[A-Za-z0-9+/_-]{0,30}={0,2}",
        "[A-Za-z0-9+/=_ \n-]{0,30}",
        "[0-9a-fA-F]{0,30}",
        "[0-9a-fgx ]{0,12}",
        "[a-c\u{161}\u{20ac}\u{1f600}=0-9]{0,20}",
    ];
    for text in values(texts, 600) {
        for name in NAMES {
            let json = format!(r#"{{"run":"encode","text":{},"encoding":"{name}"}}"#, quoted(&text));
            cases.add(json, hex(&Buffer::from_text(&text, encoding(name))));
        }
    }
    cases.compare_with_node();
}

#[test]
fn bytes_to_text() {
    let mut cases = Cases::default();
    let nearly_text = (any::<String>(), prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4));
    let strategy = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        prop::collection::vec(
            prop::sample::select(vec![0x61, 0x80, 0xbf, 0xc2, 0xe0, 0xed, 0xa0, 0xf0, 0xf4, 0x90]),
            0..9
        ),
        nearly_text.prop_map(|(text, changes)| {
            let mut bytes = text.into_bytes();
            for (at, byte) in changes {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
            }
            bytes
        }),
    ];
    for bytes in values(strategy, 600) {
        for name in NAMES {
            let json = format!(r#"{{"run":"decode","hex":"{}","encoding":"{name}"}}"#, hex(&bytes));
            cases.add(json, hex(Buffer::of(&bytes).to_text(encoding(name)).as_bytes()));
        }
    }
    cases.compare_with_node();
}

#[test]
fn numbers_to_bytes() {
    let mut cases = Cases::default();
    for numbers in values(prop::collection::vec(doubles(), 0..80), 300) {
        let json: Vec<String> = numbers.iter().map(|number| format!("\"{}\"", hex(&number.to_be_bytes()))).collect();
        cases.add(format!(r#"{{"run":"of","doubles":[{}]}}"#, json.join(",")), hex(&Buffer::of(&numbers)));
    }
    cases.compare_with_node();
}

/// A needle as Node gets it.
fn needle_json(needle: Needle<'_>, name: &str) -> String {
    match needle {
        Needle::Byte(byte) => format!(r#"{{"byte":{byte}}}"#),
        Needle::Bytes(bytes) => format!(r#"{{"hex":"{}"}}"#, hex(bytes)),
        Needle::Text(text, _) => format!(r#"{{"text":{},"encoding":"{name}"}}"#, quoted(text)),
    }
}

#[test]
fn finding_and_filling() {
    let mut cases = Cases::default();
    let strategy = (
        prop::collection::vec(prop_oneof![0..3u8, 0x61..0x63u8], 0..24),
        prop::collection::vec(0..3u8, 0..4),
        prop::sample::select(vec!["", "a", "ab", "0001", "AAE=", "\u{0}", "\u{1}\u{2}", "\u{100}", "\u{102}\u{1}"]),
        prop::sample::select(NAMES.to_vec()),
        -30..30isize,
        (0..30usize, 0..30usize),
    );
    for (bytes, pattern, text, name, from, (start, end)) in values(strategy, 600) {
        let hay = Buffer::of(&bytes);
        let byte = pattern.first().copied().unwrap_or(0x61);
        let text = Needle::Text(text, encoding(name));
        for needle in [Needle::Byte(byte), Needle::Bytes(&pattern), text] {
            let json = needle_json(needle, name);
            let index = |found: Option<usize>| found.map_or(-1, |at| at as isize);
            let found = (hay.index_of(needle, from), hay.last_index_of(needle, from));
            cases.add(
                format!(r#"{{"run":"find","hex":"{}","needle":{json},"from":{from}}}"#, hex(&hay)),
                format!("{},{}", index(found.0), index(found.1)),
            );
            // Node refuses patterns that come to nothing, and ranges out of bounds.
            let comes_to_nothing = match needle {
                Needle::Byte(_) => false,
                Needle::Bytes(bytes) => bytes.is_empty(),
                Needle::Text(text, encoding) => !text.is_empty() && Buffer::from_text(text, encoding).is_empty(),
            };
            if start <= end && end <= bytes.len() && !comes_to_nothing {
                let mut filled = hay.clone();
                filled.fill(needle, start..end);
                cases.add(
                    format!(r#"{{"run":"fill","hex":"{}","needle":{json},"range":[{start},{end}]}}"#, hex(&hay)),
                    hex(&filled),
                );
            }
        }
    }
    cases.compare_with_node();
}

#[test]
fn parts_orders_and_numbers() {
    type Read = fn(&Buffer, usize) -> Option<String>;
    macro_rules! reads {
        ($($kind:literal $read:ident),+) => {
            [$(($kind, (|buffer, at| buffer.$read(at).ok().map(|value| value.to_string())) as Read)),+]
        };
    }
    let reads = reads![
        "UInt8" read_u8, "Int8" read_i8, "UInt16LE" read_u16_le, "UInt16BE" read_u16_be, "Int16LE" read_i16_le,
        "Int16BE" read_i16_be, "UInt32LE" read_u32_le, "UInt32BE" read_u32_be, "Int32LE" read_i32_le,
        "Int32BE" read_i32_be, "BigUInt64LE" read_u64_le, "BigUInt64BE" read_u64_be, "BigInt64LE" read_i64_le,
        "BigInt64BE" read_i64_be
    ];
    let mut cases = Cases::default();
    let bytes = || prop::collection::vec(any::<u8>(), 0..24);
    for (bytes, other, from, to) in values((bytes(), bytes(), -30..30isize, -30..30isize), 300) {
        let buffer = Buffer::of(&bytes);
        cases.add(
            format!(r#"{{"run":"subarray","hex":"{}","range":[{from},{to}]}}"#, hex(&bytes)),
            hex(&buffer.subarray(from, to)),
        );
        cases.add(
            format!(r#"{{"run":"compare","hex":"{}","other":"{}"}}"#, hex(&bytes), hex(&other)),
            (buffer.compare(&other) as i8).to_string(),
        );
        for (kind, read) in reads {
            let at = from.unsigned_abs();
            // Node has another error for a buffer that is shorter than the number.
            let error = if bytes.len() < kind_bytes(kind) { "ERR_BUFFER_OUT_OF_BOUNDS" } else { "ERR_OUT_OF_RANGE" };
            cases.add(
                format!(r#"{{"run":"read","hex":"{}","kind":"{kind}","at":{at}}}"#, hex(&bytes)),
                read(&buffer, at).unwrap_or_else(|| error.to_owned()),
            );
        }
    }
    cases.compare_with_node();
}

fn kind_bytes(kind: &str) -> usize {
    let bits: String = kind.chars().filter(char::is_ascii_digit).collect();
    bits.parse::<usize>().expect("a number of bits") / 8
}
