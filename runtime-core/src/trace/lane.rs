//! The calling thread's lane: what it is doing, and the ring its events go to.
//!
//! A thread claims a lane when it first has something to say and frees it at its end. Labels
//! are plain stores into one cache line. A thread that finds no lane goes unlabelled, and its
//! events are counted as lost.

use crate::page::{self, PAGE, Rings};
use crate::sys::process::{monotonic_ns, thread_id};
use crate::trace::{Route, Value, session};
use runtime_core_abi::page::{LANES_MAX, Lane, Phase};
use runtime_core_abi::record::Head;
use runtime_core_abi::ring::Producer;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// No lane yet.
const UNCLAIMED: usize = usize::MAX;
/// None to be had, or the thread is ending.
const NONE: usize = usize::MAX - 1;

/// An id is the lane's index above this bit and a count below it.
const ID_LANE_SHIFT: u32 = 48;
/// Ids of threads without a lane.
static IDS_UNLANED: AtomicU64 = AtomicU64::new(0);

/// What the thread knows of its lane. Without a destructor, so that it can be used to the
/// thread's very end.
struct Local {
    index: Cell<usize>,
    thread: Cell<u32>,
    generation: Cell<u32>,
    recording: Cell<u32>,
    last_id: Cell<u64>,
    phase: Cell<Phase>,
    request: Cell<u64>,
    route: Cell<Route>,
}

/// Who reads an event: each reader has a ring of its own in each lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// The agent.
    Agent,
    /// The process's own recording.
    Own,
}

/// A ring and a share of the rings' memory.
type Out = Option<(Producer, Arc<Rings>)>;

/// The thread's rings. Their end is the lane's end.
struct Writer {
    agent: Out,
    own: Out,
}

impl Writer {
    fn out(&mut self, reader: Reader) -> &mut Out {
        match reader {
            Reader::Agent => &mut self.agent,
            Reader::Own => &mut self.own,
        }
    }
}

thread_local! {
    static LOCAL: Local = const {
        Local {
            index: Cell::new(UNCLAIMED),
            thread: Cell::new(0),
            generation: Cell::new(0),
            recording: Cell::new(0),
            last_id: Cell::new(0),
            phase: Cell::new(Phase::Idle),
            request: Cell::new(0),
            route: Cell::new(Route::NONE),
        }
    };
    static WRITER: RefCell<Writer> = const { RefCell::new(Writer { agent: None, own: None }) };
}

impl Drop for Writer {
    fn drop(&mut self) {
        (self.agent, self.own) = (None, None);
        LOCAL.with(|local| {
            let index = local.index.replace(NONE);
            if index < LANES_MAX {
                page::release_lane(index, local.last_id.get());
            }
        });
    }
}

impl Local {
    /// The thread's lane in the page that is mapped now.
    #[inline]
    fn lane(&self) -> Option<&'static Lane> {
        let index = self.index.get();
        if index >= LANES_MAX {
            return None;
        }
        if PAGE.header.generation.load(Ordering::Acquire) != self.generation.get() {
            self.renew(index);
        }
        Some(&PAGE.lanes[index])
    }

    #[cold]
    fn claim(&self) {
        if self.index.get() != UNCLAIMED {
            return;
        }
        self.thread.set(thread_id());
        // At the thread's end, when nothing would free the lane, none is claimed.
        let claimed = WRITER.try_with(|writer| {
            let held = page::claim_lane(self.thread.get());
            self.index.set(held.lane.unwrap_or(NONE));
            self.generation.set(held.generation);
            self.last_id.set(held.last_id);
            if let Some(lane) = held.lane {
                set_rings(writer, Reader::Agent, held.rings, lane);
            }
        });
        if claimed.is_err() {
            self.index.set(NONE);
        }
    }

    #[cold]
    fn renew(&self, index: usize) {
        let (generation, rings) = page::renew_lane();
        self.generation.set(generation);
        let _ = WRITER.try_with(|writer| set_rings(writer, Reader::Agent, rings, index));
        let lane = &PAGE.lanes[index];
        lane.tid.store(self.thread.get(), Ordering::Relaxed);
        lane.phase.store(self.phase.get() as u32, Ordering::Relaxed);
        lane.request_id.store(self.request.get(), Ordering::Relaxed);
        lane.route.store(self.route.get().index().into(), Ordering::Relaxed);
    }

    /// Looks whether the thread's ring for a reader is still the one in use, and returns the
    /// number of that reader's present stay.
    #[inline]
    fn stay(&self, reader: Reader) -> u32 {
        match reader {
            Reader::Agent => {
                self.lane();
                self.generation.get()
            }
            Reader::Own => {
                if page::recording_epoch() != self.recording.get() {
                    self.renew_own();
                }
                self.recording.get()
            }
        }
    }

    #[cold]
    fn renew_own(&self) {
        let (epoch, rings) = page::recording_rings();
        self.recording.set(epoch);
        let _ = WRITER.try_with(|writer| set_rings(writer, Reader::Own, rings, self.index.get()));
    }
}

