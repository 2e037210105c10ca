//! The reading side: bytes are read into memory that a thread's streams share, and told at once.

use super::io::Io;
use super::{Error, Event, Stream, later};
use crate::callback::{make_callback, next_tick};
use crate::trace::{Phase, lane};
use std::cell::Cell;
use std::io::ErrorKind;

/// What is read at once at most, in bytes.
const READ_BYTES: usize = 64 * 1024;
/// Reads of one stream before others have their turn.
const READS_MAX: usize = 8;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl<F: Io + 'static> Stream<F> {
    /// Has data read and told ([`Event::Data`]) from now on, also what has come already. The
    /// peer's end and its failures are only seen while it flows.
    pub fn resume(&self) {
        let starts = {
            let mut state = self.0.state.borrow_mut();
            let flowed = state.flowing;
            state.flowing = !state.read_ended;
            state.flowing && !flowed
        };
        if starts {
            let stream = self.clone();
            later::at_turn_end(move || stream.on_readable());
        }
    }

    /// Reads no more until [`resume`](Self::resume): the peer is slowed down.
    pub fn pause(&self) {
        self.0.state.borrow_mut().flowing = false;
    }

    /// The descriptor may have bytes: reads them all, but for what is left to the turn's end so
    /// that other streams have theirs. To be called outside of every callback.
    pub fn on_readable(&self) {
        if !self.0.state.borrow().flowing {
            return;
        }
        let mut room = SPARE.take();
        room.resize(READ_BYTES, 0);
        let mut reads = 0;
        while self.read(&mut room) {
            reads += 1;
            if reads == READS_MAX {
                let stream = self.clone();
                later::at_turn_end(move || stream.on_readable());
                break;
            }
        }
        SPARE.set(room);
    }

    /// Reads once and tells. `false`: there is no more for now.
    fn read(&self, room: &mut [u8]) -> bool {
        let got = {
            let mut state = self.0.state.borrow_mut();
            if !state.flowing {
                return false;
            }
            let Some(io) = state.io.as_mut() else { return false };
            lane::in_phase(Phase::Read, || io.read(room))
        };
        match got {
            Ok(0) => {
                let stream = self.clone();
                self.pause();
                let _ = make_callback(&self.0.resource, || next_tick(move || stream.tell_end()));
                false
            }
            Ok(len) => {
                self.emit(Event::Data(&room[..len]));
                true
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => false,
                ErrorKind::Interrupted => true,
                _ => {
                    let _ = make_callback(&self.0.resource, || self.destroy_for(Some(Error::io("read", error))));
                    false
                }
            },
        }
    }

    fn tell_end(&self) {
        let told = std::mem::replace(&mut self.0.state.borrow_mut().read_ended, true);
        if told || self.is_destroyed() {
            return;
        }
        self.emit(Event::End);
        if !self.0.state.borrow().options.allow_half_open {
            let stream = self.clone();
            next_tick(move || stream.end_unless_ending());
        }
        self.close_if_over();
    }

    fn end_unless_ending(&self) {
        let ending = self.0.state.borrow().ending;
        if !ending {
            self.end();
        }
    }
}
