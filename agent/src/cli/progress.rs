//! A line on the terminal that says how far a session is; nothing where nobody watches.

use super::output;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Shows progress until it is dropped.
pub struct Progress {
    /// Events so far, for the line.
    pub events: Arc<AtomicU64>,
    shown: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Begins to show `what`, of a session that is to take `total`.
    pub fn begin(what: &'static str, total: Duration, counts_events: bool) -> Self {
        let events = Arc::new(AtomicU64::new(0));
        let shown = output::is_watched().then(|| {
            let (ended, end) = channel();
            let events = events.clone();
            (
                ended,
                std::thread::spawn(move || {
                    let began = Instant::now();
                    while end.recv_timeout(Duration::from_millis(250)) == Err(RecvTimeoutError::Timeout) {
                        let (now, total) = (began.elapsed().as_secs_f64(), total.as_secs_f64());
                        let count =
                            if counts_events { format!(", {} events", events.load(Relaxed)) } else { String::new() };
                        show(&format!(
                            "{what}: {now:.0} of {total:.0} s{count} (Ctrl-C ends it and keeps what was taken)"
                        ));
                    }
                    show("");
                }),
            )
        });
        Self { events, shown }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((ended, thread)) = self.shown.take() {
            drop(ended);
            let _ = thread.join();
        }
    }
}

/// Replaces the terminal's current line.
fn show(line: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush());
}
