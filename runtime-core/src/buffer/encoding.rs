//! Text to bytes and back, in Node's encodings and with Node's leniency.
//!
//! Node's strings are UTF-16 and its encoders look at code units, of which they take the
//! low byte where an encoding has only bytes. Rust's text is UTF-8, so those encoders run
//! over its code units in UTF-16.

use super::Buffer;
use std::str::FromStr;

/// How text becomes bytes, and bytes text. Nothing here fails: what cannot be read is
/// skipped or ends the reading, what cannot be shown is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// UTF-8. Bytes that are not become U+FFFD, one for each longest beginning of a
    /// character.
    #[default]
    Utf8,
    /// One byte for each UTF-16 code unit, its low byte. Every byte is a character.
    Latin1,
    /// As Latin-1 to bytes; to text, the low seven bits.
    Ascii,
    /// Two digits a byte. Reading ends at the first pair that is not hexadecimal; an odd
    /// last digit is dropped.
    Hex,
    /// Base64 with padding. Reading takes both alphabets, padded or not, skips what is not
    /// in them, and ends at the first `=`.
    Base64,
    /// Base64 in the alphabet for URLs, without padding. Reads as [`Base64`](Self::Base64).
    Base64Url,
    /// UTF-16, low byte first. An odd last byte is ignored; a surrogate without its other
    /// half becomes U+FFFD (Node keeps it; Rust's text cannot).
    Ucs2,
}

/// A name that no encoding has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown encoding `{0}`: try utf8, latin1, ascii, hex, base64, base64url or ucs2")]
pub struct UnknownEncoding(String);

impl FromStr for Encoding {
    type Err = UnknownEncoding;

