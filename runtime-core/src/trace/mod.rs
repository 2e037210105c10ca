//! Trace categories and events.
//!
//! A category is a row of the page; whether it is on is one compare ([`crate::check`]).
//! Events go to the calling thread's ring, and only while somebody outside the process asked
//! for them: the process's own byte alone makes a category "on" for the embedder's code, but
//! nobody would read the events.

pub mod lane;

use crate::{check, page};
use runtime_core_abi::page::CATEGORY_EXHAUSTED;
pub use runtime_core_abi::page::{NODE_HTTP, Phase};
use runtime_core_abi::record::Head;
pub use runtime_core_abi::record::Value;

/// A trace category. Cheap to copy, good for the life of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Category(usize);

impl Category {
    /// `node.http`, which every process has.
    pub const NODE_HTTP: Self = Self(NODE_HTTP);

    /// The category of that name, added where it is new. When the table is full, and for a
    /// name that is empty or longer than 128 bytes, it is one that is never on.
    pub fn named(name: &str) -> Self {
        Self(page::category_index(name))
    }

    /// Its row in the page.
    pub fn index(self) -> usize {
        self.0
    }

    /// Whether it shares the slot that is never on.
    pub fn is_exhausted(self) -> bool {
        self.0 == CATEGORY_EXHAUSTED
    }

    /// Whether anybody has it on. For [`Category::NODE_HTTP`] and others whose index is known
    /// when the program is built, [`check::enabled`] saves loading the address.
    #[inline(always)]
    pub fn enabled(self) -> bool {
        // SAFETY: the address of an enable word of the page, whatever the index.
        unsafe { check::enabled_at(page::PAGE.enable_word(self.0)) }
    }

    /// Switches the process's own byte: the category stays on for the process itself, whoever
    /// else comes and goes.
    pub fn set_enabled(self, on: bool) {
        page::set_own(self.0, on);
    }
}

/// A route template, such as `/users/{id}`, that requests can be labelled with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Route(u16);

impl Route {
    /// No route known.
    pub const NONE: Self = Self(0);

    /// The route with that template, added where it is new; [`Route::NONE`] where there is no
    /// room for it.
    pub fn named(template: &str) -> Self {
        Self(page::route_index(template))
    }

    /// Its row in the page.
    pub fn index(self) -> u16 {
        self.0
    }
}

/// Writes one event, stamped now, if somebody asked for the category's events.
#[inline]
pub fn event(category: Category, phase: u8, name: &str, id: u64, args: &[(&str, Value<'_>)]) {
    if page::events_wanted(category.0) {
        let head = Head { phase, category: category.0 as u16, id, ..Head::default() };
        lane::push(head, name, args);
    }
}

/// An operation with a begin event and an end event: both are written or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    category: Category,
    name: &'static str,
    id: u64,
    begun: Begun,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begun {
    /// Nobody had asked: no end either.
    Not,
    /// Written to the rings of that generation.
    Written(u32),
    /// Lost for want of room: the end is counted as lost too.
    Lost(u32),
}

impl Span {
    /// Begins an operation. Costs a look at one word while nobody asks for the events.
    #[inline]
    pub fn begin(category: Category, name: &'static str, id: u64, args: &[(&str, Value<'_>)]) -> Self {
        let begun = if page::events_wanted(category.0) { begin(category, name, id, args) } else { Begun::Not };
        Self { category, name, id, begun }
    }

    /// Whether an end is owed.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.begun != Begun::Not
    }

    /// Ends it, also when the category has been switched off since. Where the agent that was
    /// told of the beginning is gone there is nobody to tell the end.
    pub fn end(self, route: Route, args: &[(&str, Value<'_>)]) {
        match self.begun {
            Begun::Written(generation) if lane::generation() == generation => {
                let head = Head {
                    phase: b'e',
                    category: self.category.0 as u16,
                    id: self.id,
                    route: route.0,
                    ..Head::default()
                };
                lane::push(head, self.name, args);
            }
            Begun::Lost(generation) if lane::generation() == generation => lane::lose(),
            Begun::Not | Begun::Written(_) | Begun::Lost(_) => {}
        }
    }
}

#[cold]
fn begin(category: Category, name: &str, id: u64, args: &[(&str, Value<'_>)]) -> Begun {
    let head = Head { phase: b'b', category: category.0 as u16, id, ..Head::default() };
    let written = lane::push(head, name, args);
    let generation = lane::generation();
    if written { Begun::Written(generation) } else { Begun::Lost(generation) }
}
