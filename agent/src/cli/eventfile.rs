//! The file of a recording, which is valid at every moment.
//!
//! Each batch of events is written together with the closing after it, and the next batch
//! overwrites that closing. So the file can be read after a crash, and on a full disk
//! there is always room to close it: the closing's bytes are already on the disk.

use super::output::{self, Target};
use crate::error::Failure;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// Bytes that are gathered before they are written.
const BATCH_BYTES: usize = 64 * 1024;
/// Bytes that a Chrome file keeps for its closing; a longer one must find new room.
const RESERVE_BYTES: usize = 2048;

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Chrome's trace format: one JSON object, for Perfetto and chrome://tracing
    Chrome,
    /// A line of JSON an event, with the same fields
    Ndjson,
}

/// What is said of a recording as a whole.
#[derive(Debug, Default)]
pub struct Closing {
    /// Events lost, by reason.
    pub lost: BTreeMap<String, u64>,
    /// What the person should know.
    pub notes: Vec<String>,
    /// The service of each process.
    pub services: BTreeMap<u32, String>,
    /// Whether the recording came to its proper end.
    pub complete: bool,
}

/// A file of events that is being written.
#[derive(Debug)]
pub struct EventFile {
    target: Target,
    format: Format,
    /// Complete lines that are not written yet.
    batch: Vec<u8>,
    /// Where the batch goes.
    at: u64,
    /// Events written and in the batch.
    events: u64,
    /// A batch did not fit: the file is closed and takes no more.
    full: bool,
}

impl EventFile {
    /// Empties the target and begins.
    pub fn begin(mut target: Target, format: Format) -> Result<Self, Failure> {
        target.begin()?;
        let mut file =
            Self { target, format, batch: Vec::with_capacity(2 * BATCH_BYTES), at: 0, events: 0, full: false };
        if format == Format::Chrome {
            file.batch.extend_from_slice(b"{\"traceEvents\":[");
        }
        file.write_batch()?;
        Ok(file)
    }

    /// Events in the file.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Whether what did not fit could be cut off, so that the file holds complete events only.
    pub fn is_regular(&self) -> bool {
        self.target.regular
    }

    /// What to call the file in messages.
    pub fn name(&self) -> &str {
        &self.target.name
    }

    /// Adds an event: a JSON object on one line.
    pub fn push(&mut self, event: &str) -> Result<(), Failure> {
        match self.format {
            Format::Chrome => {
                // The separator comes first, so that the file can end after any event.
                self.batch.extend_from_slice(if self.events == 0 { b"\n" } else { b",\n" });
                self.batch.extend_from_slice(event.as_bytes());
            }
            Format::Ndjson => {
                self.batch.extend_from_slice(event.as_bytes());
                self.batch.push(b'\n');
            }
        }
        self.events += 1;
        if self.batch.len() < BATCH_BYTES { Ok(()) } else { self.write_batch() }
    }

    /// Writes what is left and the closing.
    pub fn close(&mut self, closing: &Closing) -> Result<(), Failure> {
        if self.full {
            return Ok(());
        }
        self.write_batch()?;
        let closing = match self.format {
            Format::Chrome => chrome_closing(closing, self.events),
            Format::Ndjson => Vec::new(),
        };
        if !self.target.regular {
            return self
                .target
                .file
                .write_all(&closing)
                .map_err(|error| output::cannot_write(&self.target.name, &error));
        }
        let cut = |length: usize| self.target.file.set_len(self.at + length as u64);
        let (written, result) = write_at(&self.target, &closing, self.at);
        let result = result.and_then(|()| cut(closing.len()));
        result.map_err(|error| {
            if written < closing.len() {
                // The short closing fits into the reserve, whatever is on the disk.
                let _ = self.close_short();
            }
            output::cannot_write(&self.target.name, &error)
        })
    }

    fn write_batch(&mut self) -> Result<(), Failure> {
        let result =
            if self.target.regular { self.write_batch_closed() } else { self.target.file.write_all(&self.batch) };
        self.batch.clear();
        result.map_err(|error| {
            self.full = true;
            output::cannot_write(&self.target.name, &error)
        })
    }

