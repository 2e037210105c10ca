//! The process's own recording: events into a file, with no agent.
//!
//! Threads write to rings in the process's own memory, one a lane, exactly as they do for an
//! agent; a thread of the session's own empties them into a file every few
//! milliseconds. The program never waits for the disk: what finds its ring full is counted,
//! and the count stands in the file. A disk that is full, or any other error, ends the
//! recording, switches it off, and leaves a valid file.

mod env;
mod file;

pub(crate) use env::start_from_env;
pub use env::{FILE_ENV, PATTERNS_ENV};

use super::Filter;
use crate::page::{self, Rings};
use crate::sys::process::{at_exit, with_signals_blocked};
use file::{Limits, TraceFile};
use runtime_core_abi::page::LANES_MAX;
use runtime_core_abi::record;
use runtime_core_abi::ring::Consumer;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Where events go unless told otherwise: Node's own name.
pub const FILE_DEFAULT: &str = "node_trace.${rotation}.log";
/// The largest file unless told otherwise, in bytes.
pub const FILE_BYTES_DEFAULT: u64 = 64 * 1024 * 1024;
/// How many files are kept unless told otherwise.
pub const FILES_DEFAULT: usize = 16;
/// No file is bounded to less, in bytes: the longest event must fit.
pub const FILE_BYTES_MIN: u64 = 256 * 1024;

/// How often rings are emptied.
const DRAIN_EVERY: Duration = Duration::from_millis(10);
/// Data bytes of a ring: what a thread may write between two drains.
const RING_BYTES: usize = 1024 * 1024;
/// How long the exit of the process waits for the last write.
const EXIT_WAIT_MAX: Duration = Duration::from_secs(2);

/// Events of threads without a lane, in the recording that runs.
static UNLANED: AtomicU64 = AtomicU64::new(0);

/// The process's one recording. Locked across a `fork`.
static CURRENT: Mutex<Option<Arc<Shared>>> = Mutex::new(None);

/// What to record, and where.
#[derive(Clone, Debug)]
pub struct Options {
    filter: Filter,
    limits: Limits,
    /// There is nobody to return an error to.
    say: bool,
}

impl Options {
    /// Records what the filter matches into [`FILE_DEFAULT`] in the present folder, at most
    /// [`FILES_DEFAULT`] files of [`FILE_BYTES_DEFAULT`].
    pub fn new(filter: Filter) -> Self {
        let pattern = FILE_DEFAULT.to_owned();
        Self {
            filter,
            limits: Limits { pattern, file_bytes_max: FILE_BYTES_DEFAULT, files_max: FILES_DEFAULT },
            say: false,
        }
    }

    /// Says on standard error why the recording ended early.
    fn say_why_it_ends(mut self) -> Self {
        self.say = true;
        self
    }

    /// Another file. `${rotation}` in it becomes the file's number, from 1, and `${pid}` the
    /// process's id. A file that exists is written over.
    #[must_use]
    pub fn file(mut self, pattern: impl Into<String>) -> Self {
        self.limits.pattern = pattern.into();
        self
    }

    /// The largest file in bytes, at least [`FILE_BYTES_MIN`]; then the next one is begun.
    #[must_use]
    pub fn file_bytes_max(mut self, bytes: u64) -> Self {
        self.limits.file_bytes_max = bytes.max(FILE_BYTES_MIN);
        self
    }

    /// How many files are kept, at least 1: beyond them the oldest of this recording's is removed.
    #[must_use]
    pub fn files_max(mut self, files: usize) -> Self {
        self.limits.files_max = files.max(1);
        self
    }
}

/// Why a recording could not begin, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// There is one already.
    #[error("the process already records its events: finish that recording first")]
    Already,
    /// The file cannot be made.
    #[error("cannot record to `{}`: {source}; name another file", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file cannot be written any more.
    #[error("recording to `{}` ended: {source}; {events_lost} events were lost", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
        /// Events lost up to then.
        events_lost: u64,
    },
    /// No memory for the rings, or no thread.
    #[error("cannot start recording: {0}")]
    Start(#[source] io::Error),
    /// The value is a copy, in a child of the process that records.
    #[error("this is a child of the process that records: start a recording of its own")]
    Forked,
}

