//! What waits for the end of the loop's turn: the answer to a shutdown, the close of a stream,
//! and reading on after others have had their turn. Node tells these from its event loop too,
//! after every tick that was queued before.

use crate::callback::run_loop_turn;
use std::cell::RefCell;
use std::collections::VecDeque;

type Job = Box<dyn FnOnce()>;

thread_local! {
    static JOBS: RefCell<VecDeque<Job>> = const { RefCell::new(VecDeque::new()) };
}

/// Queues work for the turn's end. At the thread's very end it is dropped, unrun.
pub(super) fn at_turn_end(job: impl FnOnce() + 'static) {
    let _ = JOBS.try_with(|jobs| jobs.borrow_mut().push_back(Box::new(job)));
}

/// Ends a turn for this thread's streams, ticks first: to be called once a turn of the loop, outside every
/// callback. `true`: it queued more, for the next turn's end.
pub fn end_turn() -> bool {
    // Ticks that were queued outside of every callback come first.
    run_loop_turn();
    let count = JOBS.with_borrow(VecDeque::len);
    for _ in 0..count {
        if let Some(job) = JOBS.with_borrow_mut(VecDeque::pop_front) {
            job();
        }
    }
    JOBS.with_borrow(|jobs| !jobs.is_empty())
}
