//! The registry: every process with a page, who holds a lease, what is on and until when.
//!
//! A process is an entry from the moment it is offered a page until it ends. It is a
//! target, visible and switchable, only between `joined` and the end of its lease.

use super::drain::Drain;
use super::tap::Tap;
use super::{Target, categories};
use crate::control::protocol::{Select, TargetInfo};
use crate::error::Failure;
use crate::sink::metrics::Metrics;
use crate::sys::memfd::{SharedPage, SharedRings, sealed};
use crate::sys::{bpf, proc};
use runtime_core_abi::handshake::Backing;
use runtime_core_abi::page::{CATEGORIES_MAX, LANES_MAX, Owner, PAGE_BYTES};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

/// Bounds and what backs pages.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Pages of one user at most.
    pub pages_per_user_max: usize,
    /// Entries at most.
    pub processes_max: usize,
    /// Bytes of data in each ring.
    pub ring_bytes_per_lane: usize,
    /// What backs new pages.
    pub backing: Backing,
}

/// See the module.
#[derive(Debug)]
pub struct Registry {
    settings: Settings,
    drain: Arc<Drain>,
    metrics: Arc<Metrics>,
    inner: Mutex<Inner>,
    this: Weak<Self>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: BTreeMap<u32, Entry>,
    /// Pages that were dropped but whose maps somebody kept alive: user and map id.
    kept: Vec<(u32, u32)>,
    /// The last number given to a target, a lease or a switch.
    last_number: u64,
    closed: bool,
}

#[derive(Debug)]
struct Entry {
    target: Arc<Target>,
    lease: Option<Lease>,
    /// The categories that we have on.
    on: BTreeMap<usize, Switch>,
}

#[derive(Debug)]
struct Lease {
    number: u64,
    joined: bool,
}

/// A category that is on. Its timer, if it has one, ends with it.
#[derive(Debug)]
struct Switch {
    number: u64,
    timer: Option<tokio::task::AbortHandle>,
}

impl Drop for Switch {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            timer.abort();
        }
    }
}

/// What an accepted process gets.
#[derive(Debug)]
pub struct Offer {
    /// Its page and rings.
    pub target: Arc<Target>,
    /// The number of its lease.
    pub lease: u64,
    /// Whether the target was made for this offer; else the process had it already.
    pub new: bool,
}

/// Who asks to join, as the kernel and its hello say.
#[derive(Debug)]
pub struct Applicant {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub start_time: u64,
    /// User.
    pub uid: u32,
    /// The service's name, cleaned.
    pub service: String,
}

/// Why a process gets no page.
#[derive(Debug)]
pub enum Refusal {
    /// It lives in a PID namespace that the agent cannot see into.
    Invisible,
    /// Its user may not register.
    User(u32),
    /// Its page layout is another.
    Version(u32),
    /// It holds a lease already.
    AlreadyJoined(u32),
    /// Its user has too many pages.
    Quota {
        /// The user.
        uid: u32,
        /// Pages allowed.
        max: usize,
    },
    /// The agent has too many processes.
    Full(usize),
    /// The agent is stopping.
    Stopping,
    /// The kernel gave no memory, or did not say who it is.
    System(io::Error),
}

impl Refusal {
    /// The reason as a label of the metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Invisible => "invisible",
            Self::User(_) => "user",
            Self::Version(_) => "version",
            Self::AlreadyJoined(_) => "already_joined",
            Self::Quota { .. } => "quota",
            Self::Full(_) => "full",
            Self::Stopping => "stopping",
            Self::System(_) => "system",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = runtime_core_abi::page::VERSION;
        match self {
            Self::Invisible => f.write_str("the agent cannot see this process: it is in another PID namespace"),
            Self::User(uid) => write!(f, "permission denied: user {uid} is not in `register.allow_users`"),
            Self::Version(version) => write!(f, "page version {version} is not supported; the agent has {expected}"),
            Self::AlreadyJoined(pid) => write!(f, "process {pid} has joined already"),
            Self::Quota { uid, max } => write!(f, "user {uid} has {max} pages already (`register.pages_per_user_max`)"),
            Self::Full(max) => write!(f, "{max} processes have joined already (`register.connections_max`)"),
            Self::Stopping => f.write_str("the agent is stopping"),
            Self::System(error) => write!(f, "the agent cannot make a page for this process: {error}"),
        }
    }
}

