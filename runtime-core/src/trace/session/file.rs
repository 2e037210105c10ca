//! A trace file that is valid JSON whenever nobody is just writing to it, and its successors.
//!
//! Each write ends with the file's closing lines, and the next one begins over them: what a
//! process leaves behind that is killed can be opened. The closing lines always have the same
//! length, so that they can be put back without room on the disk.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 256 * 1024;

/// Where files go and how large they get.
#[derive(Clone, Debug)]
pub struct Limits {
    /// `${rotation}` and `${pid}` are replaced in it.
    pub pattern: String,
    /// The largest file, in bytes.
    pub file_bytes_max: u64,
    /// How many files are kept.
    pub files_max: usize,
}

/// What stands around the events.
#[derive(Debug)]
struct Frame {
    /// What the recording takes, for the file's reader.
    filter: String,
    pid: u32,
}

/// The present file of a recording.
#[derive(Debug)]
pub struct TraceFile {
    limits: Limits,
    frame: Frame,
    rotation: u64,
    file: File,
    path: PathBuf,
    /// The finished files still kept, oldest first.
    finished: VecDeque<PathBuf>,
    /// Where the events begin, the closing lines begin, and how long these are.
    start: u64,
    end: u64,
    closing_bytes: u64,
    buffer: Vec<u8>,
    buffered: u64,
    /// Events in this and the earlier files.
    events: u64,
    lost: u64,
    lost_written: u64,
}

impl TraceFile {
    /// Makes the first file, over one that is there.
    pub fn create(limits: Limits, filter: String, pid: u32) -> Result<Self, (PathBuf, io::Error)> {
        let frame = Frame { filter, pid };
        let path = path_of(&limits.pattern, 1, pid);
        let file = frame.begin(&path, 0).map_err(|error| (path.clone(), error))?;
        let (start, closing_bytes) = (frame.opening().len() as u64, frame.closing(0).len() as u64);
        Ok(Self {
            limits,
            frame,
            rotation: 1,
            file,
            path,
            finished: VecDeque::new(),
            start,
            end: start,
            closing_bytes,
            buffer: Vec::new(),
            buffered: 0,
            events: 0,
            lost: 0,
            lost_written: 0,
        })
    }

    /// The present file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Events written to this and the earlier files.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Events lost since the recording began.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Counts events that were lost.
    pub fn lose(&mut self, events: u64) {
        self.lost += events;
    }

    /// Adds an event, an object without its comma.
    pub fn add(&mut self, event: &[u8]) -> io::Result<()> {
        let after = self.end + (self.buffer.len() + 2 + event.len()) as u64 + self.closing_bytes;
        let fresh = self.buffered == 0 && self.end == self.start;
        if after > self.limits.file_bytes_max && !fresh {
            self.flush()?;
            self.rotate()?;
        }
        self.buffer.extend(b",\n");
        self.buffer.extend(event);
        self.buffered += 1;
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes what was added. Where that fails, the file is closed again behind what it had,
    /// and what was added counts as lost.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() && self.lost == self.lost_written {
            return Ok(());
        }
        let body = self.buffer.len();
        self.buffer.extend(self.frame.closing(self.lost));
        let written = self.file.write_all_at(&self.buffer, self.end);
        match written {
            Ok(()) => {
                self.end += body as u64;
                self.events += self.buffered;
                self.lost_written = self.lost;
            }
            Err(_) => {
                self.lost += self.buffered;
                let closing = self.frame.closing(self.lost);
                // Over bytes that were there before: no room is needed. If the disk is gone for
                // good there is nothing left to do.
                let _ = self.file.write_all_at(&closing, self.end);
                let _ = self.file.set_len(self.end + closing.len() as u64);
            }
        }
        self.buffer.clear();
        self.buffered = 0;
        written
    }

    fn rotate(&mut self) -> io::Result<()> {
        let path = path_of(&self.limits.pattern, self.rotation + 1, self.frame.pid);
        let begun = self.frame.begin(&path, self.lost);
        self.file =
            begun.map_err(|error| io::Error::other(format!("cannot go on in `{}`: {error}", path.display())))?;
        self.rotation += 1;
        self.end = self.start;
        self.lost_written = self.lost;
        self.finished.push_back(std::mem::replace(&mut self.path, path));
        if self.finished.len() >= self.limits.files_max.max(1)
            && let Some(oldest) = self.finished.pop_front()
        {
            remove(&oldest);
        }
        Ok(())
    }
}

impl Frame {
    /// Makes a file without events.
    fn begin(&self, path: &Path, lost: u64) -> io::Result<File> {
        let file = open(path)?;
        let written = file.write_all_at(&[self.opening(), self.closing(lost)].concat(), 0);
        if written.is_err() {
            remove(path);
        }
        written.map(|()| file)
    }

