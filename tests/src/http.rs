//! A small HTTP client: enough for the load, `/metrics` and the queries of tests.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const ANSWER_LIMIT: Duration = Duration::from_secs(20);
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body, unchunked.
    pub body: Vec<u8>,
    /// Whether the server closes the connection after it.
    pub closes: bool,
}

/// A connection that is kept alive.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects, with a limit on every later read and write.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.set_write_timeout(Some(ANSWER_LIMIT))?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request)
    }

    /// Reads the next answer.
    pub fn answer(&mut self) -> io::Result<Answer> {
        let end = self.fill_until(b"\r\n\r\n", 0)?;
        let head = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
        self.buffer.drain(..end);
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(|| malformed(&head))?;
        let header = |name: &str| {
            let mut lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
            lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_ascii_lowercase())
        };
        let closes = header("connection").is_some_and(|value| value == "close");
        let body = if header("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
            self.chunks()?
        } else if let Some(bytes) = header("content-length") {
            self.take(bytes.parse().map_err(|_| malformed(&head))?)?
        } else if closes {
            self.rest()?
        } else {
            Vec::new()
        };
        Ok(Answer { status, body, closes })
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let end = self.fill_until(b"\r\n", 0)?;
            let size = String::from_utf8_lossy(&self.buffer[..end]).trim().to_owned();
            self.buffer.drain(..end);
            let size = usize::from_str_radix(&size, 16).map_err(|_| malformed(&size))?;
            let chunk = self.take(size + 2)?;
            if size == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    fn take(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < bytes {
            self.fill()?;
        }
        Ok(self.buffer.drain(..bytes).collect())
    }

    fn rest(&mut self) -> io::Result<Vec<u8>> {
        let mut body = std::mem::take(&mut self.buffer);
        self.stream.read_to_end(&mut body)?;
        Ok(body)
    }

    /// Reads until `mark` is in the buffer and returns where it ends.
    fn fill_until(&mut self, mark: &[u8], from: usize) -> io::Result<usize> {
        loop {
            if let Some(at) = self.buffer[from..].windows(mark.len()).position(|part| part == mark) {
                return Ok(from + at + mark.len());
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(malformed("a head without an end"));
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut part = [0; 16 * 1024];
        match self.stream.read(&mut part)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            n => {
                self.buffer.extend_from_slice(&part[..n]);
                Ok(())
            }
        }
    }
}

/// One GET on a connection of its own.
pub fn get(address: SocketAddr, path: &str) -> io::Result<Answer> {
    request(address, "GET", path)
}

/// One request without a body on a connection of its own.
pub fn request(address: SocketAddr, method: &str, path: &str) -> io::Result<Answer> {
    let mut connection = Connection::open(address)?;
    connection.send(format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").as_bytes())?;
    connection.answer()
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("not an HTTP answer: {what}"))
}
