//! The answer that a handler builds.
//!
//! One value serves every request of an event loop, so that answering allocates nothing once
//! its buffers have grown.

use super::date::Date;
use super::output::Output;
use crate::trace::{Route, lane};

/// A constant piece up to this size is copied beside the head rather than sent by reference.
const COPIED_BYTES_MAX: usize = 1024;
/// Larger buffers are not kept for the next answer, in bytes.
const KEPT_BYTES_MAX: usize = 1024 * 1024;
/// Header lines that the server writes itself.
const OWN_HEADERS: [&str; 4] = ["connection", "content-length", "date", "transfer-encoding"];

/// The answer to one request: 200 with an empty body until the handler says otherwise.
#[derive(Debug)]
pub struct Response {
    status: u16,
    headers: Vec<u8>,
    pieces: Vec<Piece>,
    /// The copied pieces, one after another.
    bytes: Vec<u8>,
    body_bytes: u64,
    chunked: bool,
    close: bool,
    route: Route,
}

#[derive(Debug)]
enum Piece {
    Copied(usize),
    Static(&'static [u8]),
}

/// How an answer is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    /// To HEAD: no body.
    pub head_only: bool,
    /// To HTTP/1.0: no chunks.
    pub old: bool,
    pub keep_alive: bool,
}

impl Response {
    pub(super) fn new() -> Self {
        Self {
            status: 200,
            headers: Vec::new(),
            pieces: Vec::new(),
            bytes: Vec::new(),
            body_bytes: 0,
            chunked: false,
            close: false,
            route: Route::NONE,
        }
    }

    pub(super) fn reset(&mut self) {
        self.status = 200;
        self.headers.clear();
        self.pieces.clear();
        self.bytes.clear();
        self.body_bytes = 0;
        self.chunked = false;
        self.close = false;
        self.route = Route::NONE;
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes = Vec::new();
        }
    }

    /// Sets the status; anything but a final status (200 to 999) means 500.
    pub fn status(&mut self, status: u16) -> &mut Self {
        self.status = if (200..1000).contains(&status) { status } else { 500 };
        self
    }

    /// Adds a header line. Control characters become spaces. The server writes `Connection`,
    /// `Content-Length`, `Date` and `Transfer-Encoding` itself: these are left out here.
    pub fn header(&mut self, name: &str, value: &str) -> &mut Self {
        if !OWN_HEADERS.iter().any(|own| own.eq_ignore_ascii_case(name)) {
            let clean = |byte: u8| if byte.is_ascii_control() { b' ' } else { byte };
            self.headers.extend(name.bytes().map(clean));
            self.headers.extend_from_slice(b": ");
            self.headers.extend(value.bytes().map(clean));
            self.headers.extend_from_slice(b"\r\n");
        }
        self
    }

    /// Says which route the request has, for labels and events.
    pub fn route(&mut self, route: Route) -> &mut Self {
        self.route = route;
        lane::set_route(route);
        self
    }

    /// Sends the body in chunks, one for each piece written, rather than with its length
    /// ahead. A client of HTTP/1.0 gets the length all the same.
    pub fn chunked(&mut self) -> &mut Self {
        self.chunked = true;
        self
    }

    /// Closes the connection after this answer.
    pub fn close(&mut self) -> &mut Self {
        self.close = true;
        self
    }

    /// Adds a piece to the body, copied.
    pub fn write(&mut self, bytes: &[u8]) -> &mut Self {
        if !bytes.is_empty() {
            self.bytes.extend_from_slice(bytes);
            self.pieces.push(Piece::Copied(bytes.len()));
            self.body_bytes += bytes.len() as u64;
        }
        self
    }

    /// Adds a piece to the body by reference, however long it is.
    pub fn write_static(&mut self, bytes: &'static [u8]) -> &mut Self {
        if bytes.len() <= COPIED_BYTES_MAX {
            return self.write(bytes);
        }
        self.pieces.push(Piece::Static(bytes));
        self.body_bytes += bytes.len() as u64;
        self
    }

    pub(super) fn closes(&self) -> bool {
        self.close
    }

    pub(super) fn labels(&self) -> (u16, Route) {
        (self.status, self.route)
    }

    /// Writes head and body.
    pub(super) fn write_to(&self, output: &mut Output, form: Form, date: &Date) {
        // These two have no body by definition, whatever was written.
        let bodiless = matches!(self.status, 204 | 304);
        let chunked = self.chunked && !form.old && !bodiless;
        output.own(false, |out| {
            self.write_head(out, form, date);
            match (bodiless, chunked) {
                (true, _) => {}
                (false, true) => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
                (false, false) => {
                    out.extend_from_slice(b"Content-Length: ");
                    put_number(out, self.body_bytes, 10);
                    out.extend_from_slice(b"\r\n");
                }
            }
            out.extend_from_slice(b"\r\n");
        });
        if form.head_only || bodiless {
            return;
        }
        let mut rest = &self.bytes[..];
        for piece in &self.pieces {
            if chunked {
                let len = match piece {
                    Piece::Copied(len) => *len,
                    Piece::Static(bytes) => bytes.len(),
                };
                output.own(false, |out| {
                    put_number(out, len as u64, 16);
                    out.extend_from_slice(b"\r\n");
                });
            }
            match piece {
                Piece::Copied(len) => {
                    let bytes;
                    (bytes, rest) = rest.split_at(*len);
                    output.own(true, |out| out.extend_from_slice(bytes));
                }
                Piece::Static(bytes) => output.shared(bytes),
            }
            if chunked {
                output.own(false, |out| out.extend_from_slice(b"\r\n"));
            }
        }
        if chunked {
            output.own(false, |out| out.extend_from_slice(b"0\r\n\r\n"));
        }
    }

    fn write_head(&self, out: &mut Vec<u8>, form: Form, date: &Date) {
        if self.status == 200 {
            out.extend_from_slice(b"HTTP/1.1 200 OK\r\nDate: ");
        } else {
            out.extend_from_slice(b"HTTP/1.1 ");
            put_number(out, self.status.into(), 10);
            out.push(b' ');
            out.extend_from_slice(reason(self.status).as_bytes());
            out.extend_from_slice(b"\r\nDate: ");
        }
        out.extend_from_slice(date.text());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.headers);
        if !form.keep_alive {
            out.extend_from_slice(b"Connection: close\r\n");
        } else if form.old {
            out.extend_from_slice(b"Connection: keep-alive\r\n");
        }
    }
}

