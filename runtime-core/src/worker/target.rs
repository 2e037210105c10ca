//! Listeners: added, removed, called in the order they were added.
//!
//! A dispatch calls those that were there when it began and still are when their turn
//! comes: one that is removed meanwhile is not called, one that is added waits for the next
//! event.

use super::Event;
use crate::callback::{self, AsyncResource};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Names a listener of one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerId(u64);

struct Listener {
    id: u64,
    once: bool,
    removed: Cell<bool>,
    call: Box<dyn Fn(&Event<'_>)>,
}

/// A set of listeners.
#[derive(Default)]
pub struct EventTarget {
    /// Replaced where a dispatch may be reading it, never changed under it.
    listeners: RefCell<Rc<Vec<Rc<Listener>>>>,
    next_id: Cell<u64>,
}

impl EventTarget {
    /// Calls `listener` for each event from the next on.
    pub fn add(&self, listener: impl Fn(&Event<'_>) + 'static) -> ListenerId {
        self.insert(false, Box::new(listener))
    }

    /// Calls `listener` for the next event only.
    pub fn once(&self, listener: impl Fn(&Event<'_>) + 'static) -> ListenerId {
        self.insert(true, Box::new(listener))
    }

    fn insert(&self, once: bool, call: Box<dyn Fn(&Event<'_>)>) -> ListenerId {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        let listener = Rc::new(Listener { id, once, removed: Cell::new(false), call });
        Rc::make_mut(&mut self.listeners.borrow_mut()).push(listener);
        ListenerId(id)
    }

    /// Removes a listener; whether it was there. It is not called any more, even by a
    /// dispatch that has begun.
    pub fn remove(&self, id: ListenerId) -> bool {
        let mut listeners = self.listeners.borrow_mut();
        let Some(at) = listeners.iter().position(|listener| listener.id == id.0) else { return false };
        let removed = Rc::make_mut(&mut listeners).remove(at);
        drop(listeners);
        removed.removed.set(true);
        true
    }

    /// Calls the listeners. One that panics is reported on behalf of `resource`; the others
    /// are called all the same.
    pub(super) fn dispatch(&self, resource: &AsyncResource, event: &Event<'_>) {
        let listeners = self.listeners.borrow().clone();
        for listener in listeners.iter() {
            if listener.removed.get() {
                continue;
            }
            if listener.once {
                self.remove(ListenerId(listener.id));
            }
            callback::contain(resource, || (listener.call)(event));
        }
    }
}
