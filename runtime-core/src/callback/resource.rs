//! Async resources: what a callback runs on behalf of.

use super::context::{self, Context};
use super::{hooks, stack};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ids a thread takes at once from the process's counter, so that ids are unique in the
/// process and a new one is, as a rule, an addition.
const IDS_PER_BLOCK: u64 = 1024;

static NEXT_BLOCK: AtomicU64 = AtomicU64::new(1);

/// Names one async operation: unique in the process, growing within a block of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AsyncId(pub(super) u64);

impl AsyncId {
    /// No operation: outside every callback.
    pub const NONE: Self = Self(0);

    /// The id as a number; 0 for [`AsyncId::NONE`].
    pub const fn get(self) -> u64 {
        self.0
    }

    #[inline]
    pub(super) fn next() -> Self {
        stack::with(|state| {
            let id = state.next_id.get();
            // Blocks end at multiples of their size; the process's first id is 1.
            if id.is_multiple_of(IDS_PER_BLOCK) {
                return Self::next_block(state);
            }
            state.next_id.set(id + 1);
            Self(id)
        })
    }

    #[cold]
    fn next_block(state: &stack::State) -> Self {
        let block = NEXT_BLOCK.fetch_add(1, Ordering::Relaxed);
        let id = (block - 1) * IDS_PER_BLOCK + 1;
        state.next_id.set(id + 1);
        Self(id)
    }
}

impl fmt::Display for AsyncId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a frame of the async stack points to.
pub(super) struct Core {
    pub async_id: AsyncId,
    pub trigger: AsyncId,
    pub type_name: &'static str,
    pub context: Context,
    /// Whether entering it is an entry, not only a change of the context value.
    pub entered: bool,
}

impl Core {
    /// A new operation, with the context of the running one; tells the `init` hooks.
    #[inline]
    pub fn new(type_name: &'static str, trigger: AsyncId) -> Self {
        let core = Self { async_id: AsyncId::next(), trigger, type_name, context: context::current(), entered: true };
        if stack::with(|state| state.wants(stack::INIT)) {
            hooks::emit_init(&core);
        }
        core
    }
}

/// An async operation: made where work is begun, entered with
/// [`make_callback`](super::make_callback) whenever it calls back, destroyed when dropped.
pub struct AsyncResource {
    core: Core,
}

impl AsyncResource {
    /// A resource begun by the operation that runs now. `type_name` is what hooks and
    /// messages show, such as `TCPSERVERWRAP`.
    #[inline]
    pub fn new(type_name: &'static str) -> Self {
        Self::with_trigger(type_name, execution_async_id())
    }

    /// A resource begun by another operation than the running one.
    #[inline]
    pub fn with_trigger(type_name: &'static str, trigger: AsyncId) -> Self {
        Self { core: Core::new(type_name, trigger) }
    }

    /// Its id.
    #[inline]
    pub fn async_id(&self) -> AsyncId {
        self.core.async_id
    }

    /// The id of the operation that began it.
    #[inline]
    pub fn trigger_async_id(&self) -> AsyncId {
        self.core.trigger
    }

    /// Its type, as given.
    pub fn type_name(&self) -> &'static str {
        self.core.type_name
    }

    /// Runs `f` in this resource's context, with hooks, but neither contains a panic nor
    /// drains the queues: for code that is already inside a callback.
    #[inline]
    pub fn run_in_async_scope<R>(&self, f: impl FnOnce() -> R) -> R {
        stack::enter_and_resume(&self.core, f)
    }

    #[inline]
    pub(super) fn core(&self) -> &Core {
        &self.core
    }
}

impl Drop for AsyncResource {
    #[inline]
    fn drop(&mut self) {
        if stack::with(|state| state.wants(stack::DESTROY)) {
            hooks::queue_destroy(self.core.async_id);
        }
    }
}

impl fmt::Debug for AsyncResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({}, begun by {})", self.core.type_name, self.core.async_id, self.core.trigger)
    }
}

/// The operation that runs now; [`AsyncId::NONE`] outside every callback.
#[inline]
pub fn execution_async_id() -> AsyncId {
    stack::current(|core| core.async_id)
}

/// The operation that began the running one; [`AsyncId::NONE`] outside every callback.
#[inline]
pub fn trigger_async_id() -> AsyncId {
    stack::current(|core| core.trigger)
}