fn put_number(out: &mut Vec<u8>, mut number: u64, base: u64) {
    let (mut digits, mut at) = ([0; 20], 20);
    loop {
        at -= 1;
        digits[at] = b"0123456789abcdef"[(number % base) as usize];
        number /= base;
        if number == 0 {
            return out.extend_from_slice(&digits[at..]);
        }
    }
}

/// The phrase beside a status; empty for one that has none here.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(response: &Response, form: Form) -> String {
        let (mut output, mut sent) = (Output::default(), Vec::new());
        response.write_to(&mut output, form, &Date::now());
        output.send(&mut sent).unwrap();
        let text = String::from_utf8(sent).unwrap();
        // Without the date, which changes.
        let at = text.find("Date: ").unwrap();
        format!("{}{}", &text[..at], &text[at + 37..])
    }

    const PLAIN: Form = Form { head_only: false, old: false, keep_alive: true };

    #[test]
    fn fixed_length() {
        let mut response = Response::new();
        response.status(404).header("A", "b\r\nC: d").header("content-length", "9").write(b"no").write(b"pe");
        assert_eq!(text(&response, PLAIN), "HTTP/1.1 404 Not Found\r\nA: b  C: d\r\nContent-Length: 4\r\n\r\nnope");
        assert_eq!(
            text(&response, Form { head_only: true, keep_alive: false, ..PLAIN }),
            "HTTP/1.1 404 Not Found\r\nA: b  C: d\r\nConnection: close\r\nContent-Length: 4\r\n\r\n"
        );
    }

    #[test]
    fn chunks() {
        static LONG: [u8; 5000] = [b'x'; 5000];
        let mut response = Response::new();
        response.chunked().write(b"abc").write_static(&LONG).write(b"");
        let long = "x".repeat(5000);
        assert_eq!(
            text(&response, PLAIN),
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1388\r\n{long}\r\n0\r\n\r\n")
        );
        assert_eq!(
            text(&response, Form { old: true, ..PLAIN }),
            format!("HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5003\r\n\r\nabc{long}")
        );
    }

    #[test]
    fn no_content_has_none() {
        let mut response = Response::new();
        response.status(204).chunked().write(b"abc");
        assert_eq!(text(&response, PLAIN), "HTTP/1.1 204 No Content\r\n\r\n");
    }
}