    /// Node's names, in any case.
    fn from_str(name: &str) -> Result<Encoding, UnknownEncoding> {
        Ok(match name.to_ascii_lowercase().as_str() {
            "utf8" | "utf-8" => Encoding::Utf8,
            "latin1" | "binary" => Encoding::Latin1,
            "ascii" => Encoding::Ascii,
            "hex" => Encoding::Hex,
            "base64" => Encoding::Base64,
            "base64url" => Encoding::Base64Url,
            "ucs2" | "ucs-2" | "utf16le" | "utf-16le" => Encoding::Ucs2,
            _ => return Err(UnknownEncoding(name.to_owned())),
        })
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";
const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Where a byte stands in an alphabet; [`SKIP`] where it does not.
const fn values(alphabets: &[&[u8]]) -> [u8; 256] {
    let mut values = [SKIP; 256];
    let mut which = 0;
    while which < alphabets.len() {
        let mut at = 0;
        while at < alphabets[which].len() {
            values[alphabets[which][at] as usize] = at as u8;
            at += 1;
        }
        which += 1;
    }
    values
}

const SKIP: u8 = 0xff;
const END: u8 = 0xfe;

static HEX_VALUES: [u8; 256] = {
    let mut values = values(&[DIGITS]);
    let mut digit = 10;
    while digit < 16 {
        values[DIGITS[digit].to_ascii_uppercase() as usize] = digit as u8;
        digit += 1;
    }
    values
};

static BASE64_VALUES: [u8; 256] = {
    let mut values = values(&[STANDARD, URL]);
    values[b'=' as usize] = END;
    values
};

impl Encoding {
    /// An upper bound for the bytes of `text`, exact for UTF-8, Latin-1, ASCII and UCS-2.
    pub fn byte_len_max(self, text: &str) -> usize {
        match self {
            Encoding::Utf8 => text.len(),
            Encoding::Latin1 | Encoding::Ascii => units(text),
            Encoding::Ucs2 => units(text) * 2,
            Encoding::Hex => text.len() / 2,
            Encoding::Base64 | Encoding::Base64Url => text.len().div_ceil(4) * 3,
        }
    }

    /// Writes `text` to the front of `bytes` and returns how many bytes it took. Where they
    /// do not suffice the rest is left out; UTF-8 and UCS-2 are cut between characters.
    pub fn encode_into(self, text: &str, bytes: &mut [u8]) -> usize {
        match self {
            Encoding::Utf8 => {
                let len = text.floor_char_boundary(bytes.len());
                bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
                len
            }
            Encoding::Latin1 | Encoding::Ascii if text.is_ascii() => {
                let len = text.len().min(bytes.len());
                bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
                len
            }
            Encoding::Latin1 | Encoding::Ascii => put(bytes, low_bytes(text)),
            Encoding::Hex if text.is_ascii() => hex_into(text.bytes(), bytes),
            Encoding::Hex => hex_into(low_bytes(text), bytes),
            Encoding::Base64 | Encoding::Base64Url if text.is_ascii() => base64_into(text.bytes(), bytes),
            Encoding::Base64 | Encoding::Base64Url => base64_into(low_bytes(text), bytes),
            Encoding::Ucs2 => {
                let mut len = 0;
                for character in text.chars() {
                    let mut units = [0; 2];
                    let units = character.encode_utf16(&mut units);
                    let Some(place) = bytes.get_mut(len..len + units.len() * 2) else { break };
                    for (place, unit) in place.as_chunks_mut::<2>().0.iter_mut().zip(units) {
                        *place = unit.to_le_bytes();
                    }
                    len += place.len();
                }
                len
            }
        }
    }

    /// A buffer with the bytes of `text`.
    pub(super) fn encode(self, text: &str) -> Buffer {
        if self == Encoding::Utf8 {
            return Buffer::from(text);
        }
        let mut buffer = Buffer::alloc_unsafe(self.byte_len_max(text));
        let len = self.encode_into(text, buffer.make_mut());
        buffer.narrow(..len);
        buffer
    }

    /// The text of `bytes`.
    pub fn decode(self, bytes: &[u8]) -> String {
        match self {
            Encoding::Utf8 => String::from_utf8_lossy(bytes).into_owned(),
            Encoding::Latin1 if bytes.is_ascii() => ascii(bytes.to_vec()),
            Encoding::Latin1 => bytes.iter().map(|&byte| char::from(byte)).collect(),
            Encoding::Ascii => ascii(bytes.iter().map(|byte| byte & 0x7f).collect()),
            Encoding::Hex => {
                let digits = |byte: &u8| [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
                ascii(bytes.iter().map(digits).collect::<Vec<_>>().into_flattened())
            }
            Encoding::Base64 => base64(bytes, STANDARD, true),
            Encoding::Base64Url => base64(bytes, URL, false),
            Encoding::Ucs2 => {
                let units = bytes.as_chunks::<2>().0.iter().map(|&unit| u16::from_le_bytes(unit));
                char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
            }
        }
    }
}

/// UTF-16 code units of `text`.
fn units(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// The low byte of each UTF-16 code unit.
fn low_bytes(text: &str) -> impl Iterator<Item = u8> {
    text.encode_utf16().map(|unit| unit as u8)
}

fn put(bytes: &mut [u8], values: impl Iterator<Item = u8>) -> usize {
    let mut len = 0;
    for (place, value) in bytes.iter_mut().zip(values) {
        *place = value;
        len += 1;
    }
    len
}

fn hex_into(mut digits: impl Iterator<Item = u8>, bytes: &mut [u8]) -> usize {
    let pairs = std::iter::from_fn(|| {
        let (high, low) = (HEX_VALUES[digits.next()? as usize], HEX_VALUES[digits.next()? as usize]);
        (high != SKIP && low != SKIP).then_some(high << 4 | low)
    });
    put(bytes, pairs)
}

fn base64_into(text: impl Iterator<Item = u8>, bytes: &mut [u8]) -> usize {
    let mut sextets =
        text.map(|byte| BASE64_VALUES[byte as usize]).take_while(|&value| value != END).filter(|&value| value != SKIP);
    let (mut bits, mut held) = (0u32, 0);
    let octets = std::iter::from_fn(|| {
        while held < 8 {
            bits = bits << 6 | u32::from(sextets.next()?);
            held += 6;
        }
        held -= 8;
        Some((bits >> held) as u8)
    });
    put(bytes, octets)
}

fn base64(bytes: &[u8], alphabet: &[u8; 64], padded: bool) -> String {
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    let (triples, rest) = bytes.as_chunks::<3>();
    let quartet = |[a, b, c]: [u8; 3]| {
        let bits = u32::from(a) << 16 | u32::from(b) << 8 | u32::from(c);
        [18, 12, 6, 0].map(|shift| alphabet[(bits >> shift) as usize & 63])
    };
    for &triple in triples {
        text.extend_from_slice(&quartet(triple));
    }
    if let Some(&first) = rest.first() {
        let quartet = quartet([first, rest.get(1).copied().unwrap_or(0), 0]);
        text.extend_from_slice(&quartet[..rest.len() + 1]);
        if padded {
            text.extend(std::iter::repeat_n(b'=', 3 - rest.len()));
        }
    }
    ascii(text)
}

/// Text from bytes that are ASCII.
fn ascii(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("ASCII is UTF-8")
}
