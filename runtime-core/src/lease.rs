//! The lease: a thread that joins the agent, waits for the agent's end, and joins the next one.
//!
//! All of it happens beside the program: nothing here can block, slow or fail what the
//! process is there for. An agent that is absent, slow, of another version, or that sends
//! garbage only means that the process goes on with its own page.

use crate::page::{self, PageRefused, Rings, RingsRefused};
use crate::sys;
use runtime_core_abi::handshake::{
    Hello, JOINED, Malformed, REGISTER_SOCKET, RUN_DIR, RUN_DIR_BYTES_MAX, RUN_DIR_ENV, WELCOME_BYTES, Welcome,
};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Set to `off`, the process does not look for an agent.
pub const AGENT_ENV: &str = "RUNTIME_CORE_AGENT";

/// The longest that the handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(2);
/// Pauses between attempts: from the first, doubled, to the second.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Who joins, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    service: String,
    run_dir: PathBuf,
}

impl Options {
    /// Joins as `service` (64 bytes at most are kept) the agent whose run directory
    /// `TRACEBYTE_RUN_DIR` names, else `/run/tracebyte`.
    pub fn new(service: impl Into<String>) -> Self {
        let run_dir = std::env::var_os(RUN_DIR_ENV).filter(|dir| !dir.is_empty());
        Self { service: service.into(), run_dir: run_dir.map_or_else(|| RUN_DIR.into(), PathBuf::from) }
    }

    /// Joins the agent of another run directory.
    #[must_use]
    pub fn run_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.run_dir = dir.into();
        self
    }
}

/// How things stand with the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// `RUNTIME_CORE_AGENT=off`.
    Off,
    /// Not joined, and why; it is tried again.
    Alone(String),
    /// Joined.
    Joined,
}

/// Why the lease thread could not be started.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// A process has one page, hence one lease.
    #[error("this process has a lease already")]
    Already,
    /// No socket can have its address there, so no agent can be found.
    #[error("the run directory {} is too long a path for sockets: at most {RUN_DIR_BYTES_MAX} bytes", .0.display())]
    RunDir(PathBuf),
    /// No thread, or no fork handlers.
    #[error("cannot start the lease thread: {0}")]
    Thread(#[source] io::Error),
}

