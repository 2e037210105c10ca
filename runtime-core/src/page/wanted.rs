//! Who reads a category's events.

use super::{OWN_RECORDING, PAGE};
use runtime_core_abi::page::{CATEGORIES_MAX, Owner};
use std::sync::atomic::Ordering;

/// Who wants an event. With nobody there is nothing to write: a category that only the
/// program switched on is for the program's own code to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// A person or a program in the kernel, through the agent.
    pub agent: bool,
    /// The process, for its own file.
    pub own: bool,
}

impl Wanted {
    /// Whether anybody does.
    #[inline]
    pub fn any(self) -> bool {
        self.agent || self.own
    }
}

/// Who wants the events of a category.
#[inline]
pub(crate) fn wanted(category: usize) -> Wanted {
    let byte = |owner| PAGE.enable_byte(category, owner).load(Ordering::Relaxed);
    let there = category < CATEGORIES_MAX;
    Wanted {
        agent: there && (byte(Owner::Operator) | byte(Owner::Trigger)) != 0,
        own: there && byte(Owner::Process) & OWN_RECORDING != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{set_own, tests_alone};
    use runtime_core_abi::page::CATEGORY_EXHAUSTED;

    #[test]
    fn nobody_wants_the_exhausted_slot() {
        let _alone = tests_alone();
        set_own(CATEGORY_EXHAUSTED, true);
        assert_eq!(PAGE.enable_bytes(CATEGORY_EXHAUSTED), [0; 4]);
        assert!(!wanted(CATEGORY_EXHAUSTED).any());
    }
}
