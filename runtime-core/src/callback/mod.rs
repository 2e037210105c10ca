//! Entering user code, and knowing on whose behalf it runs.
//!
//! Every entry goes through [`make_callback`] (or a [`CallbackScope`]): it pushes the async
//! context of a resource, runs the code, pops, and where it was the outermost entry drains
//! the tick queue and the microtasks. The async stack is made of frames that lie on the
//! native stack, which it mirrors, so an entry allocates nothing; what is rare (hooks,
//! queued work, a corrupted stack) is behind one word, `attention`, and out of line.
//!
//! A panic or an error never leaves an entry: it is reported to the handler given to
//! [`on_failure`], which says whether the thread's loop goes on or stops.
//!
//! The order is Node's: all ticks, then all microtasks, again until both are empty.

mod context;
mod failure;
mod hooks;
mod promise;
mod queue;
mod resource;
mod stack;

pub use context::AsyncLocal;
pub(crate) use failure::contain;
pub use failure::{
    Cause, Contained, CorruptStack, Failure, Origin, Verdict, clear_stop, on_failure, report_error, stop_requested,
};
pub use hooks::{AsyncHook, Hooks, Init};
pub use promise::Promise;
pub use queue::{next_tick, queue_microtask, run_loop_turn};
pub use resource::{AsyncId, AsyncResource, execution_async_id, trigger_async_id};
pub use stack::CallbackScope;

use std::error::Error;

/// Runs `callback` on behalf of `resource`. The outermost entry of a thread drains ticks
/// and microtasks before it returns.
///
/// # Errors
/// [`Contained`]: the callback panicked. The handler has been told; the stack is as it was.
#[inline]
pub fn make_callback<R>(resource: &AsyncResource, callback: impl FnOnce() -> R) -> Result<R, Contained> {
    stack::enter_and_drain(resource.core(), callback)
}

/// As [`make_callback`], for a callback that can fail: its error is reported as a panic is.
///
/// # Errors
/// [`Contained`]: the callback panicked or returned an error. The handler has been told.
#[inline]
pub fn try_callback<R, E: Into<Box<dyn Error>>>(
    resource: &AsyncResource,
    callback: impl FnOnce() -> Result<R, E>,
) -> Result<R, Contained> {
    // Reported inside the scope, so that the handler and the ticks come in the order of a panic.
    make_callback(resource, || callback().map_err(|error| report_error(resource, error.into())))?
}

#[cfg(test)]
mod tests;
