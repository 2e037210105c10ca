//! The registration socket: join, lease, leave.
//!
//! Any user may connect, so each connection has deadlines, its unfinished part is limited
//! by user, and nothing in a message is believed: who somebody is the kernel says. After
//! `JOINED` the connection is the lease and carries nothing; it ends with the socket, with
//! the first byte on it, or with the process.

mod gate;
mod log;

use crate::sink::metrics::Metrics;
use crate::sys::{fd, peer, proc};
use crate::target::registry::{Applicant, Offer, Refusal, Registry};
use crate::target::{Target, service_name};
use gate::{Gate, Ticket};
use log::RefusalLog;
use runtime_core_abi::handshake::{HELLO_BYTES, Hello, JOINED, Reason, Welcome};
use runtime_core_abi::page;
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::io::unix::AsyncFd;
use tokio::net::{UnixListener, UnixStream};

/// How long a hello may take.
const HELLO_LIMIT: Duration = Duration::from_secs(2);
/// How long a process may take to map its page.
const JOIN_LIMIT: Duration = Duration::from_secs(5);
/// How long nobody is accepted after an error such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The registration socket's server.
#[derive(Debug)]
pub struct Server {
    registry: Arc<Registry>,
    metrics: Arc<Metrics>,
    /// The users who may register; everybody where absent.
    allowed: Option<HashSet<u32>>,
    /// Lease sockets get descriptors from this number on.
    fd_floor: i32,
    log: RefusalLog,
}

/// How a connection ended before it became a lease.
#[derive(Debug)]
enum Unfinished {
    /// The process was told why.
    Refused(Refusal),
    /// What came was no hello, or no `JOINED`, or did not come in time.
    Garbled(&'static str),
    /// Too many newer ones came before it was done.
    Crowded,
    /// The connection failed.
    Io(io::Error),
}

impl From<io::Error> for Unfinished {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Server {
    /// A server for `registry`.
    pub fn new(
        registry: Arc<Registry>,
        metrics: Arc<Metrics>,
        allowed: Option<HashSet<u32>>,
        fd_floor: i32,
    ) -> Arc<Self> {
        Arc::new(Self { registry, metrics, allowed, fd_floor, log: RefusalLog::default() })
    }

    /// Accepts for ever.
    pub async fn serve(self: Arc<Self>, listener: UnixListener) {
        let mut gate = Gate::new();
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    self.count("accept", &error);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Ok(peer) = peer::peer(stream.as_fd()) else { continue };
            let (server, ticket) = (Arc::clone(&self), gate.enter(peer.uid));
            tokio::spawn(async move {
                match server.join(stream, peer, ticket).await {
                    Ok((stream, offer)) => server.hold(stream, &offer).await,
                    Err(unfinished) => server.count_unfinished(&unfinished, peer),
                }
            });
        }
    }

    /// Leads a connection to its lease.
    async fn join(
        &self,
        stream: UnixStream,
        peer: peer::Peer,
        mut ticket: Ticket,
    ) -> Result<(UnixStream, Offer), Unfinished> {
        let stream = fd::move_above(stream.into_std()?, self.fd_floor);
        let mut stream = UnixStream::from_std(stream)?;
        let mut hello = [0; HELLO_BYTES];
        match read(&mut stream, &mut hello, HELLO_LIMIT, &mut ticket).await? {
            Ok(_) => {}
            Err(_) => return Err(Unfinished::Garbled("the hello was cut short")),
        }
        let Ok(hello) = Hello::decode(&hello) else { return Err(Unfinished::Garbled("not a hello")) };
        let offer = match self.admit(&stream, peer, &hello) {
            Ok(offer) => offer,
            Err(refusal) => {
                let welcome = Welcome::Refused(Reason::new(&refusal.to_string())).encode();
                // A process that does not wait for the reason misses nothing.
                let _ = stream.try_write(&welcome);
                return Err(Unfinished::Refused(refusal));
            }
        };
        match self.hand_over(&mut stream, &offer.target, &mut ticket).await {
            Ok(()) => {
                self.registry.joined(&offer);
                let (pid, uid, service) = (peer.pid, peer.uid, &offer.target.service);
                if offer.new {
                    tracing::info!(pid, uid, service, "joined");
                } else {
                    // A process can come and go all day, and must not fill the log.
                    tracing::debug!(pid, uid, service, "joined again");
                }
                Ok((stream, offer))
            }
            Err(unfinished) => {
                self.registry.end_lease(&offer);
                Err(unfinished)
            }
        }
    }

