//! The process's categories and routes: by name without a lock, added under the truth's.

use super::table::Table;
use super::{PAGE, Truth, lock};
use runtime_core_abi::page::{CATEGORIES_MAX, CATEGORY_EXHAUSTED, NAME_BYTES_MAX, Names, ROUTES_MAX, WELL_KNOWN};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize};

/// Category names, by index.
pub(super) static CATEGORIES: Table<CATEGORIES_MAX> = empty();
/// Route templates, by index less one: index 0 says that no route is known.
static ROUTES: Table<{ ROUTES_MAX - 1 }> = empty();

const fn empty<const N: usize>() -> Table<N> {
    Table { slots: [const { AtomicPtr::new(ptr::null_mut()) }; N], len: AtomicUsize::new(0) }
}

/// The index of a category, added where it is new; [`CATEGORY_EXHAUSTED`] where there is no
/// room, or for a name too long to publish. Takes a lock only to add.
pub(crate) fn category_index(name: &str) -> usize {
    // Before looking: a table that fills up in between may have taken just this name.
    let full = CATEGORIES.is_full();
    let hopeless = full || name.is_empty() || name.len() > NAME_BYTES_MAX;
    let add = || if hopeless { None } else { lock().add_category(name) };
    CATEGORIES.find(name).or_else(add).unwrap_or(CATEGORY_EXHAUSTED)
}

/// The name of a category; `None` for the exhausted slot, which many share.
pub(crate) fn category_name(index: usize) -> Option<&'static str> {
    CATEGORIES.get(index)
}

/// How many categories there are.
pub(crate) fn category_count() -> usize {
    // The well-known ones are there from the first use of the page.
    drop((CATEGORIES.len() == 0).then(lock));
    CATEGORIES.len()
}

/// The index of a route template, added where it is new; 0 where there is no room.
pub(crate) fn route_index(template: &str) -> u16 {
    let full = ROUTES.is_full();
    let add = || if full { None } else { lock().add_route(template) };
    ROUTES.find(template).or_else(add).map_or(0, |index| index as u16 + 1)
}

/// A route's template.
pub(crate) fn route_name(index: u16) -> Option<&'static str> {
    ROUTES.get(usize::from(index).checked_sub(1)?)
}

impl Truth {
    pub(super) fn add_well_known(&mut self) {
        for name in WELL_KNOWN {
            self.add_category(name);
        }
    }

    fn add_category(&mut self, name: &str) -> Option<usize> {
        let index = CATEGORIES.find_or_add(name, |index| self.publish(Names::Categories, index, name))?;
        self.refresh_own(index);
        self.inherit(index, name);
        Some(index)
    }

    fn add_route(&mut self, template: &str) -> Option<usize> {
        ROUTES.find_or_add(template, |index| self.publish(Names::Routes, index + 1, template))
    }

    /// Writes a name into the truth and into the page; `false` where there is no room.
    fn publish(&mut self, table: Names, index: usize, name: &str) -> bool {
        let name = name.as_bytes();
        let Some(used) = self.published.publish_name(table, index, name, self.arena_used) else { return false };
        PAGE.publish_name(table, index, name, self.arena_used);
        self.arena_used = used;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::tests_alone;

    #[test]
    fn names_get_stable_indexes() {
        let _alone = tests_alone();
        assert_eq!(category_index("node.http"), runtime_core_abi::page::NODE_HTTP);
        let first = category_index("test.first");
        let second = category_index("test.second");
        assert!(second > first);
        assert_eq!(category_index("test.first"), first);
        assert_eq!(category_name(first), Some("test.first"));
        assert_eq!(category_index(&"x".repeat(500)), CATEGORY_EXHAUSTED);
        assert_eq!(category_index(""), CATEGORY_EXHAUSTED);
        let route = route_index("/test/{id}");
        assert!(route > 0);
        assert_eq!(route_index("/test/{id}"), route);
        assert_eq!(route_name(route), Some("/test/{id}"));
        assert_eq!((route_name(0), route_index("")), (None, 0));
    }

    #[test]
    fn a_known_name_is_found_while_another_thread_adds() {
        let _alone = tests_alone();
        let known = category_index("test.known");
        let _adding = lock();
        std::thread::scope(|scope| {
            assert_eq!(scope.spawn(|| category_index("test.known")).join().unwrap(), known);
        });
    }
}
