//! What the process itself wants to be on.
//!
//! Its byte of an enable word is a set of bits, as V8's is: [`OWN_FLAG`] for a category that
//! the program switched on, [`OWN_RECORDING`] for one whose events the process writes to a
//! file of its own. Both are computed from what was asked for, for every category there is,
//! and for each new one when it is added.
//!
//! A category whose name is a list (`node,node.http`) has a byte of its own and is on when
//! any of its parts is.

use super::names::CATEGORIES;
use super::{PAGE, Rings, Truth, lock};
use crate::trace::Filter;
use runtime_core_abi::page::{CATEGORIES_MAX, Owner};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// The program asked for the category.
pub(crate) const OWN_FLAG: u8 = 1;
/// The process records the category's events.
pub(crate) const OWN_RECORDING: u8 = 2;

/// Counts the recordings that began or ended; a thread that sees it change looks for its ring
/// anew.
static RECORDING_EPOCH: AtomicU32 = AtomicU32::new(0);

/// What was asked for.
pub(super) struct Switches {
    /// Switched on one by one.
    flags: [bool; CATEGORIES_MAX],
    /// Switched on by patterns, each under the number its guard knows.
    filters: Vec<(u64, Filter)>,
    filters_made: u64,
    recording: Option<(Filter, Arc<Rings>)>,
}

impl Switches {
    pub(super) const fn new() -> Self {
        Self { flags: [false; CATEGORIES_MAX], filters: Vec::new(), filters_made: 0, recording: None }
    }

    fn wanted(&self, index: usize, name: &str) -> u8 {
        let part_on = |part| CATEGORIES.find(part).is_some_and(|index| self.flags[index]);
        let flag = self.flags[index]
            || name.split(',').any(part_on)
            || self.filters.iter().any(|(_, filter)| filter.matches(name));
        let recorded = self.recording.as_ref().is_some_and(|(filter, _)| filter.matches(name));
        (OWN_FLAG * u8::from(flag)) | (OWN_RECORDING * u8::from(recorded))
    }
}

impl Truth {
    /// Computes the process's byte of a category anew. Never for the exhausted slot.
    pub(super) fn refresh_own(&self, index: usize) {
        let Some(name) = CATEGORIES.get(index) else { return };
        let byte = self.switches.wanted(index, name);
        for page in [&self.published, &PAGE] {
            page.enable_byte(index, Owner::Process).store(byte, Ordering::Relaxed);
        }
    }

    /// Gives a list that was just added what others have its parts on by: they stored their
    /// bytes before they could know of it. Looks twice, so that a part which goes off meanwhile
    /// leaves nothing on: who switches a part off clears it first, and then every list that has it.
    pub(super) fn inherit(&self, index: usize, name: &str) {
        if !name.contains(',') {
            return;
        }
        for owner in [Owner::Operator, Owner::Trigger] {
            let on = |part| PAGE.enable_byte(part, owner).load(Ordering::SeqCst) != 0;
            let any_on = || name.split(',').filter_map(|part| CATEGORIES.find(part)).any(on);
            // The name is there before the parts are looked at.
            fence(Ordering::SeqCst);
            if any_on() {
                PAGE.enable_byte(index, owner).store(1, Ordering::SeqCst);
                if !any_on() {
                    PAGE.enable_byte(index, owner).store(0, Ordering::SeqCst);
                }
            }
        }
    }

    fn refresh_all(&self) {
        for index in 0..CATEGORIES.len() {
            self.refresh_own(index);
        }
    }

    /// In the child of a `fork`, before its page is made: the parent has the file. Frees
    /// nothing, for the child may do only what a signal handler may.
    pub(super) fn forget_recording(&mut self) {
        if let Some(recording) = self.switches.recording.take() {
            recording.1.unmap_in_child();
            // Threads that are no more still count among the rings' owners: never dropped.
            std::mem::forget(recording);
        }
        RECORDING_EPOCH.fetch_add(1, Ordering::Relaxed);
        for index in 0..CATEGORIES_MAX {
            let byte = self.published.enable_byte(index, Owner::Process);
            byte.store(byte.load(Ordering::Relaxed) & !OWN_RECORDING, Ordering::Relaxed);
        }
    }
}

