//! Writing to sockets and pipes as Node's streams do: in order, corked at will, with callbacks.
//!
//! A [`Stream`] is a handle on something nonblocking ([`Io`]; for descriptors [`Descriptor`]).
//!
//! * **A write is tried at once**; only what the kernel does not take waits. While a stream is
//!   corked its chunks are queued, and go out together when it is uncorked. Short chunks are
//!   copied behind each other and long ones shared, which nobody can see but in the time it takes.
//! * **Callbacks** ([`Stream::write_then`]) come in the order of the chunks, each once, never
//!   from inside of the call that took the chunk, each entered through
//!   [`make_callback`](crate::callback::make_callback) and so contained. What happens to the stream is told to one
//!   listener ([`Stream::listen`]), in Node's order: `Drain` before the callbacks of the write
//!   that made room, `Close` last; nothing is told twice.
//! * **Memory is bounded** where the answer of `write` is heeded: `false` says that
//!   [`high_water_mark`](Options::high_water_mark) bytes wait, and `Drain` that none do.
//! * **It knows no event loop.** Who has one calls [`Stream::on_writable`] and
//!   [`Stream::on_readable`] when the descriptor is ready, and [`end_turn`] at the end of each
//!   turn; [`Streams`] does all that for the loop of this library. Ticks must be drained, as
//!   every outermost callback does, and [`run_loop_turn`](crate::callback::run_loop_turn) for
//!   what is called outside of any.
//!
//! Unlike Node, a write that was under way when the stream was destroyed is told the error, not
//! success: not all of it was handed over; and text that waits counts in bytes, not in
//! characters. A stream whose last handle is dropped closes without
//! a word; destroy it first where callbacks must be told.
//!
//! ```
//! use runtime_core::{callback::run_loop_turn, stream::{Descriptor, Stream}};
//! use std::io::Read;
//!
//! let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
//! let stream = Stream::new(Descriptor::new(ours)?);
//! stream.cork();
//! stream.write("hello, ");
//! stream.write_then(b"world", |stream, result| {
//!     result.expect("written");
//!     stream.destroy();
//! });
//! stream.uncork();
//! run_loop_turn();
//! let mut text = String::new();
//! theirs.read_to_string(&mut text)?;
//! assert_eq!(text, "hello, world");
//! # Ok::<(), std::io::Error>(())
//! ```

mod chunk;
mod counters;
mod error;
mod io;
mod later;
mod queue;
mod reading;
mod state;
mod store;
mod streams;
mod telling;

#[cfg(test)]
mod tests;

pub use chunk::Chunk;
pub use counters::Counters;
pub use error::Error;
pub use io::{Descriptor, Io, SLICES_MAX};
pub use later::end_turn;
pub use streams::Streams;

use crate::callback::{AsyncResource, next_tick};
use state::State;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::{Rc, Weak};

/// What is done when it is told.
type Tell<F> = dyn FnOnce(&Stream<F>, Result<(), Error>);

/// Told once, on behalf of who gave it: how a write or an end came out.
struct Callback<F: Io> {
    resource: AsyncResource,
    tell: Box<Tell<F>>,
}

impl<F: Io> Callback<F> {
    fn new(tell: impl FnOnce(&Stream<F>, Result<(), Error>) + 'static) -> Self {
        Self { resource: AsyncResource::new("WRITEWRAP"), tell: Box::new(tell) }
    }
}

/// Told what happens.
type Listener<F> = Rc<dyn Fn(&Stream<F>, Event<'_>)>;

/// How a stream behaves.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// From how many waiting bytes on `write` answers `false`. 16 KiB, as Node's.
    pub high_water_mark: usize,
    /// Whether the stream may still write when its peer has ended. Not by default: it then
    /// ends too.
    pub allow_half_open: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { high_water_mark: 16 * 1024, allow_half_open: false }
    }
}

/// What happens to a stream.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Nothing waits any more, and `write` had answered `false`.
    Drain,
    /// All that was written before the end has been handed over, and the end too.
    Finish,
    /// Bytes have come. Only after [`Stream::resume`].
    Data(&'a [u8]),
    /// The peer has ended.
    End,
    /// Something failed; `Close` follows.
    Error(Error),
    /// The last event: the descriptor is closed, every callback has been told.
    Close,
}

/// A handle on a stream; clones are handles on the same one.
pub struct Stream<F: Io = Descriptor>(Rc<Inner<F>>);

struct Inner<F: Io> {
    state: RefCell<State<F>>,
    listener: RefCell<Option<Listener<F>>>,
    /// Told after `Close`, by who keeps the stream.
    on_closed: Cell<Option<Box<dyn FnOnce()>>>,
    resource: AsyncResource,
}

