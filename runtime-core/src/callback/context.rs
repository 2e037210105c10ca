//! A value that follows async work: set for an extent of code, seen by everything that
//! this code begins, however much later that runs.
//!
//! Each resource keeps the values that held when it was made, as one counted pointer; the
//! running values are those of the top frame's core, so entering a callback restores them
//! at no cost of its own.

use super::stack;
use std::any::Any;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// All values of one moment, by key. Replaced, never changed.
pub(super) type Context = Option<Rc<[(u64, Rc<dyn Any>)]>>;

/// The values that hold now.
#[inline]
pub(super) fn current() -> Context {
    stack::current(|core| core.context.clone())
}

static NEXT_KEY: AtomicU64 = AtomicU64::new(1);

/// One value that follows async work, such as the request being served.
///
/// ```
/// use runtime_core::callback::{AsyncLocal, AsyncResource, make_callback};
/// let request = AsyncLocal::new();
/// let timer = request.run(42, || AsyncResource::new("Timeout"));
/// assert_eq!(request.get(), None);
/// assert_eq!(make_callback(&timer, || request.get().as_deref().copied()).unwrap(), Some(42));
/// ```
#[derive(Debug)]
pub struct AsyncLocal<T> {
    key: u64,
    _value: PhantomData<fn() -> T>,
}

impl<T: 'static> Default for AsyncLocal<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: 'static> AsyncLocal<T> {
    /// A local with no value anywhere.
    pub fn new() -> Self {
        Self { key: NEXT_KEY.fetch_add(1, Ordering::Relaxed), _value: PhantomData }
    }

    /// Runs `f` with `value`, and all that it begins.
    pub fn run<R>(&self, value: T, f: impl FnOnce() -> R) -> R {
        self.run_with(Some(Rc::new(value)), f)
    }

    /// Runs `f` without a value, and all that it begins.
    pub fn exit<R>(&self, f: impl FnOnce() -> R) -> R {
        self.run_with(None, f)
    }

    fn run_with<R>(&self, value: Option<Rc<dyn Any>>, f: impl FnOnce() -> R) -> R {
        let before = current();
        // A value replaces the one of the same key, so a chain of work that sets it again
        // and again does not grow.
        let others = before.iter().flat_map(|values| values.iter()).filter(|(key, _)| *key != self.key).cloned();
        let values: Rc<[_]> = others.chain(value.map(|value| (self.key, value))).collect();
        stack::with_context((!values.is_empty()).then_some(values), f)
    }

    /// The value that holds now.
    pub fn get(&self) -> Option<Rc<T>> {
        let values = current()?;
        let (_, value) = values.iter().find(|(key, _)| *key == self.key)?;
        value.clone().downcast().ok()
    }
}
