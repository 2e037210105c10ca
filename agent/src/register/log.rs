//! Refusals in the log: the first of a kind in each interval, and how many came since.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How often refusals for one reason are logged.
const INTERVAL: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Default)]
pub struct RefusalLog(Mutex<HashMap<&'static str, Quiet>>);

#[derive(Debug)]
struct Quiet {
    since: Instant,
    unsaid: u64,
}

impl RefusalLog {
    /// Notes a refusal; logs it unless one for the same reason was logged a moment ago.
    pub fn refused(&self, reason: &'static str, why: &dyn Display) {
        if let Some(unsaid) = self.note(reason, Instant::now()) {
            tracing::warn!(reason, unsaid_before = unsaid, "registration refused: {why}");
        }
    }

    /// How many were not logged before this one; `None` where this one is not either.
    fn note(&self, reason: &'static str, now: Instant) -> Option<u64> {
        let mut quiet = self.0.lock().expect("no panic while the log is locked");
        match quiet.get_mut(reason) {
            Some(quiet) if now.duration_since(quiet.since) < INTERVAL => {
                quiet.unsaid += 1;
                None
            }
            _ => quiet.insert(reason, Quiet { since: now, unsaid: 0 }).map(|before| before.unsaid).or(Some(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_and_a_number() {
        let (log, start) = (RefusalLog::default(), Instant::now());
        assert_eq!(log.note("a", start), Some(0));
        assert_eq!((log.note("a", start), log.note("a", start)), (None, None));
        assert_eq!(log.note("b", start), Some(0));
        assert_eq!(log.note("a", start + INTERVAL), Some(2));
    }
}