impl<F: Io + 'static> Stream<F> {
    /// A stream with the default options.
    pub fn new(io: F) -> Self {
        Self::with_options(io, Options::default())
    }

    /// A stream.
    pub fn with_options(io: F, options: Options) -> Self {
        Self(Rc::new(Inner {
            state: RefCell::new(State::new(io, options)),
            listener: RefCell::default(),
            on_closed: Cell::default(),
            resource: AsyncResource::new("STREAM"),
        }))
    }

    /// Has `listener` told what happens from now on, in place of the one before. It is dropped
    /// after `Close`. It may call the stream, also so that it is told again meanwhile.
    pub fn listen(&self, listener: impl Fn(&Self, Event<'_>) + 'static) {
        let before = self.0.listener.replace(Some(Rc::new(listener)));
        drop(before); // outside the cell: its drop is user code
    }

    /// Writes a chunk. `false`: enough waits, and `Drain` will say when to go on; or the chunk
    /// was refused (after the end, or destroyed), which destroys the stream with that error.
    #[inline]
    pub fn write<'a>(&self, chunk: impl Into<Chunk<'a>>) -> bool {
        let chunk = chunk.into();
        if let Some(bytes) = chunk.bytes()
            && self.0.state.borrow_mut().queue.try_copy(bytes)
        {
            return true;
        }
        self.write_chunk(chunk, None)
    }

    /// As [`write`](Self::write); `callback` is told once how it came out.
    pub fn write_then<'a>(
        &self,
        chunk: impl Into<Chunk<'a>>,
        callback: impl FnOnce(&Self, Result<(), Error>) + 'static,
    ) -> bool {
        self.write_chunk(chunk.into(), Some(Callback::new(callback)))
    }

    fn write_chunk(&self, chunk: Chunk<'_>, callback: Option<Callback<F>>) -> bool {
        let refusal = self.0.state.borrow().refusal();
        if let Some(error) = refusal {
            self.refuse(error, callback);
            return false;
        }
        let (more, written) = self.0.state.borrow_mut().take(chunk, callback);
        self.tell_written_soon(written);
        more
    }

    #[cold]
    fn refuse(&self, error: Error, callback: Option<Callback<F>>) {
        if let Some(callback) = callback {
            let (stream, error) = (self.clone(), error.clone());
            next_tick(move || stream.tell(vec![callback], Err(error)));
        }
        self.destroy_with(error);
    }

    /// Queues chunks from now on, until as many [`uncork`](Self::uncork)s.
    pub fn cork(&self) {
        self.0.state.borrow_mut().corked += 1;
    }

    /// Undoes one [`cork`](Self::cork); the last one writes what is queued. More do nothing.
    pub fn uncork(&self) {
        let written = {
            let mut state = self.0.state.borrow_mut();
            if state.corked == 0 {
                return;
            }
            state.corked -= 1;
            state.flush()
        };
        self.tell_written_soon(written);
    }

    /// Ends the stream once all chunks are handed over. Uncorks it.
    pub fn end(&self) {
        self.end_chunk(None);
    }

    /// As [`end`](Self::end); `callback` is told once: after the end was handed over, or why
    /// it was not.
    pub fn end_then(&self, callback: impl FnOnce(&Self, Result<(), Error>) + 'static) {
        self.end_chunk(Some(Callback::new(callback)));
    }

    fn end_chunk(&self, callback: Option<Callback<F>>) {
        let corked = std::mem::replace(&mut self.0.state.borrow_mut().corked, 0);
        if corked > 0 {
            let written = self.0.state.borrow_mut().flush();
            self.tell_written_soon(written);
        }
        let refusal = {
            let mut state = self.0.state.borrow_mut();
            // A destroyed stream ends too, as far as later writes are told.
            state.ending |= state.errored.is_none();
            state.queue.close();
            if state.finished {
                Some(Error::AlreadyFinished)
            } else if state.is_destroyed() {
                Some(Error::Destroyed("end"))
            } else {
                None
            }
        };
        match (refusal, callback) {
            (None, callback) => {
                self.hand_over_end();
                self.0.state.borrow_mut().on_end.extend(callback);
            }
            (Some(error), Some(callback)) => {
                let stream = self.clone();
                next_tick(move || stream.tell(vec![callback], Err(error)));
            }
            (Some(_), None) => {}
        }
    }

    /// Closes the stream now. Callbacks of what is not written are told an error.
    pub fn destroy(&self) {
        self.destroy_for(None);
    }

    /// As [`destroy`](Self::destroy); the listener is told `Error` before `Close`.
    pub fn destroy_with(&self, error: Error) {
        self.destroy_for(Some(error));
    }

    /// Bytes of all chunks: handed over, or still waiting to be.
    pub fn bytes_written(&self) -> u64 {
        let state = self.0.state.borrow();
        state.sent + state.queue.len() as u64
    }

    /// Bytes that wait: queued, or in a write that is not over.
    pub fn pending(&self) -> usize {
        self.0.state.borrow().pending()
    }

    /// Whether `Drain` will come.
    pub fn needs_drain(&self) -> bool {
        self.0.state.borrow().need_drain
    }

    /// Whether the stream is destroyed: by the program, by an error, or since both ends ended.
    pub fn is_destroyed(&self) -> bool {
        self.0.state.borrow().is_destroyed()
    }

    /// Looks at what is written to, unless the stream is destroyed.
    pub fn with_io<R>(&self, look: impl FnOnce(&F) -> R) -> Option<R> {
        self.0.state.borrow().io.as_ref().map(look)
    }

    /// A handle that does not keep the stream.
    pub fn downgrade(&self) -> WeakStream<F> {
        WeakStream(Rc::downgrade(&self.0))
    }
}

impl<F: Io> Clone for Stream<F> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<F: Io> fmt::Debug for Stream<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Stream");
        if let Ok(state) = self.0.state.try_borrow() {
            shown
                .field("sent", &state.sent)
                .field("pending", &state.pending())
                .field("corked", &state.corked)
                .field("ending", &state.ending)
                .field("destroyed", &state.is_destroyed());
        }
        shown.finish_non_exhaustive()
    }
}

/// A handle that does not keep its stream.
pub struct WeakStream<F: Io = Descriptor>(Weak<Inner<F>>);

impl<F: Io> WeakStream<F> {
    /// The stream, if another handle keeps it.
    pub fn upgrade(&self) -> Option<Stream<F>> {
        self.0.upgrade().map(Stream)
    }
}

impl<F: Io> Clone for WeakStream<F> {
    fn clone(&self) -> Self {
        Self(Weak::clone(&self.0))
    }
}