/// What a recording has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Events written, to all files.
    pub events: u64,
    /// Events lost: rings full, threads without a lane, files that could not be written.
    pub events_lost: u64,
    /// The last file.
    pub file: PathBuf,
}

/// A recording. Dropping it writes what there is and ends it; so does the end of the process
/// by `exit` or by returning from `main`. A process that is killed leaves a valid file with
/// all but the last few milliseconds.
///
/// A child of `fork` does not record: the file is its parent's.
#[derive(Debug)]
pub struct Session(Option<Running>);

#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
    process: u32,
}

#[derive(Debug)]
struct Shared {
    process: u32,
    stop: AtomicBool,
    ended: Mutex<Option<Result<Summary, SessionError>>>,
    ended_changed: Condvar,
    thread: OnceLock<thread::Thread>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Makes the file and begins.
    pub fn start(options: Options) -> Result<Self, SessionError> {
        page::watch_forks().map_err(SessionError::Start)?;
        watch_exit().map_err(SessionError::Start)?;
        let mut current = lock(&CURRENT);
        if current.is_some() {
            return Err(SessionError::Already);
        }
        let process = std::process::id();
        let rings = Arc::new(Rings::private(LANES_MAX, RING_BYTES).map_err(SessionError::Start)?);
        let file = TraceFile::create(options.limits, options.filter.to_string(), process)
            .map_err(|(path, source)| SessionError::Create { path, source })?;
        let shared = Arc::new(Shared {
            process,
            stop: AtomicBool::new(false),
            ended: Mutex::new(None),
            ended_changed: Condvar::new(),
            thread: OnceLock::new(),
        });
        let builder = thread::Builder::new().name("runtime-trace".into()).stack_size(256 * 1024);
        let recorder = Recorder {
            shared: shared.clone(),
            consumers: rings.consumers(),
            rings: rings.clone(),
            file,
            say: options.say,
        };
        UNLANED.store(0, Ordering::Relaxed);
        page::set_recording(Some((options.filter, rings)));
        let thread = with_signals_blocked(|| builder.spawn(move || recorder.run())).map_err(|error| {
            page::set_recording(None);
            SessionError::Start(error)
        })?;
        // Set once, by this thread alone.
        let _ = shared.thread.set(thread.thread().clone());
        *current = Some(shared.clone());
        Ok(Self(Some(Running { shared, thread, process })))
    }

    /// Whether it still records: not after an error, and not in a child of the process.
    pub fn is_recording(&self) -> bool {
        let running = self.0.as_ref();
        running.is_some_and(|running| running.process == std::process::id() && lock(&running.shared.ended).is_none())
    }

    /// Writes what there is, ends the recording, and says how it went.
    pub fn finish(mut self) -> Result<Summary, SessionError> {
        self.end().unwrap_or(Err(SessionError::Forked))
    }

    fn end(&mut self) -> Option<Result<Summary, SessionError>> {
        let running = self.0.take()?;
        if running.process != std::process::id() {
            // A copy of the parent's: the thread is not here to be waited for.
            std::mem::forget(running);
            return None;
        }
        running.shared.ask_to_stop();
        // The thread cannot panic but where memory runs out; then there is no summary.
        let _ = running.thread.join();
        let mut current = lock(&CURRENT);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &running.shared)) {
            *current = None;
        }
        drop(current);
        lock(&running.shared.ended).take()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// Counts an event that no ring could take.
#[cold]
pub(crate) fn count_unlaned() {
    UNLANED.fetch_add(1, Ordering::Relaxed);
}

/// The session's thread.
struct Recorder {
    shared: Arc<Shared>,
    /// Made before anybody writes, or they would miss what is lost before their first look.
    consumers: Vec<Consumer>,
    rings: Arc<Rings>,
    file: TraceFile,
    say: bool,
}

