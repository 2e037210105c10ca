//! The page of this process: a static, over which an agent's page can be moved and taken away.
//!
//! **Truth is private.** What the process itself knows (its own enable bytes, its names, who
//! has which lane) lives in `Truth`, under one lock, and is written into each page before
//! that page is moved over the static. Threads run at full speed meanwhile: what they store
//! into a page that is just being replaced is lost with it, and they notice by the page's
//! generation and write it again. The lock is taken by those who add a name, claim a lane,
//! or see a new generation; never in the steady state.
//!
//! A shared object that holds this static must not be unloaded (link it with `-z nodelete`).

mod fork;
mod names;
mod rings;
#[cfg(test)]
mod storm;
mod switches;
mod table;
mod wanted;

/// What [`table`] is made of.
mod sync {
    pub(in crate::page) use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
}

pub(crate) use fork::watch_forks;
pub(crate) use names::{category_count, category_index, category_name, route_index, route_name};
pub(crate) use rings::Rings;
pub use rings::RingsRefused;
pub(crate) use switches::{
    OWN_RECORDING, add_filter, recording_epoch, recording_rings, remove_filter, set_own, set_recording,
};
pub(crate) use wanted::wanted;

use crate::sys::memory::{self, Mapping, Unstable};
use runtime_core_abi::page::{
    CATEGORY_EXHAUSTED, LANE_PROBES_MAX, LANES_MAX, Lane, Owner, PAGE_BYTES, Page, PageMismatch,
};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use switches::Switches;

/// The page. Its own memory at first; an agent's while the process has joined one.
pub static PAGE: Page = Page::zeroed();

static TRUTH: Mutex<Truth> = Mutex::new(Truth::new());

/// Events of threads without a lane or without a ring, since the process started.
static EVENTS_UNLANED: AtomicU64 = AtomicU64::new(0);

/// What the process knows of itself, whatever page is mapped.
struct Truth {
    /// Own enable bytes and names, laid out as they are published.
    published: Page,
    /// Bytes of the names' arena in use; 0 until the first use of the page.
    arena_used: usize,
    switches: Switches,
    generation: u32,
    /// The thread that has each lane; 0 for none.
    owners: [u32; LANES_MAX],
    /// The last id that each lane's threads gave out.
    ids: [u64; LANES_MAX],
    threads_unlabelled: u64,
    rings: Option<Arc<Rings>>,
}

impl Truth {
    const fn new() -> Self {
        Self {
            published: Page::zeroed(),
            arena_used: 0,
            switches: Switches::new(),
            generation: 0,
            owners: [0; LANES_MAX],
            ids: [0; LANES_MAX],
            threads_unlabelled: 0,
            rings: None,
        }
    }

    /// Writes all of it into a page.
    fn write_to(&self, page: &Page) {
        page.header.generation.store(self.generation, Ordering::Release);
        page.header.pid.store(std::process::id(), Ordering::Relaxed);
        page.header.threads_unlabelled.store(self.threads_unlabelled, Ordering::Relaxed);
        page.header.events_unlaned.store(EVENTS_UNLANED.load(Ordering::Relaxed), Ordering::Relaxed);
        for category in 0..=CATEGORY_EXHAUSTED {
            let own = self.published.enable_byte(category, Owner::Process).load(Ordering::Relaxed);
            page.enable_byte(category, Owner::Process).store(own, Ordering::Relaxed);
        }
        page.copy_names(&self.published);
        for (lane, owner) in page.lanes.iter().zip(self.owners) {
            clear(lane, owner);
        }
    }

    /// Moves memory that holds a page over the static.
    fn swap_in(&self, mapping: Mapping) -> io::Result<()> {
        let target = (&raw const PAGE).cast::<u8>().cast_mut();
        // SAFETY: the static is page aligned, exactly PAGE_BYTES long, made of atomics alone, and
        // what must survive of it is in the truth.
        let moved = unsafe { mapping.move_over(target) };
        if moved.is_err() {
            // The kernel may have refused after it had unmapped the static.
            // SAFETY: as above.
            unsafe { memory::zeros_over(target, PAGE_BYTES)? };
            PAGE.stamp();
            self.write_to(&PAGE);
        }
        moved
    }

