//! One connection: lines in, lines out, each with a bound and a deadline.

use super::parse;
use crate::control::protocol::{REQUEST_BYTES_MAX, Reply, Verb};
use crate::error::Failure;
use crate::room::Place;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

/// How long a request may take to arrive.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// How long a reader may keep a closing line, or what precedes it, waiting.
pub const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub struct Wire {
    /// The client's lines.
    pub lines: Lines,
    /// Where ours go.
    pub writer: OwnedWriteHalf,
}

/// The lines that a client sends.
#[derive(Debug)]
pub struct Lines(BufReader<OwnedReadHalf>);

impl Wire {
    /// On a fresh connection.
    pub fn new(stream: UnixStream) -> Self {
        let (reader, writer) = stream.into_split();
        Self { lines: Lines(BufReader::with_capacity(4096, reader)), writer }
    }

    /// Reads the one request, for as long as the client has its place; `None` where it left
    /// without asking.
    pub async fn request(&mut self, bytes_max: usize, place: Place) -> Result<Option<Verb>, Failure> {
        let line = tokio::select! {
            line = tokio::time::timeout(REQUEST_LIMIT, self.lines.next(bytes_max)) => line,
            () = place => return Err(Failure::new("too many clients are connected and ask nothing")),
        };
        let line = match line {
            Ok(Ok(line)) => line,
            Ok(Err(error)) => return Err(Failure::new(format!("cannot read the request: {error}"))),
            Err(_) => {
                let limit = REQUEST_LIMIT.as_secs();
                return Err(Failure::usage(format!("no whole request came within {limit} seconds")));
            }
        };
        match line.last() {
            None => Ok(None),
            Some(b'\n') => parse(&line).map(Some),
            Some(_) if line.len() >= bytes_max => {
                Err(Failure::usage(format!("the request is longer than {bytes_max} bytes")))
            }
            Some(_) => Err(Failure::usage("the request ends in the middle: a newline is missing")),
        }
    }

    /// Sends a reply within the deadline.
    pub async fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        let mut line = serde_json::to_vec(reply)?;
        line.push(b'\n');
        self.write(&line).await
    }

    /// Sends bytes within the deadline.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        tokio::time::timeout(WRITE_LIMIT, self.writer.write_all(bytes)).await?
    }

    /// Sends the closing line. A client that has left misses it, and that is its choice.
    pub async fn reply_last(&mut self, reply: &Reply) {
        if let Err(error) = self.reply(reply).await {
            tracing::debug!(%error, "the client left before the answer");
        }
    }
}

impl Lines {
    /// The next line with its newline; without one where the client stopped in the middle
    /// or went beyond the bound; empty where it has left.
    async fn next(&mut self, bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        (&mut self.0).take(bytes_max as u64).read_until(b'\n', &mut line).await?;
        Ok(line)
    }

    /// Returns when the client says `stop`, says anything else, or leaves.
    pub async fn stopped(&mut self) {
        // During a stream there is nothing else to say, so every line means the same.
        let _ = self.next(REQUEST_BYTES_MAX).await;
    }
}
