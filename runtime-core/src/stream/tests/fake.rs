//! A descriptor that does what a script says, and notes what it was given.

use crate::callback::run_loop_turn;
use crate::stream::{Event, Io, Options, SLICES_MAX, Stream, end_turn};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::rc::Rc;

/// What one write does.
#[derive(Clone, Debug)]
pub enum Does {
    /// Takes at most so many bytes.
    Take(usize),
    /// Takes none now.
    Block,
    /// Is interrupted.
    Interrupt,
    /// Fails.
    Fail(ErrorKind),
}

#[derive(Debug, Default)]
pub struct Seen {
    pub script: VecDeque<Does>,
    pub bytes: Vec<u8>,
    /// Slices of each write.
    pub slices: Vec<usize>,
    pub ended: bool,
    pub closed: bool,
}

/// The descriptor. When the script is over it takes everything.
#[derive(Clone, Debug, Default)]
pub struct Fake(pub Rc<RefCell<Seen>>);

impl Fake {
    pub fn new(script: impl IntoIterator<Item = Does>) -> Self {
        let fake = Self::default();
        fake.0.borrow_mut().script.extend(script);
        fake
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.0.borrow().bytes.clone()
    }
}

/// The stream's end of it: dropped when the stream closes it.
pub struct Ours(pub Fake);

impl Drop for Ours {
    fn drop(&mut self) {
        self.0.0.borrow_mut().closed = true;
    }
}

impl Io for Ours {
    fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut seen = self.0.0.borrow_mut();
        assert!(!seen.ended, "a write after the end");
        assert!((1..=SLICES_MAX).contains(&slices.len()), "{} slices", slices.len());
        assert!(slices.iter().all(|slice| !slice.is_empty()), "an empty slice");
        seen.slices.push(slices.len());
        let mut room = match seen.script.pop_front() {
            None => usize::MAX,
            Some(Does::Take(0) | Does::Block) => return Err(ErrorKind::WouldBlock.into()),
            Some(Does::Take(len)) => len,
            Some(Does::Interrupt) => return Err(ErrorKind::Interrupted.into()),
            Some(Does::Fail(kind)) => return Err(kind.into()),
        };
        let before = seen.bytes.len();
        for slice in slices {
            let taken = slice.len().min(room);
            seen.bytes.extend_from_slice(&slice[..taken]);
            room -= taken;
        }
        Ok(seen.bytes.len() - before)
    }

    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }

    fn end(&mut self) -> io::Result<()> {
        self.0.0.borrow_mut().ended = true;
        Ok(())
    }

    fn is_readable(&self) -> bool {
        false
    }
}

/// What a stream told, in order.
#[derive(Clone, Debug, Default)]
pub struct Told(Rc<RefCell<Vec<String>>>);

impl Told {
    pub fn note(&self, what: impl Into<String>) {
        self.0.borrow_mut().push(what.into());
    }

    pub fn all(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    pub fn count(&self, what: &str) -> usize {
        self.0.borrow().iter().filter(|told| *told == what).count()
    }

    /// Notes every event of a stream.
    pub fn listen<F: Io + 'static>(&self, stream: &Stream<F>) {
        let told = self.clone();
        stream.listen(move |_, event| {
            told.note(match event {
                Event::Drain => "drain".into(),
                Event::Finish => "finish".into(),
                Event::Data(bytes) => format!("data {}", bytes.len()),
                Event::End => "end".into(),
                Event::Error(error) => format!("error: {error}"),
                Event::Close => "close".to_owned(),
            });
        });
    }
}

/// A stream on a script, and what it tells.
pub fn scripted(script: impl IntoIterator<Item = Does>, high_water_mark: usize) -> (Stream<Ours>, Fake, Told) {
    let fake = Fake::new(script);
    let stream = Stream::with_options(Ours(fake.clone()), Options { high_water_mark, ..Options::default() });
    let told = Told::default();
    told.listen(&stream);
    (stream, fake, told)
}

/// Ends a turn of a loop: ticks, then what waits for the turn's end.
pub fn turn() {
    run_loop_turn();
    end_turn();
}
