//! A stream's state, and its steps as far as no user code runs in them: each step says what
//! there is to tell, and who calls it sees to that once the state is no longer borrowed.
//!
//! Bytes are accepted, then handed over in *writes*: a write is one chunk, or all that was
//! queued when the stream was uncorked or the write before it ended. What the kernel does not
//! take of a write at once becomes a [`Request`]; there is at most one. Callbacks wait with
//! their write.

use super::chunk::Chunk;
use super::counters;
use super::error::Error;
use super::io::Io;
use super::queue::{self, Queue};
use super::{Callback, Options};
use std::io::{self, IoSlice};

/// What the kernel has yet to take of a write.
pub(super) struct Request<F: Io> {
    /// Bytes of the write.
    len: usize,
    /// Those that are left, at the queue's front.
    left: usize,
    pub callbacks: Vec<Callback<F>>,
}

/// A write that is over.
pub(super) struct Written<F: Io> {
    pub callbacks: Vec<Callback<F>>,
    pub result: Result<(), Error>,
}

/// See the module's page.
pub(super) struct State<F: Io> {
    /// `None` once the stream is destroyed.
    pub io: Option<F>,
    pub queue: Queue,
    pub options: Options,
    pub corked: u32,
    /// Bytes that the kernel took.
    pub sent: u64,
    pub request: Option<Request<F>>,
    /// Writes that are over, of which a tick that is still queued will tell.
    pub untold: u32,
    /// Callbacks of queued chunks that are in no write yet.
    pub waiting: Vec<Callback<F>>,
    /// Callbacks of `end`.
    pub on_end: Vec<Callback<F>>,
    pub need_drain: bool,
    /// `end` was called.
    pub ending: bool,
    /// The end was handed over; set before `finished`.
    pub ended: bool,
    pub finished: bool,
    pub errored: Option<Error>,
    /// Data is read and told.
    pub flowing: bool,
    /// Nothing more can be read.
    pub read_ended: bool,
}

impl<F: Io> State<F> {
    pub fn new(io: F, options: Options) -> Self {
        Self {
            read_ended: !io.is_readable(),
            io: Some(io),
            queue: Queue::default(),
            options,
            corked: 0,
            sent: 0,
            request: None,
            untold: 0,
            waiting: Vec::new(),
            on_end: Vec::new(),
            need_drain: false,
            ending: false,
            ended: false,
            finished: false,
            errored: None,
            flowing: false,
        }
    }

    pub fn is_destroyed(&self) -> bool {
        self.io.is_none()
    }

    /// Whether chunks are queued, not written at once.
    fn queues(&self) -> bool {
        self.corked > 0 || self.request.is_some() || self.errored.is_some()
    }

    /// Why no chunk is taken any more.
    pub fn refusal(&self) -> Option<Error> {
        if self.ending {
            Some(Error::WriteAfterEnd)
        } else if self.is_destroyed() {
            Some(Error::Destroyed("write"))
        } else {
            None
        }
    }

    /// Bytes of chunks that are in no write that is over: queued, or in the request.
    pub fn pending(&self) -> usize {
        self.queue.len() + self.request.as_ref().map_or(0, |request| request.len - request.left)
    }

    /// Takes a chunk: whether more should come, and the write, where that was all.
    pub fn take(&mut self, chunk: Chunk<'_>, callback: Option<Callback<F>>) -> (bool, Option<Written<F>>) {
        if self.queues() {
            self.queue.push(chunk);
            self.waiting.extend(callback);
            let more = self.wants_more(self.pending());
            if more && self.errored.is_none() {
                // The next short ones need not ask, up to the mark.
                self.queue.open(self.options.high_water_mark - self.pending());
            }
            return (more && self.errored.is_none(), None);
        }
        let chunk = if chunk.bytes().is_none() { Chunk::Given(chunk.into_buffer(0)) } else { chunk };
        let bytes = chunk.bytes().unwrap_or_default();
        let len = bytes.len();
        let sent = match self.io.as_mut() {
            Some(io) if len > 0 => retry(|| queue::write(io, &[IoSlice::new(bytes)])),
            _ => Ok(0),
        };
        if let Ok(sent) = sent {
            self.sent += sent as u64;
            if sent < len {
                self.queue.push(Chunk::Given(chunk.into_buffer(sent)));
            }
        }
        let written = self.begin(len, sent, callback.into_iter().collect());
        // What the kernel took whole waits no more: Node says so too, from 20.10 on.
        let more = self.wants_more(self.pending());
        (more && self.errored.is_none(), written)
    }

