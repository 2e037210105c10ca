//! The page: one value of 16 KiB, mapped over a static of the process.
//!
//! Both directions meet here. Downwards, the operator and the kernel switch categories
//! on by storing one byte; upwards, each thread says what it is doing in its lane.
//!
//! **Truth is private; the page is what is published.** A process keeps its own enable
//! bytes and names elsewhere and writes them again into each page that it maps.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// "tracebyt", read as a little-endian word.
pub const MAGIC: u64 = u64::from_le_bytes(*b"tracebyt");
/// Layout version. A reader refuses every other.
pub const VERSION: u32 = 1;
/// Size of the page in bytes.
pub const PAGE_BYTES: usize = 16 * 1024;

/// Categories by name; V8's own table has the same bound.
pub const CATEGORIES_MAX: usize = 200;
/// The slot that every name beyond [`CATEGORIES_MAX`] shares. It is never enabled.
pub const CATEGORY_EXHAUSTED: usize = CATEGORIES_MAX;
/// Lanes, hence threads that can be labelled at once.
pub const LANES_MAX: usize = 64;
/// How far a thread looks for a free lane from `tid % LANES_MAX`, and a reader for a
/// thread's lane. Bounded for the sake of a reader in the kernel.
pub const LANE_PROBES_MAX: usize = 8;
/// Route templates by index. Index 0 means "no route known".
pub const ROUTES_MAX: usize = 256;
/// The longest category or route name, in bytes.
pub const NAME_BYTES_MAX: usize = 128;
/// Room for all names of a page, in bytes.
pub const ARENA_BYTES: usize = PAGE_BYTES - 1024 - LANES_MAX * 64 - 4 * CATEGORIES_MAX - 4 * ROUTES_MAX;

/// Index of `node.http`, a category that every process has.
pub const NODE_HTTP: usize = 0;
/// Names of the categories with a fixed index, in order.
pub const WELL_KNOWN: [&str; 1] = ["node.http"];

/// Who asked for a category. Each owner stores only its own byte of the enable word, so
/// nobody needs a read-modify-write (the BPF target has none).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Owner {
    /// The program itself.
    Process = 0,
    /// A person, through the agent.
    Operator = 1,
    /// A program in the kernel.
    Trigger = 2,
    /// Nobody yet.
    Reserved = 3,
}

impl Owner {
    /// Every owner, in byte order.
    pub const ALL: [Self; 4] = [Self::Process, Self::Operator, Self::Trigger, Self::Reserved];

    /// The name shown to people and scripts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Operator => "operator",
            Self::Trigger => "trigger",
            Self::Reserved => "reserved",
        }
    }
}

/// What a thread is doing, as the sampler sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Phase {
    /// Outside the event loop.
    Idle = 0,
    /// Waiting for events.
    Poll = 1,
    /// Reading from a socket.
    Read = 2,
    /// Parsing a request.
    Parse = 3,
    /// In the embedder's code.
    User = 4,
    /// Building a buffer.
    Buffer = 5,
    /// Sending, by any system call.
    Writev = 6,
    /// Entering or leaving a callback.
    Callback = 7,
    /// Draining the tick queue.
    Tick = 8,
    /// Running a timer.
    Timer = 9,
    /// Anything else, and any number a reader does not know.
    Other = 10,
}

impl Phase {
    /// Every phase, by number.
    pub const ALL: [Self; 11] = [
        Self::Idle,
        Self::Poll,
        Self::Read,
        Self::Parse,
        Self::User,
        Self::Buffer,
        Self::Writev,
        Self::Callback,
        Self::Tick,
        Self::Timer,
        Self::Other,
    ];

    /// The phase with this number; [`Phase::Other`] for a number that names none.
    pub fn from_raw(raw: u32) -> Self {
        Self::ALL.get(raw as usize).copied().unwrap_or(Self::Other)
    }

    /// The name shown to people and scripts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Poll => "poll",
            Self::Read => "read",
            Self::Parse => "parse",
            Self::User => "user",
            Self::Buffer => "buffer",
            Self::Writev => "writev",
            Self::Callback => "callback",
            Self::Tick => "tick",
            Self::Timer => "timer",
            Self::Other => "other",
        }
    }
}

