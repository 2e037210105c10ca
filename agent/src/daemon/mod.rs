//! The daemon: binds everything, says that it is ready, serves, and stops within two
//! seconds with nothing left on.

mod run_dir;
#[cfg(test)]
mod tests;

use crate::config::Config;
use crate::control::protocol::CONTROL_SOCKET;
use crate::control::server::{self, Access};
use crate::error::Failure;
use crate::profile::session;
use crate::sink::Sinks;
use crate::sink::metrics::Metrics;
use crate::sys::{bpf, fd, rlimit, users};
use crate::target::drain::Drain;
use crate::target::registry::{Registry, Settings};
use crate::{http, register};
use run_dir::RunDir;
use runtime_core_abi::handshake::{Backing, REGISTER_SOCKET};
use sd_notify::NotifyState;
use std::collections::HashSet;
use std::io::IsTerminal;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// What sets the log's level, such as `debug` or `tracebyte=debug`.
const LOG_ENV: &str = "TRACEBYTE_LOG";
/// How long sessions may take to send their closing lines when the agent stops.
const SESSIONS_LIMIT: Duration = Duration::from_millis(700);
/// How long what is left may take after that.
const RUNTIME_LIMIT: Duration = Duration::from_millis(300);
/// The highest number from which on listeners, leases and the lock get their descriptors.
const FD_FLOOR_MAX: u64 = 16_384;

/// What the command line says; it wins over the configuration file.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The configuration, loaded.
    pub config: Config,
    /// The run directory, where the command line or the environment names one.
    pub run_dir: Option<PathBuf>,
    /// The address for `/metrics`, where the command line names one.
    pub listen: Option<SocketAddr>,
}

/// Whether the users and groups that a configuration names exist on this machine.
pub fn check_names(config: &Config) -> Result<(), Failure> {
    Access::new(&config.control)?;
    allowed(config).map(drop)
}

/// Everything that must be had before the agent is ready.
#[derive(Debug)]
pub struct Bound {
    config: Config,
    run_dir: RunDir,
    control: UnixListener,
    register: UnixListener,
    http: TcpListener,
    listen: SocketAddr,
    access: Access,
    allowed: Option<HashSet<u32>>,
    fd_floor: i32,
    /// Why there is no eBPF, where there is none.
    reduced: Option<String>,
}

/// Runs the agent until SIGTERM or SIGINT.
pub fn run(options: Options) -> Result<(), Failure> {
    start_log();
    let bound = Bound::new(options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(8)
        .thread_name("agent")
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("cannot start the agent's threads: {error}")))?;
    let result = runtime.block_on(async {
        let mut terminate = on(SignalKind::terminate())?;
        let mut interrupt = on(SignalKind::interrupt())?;
        let stop = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        bound.serve(stop).await
    });
    runtime.shutdown_timeout(RUNTIME_LIMIT);
    result
}

fn on(kind: SignalKind) -> Result<tokio::signal::unix::Signal, Failure> {
    signal(kind).map_err(|error| Failure::new(format!("cannot wait for signals: {error}")))
}

fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env(LOG_ENV)
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A log that is there already, as in a test, is as good.
    let _ = log.with_ansi(std::io::stderr().is_terminal()).with_target(false).try_init();
}

impl Bound {
    /// Takes the run directory, then binds everything. Nothing is left behind on failure.
    pub fn new(options: Options) -> Result<Self, Failure> {
        let Options { config, run_dir, listen } = options;
        let open_files = rlimit::raise_open_files().unwrap_or(1024);
        let fd_floor = (open_files / 2).min(FD_FLOOR_MAX) as i32;
        let access = Access::new(&config.control)?;
        let allowed = allowed(&config)?;
        let run_dir = RunDir::take(&run_dir.unwrap_or_else(|| config.agent.run_dir.clone()), fd_floor)?;
        let listen = listen.unwrap_or(config.agent.listen);
        let (http, listen) = bind_http(listen)?;
        // Users who are named one by one share no group: then anybody may connect, and
        // [`Access`] turns away who is not named.
        let control_mode = if config.control.users.is_empty() { 0o660 } else { 0o666 };
        let control = run_dir.bind(CONTROL_SOCKET, control_mode, access.gid())?;
        let register = run_dir.bind(REGISTER_SOCKET, 0o666, None)?;
        // Where it is not allowed, the kernel may still take the maps without it.
        let _ = rlimit::lift_locked_memory();
        let reduced = bpf::probe_page().err().map(|error| format!("the kernel refuses BPF maps: {error}"));
        Ok(Self {
            config,
            run_dir,
            control: fd::move_above(control, fd_floor),
            register: fd::move_above(register, fd_floor),
            http: fd::move_above(http, fd_floor),
            listen,
            access,
            allowed,
            fd_floor,
            reduced,
        })
    }

