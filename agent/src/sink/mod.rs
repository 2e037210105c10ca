//! Where events go: metrics, request durations, and whoever watches or records.

pub mod durations;
pub mod metrics;
pub mod stream;

use crate::target::Target;
use durations::Durations;
use metrics::{Metrics, ServiceLabel};
use runtime_core_abi::record::Record;
use std::sync::{Arc, Mutex};
use stream::{Stream, Streams};

/// An event, with its indexes looked up.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The event as the process wrote it.
    pub record: Record<'a>,
    /// Its category's name.
    pub category: &'a str,
    /// Its route, where it has one.
    pub route: Option<&'a str>,
}

/// Events that did not make it, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// The ring had no room.
    pub ring_full: u64,
    /// The thread had no lane, hence no ring.
    pub no_lane: u64,
    /// The bytes made no sense; what followed them was dropped too.
    pub malformed: u64,
}

/// Every sink.
#[derive(Debug)]
pub struct Sinks {
    /// What `/metrics` shows.
    pub metrics: Arc<Metrics>,
    /// Who watches and records.
    pub streams: Streams,
    durations: Mutex<Durations>,
}

impl Sinks {
    /// Sinks that remember at most `open_requests_max` requests in flight.
    pub fn new(metrics: Arc<Metrics>, open_requests_max: usize) -> Self {
        Self { metrics, streams: Streams::default(), durations: Mutex::new(Durations::new(open_requests_max)) }
    }

    /// Takes the events of one look at a target.
    pub fn batch<'a>(&'a self, target: &'a Target, label: &'a ServiceLabel) -> Batch<'a> {
        Batch { sinks: self, target, label, streams: Vec::new(), line: Vec::new() }
    }

    /// A target is read no more: what it left open will not be closed.
    pub fn quiet(&self, target: &Target) {
        self.durations.lock().expect("no panic while the durations are locked").forget(target.number);
    }
}

/// See [`Sinks::batch`].
#[derive(Debug)]
pub struct Batch<'a> {
    sinks: &'a Sinks,
    target: &'a Target,
    label: &'a ServiceLabel,
    streams: Vec<Arc<Stream>>,
    line: Vec<u8>,
}

impl Batch<'_> {
    /// To be called once events have been copied out of a ring and before they are taken. A
    /// stream that opens after this only wants events stamped later, which were not there
    /// yet to be copied; one that opened before gets what it covers.
    pub fn look_who_listens(&mut self) {
        self.streams = self.sinks.streams.of(self.target);
    }

    /// Takes one event.
    pub fn event(&mut self, event: &Event<'_>) {
        self.label.count_event(event.category);
        let mut durations = self.sinks.durations.lock().expect("no panic while the durations are locked");
        if let Some(request) = durations.pair(self.target.number, event) {
            self.label.observe(&request);
        }
        self.sinks.metrics.requests_forgotten.inc_by(durations.take_evicted());
        drop(durations);
        let head = &event.record.head;
        let mut takers = self.streams.iter().filter(|stream| stream.covers(head.ts_ns)).peekable();
        if takers.peek().is_some() {
            self.line.clear();
            let Event { record, category, route } = event;
            runtime_core_chrome::write(&mut self.line, record, category, *route, self.target.pid);
            self.line.push(b'\n');
            takers.for_each(|stream| stream.push(&self.line));
        }
    }

    /// Ends the batch with what was lost since the last one.
    pub fn finish(mut self, lost: Lost) {
        self.look_who_listens();
        self.label.count_lost(&lost);
        self.streams.iter().for_each(|stream| stream.finish_batch(&lost));
    }
}