/// The first 64 bytes: magic, version and sizes are written by whoever creates the page,
/// the rest by the process.
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// [`PAGE_BYTES`].
    pub page_bytes: AtomicU32,
    /// Counts the pages that this process has mapped; a lane that sees it change writes
    /// itself anew.
    pub generation: AtomicU32,
    /// The process id as the process itself sees it.
    pub pid: AtomicU32,
    /// Threads that found no lane, since the process started.
    pub threads_unlabelled: AtomicU64,
    /// Events of threads without a lane, lost since the process started.
    pub events_unlaned: AtomicU64,
    reserved: [AtomicU64; 3],
}

/// One event-loop thread, in one cache line. Only that thread writes it.
#[repr(C, align(64))]
pub struct Lane {
    /// The thread id as the process sees it; 0 while the lane is free.
    pub tid: AtomicU32,
    /// A [`Phase`].
    pub phase: AtomicU32,
    /// The request being served; 0 for none.
    pub request_id: AtomicU64,
    /// Index into the route table; 0 for none.
    pub route: AtomicU32,
    reserved0: AtomicU32,
    /// The async id of the running callback; 0 for none.
    pub async_id: AtomicU64,
    /// Since when the phase runs, in nanoseconds of `CLOCK_MONOTONIC`; 0 when not kept.
    pub phase_since_ns: AtomicU64,
    /// Since when the request runs, in nanoseconds of `CLOCK_MONOTONIC`; 0 when not kept.
    pub request_since_ns: AtomicU64,
    reserved1: [AtomicU64; 1],
}

/// The whole page.
#[repr(C, align(4096))]
pub struct Page {
    /// Identity and process-wide figures.
    pub header: Header,
    enable: [[AtomicU8; 4]; CATEGORIES_MAX + 1],
    reserved: [AtomicU8; 1024 - 64 - 4 * (CATEGORIES_MAX + 1)],
    /// Lanes, found by thread id modulo [`LANES_MAX`], then by probing.
    pub lanes: [Lane; LANES_MAX],
    categories: [AtomicU32; CATEGORIES_MAX],
    routes: [AtomicU32; ROUTES_MAX],
    arena: [AtomicU8; ARENA_BYTES],
}

const _: () = assert!(size_of::<Header>() == 64);
const _: () = assert!(size_of::<Lane>() == 64);
const _: () = assert!(size_of::<Page>() == PAGE_BYTES);
const _: () = assert!(core::mem::offset_of!(Page, enable) == ENABLE_OFFSET);
const _: () = assert!(ARENA_BYTES <= u16::MAX as usize);
const _: () = assert!(WELL_KNOWN.len() <= CATEGORIES_MAX);

/// Where the enable words begin, in bytes from the start of the page.
pub const ENABLE_OFFSET: usize = 64;

/// Where the enable word of a category lies, in bytes from the start of the page.
pub const fn enable_word_offset(category: usize) -> usize {
    assert!(category <= CATEGORY_EXHAUSTED);
    ENABLE_OFFSET + 4 * category
}

/// Why a page is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageMismatch {
    /// Not a tracebyte page at all.
    Magic(u64),
    /// A layout this build does not know.
    Version(u32),
    /// Another size than this build's.
    Bytes(u32),
}

impl core::fmt::Display for PageMismatch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Magic(found) => write!(f, "the page's magic is {found:#x}, expected {MAGIC:#x}"),
            Self::Version(found) => write!(f, "the page's version is {found}, expected {VERSION}"),
            Self::Bytes(found) => write!(f, "the page has {found} bytes, expected {PAGE_BYTES}"),
        }
    }
}

impl core::error::Error for PageMismatch {}

/// Which of a page's two name tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Category names, by index.
    Categories,
    /// Route templates, by index; index 0 stays empty.
    Routes,
}

