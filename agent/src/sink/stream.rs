//! Who listens to events as they come: `watch` and `record`.
//!
//! A stream takes the events stamped in its window, as lines, into a buffer of bounded
//! size. Its session empties the buffer at the pace of the reader; what a slow reader
//! leaves no room for is lost, and counted.

use super::Lost;
use crate::control::protocol::Select;
use crate::sys::clock;
use crate::target::Target;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;

/// Bytes that wait for a reader at most.
const QUEUE_BYTES_MAX: usize = 8 << 20;

/// Every stream that is open.
#[derive(Debug, Default)]
pub struct Streams(Mutex<Vec<Arc<Stream>>>);

/// One stream.
#[derive(Debug)]
pub struct Stream {
    select: Select,
    /// The window: timestamps from the first up to, not including, the second.
    from_ns: u64,
    until_ns: AtomicU64,
    queue: Mutex<Queue>,
    ready: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    lines: Vec<u8>,
    totals: Totals,
}

/// What went through a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Events.
    pub events: u64,
    /// Events lost, by reason; a reason that lost none is absent.
    pub lost: BTreeMap<String, u64>,
}

impl Streams {
    /// Opens a stream whose window begins now and ends after `length`, or when it is
    /// closed.
    pub fn open(&self, select: Select, length: Option<Duration>) -> Arc<Stream> {
        let mut streams = self.lock();
        // The clock is read under the lock: who looked at the list before copied nothing that
        // is stamped later.
        let from_ns = clock::monotonic_ns();
        let length_ns = length.map_or(u64::MAX, |length| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX));
        let stream = Arc::new(Stream {
            select,
            from_ns,
            until_ns: AtomicU64::new(from_ns.saturating_add(length_ns)),
            queue: Mutex::default(),
            ready: Notify::new(),
        });
        streams.push(Arc::clone(&stream));
        stream
    }

    /// Forgets a stream.
    pub fn remove(&self, stream: &Arc<Stream>) {
        self.lock().retain(|open| !Arc::ptr_eq(open, stream));
    }

    /// The streams that are about a target.
    pub fn of(&self, target: &Target) -> Vec<Arc<Stream>> {
        self.lock().iter().filter(|stream| target.matches(&stream.select)).map(Arc::clone).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Stream>>> {
        self.0.lock().expect("no panic while the streams are locked")
    }
}

impl Stream {
    /// Whether a timestamp lies in the window.
    pub fn covers(&self, ts_ns: u64) -> bool {
        self.from_ns <= ts_ns && ts_ns < self.until_ns.load(Ordering::Acquire)
    }

    /// Ends the window now, if it has not ended.
    pub fn close_window(&self) {
        self.until_ns.fetch_min(clock::monotonic_ns(), Ordering::AcqRel);
    }

    /// Takes a line that ends in a newline.
    pub fn push(&self, line: &[u8]) {
        let mut queue = self.lock();
        if queue.lines.len() + line.len() > QUEUE_BYTES_MAX {
            queue.lose("slow_reader", 1);
        } else {
            queue.lines.extend_from_slice(line);
            queue.totals.events += 1;
        }
    }

    /// Counts what was lost on the way here, and wakes the session if there is something.
    pub fn finish_batch(&self, lost: &Lost) {
        let mut queue = self.lock();
        // Without a timestamp a loss cannot be told to be in the window; it is, nearly.
        for (reason, count) in [("ring_full", lost.ring_full), ("no_lane", lost.no_lane), ("malformed", lost.malformed)]
        {
            queue.lose(reason, count);
        }
        if !queue.lines.is_empty() {
            self.ready.notify_one();
        }
    }

    /// Swaps the lines that have come for an empty buffer; `lines` is empty on return where
    /// there were none.
    pub fn take(&self, lines: &mut Vec<u8>) {
        lines.clear();
        std::mem::swap(lines, &mut self.lock().lines);
    }

    /// Returns when there may be something to take.
    pub async fn ready(&self) {
        self.ready.notified().await;
    }

    /// What went through so far.
    pub fn totals(&self) -> Totals {
        self.lock().totals.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no panic while the queue is locked")
    }
}

impl Queue {
    fn lose(&mut self, reason: &str, count: u64) {
        if count > 0 {
            let lost = self.totals.lost.entry(reason.to_owned()).or_default();
            *lost = lost.saturating_add(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_half_open() {
        let streams = Streams::default();
        let stream = streams.open(Select::All, Some(Duration::from_secs(1)));
        let from = stream.from_ns;
        let seen = [from - 1, from, from + 999_999_999, from + 1_000_000_000].map(|ts| stream.covers(ts));
        assert_eq!(seen, [false, true, true, false]);
        stream.close_window();
        assert!(!stream.covers(from + 999_999_999));
        streams.remove(&stream);
        assert!(streams.lock().is_empty());
    }

    #[test]
    fn a_slow_reader_loses_and_is_told() {
        let streams = Streams::default();
        let stream = streams.open(Select::All, None);
        let line = vec![b'x'; 1 << 20];
        (0..10).for_each(|_| stream.push(&line));
        let totals = stream.totals();
        assert_eq!((totals.events, totals.lost.get("slow_reader")), (8, Some(&2)));
        let mut taken = Vec::new();
        stream.take(&mut taken);
        assert_eq!(taken.len(), 8 << 20);
        stream.push(b"x\n");
        assert_eq!(stream.totals().events, 9);
    }
}
