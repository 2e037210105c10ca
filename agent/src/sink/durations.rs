//! Requests from their two events: a begin is remembered until its end comes.
//!
//! Pure: it knows no clock and no metric. What it remembers is bounded; beyond the bound
//! the oldest request is forgotten, and counted.

use super::Event;
use runtime_core_abi::record::{Record, Value};
use std::collections::{BTreeMap, HashMap};

/// The events that a request is made of.
const NAME: &[u8] = b"http.server.request";
/// Methods by name; every other is [`METHOD_OTHER`].
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
/// What a method that nobody knows is called.
pub const METHOD_OTHER: &str = "_OTHER";

/// A request that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request<'a> {
    /// Its method, one of a known few.
    pub method: &'static str,
    /// Its status code, where it is one.
    pub status: Option<u16>,
    /// Its route; empty where none is known.
    pub route: &'a str,
    /// How long it took, in seconds.
    pub seconds: f64,
}

/// Requests that have begun: by target and id.
#[derive(Debug)]
pub struct Durations {
    open: HashMap<(u64, u64), Begun>,
    /// The same by age.
    by_age: BTreeMap<u64, (u64, u64)>,
    open_max: usize,
    last_age: u64,
    evicted: u64,
}

#[derive(Debug)]
struct Begun {
    ts_ns: u64,
    age: u64,
    method: &'static str,
}

impl Durations {
    /// Remembers at most `open_max` requests.
    pub fn new(open_max: usize) -> Self {
        Self { open: HashMap::new(), by_age: BTreeMap::new(), open_max, last_age: 0, evicted: 0 }
    }

    /// Takes an event of the target with this number; a request where the event ends one
    /// whose begin was seen.
    pub fn pair<'a>(&mut self, target: u64, event: &Event<'a>) -> Option<Request<'a>> {
        let record = &event.record;
        let (key, ts_ns) = ((target, record.head.id), record.head.ts_ns);
        if record.name != NAME {
            return None;
        }
        match record.head.phase {
            b'b' => {
                self.begin(key, ts_ns, method(record));
                None
            }
            b'e' => {
                let begun = self.remove(key)?;
                let ns = ts_ns.checked_sub(begun.ts_ns)?;
                let route = event.route.unwrap_or_default();
                Some(Request { method: begun.method, status: status(record), route, seconds: ns as f64 / 1e9 })
            }
            _ => None,
        }
    }

    fn begin(&mut self, key: (u64, u64), ts_ns: u64, method: &'static str) {
        self.remove(key);
        if self.open.len() >= self.open_max
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.open.remove(&oldest);
            self.evicted += 1;
        }
        self.last_age += 1;
        self.by_age.insert(self.last_age, key);
        self.open.insert(key, Begun { ts_ns, age: self.last_age, method });
    }

    fn remove(&mut self, key: (u64, u64)) -> Option<Begun> {
        let begun = self.open.remove(&key)?;
        self.by_age.remove(&begun.age);
        Some(begun)
    }

    /// Forgets what a target has open.
    pub fn forget(&mut self, target: u64) {
        self.open.retain(|(of, _), _| *of != target);
        self.by_age.retain(|_, (of, _)| *of != target);
        if self.open.is_empty() {
            self.open.shrink_to_fit();
        }
    }

    /// How many requests were forgotten since the last call for want of room.
    pub fn take_evicted(&mut self) -> u64 {
        std::mem::take(&mut self.evicted)
    }
}

fn method(record: &Record<'_>) -> &'static str {
    let Some(Value::Str(found)) = arg(record, b"method") else { return METHOD_OTHER };
    METHODS.into_iter().find(|method| method.as_bytes() == found).unwrap_or(METHOD_OTHER)
}

fn status(record: &Record<'_>) -> Option<u16> {
    let code = match arg(record, b"statusCode")? {
        Value::Uint(code) => code,
        Value::Int(code) => u64::try_from(code).ok()?,
        _ => return None,
    };
    u16::try_from(code).ok().filter(|code| (100..=599).contains(code))
}

fn arg<'a>(record: &Record<'a>, key: &[u8]) -> Option<Value<'a>> {
    record.args().flatten().find(|arg| arg.key == key).map(|arg| arg.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime_core_abi::record::{self, Head};

    fn feed(durations: &mut Durations, target: u64, head: Head, args: &[(&str, Value<'_>)]) -> Option<(String, f64)> {
        let mut bytes = [0; 512];
        record::encode(&head, NAME, args, &mut bytes).unwrap();
        let record = record::decode(&bytes).unwrap().0.unwrap();
        let request = durations.pair(target, &Event { record, category: "node.http", route: Some("/r") })?;
        Some((format!("{} {:?} {}", request.method, request.status, request.route), request.seconds))
    }

    fn head(phase: u8, id: u64, ts_ns: u64) -> Head {
        Head { phase, id, ts_ns, ..Head::default() }
    }

    #[test]
    fn a_begin_and_an_end_make_a_request() {
        let mut durations = Durations::new(10);
        assert_eq!(feed(&mut durations, 1, head(b'b', 5, 1_000), &[("method", Value::Str(b"GET"))]), None);
        let end = [("statusCode", Value::Uint(204))];
        assert_eq!(feed(&mut durations, 2, head(b'e', 5, 2_000), &end), None, "of another process");
        let (request, seconds) = feed(&mut durations, 1, head(b'e', 5, 2_001_000), &end).unwrap();
        assert_eq!((request.as_str(), seconds), ("GET Some(204) /r", 0.002));
        assert_eq!(feed(&mut durations, 1, head(b'e', 5, 3_000), &end), None, "ended already");
    }

    #[test]
    fn what_the_process_made_up_is_not_shown() {
        let mut durations = Durations::new(10);
        feed(&mut durations, 1, head(b'b', 1, 10), &[("method", Value::Str(b"BREW"))]);
        let (request, seconds) = feed(&mut durations, 1, head(b'e', 1, 10), &[("statusCode", Value::Int(-1))]).unwrap();
        assert_eq!((request.as_str(), seconds), ("_OTHER None /r", 0.0));
        feed(&mut durations, 1, head(b'b', 1, 10), &[]);
        assert_eq!(feed(&mut durations, 1, head(b'e', 1, 9), &[]), None, "ended before it began");
    }

    #[test]
    fn the_oldest_is_forgotten_and_counted() {
        let mut durations = Durations::new(2);
        for id in [1, 2, 1, 3] {
            feed(&mut durations, 1, head(b'b', id, 0), &[]);
        }
        assert_eq!(durations.take_evicted(), 1);
        assert_eq!(feed(&mut durations, 1, head(b'e', 2, 1), &[]), None);
        assert!(feed(&mut durations, 1, head(b'e', 1, 1), &[]).is_some());
        durations.forget(1);
        assert_eq!((durations.open.len(), durations.by_age.len()), (0, 0));
    }
}
