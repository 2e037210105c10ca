//! What the two ends share, and the end that can be sent to a thread.

use super::port::BoundPort;
use super::{Value, Wake};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How much may wait at one end.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// From so many waiting messages on, a post says [`Flow::Full`], and the poster's port
    /// gets [`Event::Drain`](super::Event::Drain) once they were taken.
    pub high_water: usize,
    /// So many waiting messages, and a post is refused ([`PostError::Full`]).
    pub capacity: usize,
}

impl Default for Options {
    /// A high-water mark of 1024 messages, and no bound.
    fn default() -> Self {
        Self { high_water: 1024, capacity: usize::MAX }
    }
}

/// Whether to post more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The receiver keeps up.
    Room,
    /// The high-water mark is reached: the message was posted; wait for the drain.
    Full,
}

/// A message that was not posted, given back.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum PostError {
    /// One of the ends is closed.
    #[error("the port is closed")]
    Closed(Value),
    /// As many messages wait as the channel holds.
    #[error("the port's peer has not taken the messages that wait for it, and no more are kept")]
    Full(Value),
}

/// Two connected ports with the default [`Options`].
pub fn channel() -> (MessagePort, MessagePort) {
    channel_with(Options::default())
}

/// Two connected ports.
pub fn channel_with(options: Options) -> (MessagePort, MessagePort) {
    let shared = Arc::new(Channel { inboxes: [Inbox::default(), Inbox::default()], options });
    (MessagePort(End { channel: shared.clone(), own: 0 }), MessagePort(End { channel: shared, own: 1 }))
}

struct Channel {
    inboxes: [Inbox; 2],
    options: Options,
}

/// What waits for one end. Two cache lines apart, since hardware fetches lines in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Inbox {
    /// There is something to deliver. Written under the lock alone; read without it.
    ready: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Value>,
    wake: Option<Arc<dyn Wake>>,
    /// After `queue` there is only the close.
    closed: bool,
    /// The poster waits for the drain of `queue`.
    owes_drain: bool,
    /// What this end posted has been taken by the other.
    drained: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics under the lock, save for want of memory.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that there is something, and wakes the end where nobody has yet.
    #[inline]
    fn announce(&self, state: MutexGuard<'_, State>) {
        if self.ready.load(Ordering::Relaxed) {
            return;
        }
        self.ready.store(true, Ordering::Release);
        let wake = state.wake.clone();
        drop(state);
        if let Some(wake) = wake {
            wake.wake();
        }
    }
}

/// One end of a channel: what every form of a port is made of. Its drop closes both.
pub(super) struct End {
    channel: Arc<Channel>,
    own: usize,
}

/// What an end has just taken.
pub(super) struct Taken {
    pub drained: bool,
    pub closed: bool,
}

impl End {
    fn inbox(&self) -> &Inbox {
        &self.channel.inboxes[self.own]
    }

    fn peer(&self) -> &Inbox {
        &self.channel.inboxes[1 - self.own]
    }

    #[inline]
    pub fn post(&self, value: Value) -> Result<Flow, PostError> {
        let peer = self.peer();
        let mut state = peer.lock();
        if state.closed {
            return Err(PostError::Closed(value));
        }
        let waiting = state.queue.len() + 1;
        if waiting > self.channel.options.capacity {
            state.owes_drain = true;
            return Err(PostError::Full(value));
        }
        state.queue.push_back(value);
        let full = waiting >= self.channel.options.high_water;
        state.owes_drain |= full;
        peer.announce(state);
        Ok(if full { Flow::Full } else { Flow::Room })
    }

    /// Whether there is something to take. One load.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.inbox().ready.load(Ordering::Acquire)
    }

    /// Swaps what waits with `batch`, which is empty.
    #[inline]
    pub fn take(&self, batch: &mut VecDeque<Value>) -> Taken {
        let inbox = self.inbox();
        let mut state = inbox.lock();
        std::mem::swap(&mut state.queue, batch);
        inbox.ready.store(false, Ordering::Relaxed);
        let taken = Taken { drained: std::mem::take(&mut state.drained), closed: state.closed };
        self.say_drained(state);
        taken
    }

    fn take_one(&self) -> Option<Value> {
        // The flag stays: it belongs to `take`, which takes all.
        let mut state = self.inbox().lock();
        let value = state.queue.pop_front();
        if state.queue.is_empty() {
            self.say_drained(state);
        }
        value
    }

    /// The own queue is empty: says so to the other end, where that waits for it.
    #[inline]
    fn say_drained(&self, mut own: MutexGuard<'_, State>) {
        if std::mem::take(&mut own.owes_drain) {
            drop(own); // never two locks at once
            let peer = self.peer();
            let mut state = peer.lock();
            state.drained = true;
            peer.announce(state);
        }
    }

    /// Whom to wake from now on.
    pub fn set_wake(&self, wake: Arc<dyn Wake>) {
        self.inbox().lock().wake = Some(wake.clone());
        if self.is_ready() {
            wake.wake(); // for what came before
        }
    }

    pub fn close(&self) {
        for inbox in &self.channel.inboxes {
            let mut state = inbox.lock();
            if !std::mem::replace(&mut state.closed, true) {
                inbox.announce(state);
            }
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.close();
    }
}

/// One end of a channel, on its way to the thread that will use it. Dropping it closes
/// both ends.
pub struct MessagePort(End);

impl MessagePort {
    /// Posts a message to the other end.
    ///
    /// # Errors
    /// [`PostError`], with the message.
    pub fn post(&self, value: impl Into<Value>) -> Result<Flow, PostError> {
        self.0.post(value.into())
    }

    /// Takes one message that waits, without a callback; `None` where none does.
    pub fn receive(&self) -> Option<Value> {
        self.0.take_one()
    }

    /// Closes both ends: what was posted still arrives.
    pub fn close(&self) {
        self.0.close();
    }

    /// Settles the port on this thread, where its messages become callbacks whenever
    /// [`BoundPort::deliver`] is called; `wake` says that it should be.
    pub fn bind(self, wake: Arc<dyn Wake>) -> BoundPort {
        self.0.set_wake(wake);
        BoundPort::new(self.0)
    }
}

impl fmt::Debug for MessagePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessagePort").field("ready", &self.0.is_ready()).finish_non_exhaustive()
    }
}
