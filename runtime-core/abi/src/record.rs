//! One trace event, as bytes in a ring.
//!
//! A record is 32 bytes of header, the name, then the arguments; its size is a multiple
//! of 8. All numbers are little-endian. A reader meets whatever the process wrote, so
//! decoding checks every length and never panics.

/// Bytes of the fixed part.
pub const HEADER_BYTES: usize = 32;
/// The longest record, padding included.
pub const RECORD_BYTES_MAX: usize = 16 * 1024;
/// The longest string value kept; a longer one is cut and marked.
pub const STRING_BYTES_MAX: usize = 4096;
/// The phase byte of a record that only fills the ring up to its end.
pub const PHASE_PADDING: u8 = 0;

/// The value of an argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating-point number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text. Mostly UTF-8, but a url is whatever the client sent.
    Str(&'a [u8]),
    /// Text that is already JSON.
    Json(&'a [u8]),
}

/// Text that is already JSON, as an argument. What turns out to be none is shown as a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Json<'a>(pub &'a str);

macro_rules! value_from {
    ($($from:ty => $make:expr),* $(,)?) => {
        $(impl<'a> From<$from> for Value<'a> {
            fn from(value: $from) -> Self {
                $make(value)
            }
        })*
    };
}

value_from! {
    i8 => |v| Self::Int(i64::from(v)),
    i16 => |v| Self::Int(i64::from(v)),
    i32 => |v| Self::Int(i64::from(v)),
    i64 => Self::Int,
    isize => |v| Self::Int(v as i64),
    u8 => |v| Self::Uint(u64::from(v)),
    u16 => |v| Self::Uint(u64::from(v)),
    u32 => |v| Self::Uint(u64::from(v)),
    u64 => Self::Uint,
    usize => |v| Self::Uint(v as u64),
    f32 => |v| Self::Float(f64::from(v)),
    f64 => Self::Float,
    bool => Self::Bool,
    &'a [u8] => Self::Str,
    &'a str => |v: &'a str| Self::Str(v.as_bytes()),
    Json<'a> => |v: Json<'a>| Self::Json(v.0.as_bytes()),
}

const KIND_INT: u8 = 1;
const KIND_UINT: u8 = 2;
const KIND_FLOAT: u8 = 3;
const KIND_BOOL: u8 = 4;
const KIND_STR: u8 = 5;
const KIND_JSON: u8 = 6;
/// Set beside [`KIND_STR`] where the value was longer than [`STRING_BYTES_MAX`].
const KIND_TRUNCATED: u8 = 0x80;

/// An argument, with whether its value was cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arg<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: Value<'a>,
    /// Whether the value was longer than [`STRING_BYTES_MAX`].
    pub truncated: bool,
}

/// What a record's fixed part says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Chrome's phase letter: `B` `E` `X` `b` `n` `e` `i` `C`.
    pub phase: u8,
    /// Category index.
    pub category: u16,
    /// Route index; 0 for none.
    pub route: u16,
    /// Thread id as the process sees it.
    pub tid: u32,
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub ts_ns: u64,
    /// Ties the events of one operation together. Of an `X` the duration in nanoseconds.
    pub id: u64,
}