    /// Writes the batch and a closing with room to spare after it. Where not all fits, the
    /// file ends after the last event that fits beside its closing.
    fn write_batch_closed(&mut self) -> io::Result<()> {
        let events_len = self.batch.len();
        if self.format == Format::Chrome {
            self.batch.extend_from_slice(SHORT_CLOSING);
            self.batch.resize(events_len + RESERVE_BYTES, b' ');
        }
        let (written, result) = write_at(&self.target, &self.batch, self.at);
        if result.is_ok() {
            self.at += events_len as u64;
            return result;
        }
        let room = match self.format {
            Format::Chrome => written.saturating_sub(SHORT_CLOSING.len()),
            Format::Ndjson => written,
        };
        let kept = self.last_end(room.min(events_len));
        let lost = count_events(&self.batch[kept..events_len]);
        self.at += kept as u64;
        self.events -= lost;
        self.close_short()?;
        result
    }

    /// The end of the last complete event within the first `room` bytes of the batch.
    fn last_end(&self, room: usize) -> usize {
        match self.format {
            // An event ends where the next one's separator begins.
            Format::Chrome => {
                let followed =
                    |&at: &usize| self.batch[at..].starts_with(b",\n") || self.batch[at..].starts_with(SHORT_CLOSING);
                (0..=room).rev().find(followed).unwrap_or(0)
            }
            Format::Ndjson => self.batch[..room].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1),
        }
    }

    /// Ends the file after `at` with as little as makes it valid.
    fn close_short(&self) -> io::Result<()> {
        let closing: &[u8] = if self.format == Format::Chrome && self.at > 0 { SHORT_CLOSING } else { b"" };
        write_at(&self.target, closing, self.at).1?;
        self.target.file.set_len(self.at + closing.len() as u64)
    }
}

const SHORT_CLOSING: &[u8] = b"\n],\"otherData\":{\"complete\":false}}\n";

fn chrome_closing(closing: &Closing, events: u64) -> Vec<u8> {
    let other = json!({
        "tool": concat!("tracebyte ", env!("CARGO_PKG_VERSION")),
        "complete": closing.complete,
        "events": events,
        "lost": closing.lost,
        "notes": closing.notes,
        "services": closing.services,
    });
    format!("\n],\"otherData\":{other}}}\n").into_bytes()
}

/// Events in complete lines: each line that is not empty is one.
fn count_events(lines: &[u8]) -> u64 {
    lines.split(|&byte| byte == b'\n').filter(|line| line.len() > 1).count() as u64
}

/// Writes all of `bytes` at a place, and says how many were written.
fn write_at(target: &Target, bytes: &[u8], at: u64) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match target.file.write_at(&bytes[written..], at + written as u64) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::path::PathBuf;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("tracebyte-eventfile-{}-{name}", std::process::id()))
    }

    fn read(path: &PathBuf) -> Value {
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn an_empty_recording_is_valid() {
        let path = path("empty");
        let mut file = EventFile::begin(Target::open(&path).unwrap(), Format::Chrome).unwrap();
        assert_eq!(read(&path)["traceEvents"], json!([]), "valid before it is closed");
        file.close(&Closing { complete: true, ..Closing::default() }).unwrap();
        let value = read(&path);
        assert_eq!(value["traceEvents"], json!([]));
        assert_eq!(value["otherData"]["complete"], true);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_file_is_valid_after_every_batch() {
        let path = path("batches");
        std::fs::write(&path, "x".repeat(10_000_000)).unwrap();
        let mut file = EventFile::begin(Target::open(&path).unwrap(), Format::Chrome).unwrap();
        for i in 0..5_000 {
            file.push(&format!(r#"{{"ph":"b","id":"{i}","pad":"{}"}}"#, "p".repeat(30))).unwrap();
            if i % 1_000 == 0 {
                assert!(read(&path)["traceEvents"].as_array().unwrap().len() <= i + 1);
            }
        }
        let lost = BTreeMap::from([("ring_full".to_owned(), 3)]);
        file.close(&Closing { lost, complete: true, ..Closing::default() }).unwrap();
        let value = read(&path);
        assert_eq!(value["traceEvents"].as_array().unwrap().len(), 5_000);
        assert_eq!(value["otherData"]["lost"]["ring_full"], 3);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_target_that_never_begins_leaves_things_as_they_were() {
        let (fresh, old) = (path("fresh"), path("old"));
        std::fs::write(&old, "old").unwrap();
        drop(Target::open(&fresh).unwrap());
        drop(Target::open(&old).unwrap());
        assert!(!fresh.exists());
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "old");
        std::fs::remove_file(old).unwrap();
    }
}
