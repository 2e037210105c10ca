//! Load on a server, with an exact count of what was sent and what came back.

use crate::http::Connection;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What load to make.
#[derive(Clone, Debug)]
pub struct LoadSpec {
    /// The server.
    pub address: SocketAddr,
    /// What is asked for.
    pub path: String,
    /// Connections, each with a thread of its own.
    pub connections: usize,
    /// Requests in all; without end where absent.
    pub requests: Option<u64>,
    /// For how long; without end where absent.
    pub duration: Option<Duration>,
}

impl LoadSpec {
    /// Load that ends only when it is stopped.
    pub fn endless(address: SocketAddr) -> Self {
        Self { address, path: "/buffer/4/1/0".into(), connections: 4, requests: None, duration: None }
    }

    /// Exactly so many requests.
    pub fn requests(address: SocketAddr, requests: u64) -> Self {
        Self { requests: Some(requests), ..Self::endless(address) }
    }
}

/// What became of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests sent.
    pub sent: u64,
    /// Answers received whole, of any status.
    pub answered: u64,
    /// Answers with another status than 2xx.
    pub refused: u64,
    /// Connections or requests that failed.
    pub errors: u64,
}

impl Counts {
    /// Panics unless every request was answered well.
    #[track_caller]
    pub fn unharmed(self) -> Self {
        assert!(self.answered == self.sent && self.refused == 0 && self.errors == 0, "requests were harmed: {self:?}");
        self
    }
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    tickets: AtomicU64,
    sent: AtomicU64,
    answered: AtomicU64,
    refused: AtomicU64,
    errors: AtomicU64,
}

/// Running load, stopped with the value.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts it.
    pub fn start(spec: &LoadSpec) -> Self {
        let shared = Arc::new(Shared::default());
        let threads = (0..spec.connections)
            .map(|_| {
                let (shared, spec) = (shared.clone(), spec.clone());
                std::thread::spawn(move || ask(&spec, &shared))
            })
            .collect();
        Self { shared, threads }
    }

    /// Runs bounded load to its end.
    pub fn run(spec: &LoadSpec) -> Counts {
        assert!(spec.requests.is_some() || spec.duration.is_some(), "endless load is stopped, not run");
        Self::start(spec).join()
    }

    /// What became of the requests so far.
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Acquire);
        let answered = read(&self.shared.answered);
        Counts {
            answered,
            sent: read(&self.shared.sent),
            refused: read(&self.shared.refused),
            errors: read(&self.shared.errors),
        }
    }

    /// Ends the load after the requests under way and says what became of all.
    pub fn stop(self) -> Counts {
        self.shared.stop.store(true, Ordering::Release);
        self.join()
    }

    fn join(mut self) -> Counts {
        for thread in self.threads.drain(..) {
            thread.join().expect("a load thread does not panic");
        }
        self.counts()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
    }
}

/// One connection's work: a request at a time, a new connection after an error.
fn ask(spec: &LoadSpec, shared: &Shared) {
    let request = format!("GET {} HTTP/1.1\r\nhost: {}\r\n\r\n", spec.path, spec.address);
    let deadline = spec.duration.map(|duration| Instant::now() + duration);
    let mut connection = None;
    while !shared.stop.load(Ordering::Acquire) && deadline.is_none_or(|end| Instant::now() < end) {
        if spec.requests.is_some_and(|all| shared.tickets.fetch_add(1, Ordering::Relaxed) >= all) {
            return;
        }
        let mut open = match connection.take().map_or_else(|| Connection::open(spec.address), Ok) {
            Ok(open) => open,
            Err(_) => {
                shared.errors.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
        };
        // Counted before it is sent: an answer is never ahead of its request.
        shared.sent.fetch_add(1, Ordering::Release);
        match open.send(request.as_bytes()).and_then(|()| open.answer()) {
            Ok(answer) => {
                if !(200..300).contains(&answer.status) {
                    shared.refused.fetch_add(1, Ordering::Relaxed);
                }
                shared.answered.fetch_add(1, Ordering::Release);
                connection = (!answer.closes).then_some(open);
            }
            Err(_) => {
                shared.errors.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