    /// Gives the process memory of its own again. Does only what a signal handler may.
    fn swap_private(&mut self) -> io::Result<()> {
        let mapping = Mapping::private(PAGE_BYTES)?;
        self.generation = self.generation.wrapping_add(1);
        let page = page_in(&mapping);
        page.stamp();
        self.write_to(page);
        self.swap_in(mapping)
    }
}

fn lock() -> MutexGuard<'static, Truth> {
    let mut truth = TRUTH.lock().unwrap_or_else(PoisonError::into_inner);
    if truth.arena_used == 0 {
        PAGE.stamp();
        PAGE.header.pid.store(std::process::id(), Ordering::Relaxed);
        truth.add_well_known();
    }
    truth
}

fn page_in(mapping: &Mapping) -> &Page {
    debug_assert!(mapping.bytes() == PAGE_BYTES);
    // SAFETY: the mapping is page aligned, PAGE_BYTES long, and lives as long as the borrow;
    // any bytes are a page, which is made of atomics alone.
    unsafe { &*mapping.base().cast::<Page>() }
}

fn clear(lane: &Lane, owner: u32) {
    lane.phase.store(0, Ordering::Relaxed);
    lane.request_id.store(0, Ordering::Relaxed);
    lane.route.store(0, Ordering::Relaxed);
    lane.async_id.store(0, Ordering::Relaxed);
    lane.phase_since_ns.store(0, Ordering::Relaxed);
    lane.request_since_ns.store(0, Ordering::Relaxed);
    lane.tid.store(owner, Ordering::Release);
}