/// Writes one record into `out` and returns its size; `None` where `out` or
/// [`RECORD_BYTES_MAX`] is too small, with `out` in an unknown state.
#[inline]
pub fn encode(head: &Head, name: &[u8], args: &[(&str, Value<'_>)], out: &mut [u8]) -> Option<usize> {
    let mut w = Writer { out, at: HEADER_BYTES };
    w.put(name)?;
    for (key, value) in args {
        let (kind, word);
        let bytes: &[u8] = match value {
            Value::Int(v) => {
                (kind, word) = (KIND_INT, v.to_le_bytes());
                &word
            }
            Value::Uint(v) => {
                (kind, word) = (KIND_UINT, v.to_le_bytes());
                &word
            }
            Value::Float(v) => {
                (kind, word) = (KIND_FLOAT, v.to_le_bytes());
                &word
            }
            Value::Bool(v) => {
                (kind, word) = (KIND_BOOL, u64::from(*v).to_le_bytes());
                &word
            }
            Value::Str(s) if s.len() > STRING_BYTES_MAX => {
                kind = KIND_STR | KIND_TRUNCATED;
                &s[..STRING_BYTES_MAX]
            }
            Value::Str(s) => {
                kind = KIND_STR;
                s
            }
            // Half a JSON text is no JSON: one that is too long becomes a cut string.
            Value::Json(s) if s.len() > STRING_BYTES_MAX => {
                kind = KIND_STR | KIND_TRUNCATED;
                &s[..STRING_BYTES_MAX]
            }
            Value::Json(s) => {
                kind = KIND_JSON;
                s
            }
        };
        let key_len = u8::try_from(key.len()).ok()?;
        let [len0, len1] = (bytes.len() as u16).to_le_bytes();
        w.put(&[kind, key_len, len0, len1])?;
        w.put(key.as_bytes())?;
        w.put(bytes)?;
    }
    let size = w.at.next_multiple_of(8);
    if size > w.out.len() || size > RECORD_BYTES_MAX {
        return None;
    }
    let header = w.out.get_mut(..HEADER_BYTES)?;
    header[0..4].copy_from_slice(&(size as u32).to_le_bytes());
    header[4] = head.phase;
    header[5] = u8::try_from(args.len()).ok()?;
    header[6..8].copy_from_slice(&head.category.to_le_bytes());
    header[8..12].copy_from_slice(&head.tid.to_le_bytes());
    header[12..14].copy_from_slice(&head.route.to_le_bytes());
    header[14..16].copy_from_slice(&u16::try_from(name.len()).ok()?.to_le_bytes());
    header[16..24].copy_from_slice(&head.ts_ns.to_le_bytes());
    header[24..32].copy_from_slice(&head.id.to_le_bytes());
    Some(size)
}

struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.at + bytes.len();
        self.out.get_mut(self.at..end)?.copy_from_slice(bytes);
        self.at = end;
        Some(())
    }
}

/// A record in bytes that a process wrote, its lengths checked.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The fixed part. Its category and route are unchecked indexes.
    pub head: Head,
    /// The name; not necessarily UTF-8.
    pub name: &'a [u8],
    args: &'a [u8],
    arg_count: u8,
}

/// The bytes are not a record: the rest of the buffer cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("a record in the event ring is malformed")
    }
}

impl core::error::Error for Malformed {}

/// Reads the record at the start of `bytes`; returns it and its size. Padding comes back
/// as `None` in place of the record.
pub fn decode(bytes: &[u8]) -> Result<(Option<Record<'_>>, usize), Malformed> {
    // Padding may be as short as 8 bytes, so only the first word is read before its test.
    let first = bytes.get(..8).ok_or(Malformed)?;
    let size = u32_at(first, 0) as usize;
    if size < 8 || !size.is_multiple_of(8) || size > bytes.len() {
        return Err(Malformed);
    }
    if first[4] == PHASE_PADDING {
        return Ok((None, size));
    }
    if !(HEADER_BYTES..=RECORD_BYTES_MAX).contains(&size) {
        return Err(Malformed);
    }
    let bytes = &bytes[..size];
    let name_end = HEADER_BYTES + usize::from(u16_at(bytes, 14));
    let record = Record {
        head: Head {
            phase: bytes[4],
            category: u16_at(bytes, 6),
            route: u16_at(bytes, 12),
            tid: u32_at(bytes, 8),
            ts_ns: u64_at(bytes, 16),
            id: u64_at(bytes, 24),
        },
        name: bytes.get(HEADER_BYTES..name_end).ok_or(Malformed)?,
        args: &bytes[name_end..],
        arg_count: bytes[5],
    };
    // Walked once here, so that a record is either wholly readable or refused.
    if record.args().any(|arg| arg.is_err()) {
        return Err(Malformed);
    }
    Ok((Some(record), size))
}

