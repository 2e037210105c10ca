//! The async stack: frames on the native stack, linked from the innermost outwards.
//!
//! A frame points to the frame below it and to the core of its resource; both outlive its
//! time in the list. The pointer to the top frame is the one word that the common path
//! looks at: its lowest bit says that there is more to do (hooks, queued work), so that
//! one compare asks for both, on the way in and on the way out.

mod scope;

pub use scope::CallbackScope;

use super::context::Context;
use super::failure::{self, Contained, CorruptStack, Origin};
use super::hooks::{self, Active, Hooks};
use super::queue;
use super::resource::{AsyncId, Core};
use runtime_core_abi::page::{Lane, Phase};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// Bits of `attention`: hooks of a kind exist.
pub(super) const INIT: u32 = 1;
/// See [`INIT`].
pub(super) const BEFORE: u32 = 1 << 1;
/// See [`INIT`].
pub(super) const AFTER: u32 = 1 << 2;
/// See [`INIT`].
pub(super) const DESTROY: u32 = 1 << 3;
/// See [`INIT`].
pub(super) const RESOLVE: u32 = 1 << 4;
/// All bits that hooks set.
pub(super) const HOOKS: u32 = INIT | BEFORE | AFTER | DESTROY | RESOLVE;
/// Ticks or microtasks are queued.
pub(super) const QUEUED: u32 = 1 << 5;
/// What entering and leaving must know: sets the mark in `top`.
const ON_THE_WAY: u32 = BEFORE | AFTER | QUEUED;
/// The mark in the address of the top frame.
const MARK: usize = 1;

/// One entry.
pub(super) struct Frame {
    below: Cell<*const Frame>,
    /// Null while the frame is not in the list.
    core: Cell<*const Core>,
}

/// What an entry puts back. Held by the entering function, in registers, and not read from
/// the frame: a chain of loads that wait for stores would double the cost of an entry.
#[derive(Clone, Copy)]
struct Saved {
    below: *const Frame,
    /// The lane's phase.
    phase: u32,
}

/// What a thread has entered.
pub(super) struct State {
    /// The innermost frame, null for none; marked where `attention` has a bit of [`ON_THE_WAY`].
    marked_top: Cell<*const Frame>,
    attention: Cell<u32>,
    lane: Cell<*const Lane>,
    /// The thread's hooks; null for none.
    hooks: Cell<*const Active>,
    /// Hooks run.
    hooks_run: Cell<bool>,
    /// See [`AsyncId::next`].
    pub next_id: Cell<u64>,
    /// The queues are being drained: an entry inside does not start again.
    pub draining: Cell<bool>,
    /// A failure handler said stop.
    pub stop: Cell<bool>,
}

struct Root(Core);
// SAFETY: nobody writes it, and its context is `None`, so it has no reference count.
unsafe impl Sync for Root {}

/// What runs outside every callback.
static ROOT: Root =
    Root(Core { async_id: AsyncId::NONE, trigger: AsyncId::NONE, type_name: "root", context: None, entered: false });

/// The lane of threads that have none: written, never read.
// SAFETY: a lane is made of atomic integers, for which all zeros is a value.
static NOWHERE: Lane = unsafe { std::mem::zeroed() };

thread_local! {
    static STATE: State = const {
        State {
            marked_top: Cell::new(ptr::null()),
            attention: Cell::new(0),
            lane: Cell::new(&raw const NOWHERE),
            hooks: Cell::new(ptr::null()),
            hooks_run: Cell::new(false),
            next_id: Cell::new(0),
            draining: Cell::new(false),
            stop: Cell::new(false),
        }
    };
}

/// The thread's state. It has no destructor, so it is there until the thread's very end.
#[inline(always)]
pub(super) fn with<R>(f: impl FnOnce(&State) -> R) -> R {
    // The pointer is taken out first: `with` around all of `f` is not inlined.
    let state = STATE.with(ptr::from_ref);
    // SAFETY: `State` has no destructor, so the thread's own is valid for as long as the
    // thread runs, and the reference does not leave the call.
    f(unsafe { &*state })
}

