//! `profile`: a session of the sampler on a thread of its own, which ends when its time is
//! up, when the client says so or leaves, or when the agent stops.

use super::Server;
use super::wire::Wire;
use crate::control::protocol::Reply;
use crate::error::Failure;
use crate::profile::Spec;
use crate::profile::session::{self, Stop};
use tokio::sync::oneshot;

/// Stops a session however its request ends.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Server {
    /// Runs a session and sends what came of it.
    pub(super) async fn profile(&self, spec: Spec, wire: &mut Wire) -> Result<(), Failure> {
        if let Some(why) = &self.reduced {
            return Err(Failure::new(format!("profiles need eBPF, which this agent does not have: {why}"))
                .remedy("run the agent as root on a kernel with eBPF; `tracebyte doctor` tells what is missing"));
        }
        let Ok(_permit) = self.profiles.try_acquire() else {
            return Err(Failure::new("too many profiles are running").remedy("wait until one has ended"));
        };
        let stop = Stop::new();
        let _stop_on_drop = StopOnDrop(stop.clone());
        let (started, has_started) = oneshot::channel();
        let mut session = {
            let stop = stop.clone();
            let tell = move || {
                // Nobody listens any more where the request has ended, and that is no matter.
                let _ = started.send(());
            };
            tokio::task::spawn_blocking(move || session::run(&spec, tell, &stop))
        };
        // Where it fails to start, the reason comes from the session itself.
        if has_started.await.is_ok() && wire.reply(&Reply::Started { notes: Vec::new() }).await.is_err() {
            stop.stop();
        }
        let mut stopping = self.stopping.clone();
        let ended = tokio::select! {
            ended = &mut session => Some(ended),
            () = wire.lines.stopped() => None,
            _ = stopping.wait_for(|stopping| *stopping) => None,
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                stop.stop();
                session.await
            }
        };
        let profile = ended.map_err(|error| Failure::new(format!("the profile broke off: {error}")))??;
        let metrics = &self.sinks.metrics;
        metrics.profile_samples.inc_by(profile.samples);
        metrics.profile_samples_lost.inc_by(profile.lost);
        wire.reply_last(&Reply::Profile(Box::new(profile))).await;
        crate::sys::memory::release_freed();
        Ok(())
    }
}
