//! A session: load the sampler, read its ring until time is up or somebody says stop, and
//! make a profile of what came.
//!
//! It blocks its thread. Everything it puts into the kernel is gone when it returns,
//! whatever the way out.

use super::sampler::{self, Sampler};
use super::table::Table;
use super::{Profile, Spec, symbols};
use crate::error::Failure;
use crate::sys;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often the ring is read. The sampler wakes nobody: this is what bounds the ring's fill.
pub(super) const READ_INTERVAL: Duration = Duration::from_millis(50);
/// How often the list of CPUs that are online is read again.
const CPUS_INTERVAL: Duration = Duration::from_secs(1);

/// Ends a session from another thread; clones end the same one.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// For a session that runs yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the session; it keeps what it has, and one that has not begun ends at once.
    pub fn stop(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    /// Waits until then or the stop; whether it was stopped.
    fn wait_until(&self, then: Instant) -> bool {
        let (stopped, changed) = &*self.0;
        let stopped = stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let left = then.saturating_duration_since(Instant::now());
        let waited = changed.wait_timeout_while(stopped, left, |stopped| !*stopped);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Does ahead, once, what the first session would wait for (tens of milliseconds); for a
/// daemon's start, on a thread that may block.
pub fn prepare() {
    sampler::prepare();
    sys::memory::release_freed();
}

/// Samples as `spec` says, calls `started` once sampling has begun, and returns the profile.
///
/// # Errors
/// Nothing could be sampled: no permission, no eBPF in the kernel, no CPU that takes the
/// event. A process that ends in the middle is no error: what was taken of it stays.
pub fn run(spec: &Spec, started: impl FnOnce(), stop: &Stop) -> Result<Profile, Failure> {
    let mut sampler = Sampler::start(spec)?;
    let (start_unix_ns, begin) = (unix_ns(), Instant::now());
    started();

    let mut table = Table::default();
    let end = begin + spec.duration;
    let mut cpus_due = begin + CPUS_INTERVAL;
    loop {
        let now = Instant::now();
        let stopped = stop.wait_until(end.min(now + READ_INTERVAL));
        sampler.drain(|record| table.add(record));
        let now = Instant::now();
        if stopped || now >= end {
            break;
        }
        if now >= cpus_due {
            sampler.follow_cpus();
            cpus_due = now + CPUS_INTERVAL;
        }
    }
    let duration = begin.elapsed();
    // No sample is taken from here on, so the last drain and the counters agree.
    sampler.detach();
    sampler.drain(|record| table.add(record));
    let counters = sampler.counters()?;
    let mut profile = Profile {
        event: sampler.event().to_owned(),
        freq_hz_asked: spec.freq_hz,
        freq_hz: sampler.freq_hz(),
        start_unix_ns,
        duration_ns: duration.as_nanos().try_into().unwrap_or(u64::MAX),
        samples: table.samples,
        samples_kernel: table.samples_kernel,
        // What the ring refused, and what reached it and was not counted here.
        lost: counters.lost + counters.samples.saturating_sub(table.samples),
        idle: counters.idle,
        notes: sampler.take_notes(),
        ..Profile::default()
    };
    drop(sampler);
    if table.refused > 0 {
        profile.notes.push(format!("{} samples found the table of distinct stacks full", table.refused));
    }
    symbols::resolve(&table, &mut profile);
    drop(table);
    sys::memory::release_freed();
    Ok(profile)
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_ends_a_wait_at_once() {
        let stop = Stop::new();
        let other = stop.clone();
        let begin = Instant::now();
        let thread = std::thread::spawn(move || other.wait_until(begin + Duration::from_secs(20)));
        stop.stop();
        assert!(thread.join().unwrap());
        assert!(stop.wait_until(Instant::now() + Duration::from_secs(20)), "it stays stopped");
        assert!(begin.elapsed() < Duration::from_secs(10));
        assert!(!Stop::new().wait_until(Instant::now()));
    }
}
