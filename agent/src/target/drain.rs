//! The drain: the one thread that reads event rings.
//!
//! It runs every 10 ms while a byte of ours is on somewhere, and for a moment after, since
//! a thread may be in the middle of an event. Then it gives the rings' memory back and
//! sleeps without a timer. A thread of its own, so that a burst of events delays no answer
//! on a socket.

use super::Target;
use crate::sink::Sinks;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::watch;

/// How often rings are read.
const PERIOD: Duration = Duration::from_millis(10);
/// How often a target is read after its last category went off.
const QUIET_TICKS: u32 = 4;

/// The drain's shared side. One thread is in [`Drain::run`].
#[derive(Debug)]
pub struct Drain {
    state: Mutex<State>,
    wake: Condvar,
    /// The number of the last tick that is complete.
    done: watch::Sender<u64>,
    sinks: Arc<Sinks>,
}

#[derive(Debug, Default)]
struct State {
    active: Vec<Active>,
    /// The number of the last tick that has begun.
    begun: u64,
    stop: bool,
}

#[derive(Debug)]
struct Active {
    target: Arc<Target>,
    quiet_ticks: u32,
}

impl Drain {
    /// A drain into `sinks`.
    pub fn new(sinks: Arc<Sinks>) -> Self {
        Self { state: Mutex::default(), wake: Condvar::new(), done: watch::Sender::new(0), sinks }
    }

    /// Reads a target from now on, until it has been off for a moment. To be called before
    /// its byte is set, so that nothing is missed.
    pub fn watch(&self, target: &Arc<Target>) {
        let mut state = self.lock();
        match state.active.iter_mut().find(|active| active.target.number == target.number) {
            Some(active) => active.quiet_ticks = 0,
            None => {
                target.tap().open(target);
                state.active.push(Active { target: Arc::clone(target), quiet_ticks: 0 });
                self.wake.notify_one();
            }
        }
    }

    /// Returns once everything that was in a ring, or in flight towards one, is with the
    /// sinks: two ticks that begin after now.
    pub async fn settle(&self) {
        let mut done = self.done.subscribe();
        let wanted = {
            let state = self.lock();
            if state.active.is_empty() || state.stop {
                return;
            }
            state.begun + 2
        };
        // The sender lives in `self`, so this cannot fail.
        let _ = done.wait_for(|done| *done >= wanted).await;
    }

    /// Makes [`Drain::run`] return after a last tick.
    pub fn stop(&self) {
        self.lock().stop = true;
        self.wake.notify_one();
    }

    /// Drains until [`Drain::stop`].
    pub fn run(&self) {
        let mut state = self.lock();
        loop {
            if state.active.is_empty() && !state.stop {
                // Who waits for a tick need not wait for one that has nothing to read.
                state.begun += 2;
                self.done.send_replace(state.begun);
                state = self.wake.wait_while(state, |state| state.active.is_empty() && !state.stop).expect("no panic");
            }
            let stop = state.stop;
            state.begun += 1;
            let (tick, targets) = (state.begun, state.active.iter().map(|active| Arc::clone(&active.target)));
            let targets: Vec<_> = targets.collect();
            drop(state);
            for target in &targets {
                target.tap().drain(target, &self.sinks);
            }
            state = self.lock();
            state.active.retain_mut(|active| self.keep(active));
            self.done.send_replace(if stop { u64::MAX } else { tick });
            if stop {
                return;
            }
            state = self.wake.wait_timeout_while(state, PERIOD, |state| !state.stop).expect("no panic").0;
        }
    }

    fn keep(&self, active: &mut Active) -> bool {
        active.quiet_ticks = if active.target.is_on() { 0 } else { active.quiet_ticks + 1 };
        let keep = active.quiet_ticks < QUIET_TICKS;
        if !keep {
            active.target.tap().release();
            self.sinks.quiet(&active.target);
        }
        keep
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while the drain is locked")
    }
}