    /// Whether a process may join, by what the kernel says of it.
    fn admit(&self, stream: &UnixStream, peer: peer::Peer, hello: &Hello) -> Result<Offer, Refusal> {
        let peer::Peer { pid, uid, .. } = peer;
        if pid == 0 {
            return Err(Refusal::Invisible);
        }
        if self.allowed.as_ref().is_some_and(|allowed| !allowed.contains(&uid)) {
            return Err(Refusal::User(uid));
        }
        if hello.version != page::VERSION {
            return Err(Refusal::Version(hello.version));
        }
        let pidfd = peer::pidfd(stream.as_fd(), pid).map_err(Refusal::System)?;
        let start_time = proc::start_time(pid).map_err(Refusal::System)?;
        if !peer::lives(pidfd.as_fd()) {
            return Err(Refusal::System(io::Error::from_raw_os_error(libc::ESRCH)));
        }
        let pidfd = peer::wait_on(pidfd).map_err(Refusal::System)?;
        let service = service_name(hello.service());
        let offer = self.registry.offer(Applicant { pid, start_time, uid, service })?;
        if offer.new {
            tokio::spawn(reap(Arc::clone(&self.registry), Arc::clone(&offer.target), pidfd));
        }
        Ok(offer)
    }

    /// Sends page and rings, and waits until the process has mapped them.
    async fn hand_over(&self, stream: &mut UnixStream, target: &Target, ticket: &mut Ticket) -> Result<(), Unfinished> {
        target.send(stream.as_fd())?;
        let mut answer = [0];
        match read(stream, &mut answer, JOIN_LIMIT, ticket).await? {
            Ok(_) if answer == [JOINED] => Ok(()),
            Ok(_) => Err(Unfinished::Garbled("not `joined`")),
            Err(_) => Err(Unfinished::Garbled("the process did not take its page")),
        }
    }

    /// Waits for the end of a lease.
    async fn hold(&self, mut stream: UnixStream, offer: &Offer) {
        let mut any = [0];
        tokio::select! {
            // A byte is as good as the end: nothing is said on a lease.
            _ = stream.read(&mut any) => {}
            () = offer.target.ended() => {}
        }
        self.registry.end_lease(offer);
        tracing::debug!(pid = offer.target.pid, service = offer.target.service, "left");
    }

    fn count_unfinished(&self, unfinished: &Unfinished, peer: peer::Peer) {
        let peer::Peer { pid, uid, .. } = peer;
        match unfinished {
            Unfinished::Refused(refusal) => {
                self.count(refusal.label(), &format_args!("pid {pid}, uid {uid}: {refusal}"))
            }
            Unfinished::Garbled(what) => self.count("garbled", &format_args!("pid {pid}, uid {uid}: {what}")),
            Unfinished::Crowded => self.count("busy", &format_args!("too many unfinished registrations of user {uid}")),
            Unfinished::Io(error) => self.count("system", &format_args!("pid {pid}, uid {uid}: {error}")),
        }
    }

    fn count(&self, reason: &'static str, why: &dyn std::fmt::Display) {
        self.metrics.refused.with_label_values(&[reason]).inc();
        self.log.refused(reason, why);
    }
}

/// Fills a buffer within a limit of time, and for as long as there are not too many others.
async fn read(
    stream: &mut UnixStream,
    buffer: &mut [u8],
    limit: Duration,
    ticket: &mut Ticket,
) -> Result<io::Result<usize>, Unfinished> {
    tokio::select! {
        read = stream.read_exact(buffer) => Ok(read),
        () = tokio::time::sleep(limit) => Err(Unfinished::Garbled("it did not come in time")),
        () = ticket => Err(Unfinished::Crowded),
    }
}

/// Waits for the end of a process, with or without a lease.
async fn reap(registry: Arc<Registry>, target: Arc<Target>, pidfd: AsyncFd<OwnedFd>) {
    // An error means that the runtime is going, and the registry with it.
    if pidfd.readable().await.is_ok() {
        registry.process_ended(&target);
    }
}
