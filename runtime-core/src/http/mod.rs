//! An HTTP/1.1 server on the event loop, traced as `node.http`.
//!
//! Keep-alive and pipelining; answers with a length or in chunks; request bodies either way.
//! A request is handed to the handler when all of it is there, and the handler answers at
//! once. With `node.http` on, each request whose head could be read is one
//! `http.server.request` begin event and one end event, whatever becomes of its connection.

mod body;
mod connection;
mod date;
mod head;
mod input;
mod output;
mod response;
mod worker;

pub use response::Response;

use crate::event_loop::{EventLoop, Stopper};
use crate::sys::process::coarse_ms;
use connection::Context;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use worker::Worker;

/// What answers requests. It runs on the event loop: it must not wait.
pub type Handler = dyn Fn(&Request<'_>, &mut Response) + Send + Sync;

/// A request, complete.
#[derive(Debug)]
pub struct Request<'a> {
    method: &'a str,
    target: &'a str,
    headers: &'a [httparse::Header<'a>],
    body: &'a [u8],
}

impl<'a> Request<'a> {
    /// The method, as sent.
    pub fn method(&self) -> &'a str {
        self.method
    }

    /// The target, as sent: path and query.
    pub fn target(&self) -> &'a str {
        self.target
    }

    /// The target without its query; of a target in the form for proxies,
    /// `http://host/path?query`, the path too.
    pub fn path(&self) -> &'a str {
        let path = self.target.split_once('?').map_or(self.target, |(path, _)| path);
        match path.split_once("://") {
            Some((scheme, rest)) if !scheme.starts_with('/') => rest.find('/').map_or("/", |at| &rest[at..]),
            _ => path,
        }
    }

    /// The first header of that name, upper or lower case alike.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
    }

    /// The body, decoded; mostly empty.
    pub fn body(&self) -> &'a [u8] {
        self.body
    }
}

/// What clients are held to. Times are in milliseconds, looked at once a second.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The longest body of a request, in bytes: 1 MiB. A longer one is answered by 413.
    pub body_bytes_max: usize,
    /// Connections at a time, of all loops: 16,384. More wait in the kernel's queue.
    pub connections_max: usize,
    /// From a head's first byte to its last: 10 s.
    pub head_ms_max: u64,
    /// From a body's first byte to its last: 60 s.
    pub body_ms_max: u64,
    /// Between requests: 60 s.
    pub idle_ms_max: u64,
    /// While a client takes nothing of what is sent to it: 60 s.
    pub send_ms_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: 1024 * 1024,
            connections_max: 16_384,
            head_ms_max: 10_000,
            body_ms_max: 60_000,
            idle_ms_max: 60_000,
            send_ms_max: 60_000,
        }
    }
}

/// A server that has its address but does not serve yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    threads: usize,
    limits: Limits,
}

impl Server {
    /// Binds the address. One listener serves all threads, so that an address in use is an
    /// error here.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { address: listener.local_addr()?, listener, threads: 1, limits: Limits::default() })
    }

    /// The address, with the port that the kernel chose where none was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves on so many threads, at least one.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Holds clients to other limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Starts to serve, on threads of its own.
    pub fn start(self, handler: impl Fn(&Request<'_>, &mut Response) + Send + Sync + 'static) -> io::Result<Running> {
        let handler: Arc<Handler> = Arc::new(handler);
        let mut running = Running { address: self.address, loops: Vec::new() };
        for index in 0..self.threads {
            let event_loop = EventLoop::new()?;
            let context = Context {
                handler: handler.clone(),
                limits: self.limits.clone(),
                response: Response::new(),
                date: date::Date::now(),
                spare: input::Input::default(),
                now_ms: coarse_ms(),
            };
            let listener = mio::net::TcpListener::from_std(self.listener.try_clone()?);
            let share = self.limits.connections_max.div_ceil(self.threads);
            let mut worker = Worker::new(listener, event_loop.registry(), context, share)?;
            let stopper = event_loop.stopper();
            let thread = std::thread::Builder::new()
                .name(format!("http-loop-{index}"))
                .spawn(move || event_loop.run(&mut worker))?;
            running.loops.push((stopper, thread));
        }
        Ok(running)
    }
}

/// A server that serves. Dropping it stops it.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    loops: Vec<(Stopper, JoinHandle<io::Result<()>>)>,
}

impl Running {
    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops: closes the listener and every connection. Returns the first error that had
    /// ended a loop before its time.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        for (stopper, _) in &self.loops {
            stopper.stop();
        }
        let mut ended = Ok(());
        for (_, thread) in self.loops.drain(..) {
            let done = thread.join().unwrap_or_else(|_| Err(io::Error::other("an event loop panicked")));
            ended = ended.and(done);
        }
        ended
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Who wants to know calls `stop`.
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_found_in_either_form() {
        for (target, path) in [
            ("/", "/"),
            ("/a/b?c=/d", "/a/b"),
            ("/a?http://b/c", "/a"),
            ("/http://b/c", "/http://b/c"),
            ("http://a/b?c", "/b"),
            ("HTTPS://a", "/"),
            ("http://a?b=/c", "/"),
            ("*", "*"),
        ] {
            assert_eq!(Request { method: "GET", target, headers: &[], body: &[] }.path(), path, "{target}");
        }
    }
}