impl Recorder {
    fn run(mut self) {
        let mut unlaned_seen = 0;
        let written = loop {
            let stop = self.shared.stop.load(Ordering::Acquire);
            if stop {
                // Nothing new from here on; what threads are just writing is in the drain's reach
                // or a loss of theirs.
                page::set_recording(None);
            }
            let unlaned = UNLANED.load(Ordering::Relaxed);
            self.file.lose(unlaned.wrapping_sub(unlaned_seen));
            unlaned_seen = unlaned;
            let drained = self.drain();
            if stop || drained.is_err() {
                break drained;
            }
            thread::park_timeout(DRAIN_EVERY);
        };
        page::set_recording(None);
        self.rings.give_back();
        let summary =
            Summary { events: self.file.events(), events_lost: self.file.lost(), file: self.file.path().to_owned() };
        let ended = match written {
            Ok(()) => Ok(summary),
            Err(source) => Err(SessionError::Write { path: summary.file, source, events_lost: summary.events_lost }),
        };
        if self.say
            && let Err(error) = &ended
        {
            eprintln!("runtime-core: {error}");
        }
        *lock(&self.shared.ended) = Some(ended);
        self.shared.ended_changed.notify_all();
    }

    fn drain(&mut self) -> io::Result<()> {
        let mut event = Vec::new();
        for consumer in &mut self.consumers {
            let (file, pid) = (&mut self.file, self.shared.process);
            let mut written = Ok(());
            let drained = consumer.drain(|mut bytes| {
                // Our own memory: the bytes do not change while they are read.
                while let Ok((found, size)) = record::decode(bytes) {
                    bytes = &bytes[size..];
                    let Some(found) = found else { continue };
                    if written.is_err() {
                        file.lose(1);
                        continue;
                    }
                    event.clear();
                    let category = page::category_name(found.head.category.into()).unwrap_or_default();
                    runtime_core_chrome::write(&mut event, &found, category, page::route_name(found.head.route), pid);
                    written = file.add(&event);
                }
            });
            file.lose(drained.lost);
            written?;
        }
        self.file.flush()
    }
}

/// Before a `fork`: nothing begins or ends until it is done.
pub(crate) fn hold_still() -> Still {
    Still(lock(&CURRENT))
}

