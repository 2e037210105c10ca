//! What a stream tells, and when: Node's order, step by step.
//!
//! A write that is over at once is told in a tick; one that was a request, where the event
//! loop says that the descriptor is ready. Each callback is entered by itself, so that one that
//! panics keeps no other from being told.

use super::io::Io;
use super::state::Written;
use super::{Callback, Error, Event, Stream, later};
use crate::callback::{make_callback, next_tick, run_loop_turn};

impl<F: Io + 'static> Stream<F> {
    /// The descriptor may take more: goes on with what waits. To be called outside of every
    /// callback; it costs nothing where nothing waits.
    pub fn on_writable(&self) {
        if self.0.state.borrow().request.is_none() {
            return;
        }
        // What was written outside of every callback may not have been told yet, and comes first.
        run_loop_turn();
        let Some(written) = self.0.state.borrow_mut().proceed() else { return };
        // What comes of it has been told already, or by the handler of failures.
        let _ = make_callback(&self.0.resource, || {
            if written.result.is_ok() {
                // The next write is under way before this one is told.
                let next = self.0.state.borrow_mut().flush();
                self.tell_written_soon(next);
            }
            self.tell_written(written);
        });
    }

    /// Tells in a tick how a write came out, if there is anything to tell.
    #[inline]
    pub(super) fn tell_written_soon(&self, written: Option<Written<F>>) {
        let Some(written) = written else { return };
        let silent = written.callbacks.is_empty() && written.result.is_ok() && {
            let state = self.0.state.borrow();
            !state.need_drain && !state.ending
        };
        if !silent {
            self.0.state.borrow_mut().untold += 1;
            let stream = self.clone();
            next_tick(move || {
                stream.0.state.borrow_mut().untold -= 1;
                stream.tell_written(written);
            });
        }
    }

    fn tell_written(&self, written: Written<F>) {
        let Written { callbacks, result } = written;
        match result {
            Ok(()) => {
                let drained = {
                    let mut state = self.0.state.borrow_mut();
                    let drained = state.need_drain && state.pending() == 0 && !state.ending && !state.is_destroyed();
                    state.need_drain &= !drained;
                    drained
                };
                if drained {
                    self.emit(Event::Drain);
                }
                self.tell(callbacks, Ok(()));
                if self.is_destroyed() {
                    self.tell_abandoned();
                }
                self.hand_over_end();
            }
            Err(error) => {
                self.tell(callbacks, Err(error.clone()));
                self.tell_abandoned();
                self.destroy_for(Some(error));
            }
        }
    }

    /// Tells callbacks, in order, each on behalf of who gave it.
    pub(super) fn tell(&self, callbacks: Vec<Callback<F>>, result: Result<(), Error>) {
        for Callback { resource, tell } in callbacks {
            // A panic has been reported to the handler of failures.
            let _ = make_callback(&resource, || tell(self, result.clone()));
        }
    }

    /// Tells all that wait for what will not happen. Those of earlier writes come before them,
    /// and who tells the last of these tells them too.
    fn tell_abandoned(&self) {
        let (callbacks, error) = {
            let mut state = self.0.state.borrow_mut();
            if state.request.is_some() || state.untold > 0 {
                return;
            }
            state.abandon()
        };
        self.tell(callbacks, Err(error));
    }

    /// Tells the listener.
    pub(super) fn emit(&self, event: Event<'_>) {
        let listener = self.0.listener.borrow().clone();
        if let Some(listener) = listener {
            // A panic has been reported to the handler of failures.
            let _ = make_callback(&self.0.resource, || listener(self, event));
        }
    }

    /// Hands the end over, if it is time.
    pub(super) fn hand_over_end(&self) {
        let handed = {
            let mut state = self.0.state.borrow_mut();
            if !state.may_finish() || state.ended {
                return;
            }
            state.ended = true;
            match state.io.as_mut() {
                Some(io) => io.end(),
                None => return,
            }
        };
        let stream = self.clone();
        match handed {
            Ok(()) => later::at_turn_end(move || {
                let _ = make_callback(&stream.0.resource, || {
                    let stream = stream.clone();
                    next_tick(move || stream.finish());
                });
            }),
            Err(error) => next_tick(move || {
                let error = Error::io("shutdown", error);
                stream.0.state.borrow_mut().errored.get_or_insert_with(|| error.clone());
                stream.tell_abandoned();
                stream.destroy_for(Some(error));
            }),
        }
    }

    fn finish(&self) {
        let callbacks = {
            let mut state = self.0.state.borrow_mut();
            if !state.may_finish() {
                return;
            }
            state.finished = true;
            std::mem::take(&mut state.on_end)
        };
        self.tell(callbacks, Ok(()));
        self.emit(Event::Finish);
        self.close_if_over();
    }

    /// Destroys the stream where both directions have ended.
    pub(super) fn close_if_over(&self) {
        let over = {
            let state = self.0.state.borrow();
            state.finished && state.read_ended
        };
        if over {
            self.destroy();
        }
    }

    pub(super) fn destroy_for(&self, error: Option<Error>) {
        let (io, waited) = {
            let mut state = self.0.state.borrow_mut();
            let Some(io) = state.io.take() else { return };
            if let Some(error) = &error {
                state.errored.get_or_insert_with(|| error.clone());
            }
            state.queue.close();
            (io, state.queue.len() > 0 || !state.waiting.is_empty() || !state.on_end.is_empty())
        };
        drop(io);
        if waited {
            let stream = self.clone();
            next_tick(move || stream.tell_abandoned());
        }
        if let Some(error) = error {
            let stream = self.clone();
            next_tick(move || stream.emit(Event::Error(error)));
        }
        let stream = self.clone();
        later::at_turn_end(move || stream.close());
    }

    fn close(&self) {
        let _ = make_callback(&self.0.resource, || {
            let (request, error) = {
                let mut state = self.0.state.borrow_mut();
                (state.request.take(), state.errored.clone().unwrap_or(Error::Destroyed("write")))
            };
            if let Some(request) = request {
                self.tell(request.callbacks, Err(error));
            }
            self.tell_abandoned();
            self.emit(Event::Close);
        });
        let listener = self.0.listener.take();
        drop(listener); // outside the cell: its drop is user code
        if let Some(on_closed) = self.0.on_closed.take() {
            on_closed();
        }
    }
}