impl Registry {
    /// An empty registry.
    pub fn new(settings: Settings, drain: Arc<Drain>, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new_cyclic(|this| Self { settings, drain, metrics, inner: Mutex::default(), this: Weak::clone(this) })
    }

    /// Gives a process its page: a new one, or the one it had.
    pub fn offer(&self, applicant: Applicant) -> Result<Offer, Refusal> {
        let mut inner = self.lock();
        if inner.closed {
            return Err(Refusal::Stopping);
        }
        let lease = inner.next_number();
        let Applicant { pid, start_time, uid, .. } = applicant;
        if let Some(entry) = inner.entries.get_mut(&pid) {
            if entry.target.start_time == start_time {
                if entry.lease.is_some() {
                    return Err(Refusal::AlreadyJoined(pid));
                }
                entry.lease = Some(Lease { number: lease, joined: false });
                return Ok(Offer { target: Arc::clone(&entry.target), lease, new: false });
            }
            // The pid is of another process by now; its end has only not been seen yet.
            let number = entry.target.number;
            inner.remove(pid, number);
        }
        if inner.entries.len() >= self.settings.processes_max {
            return Err(Refusal::Full(self.settings.processes_max));
        }
        let max = self.settings.pages_per_user_max;
        if inner.pages_of(uid) >= max {
            inner.kept.retain(|(_, map)| bpf::map_lives(*map));
            if inner.pages_of(uid) >= max {
                return Err(Refusal::Quota { uid, max });
            }
        }
        let number = inner.next_number();
        let target = Arc::new(self.make(number, applicant).map_err(Refusal::System)?);
        let lease_held = Lease { number: lease, joined: false };
        let entry = Entry { target: Arc::clone(&target), lease: Some(lease_held), on: BTreeMap::new() };
        inner.entries.insert(pid, entry);
        Ok(Offer { target, lease, new: true })
    }

    fn make(&self, number: u64, applicant: Applicant) -> io::Result<Target> {
        let Applicant { pid, start_time, uid, service } = applicant;
        let backing = self.settings.backing;
        let fd = match backing {
            Backing::BpfArray => bpf::create_page()?,
            Backing::Memfd => sealed(c"tracebyte-page", PAGE_BYTES)?,
        };
        let map_id = match backing {
            Backing::BpfArray => Some(bpf::map_id(fd.as_fd())?),
            Backing::Memfd => None,
        };
        let rings = SharedRings::new(LANES_MAX, self.settings.ring_bytes_per_lane)?;
        let label = self.metrics.service(&service);
        Ok(Target {
            number,
            pid,
            start_time,
            uid,
            service,
            backing,
            page: SharedPage::new(fd)?,
            map_id,
            operator_on: AtomicUsize::new(0),
            tap: Mutex::new(Tap::new(rings, label)),
            ended: tokio::sync::watch::Sender::new(false),
        })
    }

    /// The process has mapped its page: from now on it is a target.
    pub fn joined(&self, offer: &Offer) {
        let mut inner = self.lock();
        if let Some(lease) = inner.entries.get_mut(&offer.target.pid).and_then(|entry| entry.lease.as_mut())
            && lease.number == offer.lease
        {
            lease.joined = true;
        }
    }

    /// The lease is over: everything of ours goes off. The process keeps its page.
    pub fn end_lease(&self, offer: &Offer) {
        let mut inner = self.lock();
        if let Some(entry) = inner.entries.get_mut(&offer.target.pid)
            && entry.lease.as_ref().is_some_and(|lease| lease.number == offer.lease)
        {
            entry.lease = None;
            entry.all_off();
        }
    }

    /// The process has ended: its page goes.
    pub fn process_ended(&self, target: &Target) {
        self.lock().remove(target.pid, target.number);
    }

