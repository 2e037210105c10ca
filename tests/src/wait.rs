//! Waiting, always with a limit.

use std::time::{Duration, Instant};

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Polls until `look` gives something, at most for `limit`.
pub fn wait_for<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Polls until `holds` does, at most for `limit`, and returns how long it took; panics
/// with `what` when the limit passes.
#[track_caller]
pub fn eventually(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let begin = Instant::now();
    match wait_for(limit, || holds().then(|| begin.elapsed())) {
        Some(took) => took,
        None => panic!("not within {limit:?}: {what}"),
    }
}
