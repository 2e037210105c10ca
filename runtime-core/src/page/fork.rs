//! `fork`: the child must not share the page, the lanes or the rings with its parent.
//!
//! The locks are held across the fork, so that the child finds the truth whole. The child's
//! part makes three system calls and takes no lock, for it may do only what a signal handler
//! may; joining the agent anew is left to the next turn of its event loop.

use super::{LANES_MAX, Truth, lock};
use crate::trace::{lane, session};
use crate::{lease, sys};
use std::cell::UnsafeCell;
use std::io;
use std::sync::{MutexGuard, OnceLock};

/// What is held between the part before and the part after a fork.
type Locks = (lease::Still, session::Still, MutexGuard<'static, Truth>);

struct Held(UnsafeCell<Option<Locks>>);

// SAFETY: only the thread that forks touches it, and only while it holds the locks themselves.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// Installs the handlers, once.
pub(crate) fn watch_forks() -> io::Result<()> {
    static DONE: OnceLock<Result<(), i32>> = OnceLock::new();
    DONE.get_or_init(|| {
        sys::process::at_fork(before, parent, child).map_err(|error| error.raw_os_error().unwrap_or(libc::ENOMEM))
    })
    .map_err(io::Error::from_raw_os_error)
}

extern "C" fn before() {
    let locks = (lease::hold_still(), session::hold_still(), lock());
    // SAFETY: this thread holds the locks, so no other is between `before` and its counterpart.
    unsafe { *HELD.0.get() = Some(locks) };
}

fn take() -> Option<Locks> {
    // SAFETY: called by the thread that ran `before`, which still holds the locks.
    unsafe { (*HELD.0.get()).take() }
}

extern "C" fn parent() {
    drop(take());
}

extern "C" fn child() {
    lane::forget_in_child();
    let Some((lease, mut recording, mut truth)) = take() else { return };
    lease.forget_in_child();
    recording.forget_in_child();
    if let Some(rings) = truth.rings.take() {
        rings.unmap_in_child();
        // Threads that are no more still count among its owners: it is never dropped.
        std::mem::forget(rings);
    }
    truth.forget_recording();
    truth.owners = [0; LANES_MAX];
    // Where there is no memory the child keeps a page that it writes nothing to: no lane is its own.
    let _ = truth.swap_private();
}
