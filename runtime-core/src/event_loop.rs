//! One thread's event loop: wait, let the driver handle what is ready, let it finish the turn.
//!
//! It knows nothing of what the events mean. It labels the time it waits, and is where a
//! process that was forked joins its agent anew.

use crate::lease;
use crate::sys::process::coarse_ms;
use crate::trace::{self, Phase, lane};
use mio::event::Event;
use mio::{Events, Poll, Registry, Token, Waker};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The token of the loop's own waker; a driver may use every other.
pub const WAKE: Token = Token(usize::MAX);
/// Events taken in one turn.
const EVENTS_MAX: usize = 256;

/// What an event loop drives.
pub trait Driver {
    /// Something is ready. `now_ms` is the turn's time on a monotonic clock.
    fn ready(&mut self, event: &Event, registry: &Registry, now_ms: u64);

    /// The turn's end. Returns how long the next wait may last: zero where work is left over,
    /// `None` where only an event brings more.
    fn finish_turn(&mut self, registry: &Registry, now_ms: u64) -> Option<Duration>;
}

/// Ends a loop from another thread.
#[derive(Clone, Debug)]
pub struct Stopper {
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
}

impl Stopper {
    /// Asks the loop to end before its next turn.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        // A loop that cannot be woken is not waiting for ever: it ends with its next event.
        let _ = self.waker.wake();
    }
}

/// An event loop, to be run by the thread that it belongs to.
#[derive(Debug)]
pub struct EventLoop {
    poll: Poll,
    stopper: Stopper,
}

impl EventLoop {
    /// A loop with nothing to wait for yet.
    pub fn new() -> io::Result<Self> {
        trace::session::start_from_env();
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        Ok(Self { poll, stopper: Stopper { stop: Arc::default(), waker } })
    }

    /// Where sources are registered.
    pub fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// What ends it.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Runs until it is stopped.
    pub fn run(mut self, driver: &mut impl Driver) -> io::Result<()> {
        lane::claim();
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut wait = Some(Duration::ZERO);
        while !self.stopper.stop.load(Ordering::Acquire) {
            lease::turn();
            lane::set_phase(Phase::Poll);
            let polled = self.poll.poll(&mut events, wait);
            lane::set_phase(Phase::Other);
            match polled {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let now_ms = coarse_ms();
            for event in events.iter().filter(|event| event.token() != WAKE) {
                driver.ready(event, self.poll.registry(), now_ms);
            }
            wait = driver.finish_turn(self.poll.registry(), now_ms);
        }
        lane::set_phase(Phase::Idle);
        Ok(())
    }
}