impl<'a> Record<'a> {
    /// The arguments. After [`decode`] has accepted the record none of them is an error.
    pub fn args(&self) -> impl Iterator<Item = Result<Arg<'a>, Malformed>> + use<'a> {
        let (mut rest, mut left) = (self.args, self.arg_count);
        core::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let arg = take_arg(&mut rest);
            if arg.is_none() {
                left = 0;
            }
            Some(arg.ok_or(Malformed))
        })
    }
}

fn take_arg<'a>(rest: &mut &'a [u8]) -> Option<Arg<'a>> {
    let head = rest.get(..4)?;
    let (kind, key_len, value_len) = (head[0], usize::from(head[1]), usize::from(u16_at(head, 2)));
    let key = rest.get(4..4 + key_len)?;
    let value = rest.get(4 + key_len..4 + key_len + value_len)?;
    *rest = &rest[4 + key_len + value_len..];
    let word = || Some(u64_at(value.get(..8).filter(|_| value.len() == 8)?, 0));
    let parsed = match kind & !KIND_TRUNCATED {
        KIND_INT => Value::Int(word()? as i64),
        KIND_UINT => Value::Uint(word()?),
        KIND_FLOAT => Value::Float(f64::from_bits(word()?)),
        KIND_BOOL => Value::Bool(word()? != 0),
        KIND_STR => Value::Str(value),
        KIND_JSON => Value::Json(value),
        _ => return None,
    };
    Some(Arg { key, value: parsed, truncated: kind & KIND_TRUNCATED != 0 })
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const HEAD: Head = Head { phase: b'e', category: 7, route: 3, tid: 42, ts_ns: 1 << 40, id: u64::MAX };

    #[test]
    fn every_kind_of_value_comes_back() {
        let args = [
            ("int", Value::Int(-5)),
            ("uint", Value::Uint(u64::MAX)),
            ("float", Value::Float(0.5)),
            ("bool", Value::Bool(true)),
            ("url", Value::Str(b"/a?b=\xff")),
            ("json", Value::Json(b"{\"a\":1}")),
        ];
        let mut out = [0; 256];
        let size = encode(&HEAD, b"http.server.request", &args, &mut out).unwrap();
        let (record, read) = decode(&out).unwrap();
        let record = record.unwrap();
        assert_eq!((read, size % 8), (size, 0));
        assert_eq!((record.head, record.name), (HEAD, &b"http.server.request"[..]));
        let back: Vec<_> = record.args().map(|arg| arg.unwrap()).collect();
        assert_eq!(back.len(), args.len());
        for ((key, value), arg) in args.iter().zip(back) {
            assert_eq!(arg, Arg { key: key.as_bytes(), value: *value, truncated: false });
        }
    }

    #[test]
    fn a_long_string_is_cut_and_marked() {
        let long = [b'x'; STRING_BYTES_MAX + 1];
        let mut out = [0; RECORD_BYTES_MAX];
        encode(&HEAD, b"n", &[("url", Value::Str(&long))], &mut out).unwrap();
        let arg = decode(&out).unwrap().0.unwrap().args().next().unwrap().unwrap();
        assert_eq!(arg, Arg { key: b"url", value: Value::Str(&long[..STRING_BYTES_MAX]), truncated: true });
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(encode(&HEAD, b"name", &[], &mut [0; 32]), None);
        assert_eq!(encode(&HEAD, b"name", &[], &mut [0; 40]), Some(40));
        let key = std::string::String::from_utf8([b'k'; 256].to_vec()).unwrap();
        assert_eq!(encode(&HEAD, b"n", &[(&key, Value::Int(1))], &mut [0; 1024]), None);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok((record, size)) = decode(&bytes) {
                prop_assert!(size >= 8 && size <= bytes.len());
                for arg in record.iter().flat_map(Record::args) {
                    prop_assert!(arg.is_ok());
                }
            }
        }

        #[test]
        fn a_record_with_one_byte_changed_never_panics(at in 0usize..96, to in any::<u8>()) {
            let mut out = [0; 96];
            encode(&HEAD, b"name", &[("a", Value::Uint(1)), ("b", Value::Str(b"text"))], &mut out).unwrap();
            out[at] = to;
            if let Ok((Some(record), _)) = decode(&out) {
                prop_assert!(record.args().count() <= 255);
            }
        }
    }
}