/// Why an agent's page was not taken; the process goes on with its own.
#[derive(Debug, thiserror::Error)]
pub enum PageRefused {
    /// Its memory could go away.
    #[error("the agent's page is not safe to map: {0}")]
    Unstable(#[source] Unstable),
    /// It cannot be mapped, or not over the static.
    #[error("cannot map the agent's page: {0}")]
    Map(#[source] io::Error),
    /// It is no page that this build knows.
    #[error("{0}")]
    Mismatch(#[source] PageMismatch),
}

/// Takes the page behind `fd`: maps it elsewhere, checks it, writes the process's truth into
/// it and moves it over the static. Where that fails, all stays as it was.
pub fn install(fd: BorrowedFd<'_>) -> Result<(), PageRefused> {
    install_with(fd, None)
}

/// [`install`], with rings for the events.
pub(crate) fn install_with(fd: BorrowedFd<'_>, rings: Option<Arc<Rings>>) -> Result<(), PageRefused> {
    memory::check_stable(fd, PAGE_BYTES).map_err(PageRefused::Unstable)?;
    let mapping = Mapping::shared(fd, PAGE_BYTES).map_err(PageRefused::Map)?;
    mapping.populate().map_err(PageRefused::Map)?;
    let page = page_in(&mapping);
    page.check().map_err(PageRefused::Mismatch)?;
    let mut truth = lock();
    truth.generation = truth.generation.wrapping_add(1);
    truth.write_to(page);
    let before = std::mem::replace(&mut truth.rings, rings);
    let swapped = truth.swap_in(mapping);
    if swapped.is_err() {
        truth.rings = None;
    }
    drop(truth);
    drop(before);
    swapped.map_err(PageRefused::Map)
}

/// Stores 0 to the operator's and the trigger's byte of every category. No system call, no
/// lock: the first thing to do when an agent is gone.
pub fn switch_off_foreign() {
    for category in 0..=CATEGORY_EXHAUSTED {
        PAGE.enable_byte(category, Owner::Operator).store(0, Ordering::Relaxed);
        PAGE.enable_byte(category, Owner::Trigger).store(0, Ordering::Relaxed);
    }
}

/// Leaves the agent's page: switches off what it had switched on, moves private memory over
/// the static, and gives the rings' memory back.
pub fn go_private() -> io::Result<()> {
    switch_off_foreign();
    let mut truth = lock();
    let rings = truth.rings.take();
    let swapped = truth.swap_private();
    drop(truth);
    // What a program in the kernel stored between the two steps went with the page.
    if let Some(rings) = rings {
        rings.give_back();
    }
    swapped
}

/// Counts an event that no ring could take, and publishes the count as it stands.
#[cold]
pub(crate) fn count_unlaned() {
    EVENTS_UNLANED.fetch_add(1, Ordering::SeqCst);
    // Another thread may publish an older count after this one: whoever stores last looks again.
    loop {
        let count = EVENTS_UNLANED.load(Ordering::SeqCst);
        PAGE.header.events_unlaned.store(count, Ordering::SeqCst);
        if EVENTS_UNLANED.load(Ordering::SeqCst) == count {
            return;
        }
    }
}

/// A lane as its thread sees it.
pub(crate) struct Held {
    /// Its index; `None` where the thread found none.
    pub lane: Option<usize>,
    /// The generation of the page it is written to.
    pub generation: u32,
    /// The last id that the lane gave out.
    pub last_id: u64,
    /// Where its events go.
    pub rings: Option<Arc<Rings>>,
}

/// Finds a free lane for a thread.
pub(crate) fn claim_lane(thread: u32) -> Held {
    let mut truth = lock();
    let lane = (0..LANE_PROBES_MAX).map(|probe| (thread as usize + probe) % LANES_MAX);
    let lane = lane.into_iter().find(|lane| truth.owners[*lane] == 0);
    match lane {
        Some(lane) => {
            truth.owners[lane] = thread;
            clear(&PAGE.lanes[lane], thread);
        }
        None => {
            truth.threads_unlabelled += 1;
            PAGE.header.threads_unlabelled.store(truth.threads_unlabelled, Ordering::Relaxed);
        }
    }
    let last_id = lane.map_or(0, |lane| truth.ids[lane]);
    Held { lane, generation: truth.generation, last_id, rings: truth.rings.clone() }
}

/// What has changed for the thread that holds a lane: the generation and the rings.
pub(crate) fn renew_lane() -> (u32, Option<Arc<Rings>>) {
    let truth = lock();
    // A page whose generation others overwrote would send every thread here for ever.
    PAGE.header.generation.store(truth.generation, Ordering::Release);
    (truth.generation, truth.rings.clone())
}

/// Frees a lane.
pub(crate) fn release_lane(lane: usize, last_id: u64) {
    let mut truth = lock();
    truth.owners[lane] = 0;
    truth.ids[lane] = last_id;
    clear(&PAGE.lanes[lane], 0);
}

/// Holds off other tests of this process that change the page.
#[cfg(test)]
pub(crate) fn tests_alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime_core_abi::page::Names;

    #[test]
    fn own_bytes_and_names_outlive_the_page() {
        let _alone = tests_alone();
        let category = category_index("test.outlives");
        set_own(category, true);
        PAGE.enable_byte(category, Owner::Operator).store(1, Ordering::Relaxed);
        PAGE.enable_byte(category, Owner::Trigger).store(1, Ordering::Relaxed);
        go_private().unwrap();
        assert_eq!(PAGE.enable_bytes(category), [1, 0, 0, 0]);
        let mut out = [0; 128];
        assert_eq!(PAGE.name(Names::Categories, category, &mut out), Some(&b"test.outlives"[..]));
        assert_eq!(PAGE.check(), Ok(()));
        set_own(category, false);
        assert_eq!(PAGE.enable_bytes(category), [0; 4]);
    }

    #[test]
    fn lanes_are_found_by_thread_id_and_probing() {
        let _alone = tests_alone();
        // Thread ids no real thread has.
        let threads: Vec<u32> = (0..=LANE_PROBES_MAX as u32).map(|n| 0x4000_0000 + 64 * n + 5).collect();
        let lanes: Vec<_> = threads.iter().map(|thread| claim_lane(*thread).lane).collect();
        let found: Vec<usize> = lanes.iter().flatten().copied().collect();
        assert!(found.iter().all(|lane| (5..5 + LANE_PROBES_MAX).contains(lane)));
        assert_eq!(lanes.last(), Some(&None), "one more than there are probes");
        assert!(PAGE.header.threads_unlabelled.load(Ordering::Relaxed) >= 1);
        for lane in found {
            assert_eq!(PAGE.lanes[lane].tid.load(Ordering::Relaxed) % 64, 5);
            release_lane(lane, 7);
            assert_eq!(PAGE.lanes[lane].tid.load(Ordering::Relaxed), 0);
        }
    }
}
