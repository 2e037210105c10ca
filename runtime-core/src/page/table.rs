//! Names by index: added under a lock, found without one, never changed and never moved.
//!
//! A reader sees a name once the length that covers it is published, and from then on for
//! ever: names are leaked on purpose, as the indexes are handed out for the process's life.

// The atomics come from the parent, so that a model checker can put its own in their place.
use super::sync::{AtomicPtr, AtomicUsize, Ordering};

/// A table of at most `N` names.
pub(crate) struct Table<const N: usize> {
    pub(super) slots: [AtomicPtr<Box<str>>; N],
    pub(super) len: AtomicUsize,
}

impl<const N: usize> Table<N> {
    /// The index of a name. Takes no lock and writes nothing.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        (0..self.len()).find(|index| self.get(*index) == Some(name))
    }

    /// The name at an index.
    pub(crate) fn get(&self, index: usize) -> Option<&'static str> {
        if index >= self.len() {
            return None;
        }
        let name = self.slots[index].load(Ordering::Relaxed);
        // SAFETY: a slot below the length was filled before that length was published, with a
        // name that is never freed.
        Some(unsafe { &*name })
    }

    /// How many names there are.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Whether no more names fit.
    pub(crate) fn is_full(&self) -> bool {
        self.len() == N
    }

    /// The index of a name, added behind the last one where it is new. `None` where the table
    /// is full, or where `publish`, which is told the new index before anybody can find it,
    /// says that there is no room. The caller holds the lock that serialises adding.
    pub(crate) fn find_or_add(&self, name: &str, publish: impl FnOnce(usize) -> bool) -> Option<usize> {
        if let Some(index) = self.find(name) {
            return Some(index);
        }
        let index = self.len();
        if index == N || !publish(index) {
            return None;
        }
        self.slots[index].store(Box::into_raw(Box::new(name.into())), Ordering::Relaxed);
        self.len.store(index + 1, Ordering::Release);
        Some(index)
    }
}
