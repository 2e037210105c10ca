//! Trace categories: a row of the page each, good for the life of the process.

use super::Filter;
use crate::check::{self, Word};
use crate::page;
use runtime_core_abi::page::{CATEGORIES_MAX, CATEGORY_EXHAUSTED, NODE_HTTP};
use std::sync::atomic::AtomicU8;

/// A trace category. Cheap to copy, good for the life of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Category(usize);

impl Category {
    /// `node.http`, which every process has.
    pub const NODE_HTTP: Self = Self(NODE_HTTP);

    /// The category of that name, added where it is new. When the table is full, and for a
    /// name that is empty or longer than 128 bytes, it is one that is never on.
    ///
    /// A name that is a list, such as `node,node.http`, is a category of its own that is on
    /// when any of its parts is.
    ///
    /// Takes a lock only to add; looking at most 200 names up is still no way to ask whether
    /// a category is on: keep the value, or use [`Named`].
    pub fn named(name: &str) -> Self {
        Self(page::category_index(name))
    }

    /// The category at an index of the table; `None` where there is none yet.
    pub fn at(index: usize) -> Option<Self> {
        (index < page::category_count()).then_some(Self(index))
    }

    /// Every category there is, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..page::category_count()).map(Self)
    }

    /// Its row in the page: 0 to 199, and 200 for the slot that is never on.
    pub fn index(self) -> usize {
        self.0
    }

    /// Its name; `None` for the slot that is never on, which has many.
    pub fn name(self) -> Option<&'static str> {
        page::category_name(self.0)
    }

    /// Whether it shares the slot that is never on.
    pub fn is_exhausted(self) -> bool {
        self.0 == CATEGORY_EXHAUSTED
    }

    /// Whether anybody has it on. For [`Category::NODE_HTTP`] and others whose index is known
    /// when the program is built, [`check::enabled`] saves loading the address.
    #[inline(always)]
    pub fn enabled(self) -> bool {
        check::enabled_index(self.0)
    }

    /// Switches it for the process itself, and with it every list that names it: it stays on
    /// whoever else comes and goes. Switching it off leaves it on where a filter
    /// ([`enable`]), a recording, or somebody outside the process has it on.
    pub fn set_enabled(self, on: bool) {
        page::set_own(self.0, on);
    }
}

/// The enable flags of all categories, by index: four bytes each, one an owner (the process,
/// an operator, a trigger in the kernel, nobody yet). A category is on when any is not zero.
///
/// These are the live bytes. The array never moves and is never freed: when the process joins
/// an agent or leaves it, other memory is put in place under the same address. The slot behind
/// the last category, 200, is never on. To ask for one category [`Category::enabled`] is the
/// cheaper way.
pub fn flags() -> &'static [[AtomicU8; 4]; CATEGORIES_MAX + 1] {
    page::PAGE.enable_words()
}

/// Keeps what a filter matches switched on for the process, until it is dropped.
#[derive(Debug)]
#[must_use = "dropping it switches the categories off again"]
pub struct Enabled(u64);

/// Switches on, for the process itself, every category that the filter matches, those that
/// are added later included. What several filters ask for adds up.
///
/// Nothing is written anywhere on this account: it is for code that asks
/// [`Category::enabled`]. To have the events in a file start a [`Session`](super::Session).
pub fn enable(filter: Filter) -> Enabled {
    Enabled(page::add_filter(filter))
}

impl Drop for Enabled {
    fn drop(&mut self) {
        page::remove_filter(self.0);
    }
}

/// A category in a static, looked up by its name when it is first asked for.
///
/// ```
/// use runtime_core::trace::Named;
/// static JOBS: Named = Named::new("my.jobs");
/// assert!(!JOBS.enabled());
/// ```
#[derive(Debug)]
pub struct Named {
    name: &'static str,
    word: Word,
}

impl Named {
    /// The category of that name. Adds nothing to the table yet.
    pub const fn new(name: &'static str) -> Self {
        Self { name, word: Word::unresolved() }
    }

    /// Whether anybody has it on: one compare, at an address that is loaded.
    #[inline(always)]
    pub fn enabled(&self) -> bool {
        self.word.is_on() && self.resolve().enabled()
    }

    /// The category, added to the table where it is new.
    pub fn category(&self) -> Category {
        self.resolve()
    }

    #[cold]
    fn resolve(&self) -> Category {
        let category = Category::named(self.name);
        self.word.resolve(category.0);
        category
    }
}

/// What a trace macro takes for a category.
pub trait Traced {
    /// Whether anybody has it on.
    fn is_on(&self) -> bool;
    /// Which it is.
    fn get(&self) -> Category;
}

impl Traced for Category {
    #[inline(always)]
    fn is_on(&self) -> bool {
        self.enabled()
    }

    fn get(&self) -> Category {
        *self
    }
}

impl Traced for Named {
    #[inline(always)]
    fn is_on(&self) -> bool {
        self.enabled()
    }

    fn get(&self) -> Category {
        self.category()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::tests_alone;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_named_category_is_added_when_it_is_first_asked_for() {
        let _alone = tests_alone();
        static NAMED: Named = Named::new("category.named");
        assert!(Category::all().all(|category| category.name() != Some("category.named")));
        assert!(!NAMED.enabled());
        let category = NAMED.category();
        assert_eq!((category.name(), Category::at(category.index())), (Some("category.named"), Some(category)));
        category.set_enabled(true);
        assert!(NAMED.enabled() && category.enabled());
        category.set_enabled(false);
        assert!(!NAMED.enabled());
    }

    #[test]
    fn one_that_is_on_before_it_is_asked_for_is_seen_at_once() {
        let _alone = tests_alone();
        static NAMED: Named = Named::new("category.early");
        let enabled = enable("category.*".parse().unwrap());
        assert!(NAMED.enabled());
        drop(enabled);
        assert!(!NAMED.enabled());
    }

    #[test]
    fn the_flags_are_the_live_bytes() {
        let _alone = tests_alone();
        let category = Category::named("category.flags");
        let flag = &flags()[category.index()][0];
        category.set_enabled(true);
        assert_eq!(flag.load(Ordering::Relaxed), 1);
        page::go_private().unwrap();
        assert_eq!(flag.load(Ordering::Relaxed), 1, "under the same address after the page has changed");
        category.set_enabled(false);
        assert_eq!(flag.load(Ordering::Relaxed), 0);
        flag.store(1, Ordering::Relaxed);
        assert!(category.enabled(), "a store by whoever holds the array is seen at once");
        flag.store(0, Ordering::Relaxed);
    }
}
