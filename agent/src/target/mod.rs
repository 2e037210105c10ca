//! What can be traced: a process, its page and its rings.
//!
//! Everything in the page and in the rings was written by the process. It is read with
//! bounds, copied before it is looked at, and believed in nothing.

pub mod drain;
pub mod registry;
mod tap;

use crate::control::protocol::{CategoryInfo, Select, TargetInfo};
use crate::sink::metrics::ServiceLabel;
use crate::sys::fd;
use crate::sys::memfd::SharedPage;
use runtime_core_abi::handshake::{Backing, SERVICE_BYTES_MAX, Welcome};
use runtime_core_abi::page::{CATEGORIES_MAX, NAME_BYTES_MAX, Names, Owner, Page, WELL_KNOWN};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use tap::Tap;

/// What a service without a name is called.
const UNNAMED: &str = "unnamed";

/// A process that has joined, with the page and the rings that it keeps for its life.
#[derive(Debug)]
pub struct Target {
    /// Counts targets: unlike a pid it is never used again.
    pub number: u64,
    /// Process id, as the agent sees it.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub start_time: u64,
    /// The user it ran as when it joined.
    pub uid: u32,
    /// The service's name, cleaned.
    pub service: String,
    /// What backs the page.
    pub backing: Backing,
    /// The page.
    pub page: SharedPage,
    /// The kernel's id of the page's map, where it is one.
    map_id: Option<u32>,
    /// Categories that the agent has on: the page's operator bytes, as the agent knows them.
    operator_on: AtomicUsize,
    /// The rings and what reading them needs.
    tap: Mutex<Tap>,
    /// Becomes true when the process has ended.
    ended: tokio::sync::watch::Sender<bool>,
}

impl Target {
    /// Whether a request about `select` is about this process.
    pub fn matches(&self, select: &Select) -> bool {
        match select {
            Select::All => true,
            Select::Service(service) => *service == self.service,
            Select::Pid(pid) => *pid == self.pid,
        }
    }

    /// Whether the agent has any category on.
    pub fn is_on(&self) -> bool {
        self.operator_on.load(Ordering::Acquire) > 0
    }

    /// Returns once the process has ended.
    pub async fn ended(&self) {
        // The sender lives in `self`, so this cannot fail.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// What `ps` shows, from the live bytes.
    pub fn info(&self) -> TargetInfo {
        let page = self.page.page();
        TargetInfo {
            pid: self.pid,
            start_time: self.start_time,
            kind: KIND.into(),
            service: self.service.clone(),
            page: match self.backing {
                Backing::BpfArray => "bpf".into(),
                Backing::Memfd => "memfd".into(),
            },
            categories: categories(page).map(|(index, name)| category_info(page, index, name)).collect(),
        }
    }

    /// The label of its service in the metrics.
    pub fn service_label(&self) -> ServiceLabel {
        self.tap().label.clone()
    }

    /// Sends the page and the rings to the process.
    pub fn send(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let tap = self.tap();
        let (lanes, ring_data_bytes) = (tap.rings.lanes() as u32, tap.rings.data_bytes() as u32);
        let welcome = Welcome::Accepted { backing: self.backing, lanes, ring_data_bytes };
        fd::send_with(socket, &welcome.encode(), &[self.page.as_fd(), tap.rings.as_fd()])
    }

    fn tap(&self) -> MutexGuard<'_, Tap> {
        self.tap.lock().expect("no panic while the tap is locked")
    }

    fn operator_byte(&self, category: usize) -> &AtomicU8 {
        self.page.page().enable_byte(category, Owner::Operator)
    }
}

/// The kind of these targets, for people and metrics.
pub const KIND: &str = "runtime-core";

fn category_info(page: &Page, index: usize, name: String) -> CategoryInfo {
    let on = Owner::ALL.iter().zip(page.enable_bytes(index)).filter(|(_, byte)| *byte != 0);
    let by: Vec<String> = on.map(|(owner, _)| owner.name().to_owned()).collect();
    CategoryInfo { name, enabled: !by.is_empty(), by }
}

/// The categories of a page, by index. Two slots with one name are the process's fault:
/// both are shown, the first is switched.
fn categories(page: &Page) -> impl Iterator<Item = (usize, String)> + '_ {
    (0..CATEGORIES_MAX).filter_map(|index| Some((index, category_name(page, index)?)))
}

fn category_name(page: &Page, index: usize) -> Option<String> {
    match WELL_KNOWN.get(index) {
        Some(name) => Some((*name).to_owned()),
        None => name(page, Names::Categories, index),
    }
}

/// A name of the page's tables, made fit to print.
fn name(page: &Page, table: Names, index: usize) -> Option<String> {
    let mut out = [0; NAME_BYTES_MAX];
    let bytes = page.name(table, index, &mut out)?;
    Some(printable(bytes, NAME_BYTES_MAX)).filter(|name| !name.is_empty())
}

/// A service's name from the bytes that a process sent.
pub fn service_name(bytes: &[u8]) -> String {
    match printable(bytes, SERVICE_BYTES_MAX) {
        name if name.is_empty() => UNNAMED.into(),
        name => name,
    }
}

/// Text without control characters, at most `bytes_max` long; what is not UTF-8 becomes
/// U+FFFD.
fn printable(bytes: &[u8], bytes_max: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut text: String =
        text.trim().chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect();
    text.truncate(text.floor_char_boundary(bytes_max));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_names_are_clean_and_bounded() {
        assert_eq!(service_name(b"api"), "api");
        assert_eq!(service_name(b""), "unnamed");
        assert_eq!(service_name(b" \n"), "unnamed");
        assert_eq!(service_name(b"a\x1b[31mb\n"), "a\u{fffd}[31mb");
        let wild = service_name(&[0xff; SERVICE_BYTES_MAX]);
        assert!(wild.len() <= SERVICE_BYTES_MAX && wild.chars().all(|c| c == '\u{fffd}'));
    }

    #[test]
    fn a_page_of_garbage_still_has_its_well_known_categories() {
        let page = Box::new(Page::zeroed());
        assert_eq!(categories(&page).collect::<Vec<_>>(), [(0, "node.http".to_owned())]);
        page.publish_name(Names::Categories, 0, b"liar", 0);
        page.publish_name(Names::Categories, 5, b"mine\x07", 8);
        let names: Vec<_> = categories(&page).map(|(_, name)| name).collect();
        assert_eq!(names, ["node.http", "mine\u{fffd}"]);
    }
}
