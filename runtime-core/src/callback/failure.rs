//! What happens to a panic or an error of user code: it is reported to the thread's
//! handler, which says whether the loop goes on.

use super::resource::{AsyncId, AsyncResource, Core};
use super::stack;
use std::any::Any;
use std::cell::RefCell;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// A callback failed, and the failure was reported where it happened: nothing is left to
/// handle, only to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the callback failed; the failure was reported to the thread's handler")]
pub struct Contained(());

/// What the handler decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The loop goes on.
    GoOn,
    /// The loop stops: no tick or microtask is started any more, and
    /// [`run_loop_turn`](super::run_loop_turn) says stop.
    Stop,
}

/// Where user code failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In a callback.
    Callback,
    /// In a tick.
    Tick,
    /// In a microtask.
    Microtask,
    /// In a hook; the other hooks and the callback itself went on.
    Hook,
    /// In a scope that was left in the wrong order.
    Stack,
}

/// One failure, as the handler sees it.
#[derive(Debug)]
pub struct Failure {
    /// What went wrong.
    pub cause: Cause,
    /// Where.
    pub origin: Origin,
    /// The operation that ran.
    pub async_id: AsyncId,
    /// The operation that had begun it.
    pub trigger_async_id: AsyncId,
    /// Its type.
    pub type_name: &'static str,
}

/// What went wrong.
#[derive(Debug)]
pub enum Cause {
    /// The code panicked, with this payload.
    Panic(Box<dyn Any + Send>),
    /// The code returned an error.
    Error(Box<dyn Error>),
    /// Scopes were left in another order than the reverse of their entry.
    CorruptStack(CorruptStack),
}

/// The async stack as it should have been and as it was, innermost first.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the async stack is corrupted: left {}, but {} was entered last (expected stack: {}; actual stack: {})",
    top(.expected), top(.actual), list(.expected), list(.actual))]
pub struct CorruptStack {
    /// Ids, from the scope that was left outwards.
    pub expected: Vec<AsyncId>,
    /// Ids, from the scope that was entered last outwards.
    pub actual: Vec<AsyncId>,
}

fn top(ids: &[AsyncId]) -> AsyncId {
    ids.first().copied().unwrap_or(AsyncId::NONE)
}

fn list(ids: &[AsyncId]) -> String {
    ids.iter().map(AsyncId::to_string).collect::<Vec<_>>().join(" < ")
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.origin {
            Origin::Callback => "a callback",
            Origin::Tick => "a tick",
            Origin::Microtask => "a microtask",
            Origin::Hook => "an async hook",
            Origin::Stack => "a callback scope",
        };
        write!(f, "{place} of `{}` {} (begun by {}) ", self.type_name, self.async_id, self.trigger_async_id)?;
        match &self.cause {
            Cause::Panic(payload) => write!(f, "panicked: {}", panic_text(payload.as_ref())),
            Cause::Error(error) => write!(f, "failed: {error}"),
            Cause::CorruptStack(report) => write!(f, "was left out of order: {report}"),
        }
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(not a text)")
}

type Handler = Rc<dyn Fn(&Failure) -> Verdict>;

thread_local! {
    static HANDLER: RefCell<Option<Handler>> = const { RefCell::new(None) };
}

/// Sets this thread's handler in place of the one before. Without one a failure is written
/// to standard error and the loop stops. A handler that panics itself means stop.
pub fn on_failure(handler: impl Fn(&Failure) -> Verdict + 'static) {
    let before = HANDLER.replace(Some(Rc::new(handler)));
    drop(before); // outside the cell: its drop is user code
}

/// Whether a handler of this thread has said [`Verdict::Stop`].
pub fn stop_requested() -> bool {
    stack::with(|state| state.stop.get())
}

/// Lets this thread's loop run again after a stop.
pub fn clear_stop() {
    stack::with(|state| state.stop.set(false));
}

/// Reports an error that belongs to `resource` but has no caller to return to.
#[cold]
pub fn report_error(resource: &AsyncResource, error: Box<dyn Error>) -> Contained {
    report(resource.core(), Origin::Callback, Cause::Error(error))
}

/// Runs `f`, reporting a panic on behalf of `resource`, whose callback it is part of.
pub(crate) fn contain(resource: &AsyncResource, f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        report_panic(resource.core(), Origin::Callback, payload);
    }
}

#[cold]
pub(super) fn report_panic(core: &Core, origin: Origin, payload: Box<dyn Any + Send>) -> Contained {
    report(core, origin, Cause::Panic(payload))
}

#[cold]
pub(super) fn report_corrupt(core: &Core, report_: CorruptStack) -> Contained {
    report(core, Origin::Stack, Cause::CorruptStack(report_))
}

fn report(core: &Core, origin: Origin, cause: Cause) -> Contained {
    let failure =
        Failure { cause, origin, async_id: core.async_id, trigger_async_id: core.trigger, type_name: core.type_name };
    // At the thread's very end the handler is gone, and so is the loop.
    let handler = HANDLER.try_with(|handler| handler.borrow().clone()).ok().flatten();
    let verdict = catch_unwind(AssertUnwindSafe(|| match &handler {
        Some(handler) => handler(&failure),
        None => {
            eprintln!("runtime-core: {failure}; no handler is set (`on_failure`), so the loop stops");
            Verdict::Stop
        }
    }));
    if !matches!(verdict, Ok(Verdict::GoOn)) {
        stack::with(|state| state.stop.set(true));
    }
    drop_contained(verdict);
    drop_contained((handler, failure));
    Contained(())
}

/// Drops what user code made: a payload whose drop panics must not get out, and a payload
/// of that panic is not given a second chance.
fn drop_contained(value: impl Sized) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        std::mem::forget(payload);
    }
}