    /// Whether more should come, with so much that waits; if not, a drain is owed.
    fn wants_more(&mut self, pending: usize) -> bool {
        let more = pending < self.options.high_water_mark;
        self.need_drain |= !more;
        more
    }

    /// Writes what is queued, if it may; the write, where that was all.
    pub fn flush(&mut self) -> Option<Written<F>> {
        self.queue.close();
        let held = self.corked > 0 || self.request.is_some() || self.is_destroyed() || self.errored.is_some();
        let len = self.queue.len();
        if held || len == 0 && self.waiting.is_empty() {
            return None;
        }
        self.queue.publish();
        let callbacks = std::mem::take(&mut self.waiting);
        let sent = if len > 0 { self.send(len) } else { Ok(0) };
        self.begin(len, sent, callbacks)
    }

    /// Sends the first `len` bytes of the queue, and again until the kernel takes no more of
    /// them: only then does it tell when it does. Returns how many it took.
    fn send(&mut self, len: usize) -> io::Result<usize> {
        let Some(io) = self.io.as_mut() else { return Ok(0) };
        let mut left = len;
        while left > 0 {
            let sent = retry(|| self.queue.write_to(io, left))?;
            if sent == 0 {
                break;
            }
            self.queue.advance(sent);
            self.sent += sent as u64;
            left -= sent;
        }
        Ok(len - left)
    }

    /// What becomes of a write of `len` bytes that was tried.
    fn begin(&mut self, len: usize, sent: io::Result<usize>, callbacks: Vec<Callback<F>>) -> Option<Written<F>> {
        let left = match sent {
            Ok(sent) if sent == len => {
                counters::add(|counters| &counters.writes_whole, 1);
                return Some(self.complete(callbacks));
            }
            Ok(0) => {
                counters::add(|counters| &counters.writes_later, 1);
                len
            }
            Ok(sent) => {
                counters::add(|counters| &counters.writes_partial, 1);
                len - sent
            }
            Err(error) => return Some(self.fail(error, callbacks)),
        };
        self.request = Some(Request { len, left, callbacks });
        None
    }

    /// Goes on with the request: the write, if that is over.
    pub fn proceed(&mut self) -> Option<Written<F>> {
        let left = self.request.as_ref()?.left;
        let sent = self.send(left);
        let mut request = self.request.take()?;
        match sent {
            Ok(sent) if sent == left => Some(self.complete(request.callbacks)),
            Ok(sent) => {
                request.left -= sent;
                self.request = Some(request);
                None
            }
            Err(error) => Some(self.fail(error, request.callbacks)),
        }
    }

    fn complete(&mut self, callbacks: Vec<Callback<F>>) -> Written<F> {
        if self.queue.len() == 0 {
            self.queue.clear();
        }
        Written { callbacks, result: Ok(()) }
    }

    fn fail(&mut self, error: io::Error, callbacks: Vec<Callback<F>>) -> Written<F> {
        counters::add(|counters| &counters.writes_failed, 1);
        let error = Error::io("write", error);
        self.queue.close();
        self.errored.get_or_insert_with(|| error.clone());
        Written { callbacks, result: Err(error) }
    }

    /// Gives up on all that is queued: whom to tell, and what.
    pub fn abandon(&mut self) -> (Vec<Callback<F>>, Error) {
        self.queue.publish();
        self.queue.clear();
        let mut callbacks = std::mem::take(&mut self.waiting);
        callbacks.append(&mut self.on_end);
        (callbacks, self.errored.clone().unwrap_or(Error::Destroyed("write")))
    }

    /// Whether all is written and only the end is to be handed over or told.
    pub fn may_finish(&self) -> bool {
        self.ending
            && !self.is_destroyed()
            && self.pending() == 0
            && self.waiting.is_empty()
            && self.request.is_none()
            && self.errored.is_none()
            && !self.finished
    }
}

/// Asks again where a signal came in between; `Ok(0)` where the kernel takes nothing now.
fn retry(mut write: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match write() {
            // A descriptor never takes nothing of something: it would not take it later either.
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
