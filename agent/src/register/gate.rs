//! Limits how many registrations are unfinished at once, so that nobody who keeps
//! connections open keeps others out, not even other processes of the same user.

use crate::room::{Place, Room};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Unfinished registrations of one user.
const PER_USER_MAX: usize = 64;
/// Unfinished registrations altogether.
const ALL_MAX: usize = 512;

/// See the module.
#[derive(Debug)]
pub struct Gate {
    all: Room,
    users: HashMap<u32, Room>,
}

/// An unfinished registration; it ends with this value. As a future it is ready once there
/// are too many newer ones.
#[derive(Debug)]
pub struct Ticket {
    all: Place,
    user: Place,
}

impl Gate {
    /// With nobody in it.
    pub fn new() -> Self {
        Self { all: Room::new(ALL_MAX), users: HashMap::new() }
    }

    /// Lets a registration in, if need be in place of the oldest.
    pub fn enter(&mut self, uid: u32) -> Ticket {
        if self.users.len() >= ALL_MAX {
            self.users.retain(|_, room| !room.is_empty());
        }
        let user = self.users.entry(uid).or_insert_with(|| Room::new(PER_USER_MAX));
        Ticket { all: self.all.enter(), user: user.enter() }
    }
}

impl Future for Ticket {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match Pin::new(&mut self.user).poll(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => Pin::new(&mut self.all).poll(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn must_go(ticket: &mut Ticket) -> bool {
        Pin::new(ticket).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn one_user_does_not_keep_others_out() {
        let mut gate = Gate::new();
        let mut tickets: Vec<_> = (0..PER_USER_MAX).map(|_| gate.enter(1)).collect();
        let (mut other, mut late) = (gate.enter(2), gate.enter(1));
        assert!(!must_go(&mut other) && !must_go(&mut late));
        assert!(must_go(&mut tickets[0]) && !must_go(&mut tickets[1]), "the oldest of the same user goes");
    }

    #[test]
    fn many_users_are_bounded_altogether() {
        let mut gate = Gate::new();
        let mut tickets: Vec<_> = (0..=ALL_MAX as u32).map(|uid| gate.enter(uid)).collect();
        assert!(must_go(&mut tickets[0]) && !must_go(&mut tickets[1]));
        tickets.clear();
        gate.enter(7);
        assert_eq!(gate.users.len(), 1);
    }
}
