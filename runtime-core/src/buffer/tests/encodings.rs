//! Encodings against plain models.

use crate::buffer::{Buffer, Encoding};
use proptest::prelude::*;

const ALL: [Encoding; 7] = [
    Encoding::Utf8,
    Encoding::Latin1,
    Encoding::Ascii,
    Encoding::Hex,
    Encoding::Base64,
    Encoding::Base64Url,
    Encoding::Ucs2,
];

/// Base64 of bytes, bit by bit.
fn base64(bytes: &[u8], alphabet: &[u8]) -> String {
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1)).collect();
    let sextet = |bits: &[u8]| (0..6).fold(0, |value, at| value << 1 | bits.get(at).copied().unwrap_or(0));
    bits.chunks(6).map(|bits| char::from(alphabet[usize::from(sextet(bits))])).collect()
}

proptest! {
    #[test]
    fn text_in_one_byte_a_unit(text in any::<String>()) {
        let low: Vec<u8> = text.encode_utf16().map(|unit| (unit % 256) as u8).collect();
        let wide: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        prop_assert_eq!(&*Buffer::from_text(&text, Encoding::Latin1), low.as_slice());
        prop_assert_eq!(&*Buffer::from_text(&text, Encoding::Ascii), low.as_slice());
        prop_assert_eq!(&*Buffer::from_text(&text, Encoding::Utf8), text.as_bytes());
        prop_assert_eq!(&*Buffer::from_text(&text, Encoding::Ucs2), wide.as_slice());
        prop_assert_eq!(Buffer::from_text(&text, Encoding::Ucs2).to_text(Encoding::Ucs2), text);
    }

    #[test]
    fn bytes_there_and_back(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let buffer = Buffer::of(&bytes);
        for encoding in [Encoding::Latin1, Encoding::Hex, Encoding::Base64, Encoding::Base64Url] {
            prop_assert_eq!(Buffer::from_text(&buffer.to_text(encoding), encoding), buffer.clone());
        }
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        prop_assert_eq!(buffer.to_text(Encoding::Hex), hex);
        let standard = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let text = buffer.to_text(Encoding::Base64);
        prop_assert_eq!(text.trim_end_matches('='), base64(&bytes, standard));
        prop_assert_eq!(text.len() % 4, 0);
        let url = text.trim_end_matches('=').replace('+', "-").replace('/', "_");
        prop_assert_eq!(buffer.to_text(Encoding::Base64Url), url);
        let ascii: String = bytes.iter().map(|byte| char::from(byte % 128)).collect();
        prop_assert_eq!(buffer.to_text(Encoding::Ascii), ascii);
    }

    /// Whatever the text and however little the room: no panic, never past the bound, and
    /// what fits is the beginning of all.
    #[test]
    fn any_text_into_any_room(text in "[a-zA-Z0-9+/=_ é\u{161}\u{1f600}-]{0,40}", room in 0..60usize) {
        for encoding in ALL {
            let whole = Buffer::from_text(&text, encoding);
            prop_assert!(whole.len() <= encoding.byte_len_max(&text));
            let mut bytes = vec![0; room];
            let len = encoding.encode_into(&text, &mut bytes);
            prop_assert_eq!(&bytes[..len], &whole[..len]);
            prop_assert!(len == whole.len() || len + 4 > room);
        }
    }
}

#[test]
fn names_as_nodes() {
    for name in ["utf8", "UTF-8", "ucs2", "utf-16le", "latin1", "binary", "ascii", "hex", "base64", "base64URL"] {
        assert!(name.parse::<Encoding>().is_ok(), "{name}");
    }
    let error = "utf9".parse::<Encoding>().expect_err("there is no such encoding");
    assert!(error.to_string().starts_with("unknown encoding `utf9`"));
}
