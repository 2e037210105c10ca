//! A value that comes later, and what is to be done with it: the source of the
//! `promise_resolve` hook.

use super::failure::Origin;
use super::resource::AsyncResource;
use super::{hooks, queue, stack};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// A value that comes later. Clones are the same promise. Failure is a value too: use a
/// `Result`.
pub struct Promise<T>(Rc<Inner<T>>);

struct Inner<T> {
    resource: AsyncResource,
    value: RefCell<Value<T>>,
}

type Reaction<T> = Box<dyn FnOnce(Rc<T>)>;

enum Value<T> {
    Pending(Vec<Reaction<T>>),
    Resolved(Rc<T>),
}

impl<T: 'static> Promise<T> {
    /// A promise with no value yet.
    pub fn new() -> Self {
        Self::begin(AsyncResource::new("PROMISE"))
    }

    fn begin(resource: AsyncResource) -> Self {
        Self(Rc::new(Inner { resource, value: RefCell::new(Value::Pending(Vec::new())) }))
    }

    /// Its resource: what reactions to it name as their trigger.
    pub fn resource(&self) -> &AsyncResource {
        &self.0.resource
    }

    /// Gives it its value, and queues what waits for it as microtasks.
    ///
    /// # Errors
    /// The value, where the promise has one already.
    pub fn resolve(&self, value: T) -> Result<(), T> {
        if matches!(*self.0.value.borrow(), Value::Resolved(_)) {
            return Err(value);
        }
        if stack::with(|state| state.wants(stack::RESOLVE)) {
            hooks::emit_promise_resolve(self.0.resource.async_id());
        }
        let value = Rc::new(value);
        if let Value::Pending(reactions) = self.0.value.replace(Value::Resolved(value.clone())) {
            for reaction in reactions {
                reaction(value.clone());
            }
        }
        Ok(())
    }

    /// Runs `f` with the value as a microtask, once there is one; the promise of what it
    /// returns. Where `f` panics, that promise stays without a value.
    pub fn then<U: 'static>(&self, f: impl FnOnce(&T) -> U + 'static) -> Promise<U> {
        let derived = Promise::begin(AsyncResource::with_trigger("PROMISE", self.0.resource.async_id()));
        let result = derived.clone();
        let react: Reaction<T> = Box::new(move |value| {
            queue::push_microtask(Box::new(move || {
                stack::enter_task(derived.0.resource.core(), Origin::Microtask, || {
                    // Nobody else resolves it before its own reaction has run, unless a
                    // caller does by hand: then that value stays.
                    let _ = derived.resolve(f(&value));
                });
            }));
        });
        let value = match &mut *self.0.value.borrow_mut() {
            Value::Pending(reactions) => {
                reactions.push(react);
                return result;
            }
            Value::Resolved(value) => value.clone(),
        };
        react(value);
        result
    }

    /// The value, where there is one.
    pub fn value(&self) -> Option<Rc<T>> {
        match &*self.0.value.borrow() {
            Value::Pending(_) => None,
            Value::Resolved(value) => Some(value.clone()),
        }
    }
}

impl<T: 'static> Default for Promise<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for Promise<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Promise({:?})", self.0.resource)
    }
}