fn set_rings(writer: &RefCell<Writer>, reader: Reader, rings: Option<Arc<Rings>>, lane: usize) {
    // Busy only where a signal handler traces what it interrupted: the next renewal sees to it.
    if let Ok(mut writer) = writer.try_borrow_mut() {
        *writer.out(reader) = rings.and_then(|rings| Some((rings.producer(lane)?, rings)));
    }
}

/// Claims a lane for the calling thread, so that it is labelled from now on.
pub fn claim() {
    LOCAL.with(Local::claim);
}

/// Says what the thread does from now on.
#[inline]
pub fn set_phase(phase: Phase) {
    LOCAL.with(|local| {
        local.phase.set(phase);
        if let Some(lane) = local.lane() {
            lane.phase.store(phase as u32, Ordering::Relaxed);
        }
    });
}

/// Does `work` in a phase; after it the thread does what it did before.
#[inline]
pub fn in_phase<R>(phase: Phase, work: impl FnOnce() -> R) -> R {
    LOCAL.with(|local| {
        let Some(lane) = local.lane() else { return work() };
        // An entry into user code changes what the lane shows and not what `local` knows: both
        // are put back.
        let (known, shown) = (local.phase.replace(phase), lane.phase.load(Ordering::Relaxed));
        lane.phase.store(phase as u32, Ordering::Relaxed);
        let done = work();
        local.phase.set(known);
        if let Some(lane) = local.lane() {
            lane.phase.store(shown, Ordering::Relaxed);
        }
        done
    })
}

/// Says which request the thread serves from now on; 0 for none. Forgets the route.
#[inline]
pub fn set_request(id: u64) {
    LOCAL.with(|local| {
        local.request.set(id);
        local.route.set(Route::NONE);
        if let Some(lane) = local.lane() {
            lane.route.store(0, Ordering::Relaxed);
            lane.request_id.store(id, Ordering::Relaxed);
        }
    });
}

/// Says which route the request has.
#[inline]
pub fn set_route(route: Route) {
    LOCAL.with(|local| {
        local.route.set(route);
        if let Some(lane) = local.lane() {
            lane.route.store(route.index().into(), Ordering::Relaxed);
        }
    });
}

/// A number that no other operation of this process has; never 0.
#[inline]
pub fn next_id() -> u64 {
    LOCAL.with(|local| {
        if local.index.get() == UNCLAIMED {
            local.claim();
        }
        let (index, count) = match local.index.get() {
            index if index < LANES_MAX => (index, local.last_id.get() + 1),
            _ => (LANES_MAX, IDS_UNLANED.fetch_add(1, Ordering::Relaxed) + 1),
        };
        local.last_id.set(count);
        (index as u64) << ID_LANE_SHIFT | count
    })
}

/// The number of a reader's present stay. An operation that began in another one owes this
/// reader no end.
pub(crate) fn stay(reader: Reader) -> u32 {
    LOCAL.with(|local| local.stay(reader))
}

/// Stamps an event with the thread and the time.
#[inline]
pub(crate) fn stamp(head: &mut Head) {
    LOCAL.with(|local| {
        if local.index.get() == UNCLAIMED {
            local.claim();
        }
        head.tid = local.thread.get();
    });
    head.ts_ns = monotonic_ns();
}