    /// Switches everything off for good; nothing can be switched on afterwards.
    pub fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        inner.entries.values_mut().for_each(Entry::all_off);
    }

    /// What `ps` shows.
    pub fn list(&self) -> Vec<TargetInfo> {
        self.targets().iter().map(|target| target.info()).collect()
    }

    /// The processes that can be traced now.
    pub fn targets(&self) -> Vec<Arc<Target>> {
        self.lock().joined().map(|entry| Arc::clone(&entry.target)).collect()
    }

    /// The processes that a request is about; an error where a pid or a service is unknown.
    pub fn select(&self, select: &Select) -> Result<Vec<Arc<Target>>, Failure> {
        select_from(&self.lock(), select)
    }

    /// Switches a category on, and returns in which processes.
    pub fn switch_on(&self, category: &str, select: &Select, limit: Option<Duration>) -> Result<Vec<u32>, Failure> {
        let mut inner = self.lock();
        if inner.closed {
            return Err(Failure::new("the agent is stopping"));
        }
        let selected = select_from(&inner, select)?;
        if selected.is_empty() {
            return Err(Failure::new("no process can be traced: none has joined this agent")
                .remedy("start a service that is built on runtime-core, with the same run directory"));
        }
        let found: Vec<_> =
            selected.iter().filter_map(|target| Some((target, category_index(target, category)?))).collect();
        if found.is_empty() {
            return Err(unknown_category(category, &selected));
        }
        for (target, index) in &found {
            let number = inner.next_number();
            let timer = limit.map(|limit| self.off_after(limit, target.pid, *index, number));
            if let Some(entry) = inner.entries.get_mut(&target.pid) {
                entry.on.insert(*index, Switch { number, timer });
                entry.count_on();
                self.drain.watch(target);
                target.operator_byte(*index).store(1, Ordering::Release);
                entry.switch_lists();
            }
            self.metrics.toggles.inc();
        }
        Ok(found.iter().map(|(target, _)| target.pid).collect())
    }

    /// Switches one category off, or all, and returns in which processes one was on.
    pub fn switch_off(&self, category: Option<&str>, select: &Select) -> Result<Vec<u32>, Failure> {
        let mut inner = self.lock();
        let selected = select_from(&inner, select)?;
        if let Some(category) = category
            && !selected.is_empty()
            && selected.iter().all(|target| category_index(target, category).is_none())
        {
            return Err(unknown_category(category, &selected));
        }
        let mut pids = Vec::new();
        for target in &selected {
            let Some(entry) = inner.entries.get_mut(&target.pid) else { continue };
            let off: Vec<usize> = match category {
                // Those as well that the process has switched on in our name.
                None => (0..CATEGORIES_MAX).collect(),
                Some(category) => category_index(target, category).into_iter().collect(),
            };
            let was_on = off.into_iter().filter(|index| entry.switch_off(*index)).count();
            self.metrics.toggles.inc_by(was_on as u64);
            if was_on > 0 {
                pids.push(target.pid);
            }
        }
        Ok(pids)
    }

    fn off_after(&self, limit: Duration, pid: u32, index: usize, number: u64) -> tokio::task::AbortHandle {
        let this = Weak::clone(&self.this);
        let timer = tokio::spawn(async move {
            tokio::time::sleep(limit).await;
            if let Some(registry) = this.upgrade() {
                registry.time_is_up(pid, index, number);
            }
        });
        timer.abort_handle()
    }

    fn time_is_up(&self, pid: u32, index: usize, number: u64) {
        let mut inner = self.lock();
        let Some(entry) = inner.entries.get_mut(&pid) else { return };
        // A switch of another number has replaced the one this timer was for.
        if entry.on.get(&index).is_some_and(|switch| switch.number == number) {
            entry.switch_off(index);
            self.metrics.toggles.inc();
            tracing::info!(pid, "switched off: its time was up");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic while the registry is locked")
    }
}

impl Inner {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn joined(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().filter(|entry| entry.lease.as_ref().is_some_and(|lease| lease.joined))
    }

    fn pages_of(&self, uid: u32) -> usize {
        let held = self.entries.values().filter(|entry| entry.target.uid == uid).count();
        held + self.kept.iter().filter(|(owner, _)| *owner == uid).count()
    }

    fn remove(&mut self, pid: u32, number: u64) {
        if self.entries.get(&pid).is_none_or(|entry| entry.target.number != number) {
            return;
        }
        let Some(mut entry) = self.entries.remove(&pid) else { return };
        entry.all_off();
        entry.target.ended.send_replace(true);
        // Whether the map really goes is known once ours is closed, and asked when it matters.
        self.kept.extend(entry.target.map_id.map(|map| (entry.target.uid, map)));
        if self.kept.len() > KEPT_CHECK {
            self.kept.retain(|(_, map)| bpf::map_lives(*map));
        }
    }
}

/// Map ids remembered before it is asked which of them still exist.
const KEPT_CHECK: usize = 64;

impl Entry {
    /// Clears the byte, and returns whether it was ours to clear.
    fn switch_off(&mut self, index: usize) -> bool {
        self.target.operator_byte(index).store(0, Ordering::Release);
        let was_on = self.on.remove(&index).is_some();
        self.switch_lists();
        self.count_on();
        was_on
    }