/// The lock on the recording, held across a `fork`.
pub(crate) struct Still(MutexGuard<'static, Option<Arc<Shared>>>);

impl Still {
    /// In the child: forgets the parent's recording, without freeing it.
    pub(crate) fn forget_in_child(&mut self) {
        std::mem::forget(self.0.take());
    }
}

fn watch_exit() -> io::Result<()> {
    static DONE: OnceLock<Result<(), i32>> = OnceLock::new();
    DONE.get_or_init(|| at_exit(flush_at_exit).map_err(|error| error.raw_os_error().unwrap_or(libc::ENOMEM)))
        .map_err(io::Error::from_raw_os_error)
}

/// At the exit of the process: has the thread write what there is, and waits for it, not for ever.
extern "C" fn flush_at_exit() {
    let Some(shared) = lock(&CURRENT).clone() else { return };
    if shared.process != std::process::id() {
        return;
    }
    shared.ask_to_stop();
    let ended = lock(&shared.ended);
    // The time limit is for a disk that hangs: the process ends all the same.
    let _ = shared.ended_changed.wait_timeout_while(ended, EXIT_WAIT_MAX, |ended| ended.is_none());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{PAGE, tests_alone};
    use crate::trace::{Category, Route, Span, Value};
    use crate::trace_instant;
    use runtime_core_abi::page::Owner;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("runtime-core-session-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn start(&self, filter: &str) -> Session {
            Session::start(Options::new(filter.parse().unwrap()).file(self.0.join("t.${rotation}").to_str().unwrap()))
                .unwrap()
        }

        fn events(&self, rotation: u32) -> Vec<serde_json::Value> {
            let text = std::fs::read(self.0.join(format!("t.{rotation}"))).unwrap();
            let all: serde_json::Value = serde_json::from_slice(&text).unwrap();
            all["traceEvents"].as_array().unwrap()[1..].to_vec()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn events_of_all_threads_arrive_once_in_each_threads_order() {
        let _alone = tests_alone();
        let folder = Folder::new("threads");
        let session = folder.start("session.*");
        thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || (0..500).for_each(|n| trace_instant!("session.a", "x", thread = thread, n = n)));
            }
        });
        trace_instant!("other", "not asked for");
        let summary = session.finish().unwrap();
        assert_eq!((summary.events, summary.events_lost), (2000, 0));
        let events = folder.events(1);
        for thread in 0..4 {
            let of_thread = events.iter().filter(|event| event["args"]["thread"] == thread);
            let seen: Vec<u64> = of_thread.map(|event| event["args"]["n"].as_u64().unwrap()).collect();
            assert_eq!(seen, (0..500).collect::<Vec<_>>());
        }
        assert!(!Category::named("session.a").enabled());
        trace_instant!("session.a", "after the end");
        assert_eq!(folder.events(1).len(), 2000);
    }

    #[test]
    fn one_at_a_time_and_each_span_whole_or_absent() {
        let _alone = tests_alone();
        let folder = Folder::new("spans");
        let category = Category::named("session.span");
        let before = Span::begin(category, "op", 1, &[]);
        let session = folder.start("session.*");
        let again = Session::start(Options::new("a".parse().unwrap()));
        assert!(matches!(again, Err(SessionError::Already)));
        before.end(Route::NONE, &[]);
        let whole = Span::begin(category, "op", 2, &[]);
        whole.end(Route::named("/session/{id}"), &[("n", Value::Int(1))]);
        let cut = Span::begin(category, "op", 3, &[]);
        session.finish().unwrap();
        assert!(cut.is_open());
        let next = folder.start("session.*");
        cut.end(Route::NONE, &[]);
        assert_eq!(next.finish().unwrap().events, 0, "an end without its beginning is not told");
        drop(folder.start("session.*"));
        let begun = Span::begin(category, "op", 4, &[]);
        assert!(!begun.is_open());
    }

    #[test]
    fn the_agent_and_the_file_both_get_an_event() {
        let _alone = tests_alone();
        let folder = Folder::new("both");
        let session = folder.start("session.both");
        let category = Category::named("session.both");
        let operator = PAGE.enable_byte(category.index(), Owner::Operator);
        operator.store(1, Ordering::Relaxed);
        // With no agent there are no rings for its share: counted as lost to it, not to the file.
        let before = PAGE.header.events_unlaned.load(Ordering::Relaxed);
        let span = Span::begin(category, "op", 1, &[]);
        trace_instant!(category, "both");
        span.end(Route::NONE, &[]);
        operator.store(0, Ordering::Relaxed);
        assert!(PAGE.header.events_unlaned.load(Ordering::Relaxed) >= before + 2);
        assert_eq!(session.finish().unwrap().events, 3);
        let phases: Vec<_> = folder.events(1).iter().map(|event| event["ph"].clone()).collect();
        assert_eq!(phases, ["b", "i", "e"]);
    }

    #[test]
    fn a_ring_that_is_full_is_counted_and_said_in_the_file() {
        let _alone = tests_alone();
        let folder = Folder::new("full");
        let session = folder.start("session.*");
        let text = "x".repeat(4000);
        let written = 200_000;
        for _ in 0..written {
            trace_instant!("session.flood", "x", text = text.as_str());
        }
        let summary = session.finish().unwrap();
        assert!(summary.events_lost > 0);
        assert_eq!(summary.events + summary.events_lost, written);
        let last: serde_json::Value = serde_json::from_slice(&std::fs::read(&summary.file).unwrap()).unwrap();
        assert_eq!(last["metadata"]["events_lost"], summary.events_lost);
    }

    #[test]
    fn a_file_that_cannot_be_made_is_named() {
        let _alone = tests_alone();
        let options = Options::new("a".parse().unwrap()).file("/proc/no/such/${rotation}");
        let error = Session::start(options).unwrap_err().to_string();
        assert!(error.starts_with("cannot record to `/proc/no/such/1`: No such file"), "{error}");
        assert!(lock(&CURRENT).is_none());
    }
}
