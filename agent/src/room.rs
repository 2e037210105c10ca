//! Room for so many clients at once. Who comes when it is full takes the place of the one
//! who has been inside for longest, so that nobody who keeps connections open keeps others
//! out: an honest client needs its place for milliseconds only.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot;

/// See the module.
#[derive(Debug)]
pub struct Room {
    places_max: usize,
    /// From the one who came first to the one who came last. Dropping one tells its place.
    inside: VecDeque<oneshot::Sender<()>>,
}

/// A place in a room; it ends with this value. As a future it is ready once the place is
/// given to somebody else.
#[derive(Debug)]
pub struct Place {
    given_away: oneshot::Receiver<()>,
    is_given_away: bool,
}

impl Room {
    /// A room of `places_max` places, at least one.
    pub fn new(places_max: usize) -> Self {
        Self { places_max, inside: VecDeque::new() }
    }

    /// Takes a place, if need be from who has been inside for longest.
    pub fn enter(&mut self) -> Place {
        self.forget_gone();
        if self.inside.len() >= self.places_max {
            self.inside.pop_front();
        }
        let (keep, given_away) = oneshot::channel();
        self.inside.push_back(keep);
        Place { given_away, is_given_away: false }
    }

    /// Whether nobody is inside.
    pub fn is_empty(&mut self) -> bool {
        self.forget_gone();
        self.inside.is_empty()
    }

    fn forget_gone(&mut self) {
        self.inside.retain(|one| !one.is_closed());
    }
}

impl Future for Place {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_given_away {
            // Nothing is ever sent: the sender goes, or it does not.
            let _ = ready!(Pin::new(&mut self.given_away).poll(cx));
            self.is_given_away = true;
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn is_given_away(place: &mut Place) -> bool {
        Pin::new(place).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_longest_inside_goes_first_and_who_left_makes_room() {
        let mut room = Room::new(2);
        let (mut first, mut second) = (room.enter(), room.enter());
        assert!(!is_given_away(&mut first));
        let third = room.enter();
        assert!(is_given_away(&mut first) && is_given_away(&mut first), "and stays so");
        assert!(!is_given_away(&mut second));
        drop(third);
        let fourth = room.enter();
        assert!(!is_given_away(&mut second));
        drop((second, fourth));
        assert!(room.is_empty());
    }
}