    /// Where `/metrics` is served, the port filled in.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Serves until `stop` is done.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> Result<(), Failure> {
        let Self { config, run_dir, control, register, http, listen, access, allowed, fd_floor, reduced } = self;
        let metrics = Metrics::new(config.limits.services_max, reduced.is_none());
        let sinks = Arc::new(Sinks::new(Arc::clone(&metrics), config.limits.open_requests_max));
        let drain = Arc::new(Drain::new(Arc::clone(&sinks)));
        let settings = Settings {
            pages_per_user_max: config.register.pages_per_user_max,
            processes_max: config.register.connections_max,
            ring_bytes_per_lane: config.limits.ring_bytes_per_lane,
            backing: if reduced.is_none() { Backing::BpfArray } else { Backing::Memfd },
        };
        let registry = Registry::new(settings, Arc::clone(&drain), Arc::clone(&metrics));
        let (stopping, stopped) = watch::channel(false);
        if reduced.is_none() {
            tokio::task::spawn_blocking(session::prepare);
        }
        let mode = reduced.as_ref().map_or_else(|| "bpf".to_owned(), |why| format!("reduced: {why}"));
        let shared = (Arc::clone(&registry), Arc::clone(&drain), sinks);
        let control_server = server::Server::new(shared, reduced, access, config.limits.streams_max, stopped);
        let register_server = register::Server::new(Arc::clone(&registry), Arc::clone(&metrics), allowed, fd_floor);

        let cannot = |what: &str, error: std::io::Error| Failure::new(format!("cannot serve {what}: {error}"));
        let control = into_tokio(control).map_err(|error| cannot("the control socket", error))?;
        let register = into_tokio(register).map_err(|error| cannot("the registration socket", error))?;
        http.set_nonblocking(true).map_err(|error| cannot("HTTP", error))?;
        let http = tokio::net::TcpListener::from_std(http).map_err(|error| cannot("HTTP", error))?;
        let drain_thread = {
            let drain = Arc::clone(&drain);
            let thread = std::thread::Builder::new().name("drain".into());
            thread.spawn(move || drain.run()).map_err(|error| cannot("events", error))?
        };
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(Arc::clone(&control_server).serve(control));
        tasks.spawn(register_server.serve(register));
        tasks.spawn(http::serve(http, metrics, Arc::clone(&registry)));
        tasks.spawn(feed_watchdog());

        tracing::info!(run_dir = %run_dir.path().display(), %listen, mode, "ready");
        notify(&[NotifyState::Ready]);
        stop.await;

        tracing::info!("stopping");
        notify(&[NotifyState::Stopping]);
        registry.close();
        stopping.send_replace(true);
        let _ = tokio::time::timeout(SESSIONS_LIMIT, control_server.idle()).await;
        drain.stop();
        // Ends after one look at each target; a panic in it was reported by its thread.
        let _ = drain_thread.join();
        run_dir.remove_sockets();
        tasks.shutdown().await;
        tracing::info!("stopped");
        Ok(())
    }
}

fn into_tokio(listener: UnixListener) -> std::io::Result<tokio::net::UnixListener> {
    listener.set_nonblocking(true)?;
    tokio::net::UnixListener::from_std(listener)
}

fn allowed(config: &Config) -> Result<Option<HashSet<u32>>, Failure> {
    let Some(names) = &config.register.allow_users else { return Ok(None) };
    names.iter().map(|name| server::look_up("user", name, users::uid_of)).collect::<Result<_, _>>().map(Some)
}

fn bind_http(listen: SocketAddr) -> Result<(TcpListener, SocketAddr), Failure> {
    let bound = TcpListener::bind(listen).and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (address, listener) = bound.map_err(|error| {
        let failure = Failure::new(format!("cannot listen on {listen}: {error}"));
        match error.kind() {
            std::io::ErrorKind::AddrInUse => failure.remedy("name another port with --listen, or 127.0.0.1:0 for any"),
            _ => failure,
        }
    })?;
    if !address.ip().is_loopback() {
        tracing::warn!(listen = %address, "metrics are served beyond this machine");
    }
    Ok((listener, address))
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}

/// Feeds the service manager's watchdog, where there is one.
async fn feed_watchdog() {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    loop {
        tokio::time::sleep(limit / 3).await;
        notify(&[NotifyState::Watchdog]);
    }
}