    /// Stores our byte of every category whose name is a list (`node,node.http`): on where the
    /// list itself or one of its parts is. After the part's own byte, which a process looks at
    /// that adds a list just now.
    fn switch_lists(&self) {
        fence(Ordering::SeqCst);
        let names: Vec<_> = categories(self.target.page.page()).collect();
        let on = |part: &str| names.iter().any(|(index, name)| name == part && self.on.contains_key(index));
        for (index, list) in names.iter().filter(|(_, name)| name.contains(',')) {
            let is_on = self.on.contains_key(index) || list.split(',').any(on);
            self.target.operator_byte(*index).store(is_on.into(), Ordering::Release);
        }
    }

    /// Clears every byte that is not the process's own, whoever set it: the process may
    /// have written anything there.
    fn all_off(&mut self) {
        let page = self.target.page.page();
        for index in 0..CATEGORIES_MAX {
            page.enable_byte(index, Owner::Operator).store(0, Ordering::Release);
            page.enable_byte(index, Owner::Trigger).store(0, Ordering::Release);
        }
        self.on.clear();
        self.count_on();
    }

    fn count_on(&self) {
        self.target.operator_on.store(self.on.len(), Ordering::Release);
    }
}

fn select_from(inner: &Inner, select: &Select) -> Result<Vec<Arc<Target>>, Failure> {
    let found: Vec<_> =
        inner.joined().map(|entry| Arc::clone(&entry.target)).filter(|target| target.matches(select)).collect();
    match select {
        Select::Service(service) if found.is_empty() => {
            let known: BTreeSet<_> = inner.joined().map(|entry| entry.target.service.as_str()).collect();
            Err(Failure::new(format!("unknown service `{service}`: {}", known_ones("services", &known)))
                .remedy("see `tracebyte ps`"))
        }
        Select::Pid(pid) if found.is_empty() && proc::exists(*pid) => {
            Err(Failure::new(format!("process {pid} cannot be traced: it has not joined this agent"))
                .remedy("a process that is built on runtime-core joins by itself; see `tracebyte ps`"))
        }
        Select::Pid(pid) if found.is_empty() => {
            Err(Failure::new(format!("unknown pid {pid}: there is no such process")).remedy("see `tracebyte ps`"))
        }
        _ => Ok(found),
    }
}

fn category_index(target: &Target, category: &str) -> Option<usize> {
    categories(target.page.page()).find(|(_, name)| name == category).map(|(index, _)| index)
}

fn unknown_category(category: &str, targets: &[Arc<Target>]) -> Failure {
    let known: BTreeSet<_> =
        targets.iter().flat_map(|target| categories(target.page.page()).map(|(_, name)| name)).collect();
    let known: BTreeSet<_> = known.iter().map(String::as_str).collect();
    Failure::new(format!("unknown category `{category}`: {}", known_ones("categories", &known)))
        .remedy("see `tracebyte ps`")
}

