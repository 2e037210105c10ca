//! Message ports: two ends, on one thread or two, that post values to each other.
//!
//! [`channel`] makes two [`MessagePort`]s, which can be sent to other threads. A thread that
//! wants to hear [binds](MessagePort::bind) its port: from then on messages come as
//! callbacks of that port's async resource, to one handler or to the listeners of an event
//! target. Messages arrive once each, in the order they were posted; the close of either end
//! is seen by both, once, after every message.
//!
//! A queue is a lock held for a few instructions: the poster pushes, the receiver swaps a
//! whole batch out. Only the first message of a batch wakes the receiver ([`Wake`]).

mod channel;
mod de;
mod port;
mod ser;
mod target;
mod value;

pub use channel::{Flow, MessagePort, Options, PostError, channel, channel_with};
pub use de::from_value;
pub use port::{BoundPort, Event};
pub use ser::to_value;
pub use target::{EventTarget, ListenerId};
pub use value::{Value, ValueError};

use std::sync::Arc;

/// Wakes the thread that receives, so that it calls [`BoundPort::deliver`]. An event loop's
/// waker, or [`current_thread`].
pub trait Wake: Send + Sync {
    /// Called from any thread, at most once a batch.
    fn wake(&self);
}

impl Wake for std::thread::Thread {
    fn wake(&self) {
        self.unpark();
    }
}

impl Wake for mio::Waker {
    fn wake(&self) {
        // It fails only where the poll is gone, and then nobody sleeps there.
        let _ = Self::wake(self);
    }
}

/// Wakes the calling thread out of [`BoundPort::wait`]: for threads without an event loop.
pub fn current_thread() -> Arc<dyn Wake> {
    Arc::new(std::thread::current())
}

#[cfg(test)]
mod tests;
