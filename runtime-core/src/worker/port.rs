//! A port on its thread: messages become callbacks.

use super::channel::{End, Flow, PostError};
use super::{EventTarget, Value};
use crate::callback::{AsyncResource, make_callback, stop_requested};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

/// What a listener hears.
#[derive(Debug, PartialEq)]
pub enum Event<'a> {
    /// A message.
    Message(&'a Value),
    /// What this port posted has been taken by the other end, after a
    /// [`Flow::Full`] or a refused message.
    Drain,
    /// Closed, by either end or because the other end's thread is gone: the last event.
    Close,
}

type Handler = Box<dyn FnMut(Value)>;

/// A port that belongs to a thread. Dropping it closes both ends.
pub struct BoundPort {
    end: End,
    resource: AsyncResource,
    handler: Cell<Option<Handler>>,
    target: EventTarget,
    /// Taken, and not yet delivered.
    batch: RefCell<VecDeque<Value>>,
    delivering: Cell<bool>,
    /// The close is still to be told, once the batch is.
    closing: Cell<bool>,
    closed: Cell<bool>,
}

impl BoundPort {
    pub(super) fn new(end: End) -> Self {
        Self {
            end,
            resource: AsyncResource::new("MESSAGEPORT"),
            handler: Cell::new(None),
            target: EventTarget::default(),
            batch: RefCell::default(),
            delivering: Cell::new(false),
            closing: Cell::new(false),
            closed: Cell::new(false),
        }
    }

    /// Posts a message to the other end.
    ///
    /// # Errors
    /// [`PostError`], with the message.
    #[inline]
    pub fn post(&self, value: impl Into<Value>) -> Result<Flow, PostError> {
        self.end.post(value.into())
    }

    /// Gives every message to `handler`, by value, in place of the handler before. While
    /// there is one, listeners hear no messages, only the other events.
    pub fn on_message(&self, handler: impl FnMut(Value) + 'static) {
        self.handler.set(Some(Box::new(handler)));
    }

    /// The port as an event target: listeners hear messages by reference, in the order in
    /// which they were added.
    pub fn target(&self) -> &EventTarget {
        &self.target
    }

    /// The resource on whose behalf its callbacks run.
    pub fn resource(&self) -> &AsyncResource {
        &self.resource
    }

    /// Closes both ends: what was posted still arrives, and then the close.
    pub fn close(&self) {
        self.end.close();
    }

    /// Whether there is something to deliver.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.end.is_ready() || !self.batch.borrow().is_empty()
    }

    /// Delivers what waits, each message as a callback of its own; the number of messages.
    /// What is posted meanwhile waits for the next call (and wakes for it). Where a failure
    /// handler says stop, the rest stays. Inside a delivery of the same port it does nothing.
    pub fn deliver(&self) -> usize {
        if self.delivering.replace(true) {
            return 0;
        }
        let _done = Done(&self.delivering);
        if self.batch.borrow().is_empty() {
            let taken = self.end.take(&mut self.batch.borrow_mut());
            self.closing.set(taken.closed);
            if taken.drained {
                self.tell(Event::Drain);
            }
        }
        let mut delivered = 0;
        while !stop_requested() {
            let Some(value) = self.batch.borrow_mut().pop_front() else { break };
            self.deliver_one(value);
            delivered += 1;
        }
        let all = self.batch.borrow().is_empty() && !stop_requested();
        if all && self.closing.get() && !self.closed.replace(true) {
            self.tell(Event::Close);
        }
        delivered
    }

    #[inline]
    fn deliver_one(&self, value: Value) {
        let Some(mut handler) = self.handler.take() else { return self.tell(Event::Message(&value)) };
        // A failure has been told to the thread's handler; the next message is another matter.
        let _ = make_callback(&self.resource, || handler(value));
        // Put back, unless the handler set another one.
        let newer = self.handler.take();
        self.handler.set(newer.or(Some(handler)));
    }

    fn tell(&self, event: Event<'_>) {
        let _ = make_callback(&self.resource, || self.target.dispatch(&self.resource, &event));
    }

    /// Waits until there is something to deliver, at most `timeout`; whether there is. Looks
    /// `spins` times before it sleeps: a message that is just being posted from another core
    /// then costs no system call; 0 where both ends share a core. For threads without an
    /// event loop, whose port is bound to [`current_thread`](super::current_thread).
    pub fn wait(&self, spins: u32, timeout: Duration) -> bool {
        for _ in 0..spins {
            if self.is_ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        let deadline = Instant::now().checked_add(timeout);
        while !self.is_ready() {
            match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return false,
                Some(left) => std::thread::park_timeout(left),
                None => std::thread::park(),
            }
        }
        true
    }
}

/// Ends a delivery, however it ends.
struct Done<'a>(&'a Cell<bool>);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl fmt::Debug for BoundPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BoundPort({:?})", self.resource)
    }
}