fn known_ones(what: &str, known: &BTreeSet<&str>) -> String {
    const SHOWN_MAX: usize = 20;
    if known.is_empty() {
        return format!("no {what} are known");
    }
    let shown: Vec<_> = known.iter().take(SHOWN_MAX).map(|name| format!("`{name}`")).collect();
    let more = known.len() - shown.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("the {what} known are {}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::Sinks;
    use runtime_core_abi::page::Names;
    use runtime_core_abi::ring::DATA_BYTES_MIN;

    fn registry(pages_per_user_max: usize, processes_max: usize) -> Arc<Registry> {
        let metrics = Metrics::new(10, true);
        let drain = Arc::new(Drain::new(Arc::new(Sinks::new(Arc::clone(&metrics), 10))));
        let (ring_bytes_per_lane, backing) = (DATA_BYTES_MIN, Backing::Memfd);
        Registry::new(Settings { pages_per_user_max, processes_max, ring_bytes_per_lane, backing }, drain, metrics)
    }

    fn applicant(pid: u32, start_time: u64, uid: u32) -> Applicant {
        Applicant { pid, start_time, uid, service: "api".into() }
    }

    #[test]
    fn a_process_gets_its_page_back_and_its_successor_a_new_one() {
        let registry = registry(10, 10);
        let first = registry.offer(applicant(7, 1, 0)).unwrap();
        assert!(first.new && registry.targets().is_empty(), "a target only once it has joined");
        registry.joined(&first);
        assert_eq!(registry.targets().len(), 1);
        assert!(matches!(registry.offer(applicant(7, 1, 0)), Err(Refusal::AlreadyJoined(7))));
        registry.end_lease(&first);
        let again = registry.offer(applicant(7, 1, 0)).unwrap();
        assert!(!again.new && again.target.number == first.target.number);
        // Late news of the first lease does not end the second.
        registry.joined(&again);
        registry.end_lease(&first);
        assert_eq!(registry.targets().len(), 1);
        let other = registry.offer(applicant(7, 2, 0)).unwrap();
        assert!(other.new && other.target.number != first.target.number);
        registry.process_ended(&first.target);
        registry.joined(&other);
        assert_eq!(registry.targets().len(), 1, "late news of the first process does not end the second");
    }

    #[test]
    fn pages_are_limited_by_user_and_altogether() {
        let registry = registry(2, 3);
        let offers: Vec<_> = (1..=2).map(|pid| registry.offer(applicant(pid, 1, 5)).unwrap()).collect();
        registry.end_lease(&offers[0]);
        assert!(matches!(registry.offer(applicant(3, 1, 5)), Err(Refusal::Quota { uid: 5, max: 2 })));
        registry.offer(applicant(3, 1, 6)).unwrap();
        assert!(matches!(registry.offer(applicant(4, 1, 7)), Err(Refusal::Full(3))));
        registry.process_ended(&offers[0].target);
        registry.offer(applicant(4, 1, 7)).unwrap();
    }

    #[test]
    fn maps_that_somebody_keeps_alive_count() {
        let metrics = Metrics::new(10, true);
        let drain = Arc::new(Drain::new(Arc::new(Sinks::new(Arc::clone(&metrics), 10))));
        let settings = Settings {
            pages_per_user_max: 1,
            processes_max: 10,
            ring_bytes_per_lane: DATA_BYTES_MIN,
            backing: Backing::BpfArray,
        };
        if let Err(error) = bpf::probe_page() {
            println!("skipped: no BPF maps here: {error}");
            return;
        }
        let registry = Registry::new(settings, drain, metrics);
        let offer = registry.offer(applicant(1, 1, 5)).unwrap();
        let kept = offer.target.page.as_fd().try_clone_to_owned().unwrap();
        registry.process_ended(&offer.target);
        drop(offer);
        assert!(matches!(registry.offer(applicant(2, 1, 5)), Err(Refusal::Quota { .. })));
        drop(kept);
        // The kernel lets go of a map a moment after its last descriptor.
        let given = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            registry.offer(applicant(2, 1, 5)).is_ok()
        });
        assert!(given);
    }

    #[test]
    fn a_list_is_on_when_any_part_is() {
        let registry = registry(2, 3);
        let offer = registry.offer(applicant(1, 1, 0)).unwrap();
        let page = offer.target.page.page();
        let used = page.publish_name(Names::Categories, 1, b"node,node.http", 0).unwrap();
        page.publish_name(Names::Categories, 2, b"node.fs", used).unwrap();
        registry.joined(&offer);
        let bytes = || [0, 1, 2].map(|index| page.enable_bytes(index)[Owner::Operator as usize]);
        registry.switch_on("node.http", &Select::All, None).unwrap();
        assert_eq!(bytes(), [1, 1, 0]);
        registry.switch_on("node,node.http", &Select::All, None).unwrap();
        registry.switch_off(Some("node.http"), &Select::All).unwrap();
        assert_eq!(bytes(), [0, 1, 0], "asked for by its own name");
        registry.switch_off(None, &Select::All).unwrap();
        assert_eq!(bytes(), [0, 0, 0]);
    }

    #[test]
    fn nothing_is_given_or_switched_once_closed() {
        let registry = registry(2, 3);
        let offer = registry.offer(applicant(1, 1, 0)).unwrap();
        registry.joined(&offer);
        registry.switch_on("node.http", &Select::All, None).unwrap();
        assert_eq!(offer.target.page.page().enable_bytes(0), [0, 1, 0, 0]);
        registry.close();
        assert_eq!(offer.target.page.page().enable_bytes(0), [0; 4]);
        assert!(registry.switch_on("node.http", &Select::All, None).is_err());
        assert!(matches!(registry.offer(applicant(2, 1, 0)), Err(Refusal::Stopping)));
    }
}
