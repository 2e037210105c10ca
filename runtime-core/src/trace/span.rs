//! An operation with a begin event and an end event.

use super::lane::{self, Reader};
use super::{Category, Route, Value};
use crate::page;
use runtime_core_abi::record::Head;

/// An operation with a begin event and an end event: a reader gets both or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    category: Category,
    name: &'static str,
    id: u64,
    agent: Owed,
    own: Owed,
}

/// What a reader is owed at the end, in the stay of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owed {
    /// It had not asked: no end either.
    Nothing,
    /// An end, for the beginning was written.
    End(u32),
    /// A loss: the beginning was lost for want of room, so the end counts as lost too.
    Loss(u32),
}

impl Span {
    /// Begins an operation. Costs a look at one word while nobody asks for the events.
    #[inline]
    pub fn begin(category: Category, name: &'static str, id: u64, args: &[(&str, Value<'_>)]) -> Self {
        let mut span = Self { category, name, id, agent: Owed::Nothing, own: Owed::Nothing };
        if page::wanted(category.index()).any() {
            span.write_begin(args);
        }
        span
    }

    #[cold]
    fn write_begin(&mut self, args: &[(&str, Value<'_>)]) {
        let wanted = page::wanted(self.category.index());
        let head = self.head(b'b', Route::NONE);
        let begin = |reader| match lane::push(reader, &head, self.name, args) {
            true => Owed::End(lane::stay(reader)),
            false => Owed::Loss(lane::stay(reader)),
        };
        let agent = if wanted.agent { begin(Reader::Agent) } else { Owed::Nothing };
        let own = if wanted.own { begin(Reader::Own) } else { Owed::Nothing };
        (self.agent, self.own) = (agent, own);
    }

    /// Whether an end is owed to anybody.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.agent != Owed::Nothing || self.own != Owed::Nothing
    }

    /// Ends it, also when the category has been switched off since. A reader that was told of
    /// the beginning and is gone is told no end.
    #[inline]
    pub fn end(self, route: Route, args: &[(&str, Value<'_>)]) {
        if self.is_open() {
            self.write_end(route, args);
        }
    }

    #[cold]
    fn write_end(self, route: Route, args: &[(&str, Value<'_>)]) {
        let head = self.head(b'e', route);
        for (reader, owed) in [(Reader::Agent, self.agent), (Reader::Own, self.own)] {
            match owed {
                Owed::End(stay) if lane::stay(reader) == stay => {
                    lane::push(reader, &head, self.name, args);
                }
                Owed::Loss(stay) if lane::stay(reader) == stay => lane::lose(reader),
                Owed::Nothing | Owed::End(_) | Owed::Loss(_) => {}
            }
        }
    }

    fn head(&self, phase: u8, route: Route) -> Head {
        let category = self.category.index() as u16;
        let mut head = Head { phase, category, id: self.id, route: route.index(), ..Head::default() };
        lane::stamp(&mut head);
        head
    }
}
