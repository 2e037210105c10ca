//! The control socket's server: who may, what is asked, and the answer.
//!
//! A connection is checked, read under a deadline and a bound, and answered. Whatever is
//! wrong with it gets one `error` line that says so, and the connection is closed.

mod access;
mod profile;
mod stream;
mod wire;

pub use access::{Access, look_up};

use super::protocol::{REQUEST_BYTES_MAX, Reply, Select, VERSION, Verb};
use crate::error::Failure;
use crate::room::{Place, Room};
use crate::sink::Sinks;
use crate::sys::peer::Peer;
use crate::target::drain::Drain;
use crate::target::registry::Registry;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use wire::Wire;

/// The longest `--for`, `record` and `profile`.
const DURATION_MAX: Duration = Duration::from_secs(3600);
/// Connections that have not asked yet; one more takes the place of the oldest.
const SILENT_MAX: usize = 32;
/// Connections beside those that carry a stream, those about to end included.
const CONNECTIONS_SPARE: usize = 2 * SILENT_MAX;
/// Profiles at once: each samples every CPU.
const PROFILES_MAX: usize = 4;
/// How long nobody is accepted after an error such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Everything that a request can be about.
#[derive(Debug)]
pub struct Server {
    /// What can be traced.
    pub registry: Arc<Registry>,
    /// Who reads the rings.
    pub drain: Arc<Drain>,
    /// Where events go.
    pub sinks: Arc<Sinks>,
    /// Why there are no kernel features, where there are none.
    pub reduced: Option<String>,
    access: Access,
    connections: Arc<Semaphore>,
    streams: Semaphore,
    streams_max: usize,
    profiles: Semaphore,
    stopping: watch::Receiver<bool>,
}

impl Server {
    /// A server that carries at most `streams_max` streams at once and ends them when
    /// `stopping` turns true.
    pub fn new(
        (registry, drain, sinks): (Arc<Registry>, Arc<Drain>, Arc<Sinks>),
        reduced: Option<String>,
        access: Access,
        streams_max: usize,
        stopping: watch::Receiver<bool>,
    ) -> Arc<Self> {
        Arc::new(Self {
            registry,
            drain,
            sinks,
            reduced,
            access,
            connections: Arc::new(Semaphore::new(streams_max + CONNECTIONS_SPARE)),
            streams: Semaphore::new(streams_max),
            streams_max,
            profiles: Semaphore::new(PROFILES_MAX),
            stopping,
        })
    }