/// Looks at the core of the running operation.
#[inline(always)]
pub(super) fn current<R>(f: impl FnOnce(&Core) -> R) -> R {
    // SAFETY: `top` is null or a frame in the list, hence alive, and so is its core; `f` is
    // the callers' of this module, none of which enters or leaves.
    with(|state| f(unsafe { state.top().as_ref().map_or(&ROOT.0, |top| &*top.core.get()) }))
}

/// Hands the core of the running operation to code that can enter and leave.
pub(super) fn current_core<R>(f: impl FnOnce(&Core) -> R) -> R {
    f(&current(copy_of))
}

/// The same operation, without its context value.
fn copy_of(core: &Core) -> Core {
    Core { async_id: core.async_id, trigger: core.trigger, type_name: core.type_name, context: None, entered: false }
}

/// Whether the thread is outside every callback.
pub(super) fn is_empty() -> bool {
    with(|state| state.at_root())
}

/// Enters, runs, leaves, and drains where it was outermost; contains a panic.
#[inline(always)]
pub(super) fn enter_and_drain<R>(core: &Core, f: impl FnOnce() -> R) -> Result<R, Contained> {
    with(|state| {
        let frame = state.frame(core);
        let saved = state.enter(&frame, core, Phase::User);
        match catch_unwind(AssertUnwindSafe(f)) {
            Ok(value) => {
                state.leave(&frame, saved, true);
                Ok(value)
            }
            Err(payload) => Err(state.leave_failed(&frame, saved, payload)),
        }
    })
}

/// Enters, runs a queued task, leaves; contains a panic. Never drains: it is the drain.
pub(super) fn enter_task(core: &Core, origin: Origin, f: impl FnOnce()) {
    with(|state| {
        let frame = state.frame(core);
        let saved = state.enter(&frame, core, Phase::Tick);
        let result = catch_unwind(AssertUnwindSafe(f));
        state.leave(&frame, saved, false);
        if let Err(payload) = result {
            failure::report_panic(core, origin, payload);
        }
    });
}

/// Enters, runs, leaves, and drains where it was outermost; a panic goes on to the caller.
#[inline(always)]
pub(super) fn enter_and_resume<R>(core: &Core, f: impl FnOnce() -> R) -> R {
    with(|state| {
        let frame = state.frame(core);
        let saved = state.enter(&frame, core, Phase::User);
        let result = catch_unwind(AssertUnwindSafe(f));
        state.leave(&frame, saved, result.is_ok());
        result.unwrap_or_else(|payload| resume_unwind(payload))
    })
}

/// Runs `f` in the running operation but with another context value.
pub(super) fn with_context<R>(context: Context, f: impl FnOnce() -> R) -> R {
    let core = Core { context, ..current(copy_of) };
    with(|state| {
        let frame = state.frame(&core);
        let saved = Saved { below: state.top(), phase: state.phase() };
        state.set_top(&frame);
        let result = catch_unwind(AssertUnwindSafe(f));
        if !state.unlink(&frame, saved) {
            state.corrupted(&frame, saved);
        }
        result.unwrap_or_else(|payload| resume_unwind(payload))
    })
}

/// Calls something of each hook that is enabled now; a panic of one is reported, and keeps
/// no other from running.
pub(super) fn emit(call: impl Fn(&Hooks)) {
    with(|state| state.each_hook(call));
}

/// Whether a hook runs, so that replaced hooks must be kept.
pub(super) fn hooks_run() -> bool {
    with(|state| state.hooks_run.get())
}

/// Makes `hooks` those of the thread, which keeps them until it gives others.
pub(super) fn set_hooks(hooks: Option<&Rc<Active>>, bits: u32) {
    with(|state| {
        state.hooks.set(hooks.map_or(ptr::null(), Rc::as_ptr));
        state.set_attention(HOOKS, bits);
    });
}

impl Frame {
    /// A frame that is not in the list.
    fn unlinked() -> Self {
        Self { below: Cell::new(ptr::null()), core: Cell::new(ptr::null()) }
    }

    /// Makes `place` the same frame, where it is to stay.
    fn put_into(self, place: &Self) {
        place.below.set(self.below.get());
        place.core.set(self.core.get());
    }