    /// Begins with the process's name, as viewers show it, so that every event can follow a comma.
    fn opening(&self) -> Vec<u8> {
        let name = std::env::args_os().next().unwrap_or_default();
        let name = Path::new(&name).file_name().unwrap_or_default().as_encoded_bytes();
        let mut out = Vec::new();
        // Writing to a `Vec` cannot fail.
        let _ = write!(out, "{{\"traceEvents\":[\n{{\"pid\":{0},\"tid\":{0},\"ts\":0,\"ph\":\"M\"", self.pid);
        out.extend(br#","cat":"__metadata","name":"process_name","args":{"name":"#);
        runtime_core_chrome::string(&mut out, name);
        out.extend(b"}}");
        out
    }

    fn closing(&self, lost: u64) -> Vec<u8> {
        let mut out = b"\n],\"metadata\":{\"clock\":\"CLOCK_MONOTONIC\",\"categories\":".to_vec();
        runtime_core_chrome::string(&mut out, self.filter.as_bytes());
        // Writing to a `Vec` cannot fail. The width is that of the largest number.
        let _ = writeln!(out, ",\"events_lost\":{lost:20}}}}}");
        out
    }
}

/// Removes a file, and nothing that only stands for one, such as a device. One that is gone
/// already, or that may not be removed, does not grow either.
fn remove(path: &Path) {
    if path.symlink_metadata().is_ok_and(|found| found.is_file()) {
        let _ = std::fs::remove_file(path);
    }
}

fn open(path: &Path) -> io::Result<File> {
    // Requests can hold secrets: for the owner only.
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// The file of a rotation. A pattern that does not say where the number goes gets it at its
/// end from the second file on, so that no file is written over by the next.
fn path_of(pattern: &str, rotation: u64, pid: u32) -> PathBuf {
    let numbered = pattern.contains("${rotation}");
    let path = pattern.replace("${rotation}", &rotation.to_string()).replace("${pid}", &pid.to_string());
    if numbered || rotation == 1 { path.into() } else { format!("{path}.{rotation}").into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("runtime-core-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    fn create(folder: &Path, file_bytes_max: u64, files_max: usize) -> TraceFile {
        let pattern = folder.join("t.${rotation}.log").display().to_string();
        TraceFile::create(Limits { pattern, file_bytes_max, files_max }, "node.*".into(), 42).unwrap()
    }

    fn read(path: &Path) -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn it_is_valid_after_every_write() {
        let folder = folder("valid");
        let mut file = create(&folder, 1 << 20, 9);
        for count in 1..=5 {
            assert_eq!(read(file.path())["traceEvents"].as_array().unwrap().len(), count);
            file.add(br#"{"ph":"i"}"#).unwrap();
            file.lose(1);
            file.flush().unwrap();
            assert_eq!(read(file.path())["metadata"]["events_lost"], count);
        }
        assert_eq!((file.events(), file.lost()), (5, 5));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn files_are_bounded_in_size_and_number_and_lose_nothing_kept() {
        let folder = folder("rotate");
        let mut file = create(&folder, 4096, 3);
        for n in 0..1000 {
            file.add(format!(r#"{{"n":{n}}}"#).as_bytes()).unwrap();
        }
        file.flush().unwrap();
        let mut paths: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        assert_eq!(paths.len(), 3);
        let mut seen = Vec::new();
        for path in &paths {
            assert!(std::fs::metadata(path).unwrap().len() <= 4096);
            let events = read(path)["traceEvents"].as_array().unwrap().clone();
            seen.extend(events.iter().filter_map(|event| event["n"].as_u64()));
        }
        assert_eq!(seen, (1000 - seen.len() as u64..1000).collect::<Vec<_>>());
        assert_eq!(file.events(), 1000);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_successor_that_cannot_be_made_leaves_the_last_file_valid() {
        let folder = folder("successor");
        let mut file = create(&folder, 1000, 3);
        std::fs::create_dir(folder.join("t.2.log")).unwrap();
        let error = (0..1000).find_map(|n| file.add(format!(r#"{{"n":{n}}}"#).as_bytes()).err()).unwrap();
        assert!(error.to_string().starts_with("cannot go on in `") && error.to_string().contains("t.2.log"), "{error}");
        assert_eq!(read(file.path())["traceEvents"].as_array().unwrap().len() as u64, file.events() + 1);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_device_is_not_removed() {
        let limits = Limits { pattern: "/dev/full".into(), file_bytes_max: 4096, files_max: 1 };
        assert!(TraceFile::create(limits, "*".into(), 42).is_err());
        assert!(Path::new("/dev/full").exists());
    }

    #[test]
    fn a_pattern_without_a_number_gets_one() {
        assert_eq!(path_of("a.${pid}.${rotation}", 1, 7), Path::new("a.7.1"));
        assert_eq!(path_of("a.json", 1, 7), Path::new("a.json"));
        assert_eq!(path_of("a.json", 2, 7), Path::new("a.json.2"));
    }
}
