//! One target's events: taken from its rings, decoded from a copy, handed to the sinks.

use super::{Target, category_name, name};
use crate::sink::metrics::ServiceLabel;
use crate::sink::{Event, Lost, Sinks};
use crate::sys::memfd::SharedRings;
use runtime_core_abi::page::Names;
use runtime_core_abi::record;
use runtime_core_abi::ring::lost_since;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Chrome's phase letters that a process may use.
const PHASES: &[u8] = b"BEXbneiC";
/// What a category without a name is called.
const UNKNOWN: &str = "unknown";

/// The reading side of a target.
#[derive(Debug)]
pub struct Tap {
    pub(super) rings: SharedRings,
    /// The target's service in the metrics.
    pub(super) label: ServiceLabel,
    names: TapNames,
    copy: Vec<u8>,
    /// Events of threads without a lane, up to the last look.
    unlaned_seen: u64,
}

/// Names are append-only, so one that was read once need not be read again; and a process
/// that changes them all the same is shown under the first.
#[derive(Debug, Default)]
struct TapNames {
    categories: HashMap<u16, Arc<str>>,
    routes: HashMap<u16, Arc<str>>,
}

impl Tap {
    pub(super) fn new(rings: SharedRings, label: ServiceLabel) -> Self {
        Self { rings, label, names: TapNames::default(), copy: Vec::new(), unlaned_seen: 0 }
    }

    /// Starts to read; what was lost before does not count.
    pub(super) fn open(&mut self, target: &Target) {
        self.rings.open();
        self.unlaned_seen = target.page.page().header.events_unlaned.load(Ordering::Relaxed);
    }

    /// Gives back the memory that reading took.
    pub(super) fn release(&mut self) {
        self.rings.release();
        self.copy = Vec::new();
    }

    /// Takes all that is there.
    pub(super) fn drain(&mut self, target: &Target, sinks: &Sinks) {
        let Self { rings, label, names, copy, unlaned_seen } = self;
        let mut batch = sinks.batch(target, label);
        let mut lost = Lost::default();
        for lane in 0..rings.lanes() {
            let drained = rings.drain(lane, |bytes| {
                copy.clear();
                copy.extend_from_slice(bytes);
                batch.look_who_listens();
                lost.malformed += decode(copy, target, names, |event| batch.event(event));
            });
            // Saturating, since a process can publish any number.
            lost.ring_full = lost.ring_full.saturating_add(drained.lost);
            lost.malformed += u64::from(drained.garbage);
        }
        let unlaned = target.page.page().header.events_unlaned.load(Ordering::Relaxed);
        lost.no_lane = lost_since(*unlaned_seen, unlaned);
        *unlaned_seen = unlaned;
        batch.finish(lost);
    }
}

/// Decodes records up to the first that is malformed; returns how many were.
fn decode(mut bytes: &[u8], target: &Target, names: &mut TapNames, mut event: impl FnMut(&Event<'_>)) -> u64 {
    let mut malformed = 0;
    while !bytes.is_empty() {
        let Ok((found, size)) = record::decode(bytes) else { return malformed + 1 };
        bytes = &bytes[size..];
        let Some(record) = found else { continue };
        if !PHASES.contains(&record.head.phase) {
            malformed += 1;
            continue;
        }
        let category = names.category(target, record.head.category);
        let route = names.route(target, record.head.route);
        event(&Event { record, category: &category, route: route.as_deref() });
    }
    malformed
}

impl TapNames {
    fn category(&mut self, target: &Target, index: u16) -> Arc<str> {
        if let Some(name) = self.categories.get(&index) {
            return Arc::clone(name);
        }
        // A name may be on its way; what has none yet is not remembered.
        let Some(name) = category_name(target.page.page(), index.into()) else { return UNKNOWN.into() };
        Arc::clone(self.categories.entry(index).or_insert(name.into()))
    }

    fn route(&mut self, target: &Target, index: u16) -> Option<Arc<str>> {
        if index == 0 {
            return None;
        }
        if let Some(name) = self.routes.get(&index) {
            return Some(Arc::clone(name));
        }
        let name = name(target.page.page(), Names::Routes, index.into())?;
        Some(Arc::clone(self.routes.entry(index).or_insert(name.into())))
    }
}