    /// Accepts for ever.
    pub async fn serve(self: Arc<Self>, listener: UnixListener) {
        let mut silent = Room::new(SILENT_MAX);
        loop {
            // A permit first: who comes beyond the bound waits in the listener's queue.
            let Ok(permit) = Arc::clone(&self.connections).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (server, place) = (Arc::clone(&self), silent.enter());
                    tokio::spawn(async move {
                        server.answer(stream, place).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept on the control socket");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Returns once no connection is served any more.
    pub async fn idle(&self) {
        // All permits but the one that waits to accept; the semaphore is never closed.
        let all = self.streams_max + CONNECTIONS_SPARE - 1;
        let _ = self.connections.acquire_many(all as u32).await;
    }

    async fn answer(&self, stream: UnixStream, place: Place) {
        let admitted = self.access.check(&stream);
        let mut wire = Wire::new(stream);
        let result = match admitted {
            Ok(peer) => match wire.request(REQUEST_BYTES_MAX, place).await {
                // Nothing was asked: somebody only looked whether we listen.
                Ok(None) => return,
                Ok(Some(verb)) => self.serve_verb(verb, peer, &mut wire).await,
                Err(failure) => Err(failure),
            },
            Err(failure) => Err(failure),
        };
        if let Err(failure) = result {
            self.sinks.metrics.control_errors.inc();
            tracing::debug!(%failure, "request failed");
            wire.reply_last(&Reply::Error(failure)).await;
        }
    }

    async fn serve_verb(&self, verb: Verb, peer: Peer, wire: &mut Wire) -> Result<(), Failure> {
        if !matches!(verb, Verb::Ps) {
            tracing::info!(uid = peer.uid, pid = peer.pid, "asked: {verb:?}");
        }
        match verb {
            Verb::Ps => wire.reply_last(&Reply::Targets { targets: self.registry.list() }).await,
            Verb::TraceOn { category, select, for_ms } => {
                let limit = for_ms.map(|ms| bounded("a time limit", ms)).transpose()?;
                let pids = self.registry.switch_on(&category, &select, limit)?;
                wire.reply_last(&Reply::Switched { pids, notes: Vec::new() }).await;
            }
            Verb::TraceOff { category, select } => {
                let pids = self.registry.switch_off(category.as_deref(), &select)?;
                let notes = if pids.is_empty() { vec!["nothing was on".into()] } else { Vec::new() };
                wire.reply_last(&Reply::Switched { pids, notes }).await;
            }
            Verb::Watch { select } => self.stream(select, None, wire).await?,
            Verb::Record { select, duration_ms } => {
                self.stream(select, Some(bounded("a recording", duration_ms)?), wire).await?;
            }
            Verb::Profile { select, duration_ms, freq_hz, kernel, user } => {
                let duration = bounded("a profile", duration_ms)?;
                let pids = self.profile_pids(&select)?;
                let spec = crate::profile::Spec { pids, duration, freq_hz, kernel, user };
                self.profile(spec, wire).await?;
            }
            Verb::Stop => return Err(Failure::usage("`stop` ends a stream, and this connection carries none")),
        }
        Ok(())
    }

    /// Any process can be profiled, whether or not it has joined.
    fn profile_pids(&self, select: &Select) -> Result<Option<Vec<u32>>, Failure> {
        match select {
            Select::All => Ok(None),
            Select::Pid(pid) if crate::sys::proc::exists(*pid) => Ok(Some(vec![*pid])),
            Select::Pid(_) | Select::Service(_) => {
                Ok(Some(self.registry.select(select)?.iter().map(|target| target.pid).collect()))
            }
        }
    }
}

fn bounded(what: &str, ms: u64) -> Result<Duration, Failure> {
    let duration = Duration::from_millis(ms);
    if duration > DURATION_MAX {
        return Err(Failure::usage(format!("{what} of {ms} ms is too long: at most one hour")));
    }
    Ok(duration)
}

/// Reads a request line.
fn parse(line: &[u8]) -> Result<Verb, Failure> {
    #[derive(serde::Deserialize)]
    struct Versioned {
        v: u32,
    }
    let bad = |error: serde_json::Error| {
        Failure::usage(format!("not a request: {error}")).remedy(r#"a request is one line such as {"v":1,"verb":"ps"}"#)
    };
    let Versioned { v } = serde_json::from_slice(line).map_err(bad)?;
    if v != VERSION {
        return Err(Failure::new(format!("protocol version {v} is not supported; this agent speaks {VERSION}"))
            .remedy("use the command line of the same version as the agent"));
    }
    serde_json::from_slice::<super::protocol::Request>(line).map(|request| request.verb).map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_are_read() {
        assert_eq!(parse(br#"{"v":1,"verb":"ps"}"#), Ok(Verb::Ps));
        let on = parse(br#"{"v":1,"verb":"trace_on","category":"node.http","select":{"pid":7}}"#);
        let expected = Verb::TraceOn { category: "node.http".into(), select: Select::Pid(7), for_ms: None };
        assert_eq!(on, Ok(expected));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, word) in [
            (&b"\xff\xfe"[..], "not a request"),
            (b"{}", "missing field `v`"),
            (br#"{"v":2,"verb":"ps"}"#, "version 2"),
            (br#"{"v":1,"verb":"dance"}"#, "dance"),
            (br#"{"v":1,"verb":"watch"}"#, "select"),
            (br#"{"v":1,"verb":"watch","select":{"pid":-1}}"#, "-1"),
        ] {
            let message = parse(line).unwrap_err().message;
            assert!(message.contains(word), "{message}");
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&line);
        }
    }
}