    /// Marks it as out of the list, where it could be asked for again.
    fn forget(&self) {
        self.core.set(ptr::null());
    }

    /// Whether it is in the list.
    fn is_linked(&self) -> bool {
        !self.core.get().is_null()
    }
}

impl State {
    /// Whether any of `bits` is set.
    #[inline(always)]
    pub fn wants(&self, bits: u32) -> bool {
        self.attention.get() & bits != 0
    }

    /// Sets the bits of `mask` to those of `bits`.
    pub fn set_attention(&self, mask: u32, bits: u32) {
        self.attention.set(self.attention.get() & !mask | bits);
        self.set_top(self.top());
    }

    #[inline(always)]
    fn top(&self) -> *const Frame {
        self.marked_top.get().map_addr(|addr| addr & !MARK)
    }

    fn set_top(&self, top: *const Frame) {
        self.marked_top.set(if self.wants(ON_THE_WAY) { marked(top) } else { top });
    }

    #[inline]
    pub fn at_root(&self) -> bool {
        self.top().is_null()
    }

    #[inline(always)]
    fn lane(&self) -> &Lane {
        // SAFETY: always a lane of the page or `NOWHERE`, both statics made of atomics.
        unsafe { &*self.lane.get() }
    }

    #[inline]
    pub fn phase(&self) -> u32 {
        self.lane().phase.load(Relaxed)
    }

    pub fn set_phase(&self, phase: u32) {
        self.lane().phase.store(phase, Relaxed);
    }

    /// A frame to be put on top.
    #[inline(always)]
    fn frame(&self, core: &Core) -> Frame {
        Frame { below: Cell::new(self.top()), core: Cell::new(core) }
    }

    /// Takes `frame` off; `false` where it is not on top.
    fn unlink(&self, frame: &Frame, saved: Saved) -> bool {
        let top = self.marked_top.get();
        if ptr::eq(top, frame) {
            self.marked_top.set(saved.below);
            return true;
        }
        let on_top = ptr::eq(top, marked(frame));
        if on_top {
            self.marked_top.set(marked(saved.below));
        }
        on_top
    }

    /// Puts `frame`, made of `core`, on top; the `before` hooks already run inside. It must
    /// be left before it or `core` dies: the functions above do so on every path,
    /// `CallbackScope` in its drop.
    #[inline(always)]
    fn enter(&self, frame: &Frame, core: &Core, phase: Phase) -> Saved {
        let before = self.marked_top.get();
        let saved = Saved { below: self.top(), phase: self.publish(core.async_id, phase) };
        if before.addr() & MARK == 0 {
            self.marked_top.set(frame);
        } else {
            self.enter_marked(frame, core.async_id);
        }
        saved
    }

    /// Leaves `frame`; where it was outermost, and `drain` says so, runs what is queued.
    #[inline(always)]
    fn leave(&self, frame: &Frame, saved: Saved, drain: bool) {
        // On top, and no mark.
        if !ptr::eq(self.marked_top.get(), frame) {
            return self.leave_slowly(frame, saved, drain);
        }
        self.marked_top.set(saved.below);
        self.restore_lane(saved);
    }

    #[cold]
    #[inline(never)]
    fn enter_marked(&self, frame: &Frame, id: AsyncId) {
        self.marked_top.set(marked(frame));
        if self.wants(BEFORE) {
            self.each_hook(|hooks| hooks.call_before(id));
        }
    }

    /// The `after` hooks still run inside.
    #[cold]
    #[inline(never)]
    fn leave_slowly(&self, frame: &Frame, saved: Saved, drain: bool) {
        if self.wants(AFTER) {
            self.tell_after(frame);
        }
        if self.unlink(frame, saved) {
            self.restore_lane(saved);
        } else {
            self.corrupted(frame, saved);
        }
        if drain && self.wants(QUEUED) {
            queue::drain_at_root(self);
        }
    }

    /// Shows the lane's reader what runs; gives the phase before.
    #[inline(always)]
    fn publish(&self, id: AsyncId, phase: Phase) -> u32 {
        let lane = self.lane();
        let before = lane.phase.load(Relaxed);
        lane.phase.store(phase as u32, Relaxed);
        lane.async_id.store(id.get(), Relaxed);
        before
    }