impl Page {
    /// A page of zeros, fit for a static.
    pub const fn zeroed() -> Self {
        // SAFETY: every field is an atomic integer or an array of them, for which all
        // zeros is a value.
        unsafe { core::mem::zeroed() }
    }

    /// Stamps magic, version and size, as whoever creates a page must.
    pub fn stamp(&self) {
        self.header.magic.store(MAGIC, Ordering::Relaxed);
        self.header.version.store(VERSION, Ordering::Relaxed);
        self.header.page_bytes.store(PAGE_BYTES as u32, Ordering::Release);
    }

    /// Whether this build can read the page.
    pub fn check(&self) -> Result<(), PageMismatch> {
        match self.header.magic.load(Ordering::Acquire) {
            MAGIC => {}
            other => return Err(PageMismatch::Magic(other)),
        }
        match self.header.version.load(Ordering::Relaxed) {
            VERSION => {}
            other => return Err(PageMismatch::Version(other)),
        }
        match self.header.page_bytes.load(Ordering::Relaxed) {
            bytes if bytes as usize == PAGE_BYTES => Ok(()),
            other => Err(PageMismatch::Bytes(other)),
        }
    }

    /// One owner's byte of a category. An index beyond the table means the exhausted slot.
    pub fn enable_byte(&self, category: usize, owner: Owner) -> &AtomicU8 {
        &self.enable[category.min(CATEGORY_EXHAUSTED)][owner as usize]
    }

    /// The four bytes of a category as one word, read one by one: a snapshot for showing.
    /// The check on the hot path is one compare in assembly, elsewhere.
    pub fn enable_bytes(&self, category: usize) -> [u8; 4] {
        Owner::ALL.map(|owner| self.enable_byte(category, owner).load(Ordering::Relaxed))
    }

    /// Every category's four bytes, the exhausted slot's last.
    pub fn enable_words(&self) -> &[[AtomicU8; 4]; CATEGORIES_MAX + 1] {
        &self.enable
    }

    /// The address of a category's enable word.
    #[inline]
    pub fn enable_word(&self, category: usize) -> *const u32 {
        self.enable[category.min(CATEGORY_EXHAUSTED)].as_ptr().cast()
    }

