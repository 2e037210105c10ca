//! Ticks and microtasks, and the turn of the loop.
//!
//! Both queues are drained where the outermost entry is left: all ticks, also those that
//! ticks queue; then all microtasks, likewise; again while there is either.

use super::failure::{Origin, Verdict};
use super::resource::{Core, execution_async_id};
use super::stack::{self, QUEUED, State};
use super::{failure, hooks};
use runtime_core_abi::page::Phase;
use std::cell::RefCell;
use std::collections::VecDeque;

/// A queued entry: the closure enters its own resource.
pub(super) type Job = Box<dyn FnOnce()>;

#[derive(Clone, Copy)]
enum Queue {
    Ticks = 0,
    Microtasks = 1,
}

thread_local! {
    static QUEUES: [RefCell<VecDeque<Job>>; 2] = const {
        [RefCell::new(VecDeque::new()), RefCell::new(VecDeque::new())]
    };
}

/// Runs `tick` once the outermost callback has returned, before any microtask and before
/// the loop goes on. What is still queued when the thread ends is dropped, unrun.
pub fn next_tick(tick: impl FnOnce() + 'static) {
    push(Queue::Ticks, job("TickObject", Origin::Tick, tick));
}

/// Runs `microtask` once the outermost callback has returned and no tick is left. What is
/// still queued when the thread ends is dropped, unrun.
pub fn queue_microtask(microtask: impl FnOnce() + 'static) {
    push(Queue::Microtasks, job("Microtask", Origin::Microtask, microtask));
}

/// Queues an entry of another type's own making.
pub(super) fn push_microtask(job: Job) {
    push(Queue::Microtasks, job);
}

/// Ends a turn of the thread's loop: runs ticks and microtasks that were queued outside
/// every callback, then tells the `destroy` hooks. To be called between callbacks;
/// inside one it does nothing.
pub fn run_loop_turn() -> Verdict {
    if stack::is_empty() {
        stack::with(|state| {
            if state.wants(QUEUED) {
                drain_at_root(state);
            }
        });
        hooks::emit_destroyed();
    }
    if failure::stop_requested() { Verdict::Stop } else { Verdict::GoOn }
}

fn job(type_name: &'static str, origin: Origin, f: impl FnOnce() + 'static) -> Job {
    let resource = Resource(Core::new(type_name, execution_async_id()));
    Box::new(move || stack::enter_task(&resource.0, origin, f))
}

/// Tells `destroy` where the job is dropped, run or not.
struct Resource(Core);

impl Drop for Resource {
    fn drop(&mut self) {
        if stack::with(|state| state.wants(stack::DESTROY)) {
            hooks::queue_destroy(self.0.async_id);
        }
    }
}

fn push(queue: Queue, job: Job) {
    // At the thread's very end nothing would run it: dropped, as what is still queued is.
    let pushed = QUEUES.try_with(|queues| queues[queue as usize].borrow_mut().push_back(job));
    if pushed.is_ok() {
        stack::with(|state| state.set_attention(QUEUED, QUEUED));
    }
}

fn pop(queue: Queue) -> Option<Job> {
    QUEUES.try_with(|queues| queues[queue as usize].borrow_mut().pop_front()).ok().flatten()
}

fn is_empty(queue: Queue) -> bool {
    QUEUES.try_with(|queues| queues[queue as usize].borrow().is_empty()).unwrap_or(true)
}

/// Drains both queues, unless there is an entry yet to leave, the drain already runs, or a
/// failure handler said stop.
#[inline(never)]
pub(super) fn drain_at_root(state: &State) {
    if !state.at_root() || state.draining.get() {
        return;
    }
    state.draining.set(true);
    let phase = state.phase();
    state.set_phase(Phase::Tick as u32);
    let mut queue = Queue::Ticks;
    while !state.stop.get() {
        // A queue is drained with all it queues to itself before the other has its turn.
        match (pop(queue), queue) {
            (Some(job), _) => job(),
            (None, Queue::Ticks) => queue = Queue::Microtasks,
            (None, Queue::Microtasks) if is_empty(Queue::Ticks) => {
                state.set_attention(QUEUED, 0);
                break;
            }
            (None, Queue::Microtasks) => queue = Queue::Ticks,
        }
    }
    state.set_phase(phase);
    state.draining.set(false);
}