/// Why one attempt to join ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("no agent at {0}: {1}")]
    Connect(String, #[source] io::Error),
    #[error("the handshake with the agent failed: {0}")]
    Handshake(#[from] io::Error),
    #[error("the agent's answer is {0}")]
    Malformed(#[from] Malformed),
    #[error("the agent refused: {0}")]
    Refused(String),
    #[error("the agent sent {0} descriptors, expected 2")]
    Descriptors(usize),
    #[error("{0}")]
    Page(#[from] PageRefused),
    #[error("{0}")]
    Rings(#[from] RingsRefused),
    #[error("the agent has gone")]
    AgentGone,
}

/// The process's membership. Dropping it leaves the agent.
#[derive(Debug)]
pub struct Lease {
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
    process: u32,
}

#[derive(Debug)]
struct Shared {
    options: Options,
    stop: AtomicBool,
    socket: Mutex<Option<Arc<UnixStream>>>,
    state: Mutex<State>,
}

/// The process's one lease. Locked across a `fork`, so that the child can take it over.
static CURRENT: Mutex<Option<Arc<Shared>>> = Mutex::new(None);
/// The lease's socket, for the child of a `fork` to close; -1 for none.
static SOCKET: AtomicI32 = AtomicI32::new(-1);
/// Set in the child of a `fork` that had a lease.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Starts looking for an agent, and returns at once. Everything works without one.
pub fn join(options: Options) -> Result<Lease, JoinError> {
    crate::trace::session::start_from_env();
    if std::env::var_os(AGENT_ENV).is_some_and(|value| value == "off") {
        return Ok(Lease { running: None });
    }
    if options.run_dir.as_os_str().len() > RUN_DIR_BYTES_MAX {
        return Err(JoinError::RunDir(options.run_dir));
    }
    page::watch_forks().map_err(JoinError::Thread)?;
    let shared = Arc::new(Shared::new(options));
    let mut current = lock(&CURRENT);
    if current.is_some() {
        return Err(JoinError::Already);
    }
    let thread = start(shared.clone()).map_err(JoinError::Thread)?;
    *current = Some(shared.clone());
    Ok(Lease { running: Some(Running { shared, thread, process: std::process::id() }) })
}

fn start(shared: Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let builder = thread::Builder::new().name("tracebyte-lease".into()).stack_size(128 * 1024);
    sys::process::with_signals_blocked(|| builder.spawn(move || shared.run()))
}

impl Lease {
    /// How things stand.
    pub fn state(&self) -> State {
        match &self.running {
            None => State::Off,
            Some(running) if running.process == std::process::id() => lock(&running.shared.state).clone(),
            Some(_) => State::Alone("this is a child of the process that joined".into()),
        }
    }

    /// Leaves the agent, and returns once the process has its own page.
    pub fn leave(self) {}
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else { return };
        if running.process != std::process::id() {
            // A copy of the parent's, in a child: the thread is not here to be waited for.
            std::mem::forget(running);
            return;
        }
        running.shared.stop.store(true, Ordering::Release);
        if let Some(socket) = &*lock(&running.shared.socket) {
            let _ = socket.shutdown(Shutdown::Both);
        }
        running.thread.thread().unpark();
        let _ = running.thread.join();
        *lock(&CURRENT) = None;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn new(options: Options) -> Self {
        let state = Mutex::new(State::Alone("not tried yet".into()));
        Self { options, stop: AtomicBool::new(false), socket: Mutex::new(None), state }
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn run(&self) {
        let mut pause = Duration::ZERO;
        while !self.stopping() {
            let start = Instant::now();
            let ended = self.hold().err().unwrap_or(Ended::AgentGone);
            *lock(&self.state) = State::Alone(ended.to_string());
            // A lease that lasted is followed by an attempt at once; one that did not, by a pause.
            pause = if matches!(ended, Ended::AgentGone) && start.elapsed() >= PAUSE_MAX {
                Duration::ZERO
            } else {
                (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX)
            };
            self.sleep(pause);
        }
    }

    fn sleep(&self, pause: Duration) {
        let end = Instant::now() + pause;
        while !self.stopping() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::park_timeout(left);
        }
    }

    /// One lease, from connecting to the agent's end.
    fn hold(&self) -> Result<(), Ended> {
        let path = self.options.run_dir.join(REGISTER_SOCKET);
        let socket = sys::socket::connect(&path, HANDSHAKE_MAX)
            .map_err(|error| Ended::Connect(path.display().to_string(), error))?;
        let socket = Arc::new(socket);
        SOCKET.store(socket.as_raw_fd(), Ordering::Release);
        *lock(&self.socket) = Some(socket.clone());
        let held = self.join_and_wait(&socket);
        // Also ends it for a child that was forked at a bad moment and holds a copy.
        let _ = socket.shutdown(Shutdown::Both);
        SOCKET.store(-1, Ordering::Release);
        *lock(&self.socket) = None;
        held
    }

    fn join_and_wait(&self, socket: &UnixStream) -> Result<(), Ended> {
        let mut stream = socket;
        stream.write_all(&Hello::new(&self.options.service).encode())?;
        let mut answer = [0; WELCOME_BYTES];
        let descriptors = sys::socket::receive(socket, &mut answer, Instant::now() + HANDSHAKE_MAX)?;
        let (lanes, data_bytes) = match Welcome::decode(&answer)? {
            Welcome::Accepted { lanes, ring_data_bytes, .. } => (lanes as usize, ring_data_bytes as usize),
            Welcome::Refused(reason) => {
                return Err(Ended::Refused(String::from_utf8_lossy(reason.bytes()).escape_debug().to_string()));
            }
        };
        let [page, rings] = &descriptors[..] else { return Err(Ended::Descriptors(descriptors.len())) };
        let rings = Arc::new(Rings::map(rings.as_fd(), lanes, data_bytes)?);
        page::install_with(page.as_fd(), Some(rings))?;
        drop(descriptors);
        if !self.stopping() && stream.write_all(&[JOINED]).is_ok() {
            *lock(&self.state) = State::Joined;
            wait_for_end(stream);
        }
        page::switch_off_foreign();
        while let Err(error) = page::go_private() {
            // No memory for a page of one's own: what is mapped is harmless, all of it is off.
            *lock(&self.state) = State::Alone(format!("cannot leave the agent's page yet: {error}"));
            thread::sleep(PAUSE_MAX / 10);
        }
        Ok(())
    }
}

/// Blocks until the connection ends. Nothing is said on it: a byte is the end as well.
fn wait_for_end(mut stream: &UnixStream) {
    while let Err(error) = stream.read(&mut [0]) {
        if error.kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}

/// Before a `fork`: what keeps the lease whole until the fork is done.
pub(crate) fn hold_still() -> Still {
    Still(lock(&CURRENT))
}

/// The lock on the lease, held across a `fork`.
pub(crate) struct Still(MutexGuard<'static, Option<Arc<Shared>>>);

impl Still {
    /// In the child: closes the copy of the parent's lease, and sees to it that the next turn
    /// of an event loop joins anew. Only what a signal handler may do.
    pub(crate) fn forget_in_child(&self) {
        let socket = SOCKET.swap(-1, Ordering::AcqRel);
        if socket >= 0 {
            sys::process::close_in_child(socket);
        }
        FORKED.store(self.0.is_some(), Ordering::Release);
    }
}

/// Once each turn of an event loop: in the child of a `fork`, joins anew. One load otherwise.
#[inline]
pub(crate) fn turn() {
    if FORKED.load(Ordering::Relaxed) {
        join_in_child();
    }
}

#[cold]
fn join_in_child() {
    let mut current = lock(&CURRENT);
    if FORKED.swap(false, Ordering::AcqRel)
        && let Some(parents) = current.take()
    {
        let shared = Arc::new(Shared::new(parents.options.clone()));
        // Without a thread the child goes on alone.
        if start(shared.clone()).is_ok() {
            *current = Some(shared);
        }
    }
}