    /// Copies a name into `out`; `None` where the slot is empty or holds garbage. The
    /// bytes are the process's own and can be anything.
    pub fn name<'a>(&self, table: Names, index: usize, out: &'a mut [u8; NAME_BYTES_MAX]) -> Option<&'a [u8]> {
        let entry = self.names(table).get(index)?.load(Ordering::Acquire);
        let (offset, len) = ((entry >> 16) as usize, (entry & 0xffff) as usize);
        if len == 0 || len > NAME_BYTES_MAX || offset + len > ARENA_BYTES {
            return None;
        }
        for (to, from) in out.iter_mut().zip(&self.arena[offset..offset + len]) {
            *to = from.load(Ordering::Relaxed);
        }
        Some(&out[..len])
    }

    /// Publishes a name at `index`, its bytes at `arena_used`, and returns the new end of
    /// the used part; `None`, with nothing changed, where it does not fit. The caller
    /// serialises writers and keeps `arena_used`: truth is private.
    pub fn publish_name(&self, table: Names, index: usize, name: &[u8], arena_used: usize) -> Option<usize> {
        let slot = self.names(table).get(index)?;
        let end = arena_used.checked_add(name.len())?;
        if name.is_empty() || name.len() > NAME_BYTES_MAX || end > ARENA_BYTES {
            return None;
        }
        for (to, from) in self.arena[arena_used..end].iter().zip(name) {
            to.store(*from, Ordering::Relaxed);
        }
        slot.store((arena_used as u32) << 16 | name.len() as u32, Ordering::Release);
        Some(end)
    }

    /// Writes every name of `from`, and its empty slots, over this page's. The caller
    /// serialises writers; for a page that others already read the names must be the same.
    pub fn copy_names(&self, from: &Self) {
        for (to, from) in self.arena.iter().zip(&from.arena) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        for table in [Names::Categories, Names::Routes] {
            for (to, from) in self.names(table).iter().zip(from.names(table)) {
                to.store(from.load(Ordering::Relaxed), Ordering::Release);
            }
        }
    }

    fn names(&self, table: Names) -> &[AtomicU32] {
        match table {
            Names::Categories => &self.categories,
            Names::Routes => &self.routes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;

    #[test]
    fn owners_have_bytes_of_their_own() {
        let page = Box::new(Page::zeroed());
        page.enable_byte(NODE_HTTP, Owner::Operator).store(1, Ordering::Relaxed);
        page.enable_byte(NODE_HTTP, Owner::Process).store(1, Ordering::Relaxed);
        page.enable_byte(NODE_HTTP, Owner::Process).store(0, Ordering::Relaxed);
        assert_eq!(page.enable_bytes(NODE_HTTP), [0, 1, 0, 0]);
        assert_eq!(page.enable_bytes(CATEGORY_EXHAUSTED), [0; 4]);
    }

    #[test]
    fn enable_words_lie_where_the_assembly_looks() {
        let page = Box::new(Page::zeroed());
        let base = (&raw const *page) as usize;
        for category in [0, 1, 77, CATEGORY_EXHAUSTED] {
            assert_eq!(page.enable_word(category) as usize - base, enable_word_offset(category));
        }
    }

    #[test]
    fn a_page_of_another_make_is_named_as_such() {
        let page = Box::new(Page::zeroed());
        assert_eq!(page.check(), Err(PageMismatch::Magic(0)));
        page.stamp();
        assert_eq!(page.check(), Ok(()));
        page.header.version.store(9, Ordering::Relaxed);
        assert_eq!(page.check(), Err(PageMismatch::Version(9)));
        page.stamp();
        page.header.page_bytes.store(4096, Ordering::Relaxed);
        assert_eq!(page.check(), Err(PageMismatch::Bytes(4096)));
    }

    #[test]
    fn names_are_published_and_bounded() {
        let page = Box::new(Page::zeroed());
        let mut out = [0; NAME_BYTES_MAX];
        assert_eq!(page.name(Names::Categories, 3, &mut out), None);
        let used = page.publish_name(Names::Categories, 3, b"node.http", 0).unwrap();
        let used = page.publish_name(Names::Routes, 1, b"/users/:id", used).unwrap();
        assert_eq!(page.name(Names::Categories, 3, &mut out), Some(&b"node.http"[..]));
        assert_eq!(page.name(Names::Routes, 1, &mut out), Some(&b"/users/:id"[..]));
        assert_eq!(page.publish_name(Names::Routes, 2, &[b'x'; NAME_BYTES_MAX + 1], used), None);
        assert_eq!(page.publish_name(Names::Routes, 2, b"", used), None);
        assert_eq!(page.publish_name(Names::Routes, 2, b"xy", ARENA_BYTES - 1), None);
        assert_eq!(page.name(Names::Routes, ROUTES_MAX, &mut out), None);
    }

    #[test]
    fn names_are_copied_with_their_gaps() {
        let (from, to) = (Box::new(Page::zeroed()), Box::new(Page::zeroed()));
        let mut out = [0; NAME_BYTES_MAX];
        from.publish_name(Names::Routes, 1, b"/a", 0).unwrap();
        to.publish_name(Names::Routes, 5, b"/stale", 100).unwrap();
        to.copy_names(&from);
        assert_eq!(to.name(Names::Routes, 1, &mut out), Some(&b"/a"[..]));
        assert_eq!(to.name(Names::Routes, 5, &mut out), None);
    }

    #[test]
    fn garbage_names_are_refused() {
        let page = Box::new(Page::zeroed());
        let mut out = [0; NAME_BYTES_MAX];
        for entry in [u32::MAX, 0xffff_0001, (ARENA_BYTES as u32) << 16 | 1, NAME_BYTES_MAX as u32 + 1] {
            page.categories[0].store(entry, Ordering::Relaxed);
            assert_eq!(page.name(Names::Categories, 0, &mut out), None, "{entry:#x}");
        }
    }
}