    #[inline(always)]
    fn restore_lane(&self, saved: Saved) {
        // SAFETY: the frame below a linked one is linked, hence alive, and so is its core.
        let id = unsafe { saved.below.as_ref().map_or(AsyncId::NONE, |below| (*below.core.get()).async_id) };
        let lane = self.lane();
        lane.phase.store(saved.phase, Relaxed);
        lane.async_id.store(id.get(), Relaxed);
    }

    #[inline(always)]
    fn each_hook(&self, call: impl Fn(&Hooks)) {
        // A branch on the way out rather than a saved value: it does not wait for the store.
        let outermost = !self.hooks_run.get();
        self.hooks_run.set(true);
        // SAFETY: null or hooks that the thread's registry keeps, also where one of them
        // changes the hooks, for as long as `hooks_run` is set.
        let mut rest = unsafe { self.hooks.get().as_ref() }.map_or(&[][..], Vec::as_slice).iter();
        // One catch around them all; one that panics does not keep the rest from running.
        while let Err(payload) = catch_unwind(AssertUnwindSafe(|| rest.by_ref().for_each(|hooks| call(hooks)))) {
            hooks::failed(payload);
        }
        if outermost {
            self.hooks_run.set(false);
        }
    }

    #[cold]
    fn leave_failed(&self, frame: &Frame, saved: Saved, payload: Box<dyn Any + Send>) -> Contained {
        // SAFETY: the caller's resource is borrowed for the whole entry; where the frame
        // was torn off, its core is not known any more and the root's is shown.
        let core = unsafe { frame.core.get().as_ref() }.unwrap_or(&ROOT.0);
        self.leave(frame, saved, false);
        let contained = failure::report_panic(core, Origin::Callback, payload);
        if self.wants(QUEUED) {
            queue::drain_at_root(self);
        }
        contained
    }

    #[inline(always)]
    fn tell_after(&self, frame: &Frame) {
        // A frame that was torn off has been told then.
        // SAFETY: linked, hence its core is alive.
        if let Some(core) = unsafe { frame.core.get().as_ref() }
            && core.entered
        {
            self.each_hook(|hooks| hooks.call_after(core.async_id));
        }
    }

    /// `frame` is left, but is not on top. Says so, then takes off everything down to it,
    /// so that the stack is right again for the frames below.
    #[cold]
    #[inline(never)]
    fn corrupted(&self, frame: &Frame, saved: Saved) {
        if !frame.is_linked() {
            // Torn off when a frame below it was left too early: said then. What lay below
            // it may be gone too.
            return self.restore_lane(Saved { below: self.top(), ..saved });
        }
        let report = CorruptStack { expected: ids(frame), actual: ids(self.top()) };
        // SAFETY: `frame` is linked, so its core is alive here; copied, since the handler
        // that sees it runs after the frame is off.
        let core = copy_of(unsafe { &*frame.core.get() });
        loop {
            let top = self.top();
            // SAFETY: `top` is in the list; the walk ends at `frame`, which is too.
            let top = unsafe { &*top };
            // `frame` itself has been told on its way here.
            if !ptr::eq(top, frame) && self.wants(AFTER) {
                self.tell_after(top);
            }
            self.set_top(top.below.get());
            top.forget();
            if ptr::eq(top, frame) {
                break;
            }
        }
        self.restore_lane(saved);
        failure::report_corrupt(&core, report);
    }
}

#[inline(always)]
fn marked(frame: *const Frame) -> *const Frame {
    frame.map_addr(|addr| addr | MARK)
}

/// The ids from `frame` outwards.
fn ids(frame: *const Frame) -> Vec<AsyncId> {
    let mut ids = Vec::new();
    let mut at = frame;
    // SAFETY: starts at a linked frame or null; what is below a linked one is so too.
    while let Some(frame) = unsafe { at.as_ref() } {
        // SAFETY: linked, hence its core is alive.
        ids.push(unsafe { (*frame.core.get()).async_id });
        at = frame.below.get();
    }
    ids
}
