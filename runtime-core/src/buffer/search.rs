//! Looking for bytes in a buffer, and filling it with a pattern, as Node does both.

use super::{Buffer, Encoding, clamp};
use memchr::{memchr, memmem, memrchr};
use std::{borrow::Cow, ops::RangeBounds};

/// What to look for, or to fill with.
#[derive(Clone, Copy, Debug)]
pub enum Needle<'a> {
    /// One byte.
    Byte(u8),
    /// Some bytes.
    Bytes(&'a [u8]),
    /// Some text in an encoding. UCS-2 is found at even offsets only.
    Text(&'a str, Encoding),
}

impl From<u8> for Needle<'_> {
    fn from(byte: u8) -> Self {
        Needle::Byte(byte)
    }
}

impl<'a> From<&'a [u8]> for Needle<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Needle::Bytes(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Needle<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Needle::Bytes(bytes)
    }
}

impl<'a> From<&'a Buffer> for Needle<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        Needle::Bytes(buffer)
    }
}

impl<'a> From<&'a str> for Needle<'a> {
    fn from(text: &'a str) -> Self {
        Needle::Bytes(text.as_bytes())
    }
}

impl<'a> From<(&'a str, Encoding)> for Needle<'a> {
    fn from((text, encoding): (&'a str, Encoding)) -> Self {
        Needle::Text(text, encoding)
    }
}

impl Needle<'_> {
    fn bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Needle::Byte(byte) => Cow::Borrowed(std::slice::from_ref(byte)),
            Needle::Bytes(bytes) => Cow::Borrowed(bytes),
            Needle::Text(text, Encoding::Utf8) => Cow::Borrowed(text.as_bytes()),
            Needle::Text(text, encoding) => Cow::Owned(encoding.encode(text).to_vec()),
        }
    }

    /// Matches begin at multiples of this.
    fn step(&self) -> usize {
        if matches!(self, Needle::Text(_, Encoding::Ucs2)) { 2 } else { 1 }
    }

    /// The part of `bytes` where matches can be: whole steps.
    fn hay<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[..bytes.len() / self.step() * self.step()]
    }
}

impl Buffer {
    /// Where `needle` first begins at or after `from`; a negative `from` counts from the end.
    /// An empty needle is found at `from`, or at the end if that is past it.
    pub fn index_of<'a>(&self, needle: impl Into<Needle<'a>>, from: isize) -> Option<usize> {
        let needle = needle.into();
        let (bytes, step) = (needle.bytes(), needle.step());
        let hay = needle.hay(self);
        let from = match from {
            0.. => from.unsigned_abs(),
            _ => hay.len().saturating_sub(from.unsigned_abs()),
        };
        if bytes.is_empty() {
            return Some(from.min(hay.len()));
        }
        if from.saturating_add(bytes.len()) > hay.len() {
            return None;
        }
        let mut at = from / step * step;
        loop {
            let rest = &hay[at..];
            at += if let [byte] = *bytes { memchr(byte, rest) } else { memmem::find(rest, &bytes) }?;
            if at % step == 0 {
                return Some(at);
            }
            at += 1;
        }
    }

    /// Where `needle` last begins at or before `from`; a negative `from` counts from the end.
    /// `isize::MAX` searches the whole buffer.
    pub fn last_index_of<'a>(&self, needle: impl Into<Needle<'a>>, from: isize) -> Option<usize> {
        let needle = needle.into();
        let (bytes, step) = (needle.bytes(), needle.step());
        let hay = needle.hay(self);
        let from = match from {
            0.. => from.unsigned_abs().min(hay.len()),
            _ => match hay.len().checked_sub(from.unsigned_abs()) {
                Some(from) => from,
                None if bytes.is_empty() => 0,
                None => return None,
            },
        };
        if bytes.is_empty() {
            return Some(from);
        }
        let mut end = (from / step * step).saturating_add(bytes.len()).min(hay.len());
        loop {
            let rest = &hay[..end];
            let at = if let [byte] = *bytes { memrchr(byte, rest) } else { memmem::rfind(rest, &bytes) }?;
            if at % step == 0 {
                return Some(at);
            }
            end = at + bytes.len() - 1;
        }
    }

    /// Whether `needle` begins at or after `from`.
    pub fn includes<'a>(&self, needle: impl Into<Needle<'a>>, from: isize) -> bool {
        self.index_of(needle, from).is_some()
    }

    /// Fills `range` with the pattern over and over, cut at the end; an empty pattern fills
    /// with zeros. Bounds as for [`slice`](Self::slice); shared bytes are copied first.
    pub fn fill<'a>(&mut self, pattern: impl Into<Needle<'a>>, range: impl RangeBounds<usize>) {
        let (from, to) = clamp(range, self.len());
        if from == to {
            return;
        }
        let pattern = pattern.into();
        let bytes = pattern.bytes();
        let place = &mut self.make_mut()[from..to];
        match *bytes {
            [] => place.fill(0),
            [byte] => place.fill(byte),
            _ => {
                for part in place.chunks_mut(bytes.len()) {
                    part.copy_from_slice(&bytes[..part.len()]);
                }
            }
        }
    }
}
