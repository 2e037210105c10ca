//! Limits how many registrations are unfinished at once, so that nobody who keeps
//! connections open keeps others out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Unfinished registrations of one user.
const PER_USER_MAX: usize = 64;
/// Unfinished registrations altogether.
const ALL_MAX: usize = 512;

/// See the module.
#[derive(Debug, Default)]
pub struct Gate(Arc<Mutex<HashMap<u32, usize>>>);

/// An unfinished registration; it ends with this value.
#[derive(Debug)]
pub struct Ticket {
    inside: Arc<Mutex<HashMap<u32, usize>>>,
    uid: u32,
}

impl Gate {
    /// Lets a registration in, where there is room.
    pub fn enter(&self, uid: u32) -> Option<Ticket> {
        let mut inside = self.0.lock().expect("no panic while the gate is locked");
        if inside.values().sum::<usize>() >= ALL_MAX {
            return None;
        }
        let of_user = inside.entry(uid).or_default();
        if *of_user >= PER_USER_MAX {
            return None;
        }
        *of_user += 1;
        Some(Ticket { inside: Arc::clone(&self.0), uid })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut inside = self.inside.lock().expect("no panic while the gate is locked");
        if let Some(of_user) = inside.get_mut(&self.uid) {
            *of_user -= 1;
            if *of_user == 0 {
                inside.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_does_not_keep_others_out() {
        let gate = Gate::default();
        let mut tickets: Vec<_> = (0..PER_USER_MAX).map(|_| gate.enter(1).unwrap()).collect();
        assert!(gate.enter(1).is_none());
        assert!(gate.enter(2).is_some());
        tickets.pop();
        assert!(gate.enter(1).is_some());
        drop(tickets);
        assert!(gate.0.lock().unwrap().is_empty());
    }
}