/// Switches one category for the process itself, and with it every list that names it.
pub(crate) fn set_own(category: usize, on: bool) {
    let mut truth = lock();
    if category < CATEGORIES_MAX {
        truth.switches.flags[category] = on;
        truth.refresh_all();
    }
}

/// Switches on what a filter matches, now and later; returns the number to end it with.
pub(crate) fn add_filter(filter: Filter) -> u64 {
    let mut truth = lock();
    truth.switches.filters_made += 1;
    let number = truth.switches.filters_made;
    truth.switches.filters.push((number, filter));
    truth.refresh_all();
    number
}

/// Ends what [`add_filter`] began.
pub(crate) fn remove_filter(number: u64) {
    let mut truth = lock();
    truth.switches.filters.retain(|(other, _)| *other != number);
    truth.refresh_all();
}

/// Begins or ends the process's own recording: what it records, and where threads write it.
pub(crate) fn set_recording(recording: Option<(Filter, Arc<Rings>)>) {
    let mut truth = lock();
    let before = std::mem::replace(&mut truth.switches.recording, recording);
    // The rings are there before the first byte is.
    RECORDING_EPOCH.fetch_add(1, Ordering::Release);
    truth.refresh_all();
    drop(truth);
    drop(before);
}

/// Which recording runs, in one load.
#[inline]
pub(crate) fn recording_epoch() -> u32 {
    RECORDING_EPOCH.load(Ordering::Acquire)
}

/// Which recording runs, and its rings.
pub(crate) fn recording_rings() -> (u32, Option<Arc<Rings>>) {
    let truth = lock();
    (recording_epoch(), truth.switches.recording.as_ref().map(|(_, rings)| rings.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{category_index, go_private, tests_alone};
    use runtime_core_abi::page::CATEGORY_EXHAUSTED;

    fn own(index: usize) -> u8 {
        PAGE.enable_byte(index, Owner::Process).load(Ordering::Relaxed)
    }

    #[test]
    fn a_list_is_on_when_any_part_is() {
        let _alone = tests_alone();
        let [part, other] = ["switch.part", "switch.other"].map(category_index);
        let list = category_index("switch,switch.part");
        set_own(part, true);
        assert_eq!((own(part), own(other), own(list)), (1, 0, 1));
        let late = category_index("switch.part,switch.late");
        assert_eq!(own(late), 1, "a list that is added later as well");
        set_own(part, false);
        assert_eq!((own(part), own(list), own(late)), (0, 0, 0));
        set_own(list, true);
        assert_eq!((own(part), own(list)), (0, 1), "a list does not switch its parts");
        set_own(list, false);
    }

    #[test]
    fn a_list_that_comes_late_is_on_for_the_operator_too() {
        let _alone = tests_alone();
        let part = category_index("switch.operated");
        PAGE.enable_byte(part, Owner::Operator).store(1, Ordering::Relaxed);
        let list = category_index("switch.any,switch.operated");
        let other = category_index("switch.any,switch.else");
        assert_eq!((PAGE.enable_bytes(list), PAGE.enable_bytes(other)), ([0, 1, 0, 0], [0; 4]));
        crate::page::switch_off_foreign();
        assert_eq!(PAGE.enable_bytes(list), [0; 4]);
    }

    #[test]
    fn filters_add_up_and_hold_for_later_categories() {
        let _alone = tests_alone();
        let first = category_index("filters.first");
        let numbers = ["filters.*", "filters.first"].map(|text| add_filter(text.parse().unwrap()));
        let later = category_index("filters.later");
        assert_eq!((own(first), own(later)), (1, 1));
        remove_filter(numbers[0]);
        assert_eq!((own(first), own(later)), (1, 0));
        go_private().unwrap();
        assert_eq!(own(first), 1, "whatever page is mapped");
        remove_filter(numbers[1]);
        assert_eq!(own(first), 0);
    }

    #[test]
    fn recording_is_a_bit_beside_the_flag() {
        let _alone = tests_alone();
        let category = category_index("switch.recorded");
        let rings = Arc::new(Rings::private(1, 1 << 16).unwrap());
        set_own(category, true);
        set_recording(Some(("switch.*".parse().unwrap(), rings)));
        assert_eq!(own(category), OWN_FLAG | OWN_RECORDING);
        assert_eq!(own(CATEGORY_EXHAUSTED), 0);
        set_recording(None);
        assert_eq!(own(category), OWN_FLAG);
        set_own(category, false);
    }
}
