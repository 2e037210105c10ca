//! Trace categories and events.
//!
//! A [`Category`] is a row of the page; whether it is on is one compare ([`crate::check`]).
//! Three parties switch it on, each by a byte of its own: the program ([`enable`],
//! [`Category::set_enabled`], a [`Session`]), an operator, and a trigger in the kernel.
//!
//! Events go to rings of the calling thread: to the agent's while somebody outside the
//! process asked for them, to the process's own while a [`Session`] writes them to a file, to
//! both where both did. A category that only the program switched on is for the program's
//! own code to look at: nobody would read its events.
//!
//! Write events by the macros ([`trace_instant!`](crate::trace_instant) and its sisters),
//! which evaluate no argument while the category is off, or by [`Span`].

mod category;
mod filter;
pub mod lane;
mod macros;
pub mod session;
mod span;

pub use category::{Category, Enabled, Named, Traced, enable, flags};
pub use filter::{BadFilter, DISABLED_BY_DEFAULT, Filter};
pub use runtime_core_abi::page::{NODE_HTTP, Phase};
pub use runtime_core_abi::record::{Json, Value};
pub use session::Session;
pub use span::Span;

use crate::page;
use crate::sys::process::monotonic_ns;
use lane::Reader;
use runtime_core_abi::record::Head;

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

/// The time that events are stamped with: `CLOCK_MONOTONIC`, in nanoseconds.
#[inline]
pub fn now_ns() -> u64 {
    monotonic_ns()
}

/// Writes one event, stamped now, to whoever asked for the category's events. `phase` is one
/// of Chrome's letters; of these `b`, `n` and `e` belong to the operation that `id` names.
#[inline]
pub fn event(category: Category, phase: u8, name: &str, id: u64, args: &[(&str, Value<'_>)]) {
    if page::wanted(category.index()).any() {
        let mut head = Head { phase, category: category.index() as u16, id, ..Head::default() };
        lane::stamp(&mut head);
        write(&head, name, args);
    }
}

/// Writes one event for something that began at `begin_ns` ([`now_ns`]) and ends now.
#[inline]
pub fn complete(category: Category, name: &str, begin_ns: u64, args: &[(&str, Value<'_>)]) {
    if page::wanted(category.index()).any() {
        let mut head = Head { phase: b'X', category: category.index() as u16, ..Head::default() };
        lane::stamp(&mut head);
        // Of this phase the id is the duration.
        head.id = head.ts_ns.saturating_sub(begin_ns);
        head.ts_ns = begin_ns;
        write(&head, name, args);
    }
}

#[cold]
fn write(head: &Head, name: &str, args: &[(&str, Value<'_>)]) {
    let wanted = page::wanted(head.category.into());
    for (reader, wants) in [(Reader::Agent, wanted.agent), (Reader::Own, wanted.own)] {
        if wants {
            lane::push(reader, head, name, args);
        }
    }
}
