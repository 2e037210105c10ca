//! What the demo server answers.

use runtime_core::http::{Request, Response};
use runtime_core::trace::Route;
use std::sync::OnceLock;

/// The longest body, in bytes, and the most pieces.
const LEN_MAX: usize = 64 * 1024 * 1024;
const CHUNKS_MAX: usize = 1024;

/// The routes, with their labels.
pub struct Routes {
    greeting: Route,
    body: Route,
}

/// A body that was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Body {
    len: usize,
    chunks: usize,
    chunked_encoding: bool,
}

/// Why a path names no body.
#[derive(Debug, PartialEq, Eq)]
enum NoBody {
    /// It is no such path.
    NotFound,
    /// It is, but with a number that makes no sense.
    Bad(&'static str),
}

impl Routes {
    /// Registers their templates.
    pub fn new() -> Self {
        Self { greeting: Route::named("/"), body: Route::named("/{type}/{len}/{chunks}/{chunkedEnc}") }
    }

    /// Answers one request; the method does not matter.
    pub fn answer(&self, request: &Request<'_>, response: &mut Response) {
        if request.path() == "/" {
            response.route(self.greeting).header("Content-Type", "text/plain").write(b"hello from runtime-core\n");
            return;
        }
        match parse(request.path()) {
            Ok(body) => {
                response.route(self.body).header("Content-Type", "text/plain");
                body.write_to(response);
            }
            Err(NoBody::Bad(why)) => {
                response.route(self.body).status(400).header("Content-Type", "text/plain").write(why.as_bytes());
            }
            Err(NoBody::NotFound) => {
                response.status(404).header("Content-Type", "text/plain").write(b"not found\n");
            }
        }
    }
}

fn parse(path: &str) -> Result<Body, NoBody> {
    let mut parts = path.strip_prefix('/').ok_or(NoBody::NotFound)?.split('/');
    let (Some("bytes" | "buffer"), Some(len)) = (parts.next(), parts.next()) else { return Err(NoBody::NotFound) };
    let (chunks, encoding) = (parts.next().unwrap_or("1"), parts.next().unwrap_or("0"));
    if parts.next().is_some() {
        return Err(NoBody::NotFound);
    }
    let len = number(len, 0, LEN_MAX).ok_or(NoBody::Bad("len is a number from 0 to 67108864\n"))?;
    let chunks = number(chunks, 1, CHUNKS_MAX).ok_or(NoBody::Bad("chunks is a number from 1 to 1024\n"))?;
    let encoding = number(encoding, 0, 1).ok_or(NoBody::Bad("chunkedEnc is 0 or 1\n"))?;
    Ok(Body { len, chunks, chunked_encoding: encoding == 1 })
}

fn number(text: &str, min: usize, max: usize) -> Option<usize> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|number| (min..=max).contains(number))
}

impl Body {
    fn write_to(&self, response: &mut Response) {
        if self.chunked_encoding {
            response.chunked();
        }
        let step = self.len / self.chunks;
        for chunk in 0..self.chunks {
            let len = if chunk + 1 == self.chunks { self.len - step * chunk } else { step };
            response.write_static(filled(len));
        }
    }
}

/// So many bytes `C`, made once for each power of two and kept.
fn filled(len: usize) -> &'static [u8] {
    static BYTES: [OnceLock<Box<[u8]>>; LEN_MAX.ilog2() as usize + 1] =
        [const { OnceLock::new() }; LEN_MAX.ilog2() as usize + 1];
    let size = len.next_power_of_two();
    &BYTES[size.ilog2() as usize].get_or_init(|| vec![b'C'; size].into())[..len]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let body = |len, chunks, chunked_encoding| Ok(Body { len, chunks, chunked_encoding });
        assert_eq!(parse("/bytes/4"), body(4, 1, false));
        assert_eq!(parse("/buffer/102400/4/1"), body(102_400, 4, true));
        assert_eq!(parse("/bytes/67108864"), body(LEN_MAX, 1, false));
        for path in ["/bytes", "/other/4", "/bytes/4/1/0/x", "bytes/4", ""] {
            assert_eq!(parse(path), Err(NoBody::NotFound), "{path}");
        }
        for path in
            ["/bytes/x", "/bytes/67108865", "/bytes/+4", "/bytes/4/0", "/bytes/4/1025", "/bytes/4/1/2", "/bytes/"]
        {
            assert!(matches!(parse(path), Err(NoBody::Bad(_))), "{path}");
        }
    }

    #[test]
    fn bodies_have_the_length_asked_for() {
        for len in [0, 1, 2, 3, 4, 1000, 1024, 1025, LEN_MAX] {
            assert_eq!(filled(len).len(), len);
        }
        assert!(filled(1025).iter().all(|byte| *byte == b'C'));
    }
}