/// Writes a stamped event to the thread's ring for a reader. `false`: it is lost, and counted.
pub(crate) fn push(reader: Reader, head: &Head, name: &str, args: &[(&str, Value<'_>)]) -> bool {
    with_producer(reader, |producer| producer.push(head, name.as_bytes(), args))
}

/// Counts an event as lost without writing it.
pub(crate) fn lose(reader: Reader) {
    with_producer(reader, |producer| {
        producer.lose();
        true
    });
}

#[inline]
fn with_producer(reader: Reader, work: impl FnOnce(&mut Producer) -> bool) -> bool {
    let done = LOCAL.with(|local| {
        if local.index.get() == UNCLAIMED {
            local.claim();
        }
        local.lane()?;
        local.stay(reader);
        let done = WRITER.try_with(|writer| {
            let mut writer = writer.try_borrow_mut().ok()?;
            let (producer, _) = writer.out(reader).as_mut()?;
            Some(work(producer))
        });
        done.ok().flatten()
    });
    done.unwrap_or_else(|| {
        match reader {
            Reader::Agent => page::count_unlaned(),
            Reader::Own => session::count_unlaned(),
        }
        false
    })
}

/// In the child of a `fork`: the lane was another thread's, the rings another process's.
pub(crate) fn forget_in_child() {
    let _ = WRITER.try_with(|writer| {
        if let Ok(mut writer) = writer.try_borrow_mut() {
            // Their memory is the parent's too, and unmapped with the page: not dropped here.
            std::mem::forget((writer.agent.take(), writer.own.take()));
        }
    });
    LOCAL.with(|local| {
        if local.index.get() != NONE {
            local.index.set(UNCLAIMED);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::tests_alone;

    fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    fn own_lane() -> Option<usize> {
        let thread = thread_id();
        PAGE.lanes.iter().position(|lane| lane.tid.load(Ordering::Relaxed) == thread)
    }

    #[test]
    fn labels_reach_the_page_and_outlive_a_swap() {
        let _alone = tests_alone();
        let lane = on_a_thread(|| {
            claim();
            set_phase(Phase::Parse);
            let id = next_id();
            set_request(id);
            set_route(Route::named("/lane/test"));
            page::go_private().unwrap();
            assert_eq!(PAGE.lanes[own_lane().unwrap()].phase.load(Ordering::Relaxed), 0);
            set_phase(Phase::User);
            let lane = own_lane().unwrap();
            assert_eq!(PAGE.lanes[lane].phase.load(Ordering::Relaxed), Phase::User as u32);
            assert_eq!(PAGE.lanes[lane].request_id.load(Ordering::Relaxed), id);
            assert_ne!(PAGE.lanes[lane].route.load(Ordering::Relaxed), 0);
            lane
        });
        assert_eq!(PAGE.lanes[lane].tid.load(Ordering::Relaxed), 0, "freed at the thread's end");
    }

    #[test]
    fn ids_are_never_given_twice() {
        let _alone = tests_alone();
        let mut all: Vec<u64> = (0..100).flat_map(|_| on_a_thread(|| [next_id(), next_id(), next_id()])).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 300);
        assert!(!all.contains(&0));
    }

    #[test]
    fn an_event_without_a_ring_is_counted() {
        let _alone = tests_alone();
        let before = PAGE.header.events_unlaned.load(Ordering::Relaxed);
        assert!(!on_a_thread(|| push(Reader::Agent, &Head::default(), "lost", &[])));
        assert_eq!(PAGE.header.events_unlaned.load(Ordering::Relaxed), before + 1);
    }

    #[test]
    fn a_destructor_late_in_a_thread_can_still_trace() {
        let _alone = tests_alone();
        struct Late;
        impl Drop for Late {
            fn drop(&mut self) {
                set_phase(Phase::Other);
                push(Reader::Agent, &Head::default(), "late", &[]);
                push(Reader::Own, &Head::default(), "late", &[]);
                next_id();
            }
        }
        thread_local!(static LATE: Late = const { Late });
        on_a_thread(|| {
            LATE.with(|_| ());
            claim();
        });
        let lanes = on_a_thread(|| {
            claim();
            LATE.with(|_| ());
            own_lane()
        });
        assert_eq!(PAGE.lanes[lanes.unwrap()].tid.load(Ordering::Relaxed), 0);
    }
}
