//! Hooks on the life of async resources, and the ids whose `destroy` is still to be told.
//!
//! The common path knows only the bits of `attention`; what is here runs when one is set.
//! A hook enabled or disabled inside a hook counts from the next event on.

use super::failure::{self, Origin};
use super::resource::{AsyncId, Core};
use super::stack;
use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// What `init` is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Init {
    /// The new operation.
    pub async_id: AsyncId,
    /// Its type.
    pub type_name: &'static str,
    /// The operation that began it.
    pub trigger_async_id: AsyncId,
}

type OnInit = Box<dyn Fn(Init)>;
type OnId = Box<dyn Fn(AsyncId)>;

/// Hooks to be enabled together. Each is called on the thread that enabled them.
#[derive(Default)]
pub struct Hooks {
    init: Option<OnInit>,
    before: Option<OnId>,
    after: Option<OnId>,
    destroy: Option<OnId>,
    promise_resolve: Option<OnId>,
}

impl Hooks {
    /// No hooks.
    pub fn new() -> Self {
        Self::default()
    }

    /// A resource was made. Its id is not running yet.
    pub fn init(mut self, hook: impl Fn(Init) + 'static) -> Self {
        self.init = Some(Box::new(hook));
        self
    }

    /// A callback is about to run; its id is the running one.
    pub fn before(mut self, hook: impl Fn(AsyncId) + 'static) -> Self {
        self.before = Some(Box::new(hook));
        self
    }

    /// A callback has run, or failed; its id is still the running one.
    pub fn after(mut self, hook: impl Fn(AsyncId) + 'static) -> Self {
        self.after = Some(Box::new(hook));
        self
    }

    /// A resource was dropped. Told at the loop's next turn, not inside the drop.
    pub fn destroy(mut self, hook: impl Fn(AsyncId) + 'static) -> Self {
        self.destroy = Some(Box::new(hook));
        self
    }

    /// A promise was resolved.
    pub fn promise_resolve(mut self, hook: impl Fn(AsyncId) + 'static) -> Self {
        self.promise_resolve = Some(Box::new(hook));
        self
    }

    /// Enables them on this thread, after those already enabled.
    pub fn enable(self) -> AsyncHook {
        let hook = AsyncHook { hooks: Rc::new(self) };
        hook.enable();
        hook
    }

    fn bits(&self) -> u32 {
        let bit = |present, bit| if present { bit } else { 0 };
        bit(self.init.is_some(), stack::INIT)
            | bit(self.before.is_some(), stack::BEFORE)
            | bit(self.after.is_some(), stack::AFTER)
            | bit(self.destroy.is_some(), stack::DESTROY)
            | bit(self.promise_resolve.is_some(), stack::RESOLVE)
    }

    #[inline(always)]
    pub(super) fn call_before(&self, id: AsyncId) {
        if let Some(hook) = &self.before {
            hook(id);
        }
    }

    #[inline(always)]
    pub(super) fn call_after(&self, id: AsyncId) {
        if let Some(hook) = &self.after {
            hook(id);
        }
    }
}

/// Enabled hooks; dropping it disables them.
#[must_use = "dropping it disables the hooks"]
pub struct AsyncHook {
    hooks: Rc<Hooks>,
}

impl AsyncHook {
    /// Enables the hooks again, after those already enabled.
    pub fn enable(&self) {
        self.change(|wanted| {
            if !wanted.iter().any(|hooks| Rc::ptr_eq(hooks, &self.hooks)) {
                wanted.push(self.hooks.clone());
            }
        });
    }

    /// Disables the hooks.
    pub fn disable(&self) {
        self.change(|wanted| wanted.retain(|hooks| !Rc::ptr_eq(hooks, &self.hooks)));
    }

    fn change(&self, change: impl FnOnce(&mut Active)) {
        // At the thread's very end there is nothing to enable or disable any more.
        let _ = REGISTRY.try_with(|registry| registry.change(change));
    }
}

impl Drop for AsyncHook {
    fn drop(&mut self) {
        self.disable();
    }
}

impl fmt::Debug for AsyncHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AsyncHook({:#x})", self.hooks.bits())
    }
}

/// Hooks as they are called. A list is never changed: hooks that run run on, from the list
/// that they began in.
pub(super) type Active = Vec<Rc<Hooks>>;

/// One thread's hooks.
#[derive(Default)]
struct Registry {
    /// The thread's state points to it.
    active: RefCell<Rc<Active>>,
    /// Lists from which hooks may still run.
    replaced: RefCell<Vec<Rc<Active>>>,
    destroyed: RefCell<Vec<AsyncId>>,
}

thread_local! {
    static REGISTRY: Registry = Registry::default();
}

impl Registry {
    fn change(&self, change: impl FnOnce(&mut Active)) {
        let mut hooks = Active::clone(&self.active.borrow());
        change(&mut hooks);
        let bits = hooks.iter().fold(0, |bits, hooks| bits | hooks.bits());
        let hooks = Rc::new(hooks);
        stack::set_hooks(Some(&hooks), bits);
        let before = self.active.replace(hooks);
        self.replaced.borrow_mut().push(before);
        self.drop_replaced();
    }

    fn drop_replaced(&self) {
        if !stack::hooks_run() {
            // Out of the cell first: what a hook captured is dropped, which is user code.
            drop(self.replaced.take());
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        stack::set_hooks(None, 0);
    }
}

/// A hook panicked.
#[cold]
pub(super) fn failed(payload: Box<dyn Any + Send>) {
    stack::current_core(|core| failure::report_panic(core, Origin::Hook, payload));
}

#[cold]
pub(super) fn emit_init(core: &Core) {
    let init = Init { async_id: core.async_id, type_name: core.type_name, trigger_async_id: core.trigger };
    stack::emit(|hooks| hooks.init.iter().for_each(|hook| hook(init)));
}

#[cold]
pub(super) fn emit_promise_resolve(id: AsyncId) {
    stack::emit(|hooks| hooks.promise_resolve.iter().for_each(|hook| hook(id)));
}

/// Remembers that `id` is gone.
#[cold]
pub(super) fn queue_destroy(id: AsyncId) {
    let _ = REGISTRY.try_with(|registry| registry.destroyed.borrow_mut().push(id));
}

/// Tells the `destroy` hooks of everything that is gone, also of what goes meanwhile; drops
/// hooks that were disabled while they ran.
pub(super) fn emit_destroyed() {
    let _ = REGISTRY.try_with(Registry::drop_replaced);
    loop {
        let gone = REGISTRY.try_with(|registry| registry.destroyed.take()).unwrap_or_default();
        if gone.is_empty() {
            return;
        }
        for id in gone {
            stack::emit(|hooks| hooks.destroy.iter().for_each(|hook| hook(id)));
        }
    }
}
