//! Streams on this library's event loop: who drives it hands every event to [`Streams::ready`]
//! and ends every turn by [`Streams::finish_turn`].

use super::{Descriptor, Options, Stream, later};
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::cell::RefCell;
use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;

/// The streams of one event loop. Each is kept until it is closed.
#[derive(Debug)]
pub struct Streams {
    first: usize,
    slots: Vec<Option<Stream>>,
    free: Vec<usize>,
    /// Slots whose streams have closed since the last turn.
    closed: Rc<RefCell<Vec<usize>>>,
}

impl Streams {
    /// No streams yet. They will have the tokens from `first` on; a driver's own are below.
    pub fn new(first: Token) -> Self {
        Self { first: first.0, slots: Vec::new(), free: Vec::new(), closed: Rc::default() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes a stream that the loop drives from now on.
    pub fn add(&mut self, io: Descriptor, options: Options, registry: &Registry) -> io::Result<Stream> {
        let slot = self.free.last().copied().unwrap_or(self.slots.len());
        // Closing the descriptor takes it off again.
        let fd = io.as_raw_fd();
        registry.register(&mut SourceFd(&fd), Token(self.first + slot), Interest::READABLE | Interest::WRITABLE)?;
        let stream = Stream::with_options(io, options);
        let closed = Rc::clone(&self.closed);
        stream.0.on_closed.set(Some(Box::new(move || closed.borrow_mut().push(slot))));
        if self.free.pop().is_none() {
            self.slots.push(None);
        }
        self.slots[slot] = Some(stream.clone());
        Ok(stream)
    }

    /// Hands over an event; `false`: it is none of these streams'.
    pub fn ready(&mut self, event: &Event) -> bool {
        let Some(slot) = event.token().0.checked_sub(self.first).and_then(|slot| self.slots.get(slot)) else {
            return false;
        };
        // An event of a stream that has just been closed finds none, or its successor, which
        // then looks in vain.
        if let Some(stream) = slot.clone() {
            // A failure shows when something is tried: reading first, as Node does.
            if event.is_readable() || event.is_read_closed() || event.is_error() {
                stream.on_readable();
            }
            if event.is_writable() || event.is_write_closed() || event.is_error() {
                stream.on_writable();
            }
        }
        true
    }

    /// Ends a turn. Returns how long the next wait may last: zero where work is left over.
    pub fn finish_turn(&mut self) -> Option<Duration> {
        let more = later::end_turn();
        for slot in self.closed.borrow_mut().drain(..) {
            self.slots[slot] = None;
            self.free.push(slot);
        }
        more.then_some(Duration::ZERO)
    }
}
