//! The head of a request: parsed by httparse, then judged.
//!
//! What two servers in a row could read differently (two lengths, a length beside chunks, a
//! missing or doubled `Host`, a line feed alone as the end of a line) is refused, never guessed.

use httparse::Header;
use std::mem::MaybeUninit;

/// The longest head, in bytes; a longer one is answered by 431.
pub(super) const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Header lines in a head at most; more are answered by 431.
const HEADERS_MAX: usize = 96;

/// Room for a head's header lines.
pub(super) type Headers<'b> = [MaybeUninit<Header<'b>>; HEADERS_MAX];

/// Room for a head's header lines, not yet filled.
pub(super) const fn headers<'b>() -> Headers<'b> {
    [const { MaybeUninit::uninit() }; HEADERS_MAX]
}

/// How the end of a request's body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// So many bytes; mostly none.
    Length(u64),
    /// Chunks.
    Chunked,
}

/// A parsed head.
#[derive(Debug)]
pub(super) struct Head<'h, 'b> {
    pub method: &'b str,
    pub target: &'b str,
    /// Whether the client speaks HTTP/1.0.
    pub old: bool,
    pub headers: &'h [Header<'b>],
    pub framing: Framing,
    pub keep_alive: bool,
    pub expects_continue: bool,
    /// Bytes that the head takes.
    pub bytes: usize,
}

/// The status a head is refused with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal(pub u16);

const BAD: Refusal = Refusal(400);
const TOO_LARGE: Refusal = Refusal(431);

/// Reads the head at the start of `bytes`; `None` while it is not all there.
pub(super) fn parse<'h, 'b>(bytes: &'b [u8], room: &'h mut Headers<'b>) -> Result<Option<Head<'h, 'b>>, Refusal> {
    let mut request = httparse::Request::new(&mut []);
    let size = match request.parse_with_uninit_headers(bytes, room) {
        Ok(httparse::Status::Complete(size)) if size <= HEAD_BYTES_MAX => size,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(TOO_LARGE),
        Err(_) => return Err(BAD),
    };
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
        return Err(BAD);
    };
    let mut head = Head {
        method,
        target,
        old: minor == 0,
        headers: request.headers,
        framing: Framing::Length(0),
        keep_alive: minor == 1,
        expects_continue: false,
        bytes: size,
    };
    if has_bare_newline(&bytes[..size]) {
        return Err(BAD);
    }
    judge(&mut head)?;
    Ok(Some(head))
}

/// Whether a line ends in a line feed alone, which httparse takes.
pub(super) fn has_bare_newline(bytes: &[u8]) -> bool {
    let bare = |before: u8, byte: u8| (byte == b'\n') & (before != b'\r');
    // Folded rather than searched: without an early end it is done many bytes at a time.
    bytes.first() == Some(&b'\n') || bytes.windows(2).fold(false, |any, pair| any | bare(pair[0], pair[1]))
}

fn judge(head: &mut Head<'_, '_>) -> Result<(), Refusal> {
    let (mut length, mut lengths, mut chunked, mut hosts, mut close) = (0, 0, false, 0, false);
    for Header { name, value } in head.headers {
        // Sorted out by length first: most lines are none of these.
        match name.len() {
            4 if name.eq_ignore_ascii_case("host") => hosts += 1,
            6 if name.eq_ignore_ascii_case("expect") => {
                head.expects_continue = !head.old && value.eq_ignore_ascii_case(b"100-continue");
            }
            10 if name.eq_ignore_ascii_case("connection") => {
                for token in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                    close |= token.eq_ignore_ascii_case(b"close");
                    head.keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            14 if name.eq_ignore_ascii_case("content-length") => {
                lengths += 1;
                length = decimal(value).ok_or(BAD)?;
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                if chunked || head.old {
                    return Err(BAD);
                }
                if !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                    return Err(Refusal(501));
                }
                chunked = true;
            }
            _ => {}
        }
    }
    if hosts > 1 || (hosts == 0 && !head.old) || lengths + usize::from(chunked) > 1 {
        return Err(BAD);
    }
    // Wins over keep-alive beside it, in whichever line.
    head.keep_alive &= !close;
    head.framing = if chunked { Framing::Chunked } else { Framing::Length(length) };
    Ok(())
}

/// Digits and nothing else.
fn decimal(text: &[u8]) -> Option<u64> {
    let digits = text.trim_ascii();
    if digits.is_empty() || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |number, digit| 10 * number + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(text: &str) -> Result<Option<(Framing, bool)>, u16> {
        parse(text.as_bytes(), &mut headers())
            .map(|head| head.map(|head| (head.framing, head.keep_alive)))
            .map_err(|refusal| refusal.0)
    }

    fn with(lines: &str) -> Result<Option<(Framing, bool)>, u16> {
        outcome(&format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"))
    }

    #[test]
    fn heads_that_are_taken() {
        let none = Framing::Length(0);
        assert_eq!(with(""), Ok(Some((none, true))));
        assert_eq!(with("Connection: close\r\n"), Ok(Some((none, false))));
        assert_eq!(with("Connection: Upgrade, CLOSE\r\n"), Ok(Some((none, false))));
        assert_eq!(with("Connection: close\r\nConnection: keep-alive\r\n"), Ok(Some((none, false))));
        assert_eq!(with("content-length: 12 \r\n"), Ok(Some((Framing::Length(12), true))));
        assert_eq!(with("Transfer-Encoding: Chunked\r\n"), Ok(Some((Framing::Chunked, true))));
        assert_eq!(outcome("GET / HTTP/1.0\r\n\r\n"), Ok(Some((none, false))));
        assert_eq!(outcome("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), Ok(Some((none, true))));
        assert_eq!(outcome("GET / HTTP/1.1\r\nHost"), Ok(None));
        assert_eq!(outcome("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), Ok(Some((none, true))));
    }

    #[test]
    fn heads_that_are_refused() {
        for lines in [
            "Host: b\r\n",
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: 1, 1\r\n",
            "Content-Length: -1\r\n",
            "Content-Length: \r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "No colon\r\n",
            "Space : x\r\n",
            " folded: x\r\n",
            "A: b\nC: d\r\n",
            "\n",
        ] {
            assert_eq!(with(lines), Err(400), "{lines:?}");
        }
        assert_eq!(with("Transfer-Encoding: gzip, chunked\r\n"), Err(501));
        assert_eq!(outcome("GET / HTTP/1.1\r\n\r\n"), Err(400));
        assert_eq!(outcome("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), Err(400));
        assert_eq!(outcome("GET / HTTP/2.0\r\n\r\n"), Err(400));
        assert_eq!(outcome("nonsense\r\n\r\n"), Err(400));
    }

    #[test]
    fn heads_that_are_too_large() {
        assert_eq!(with(&format!("A: {}\r\n", "x".repeat(HEAD_BYTES_MAX))), Err(431));
        assert_eq!(with(&"a: b\r\n".repeat(HEADERS_MAX)), Err(431));
        assert_eq!(outcome(&format!("GET /{}", "x".repeat(HEAD_BYTES_MAX))), Err(431));
    }
}
