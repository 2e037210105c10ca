//! An entry as a value, for code that cannot be a closure.

use super::{Frame, Saved, with};
use crate::callback::resource::AsyncResource;
use runtime_core_abi::page::Phase;
use std::cell::Cell;
use std::marker::PhantomPinned;
use std::pin::Pin;

/// Pairs enter and leave: [`enter`](Self::enter) pushes the resource's context, the drop
/// (or [`leave`](Self::leave)) pops it and, where it was outermost, drains the queues.
///
/// The frame lies in the scope, so the scope must not move: pin it to the native stack.
///
/// ```
/// use runtime_core::callback::{AsyncResource, CallbackScope, execution_async_id};
/// let resource = AsyncResource::new("PIPEWRAP");
/// let mut scope = std::pin::pin!(CallbackScope::new(&resource));
/// scope.as_mut().enter();
/// assert_eq!(execution_async_id(), resource.async_id());
/// ```
///
/// A panic that passes through a scope leaves it, but is not contained and drains nothing:
/// what is queued runs at the end of the next entry. Scopes left in another order than the
/// reverse of their entry are a corrupted stack: reported, and put right.
pub struct CallbackScope<'r> {
    frame: Frame,
    resource: &'r AsyncResource,
    /// `None` while it is not entered.
    saved: Cell<Option<Saved>>,
    // A pinned value is dropped before its memory is used again: that is what makes a
    // list of such frames sound, whatever safe code does with the scope.
    _pinned: PhantomPinned,
}

impl<'r> CallbackScope<'r> {
    /// A scope not yet entered.
    pub fn new(resource: &'r AsyncResource) -> Self {
        Self { frame: Frame::unlinked(), resource, saved: Cell::new(None), _pinned: PhantomPinned }
    }

    /// Enters the resource. Nothing happens where the scope is entered already.
    pub fn enter(self: Pin<&mut Self>) {
        let this = self.into_ref().get_ref();
        if this.saved.get().is_none() {
            let core = this.resource.core();
            this.saved.set(Some(with(|state| {
                state.frame(core).put_into(&this.frame);
                state.enter(&this.frame, core, Phase::User)
            })));
        }
    }

    /// Leaves it before its drop. Nothing happens where it is not entered.
    pub fn leave(self: Pin<&mut Self>) {
        self.into_ref().get_ref().leave_once();
    }

    fn leave_once(&self) {
        if let Some(saved) = self.saved.take() {
            with(|state| state.leave(&self.frame, saved, !std::thread::panicking()));
            self.frame.forget();
        }
    }
}

impl Drop for CallbackScope<'_> {
    fn drop(&mut self) {
        self.leave_once();
    }
}
