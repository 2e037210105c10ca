//! One event loop's share of a server: it accepts from the common listener, and drives the
//! connections that it accepted.

use super::connection::{Connection, Context, Fate};
use crate::event_loop::Driver;
use mio::event::Event;
use mio::net::TcpListener;
use mio::{Interest, Registry, Token};
use std::io;
use std::time::Duration;

const LISTENER: Token = Token(usize::MAX - 1);
/// Connections taken in one turn, so that other loops get theirs.
const ACCEPTS_MAX: usize = 8;
/// How long no connection is accepted after the process has run out of descriptors or memory.
const ACCEPT_PAUSE_MS: u64 = 100;
/// How often waiting times are looked at.
const SWEEP_MS: u64 = 1_000;

/// Connections of one loop, and the listener.
pub(super) struct Worker {
    listener: TcpListener,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// Connections with more to do, and room to collect the next turn's.
    again: Vec<usize>,
    again_next: Vec<usize>,
    context: Context,
    connections_max: usize,
    /// Whether connections may be waiting.
    acceptable: bool,
    /// Until when none are accepted; 0 for no pause.
    paused_until_ms: u64,
    sweep_at_ms: u64,
}

impl Worker {
    pub(super) fn new(
        mut listener: TcpListener,
        registry: &Registry,
        context: Context,
        connections_max: usize,
    ) -> io::Result<Self> {
        registry.register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self {
            listener,
            connections: Vec::new(),
            free: Vec::new(),
            again: Vec::new(),
            again_next: Vec::new(),
            context,
            connections_max,
            acceptable: true,
            paused_until_ms: 0,
            sweep_at_ms: 0,
        })
    }

    fn open(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    fn may_accept(&self) -> bool {
        self.acceptable && self.open() < self.connections_max && self.context.now_ms >= self.paused_until_ms
    }

    fn accept(&mut self, registry: &Registry) {
        for _ in 0..ACCEPTS_MAX {
            if !self.may_accept() {
                return;
            }
            match self.listener.accept() {
                Ok((socket, _)) => {
                    // Without it answers are merely later.
                    let _ = socket.set_nodelay(true);
                    self.add(socket, registry);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.acceptable = false,
                Err(error) if exhausted(&error) => self.paused_until_ms = self.context.now_ms + ACCEPT_PAUSE_MS,
                // One connection's misfortune, such as a client that left again.
                Err(_) => {}
            }
        }
    }

    fn add(&mut self, socket: mio::net::TcpStream, registry: &Registry) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let mut connection = Connection::new(socket, self.context.now_ms);
        if registry.register(connection.socket(), Token(slot), Interest::READABLE | Interest::WRITABLE).is_err() {
            self.free.push(slot);
            return;
        }
        self.connections[slot] = Some(connection);
    }

    fn settle(&mut self, slot: usize, fate: Fate) {
        match fate {
            Fate::Wait => {}
            Fate::Again => self.again_next.push(slot),
            Fate::Close => {
                self.connections[slot] = None;
                self.free.push(slot);
            }
        }
    }

    fn with(&mut self, slot: usize, work: impl FnOnce(&mut Connection, &mut Context) -> Fate) {
        if let Some(Some(connection)) = self.connections.get_mut(slot) {
            let fate = work(connection, &mut self.context);
            self.settle(slot, fate);
        }
    }

    fn set_now(&mut self, now_ms: u64) {
        if self.context.now_ms != now_ms {
            self.context.now_ms = now_ms;
            self.context.date.refresh();
        }
    }

    fn sweep(&mut self) {
        if self.context.now_ms < self.sweep_at_ms {
            return;
        }
        self.sweep_at_ms = self.context.now_ms + SWEEP_MS;
        for slot in 0..self.connections.len() {
            self.with(slot, Connection::check_time);
        }
    }
}

fn exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

impl Driver for Worker {
    fn ready(&mut self, event: &Event, registry: &Registry, now_ms: u64) {
        self.set_now(now_ms);
        if event.token() == LISTENER {
            self.acceptable = true;
            self.accept(registry);
        } else {
            self.with(event.token().0, |connection, context| {
                connection.note(event);
                connection.advance(context)
            });
        }
    }

    fn finish_turn(&mut self, registry: &Registry, now_ms: u64) -> Option<Duration> {
        self.set_now(now_ms);
        std::mem::swap(&mut self.again, &mut self.again_next);
        while let Some(slot) = self.again.pop() {
            self.with(slot, Connection::advance);
        }
        self.sweep();
        self.accept(registry);
        if !self.again_next.is_empty() || self.may_accept() {
            return Some(Duration::ZERO);
        }
        let paused = self.acceptable.then_some(self.paused_until_ms).filter(|until| *until > now_ms);
        let sweep = (self.open() > 0).then_some(self.sweep_at_ms);
        let next = paused.into_iter().chain(sweep).min()?;
        Some(Duration::from_millis(next.saturating_sub(now_ms).max(1)))
    }
}
