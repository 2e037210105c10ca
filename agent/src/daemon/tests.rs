//! The whole daemon in this process, and fake processes that join it.

use super::{Bound, Options};
use crate::config::Config;
use crate::control::client::{self, Line};
use crate::control::protocol::{CONTROL_SOCKET, REQUEST_BYTES_MAX, Reply, Select, Verb};
use crate::error::Failure;
use crate::sys::fake::{Fake, Joining};
use crate::sys::{clock, peer};
use runtime_core_abi::handshake::{HELLO_BYTES, Hello, REGISTER_SOCKET};
use runtime_core_abi::page::{NODE_HTTP, Owner};
use runtime_core_abi::record::Head;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A daemon on a folder of its own; it stops and the folder goes with this value.
struct Daemon {
    run_dir: PathBuf,
    listen: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

fn folder() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("tracebyte-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    std::env::temp_dir().join(name)
}

fn options(run_dir: &Path, config: Config) -> Options {
    Options { config, run_dir: Some(run_dir.to_owned()), listen: Some(([127, 0, 0, 1], 0).into()) }
}

impl Daemon {
    fn start() -> Self {
        Self::with(|_| ())
    }

    fn with(configure: impl FnOnce(&mut Bound)) -> Self {
        let run_dir = folder();
        let mut bound = Bound::new(options(&run_dir, Config::default())).unwrap();
        configure(&mut bound);
        let listen = bound.listen();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(bound.serve(async move { drop(stopped.await) }))
        });
        Self { run_dir, listen, stop: Some(stop), thread: Some(thread) }
    }

    fn join(&self, service: &str) -> Box<Fake> {
        match Fake::join(&self.run_dir, service).unwrap() {
            Joining::Joined(fake) => {
                wait(|| self.pids().len() == 1);
                fake
            }
            other => panic!("{other:?}"),
        }
    }

    fn ask(&self, verb: Verb) -> Result<Reply, Failure> {
        client::ask(&self.run_dir, verb)
    }

    fn pids(&self) -> Vec<u32> {
        match self.ask(Verb::Ps).unwrap() {
            Reply::Targets { targets } => targets.into_iter().map(|target| target.pid).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn on(&self, select: Select, for_ms: Option<u64>) -> Result<Reply, Failure> {
        self.ask(Verb::TraceOn { category: "node.http".into(), select, for_ms })
    }

    fn off(&self) -> Reply {
        self.ask(Verb::TraceOff { category: None, select: Select::All }).unwrap()
    }

    fn raw_control(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(self.run_dir.join(CONTROL_SOCKET)).unwrap();
        // The agent may refuse before it has read everything.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    fn http(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.listen).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn metric(&self, series: &str) -> Option<f64> {
        let text = self.http("GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }

    fn stop(&mut self) -> Duration {
        let start = Instant::now();
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
        start.elapsed()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.run_dir);
    }
}

fn wait(mut until: impl FnMut() -> bool) {
    let start = Instant::now();
    while !until() {
        assert!(start.elapsed() < Duration::from_secs(10), "it did not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn own_pid() -> u32 {
    std::process::id()
}

/// Reads a stream to its end: the events, then the closing line.
fn read_all(session: &mut client::Session) -> (Vec<serde_json::Value>, Reply) {
    let mut events = Vec::new();
    loop {
        match session.next_line().unwrap() {
            Some(Line::Event(line)) => events.push(serde_json::from_str(line).unwrap()),
            Some(Line::Reply(end @ Reply::End { .. })) => return (events, end),
            other => panic!("{other:?}"),
        }
    }
}

fn start_stream(daemon: &Daemon, verb: Verb) -> (client::Session, Vec<String>) {
    let mut session = client::send(&daemon.run_dir, verb).unwrap();
    let notes = match session.next_line().unwrap() {
        Some(Line::Reply(Reply::Started { notes })) => notes,
        other => panic!("{other:?}"),
    };
    (session, notes)
}

#[test]
fn every_event_of_a_window_comes_once_and_none_from_outside() {
    let daemon = Daemon::start();
    let fake = daemon.join("api");
    daemon.on(Select::Pid(own_pid()), None).unwrap();
    assert!(fake.is_on());
    let mut producer = fake.producer(3);
    (0..50).for_each(|id| assert!(fake.request(&mut producer, id)));
    let (mut session, notes) = start_stream(&daemon, Verb::Record { select: Select::All, duration_ms: 3_600_000 });
    assert!(notes.is_empty());
    let from_us = clock::monotonic_ns() as f64 / 1e3;
    (100..1100).for_each(|id| {
        assert!(fake.request(&mut producer, id));
        if id % 100 == 0 {
            std::thread::sleep(Duration::from_millis(12));
        }
    });
    session.stopper().stop().unwrap();
    let (events, end) = read_all(&mut session);
    assert!(events.len() == 2000 && events.iter().all(|event| event["ts"].as_f64().unwrap() >= from_us - 0.001));
    assert_eq!(events[0]["args"]["method"], "GET");
    assert!(matches!(&end, Reply::End { events: 2000, lost, .. } if lost.is_empty()), "{end:?}");

    wait(|| daemon.metric(r#"tracebyte_trace_events_total{category="node.http",service="api"}"#) == Some(2100.0));
    let count = r#"http_server_request_duration_seconds_count{http_request_method="GET",http_response_status_code="200",http_route="",service="api"}"#;
    assert_eq!(daemon.metric(count), Some(1050.0));
    assert_eq!(daemon.metric(r#"tracebyte_trace_enabled{category="node.http",service="api"}"#), Some(1.0));
    assert!(matches!(daemon.off(), Reply::Switched { pids, .. } if pids == [own_pid()]));
    assert!(!fake.is_on());
    // Drained and released; then it works again.
    std::thread::sleep(Duration::from_millis(80));
    daemon.on(Select::Service("api".into()), None).unwrap();
    assert!(fake.request(&mut producer, 5000));
    wait(|| daemon.metric(r#"tracebyte_trace_events_total{category="node.http",service="api"}"#) == Some(2102.0));
}

#[test]
fn a_window_ends_by_its_clock_and_an_empty_one_is_fine() {
    let daemon = Daemon::start();
    let fake = daemon.join("api");
    let start = Instant::now();
    let (mut session, notes) = start_stream(&daemon, Verb::Record { select: Select::All, duration_ms: 50 });
    assert!(start.elapsed() < Duration::from_millis(100) && notes[0].contains("nothing is switched on"), "{notes:?}");
    assert!(read_all(&mut session).0.is_empty());
    daemon.on(Select::All, None).unwrap();
    let (mut session, _) = start_stream(&daemon, Verb::Record { select: Select::All, duration_ms: 30 });
    let until_us = clock::monotonic_ns() as f64 / 1e3 + 30_000.0;
    let mut producer = fake.producer(0);
    (0..200).for_each(|id| {
        fake.request(&mut producer, id);
        std::thread::sleep(Duration::from_micros(300));
    });
    let (events, _) = read_all(&mut session);
    assert!(!events.is_empty() && events.iter().all(|event| event["ts"].as_f64().unwrap() < until_us));
}

#[test]
fn losses_and_garbage_in_the_ring_are_counted_and_told() {
    let daemon = Daemon::start();
    let fake = daemon.join("api");
    daemon.on(Select::All, None).unwrap();
    let (mut session, _) = start_stream(&daemon, Verb::Watch { select: Select::Pid(own_pid()) });
    let mut producer = fake.producer(0);
    let head = |phase| Head { phase, ts_ns: clock::monotonic_ns(), ..Head::default() };
    let kept = (0..100_000).filter(|_| producer.push(&head(b'i'), b"e", &[])).count();
    fake.producer(1).push(&head(b'?'), b"e", &[]);
    fake.page().header.events_unlaned.store(7, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(50));
    session.stopper().stop().unwrap();
    let (events, end) = read_all(&mut session);
    assert_eq!(events.len(), kept);
    let Reply::End { lost, .. } = end else { panic!("{end:?}") };
    assert_eq!(lost.get("ring_full").copied().unwrap_or(0), 100_000 - kept as u64);
    assert_eq!((lost.get("malformed"), lost.get("no_lane")), (Some(&1), Some(&7)));
}

#[test]
fn the_end_of_a_lease_leaves_nothing_on() {
    let daemon = Daemon::start();
    let fake = daemon.join("api");
    daemon.on(Select::All, None).unwrap();
    fake.page().enable_byte(NODE_HTTP, Owner::Trigger).store(1, Ordering::Relaxed);
    fake.page().enable_byte(NODE_HTTP, Owner::Process).store(1, Ordering::Relaxed);
    (&fake.socket).write_all(b"a byte is as good as the end").unwrap();
    wait(|| !fake.is_on());
    wait(|| daemon.pids().is_empty());
    assert_eq!(fake.page().enable_bytes(NODE_HTTP), [1, 0, 0, 0]);
    let again = daemon.join("api");
    assert_eq!(again.page().enable_bytes(NODE_HTTP)[0], 1, "the page that it had");
    assert!(matches!(Fake::join(&daemon.run_dir, "api").unwrap(), Joining::Refused(why) if why.contains("already")));
}

#[test]
fn time_limits_replace_and_cancel_each_other() {
    let daemon = Daemon::start();
    let fake = daemon.join("api");
    daemon.on(Select::All, Some(30)).unwrap();
    assert!(fake.is_on());
    wait(|| !fake.is_on());
    daemon.on(Select::All, Some(30)).unwrap();
    daemon.on(Select::All, None).unwrap();
    std::thread::sleep(Duration::from_millis(60));
    assert!(fake.is_on());
    daemon.on(Select::All, Some(1)).unwrap();
    wait(|| !fake.is_on());
    assert!(matches!(daemon.off(), Reply::Switched { notes, .. } if notes == ["nothing was on"]));
}

#[test]
fn what_is_unknown_is_named() {
    let daemon = Daemon::start();
    let message = |result: Result<Reply, Failure>| result.unwrap_err().message;
    assert!(message(daemon.on(Select::All, None)).contains("none has joined"));
    let _fake = daemon.join("api");
    assert!(message(daemon.on(Select::Service("web".into()), None)).contains("`api`"));
    assert!(message(daemon.on(Select::Pid(1), None)).contains("has not joined"));
    assert!(message(daemon.on(Select::Pid(0x7fff_fff0), None)).contains("no such process"));
    let unknown = Verb::TraceOn { category: "nope".into(), select: Select::All, for_ms: None };
    assert!(message(daemon.ask(unknown)).contains("`node.http`"));
    let long = Verb::Record { select: Select::All, duration_ms: u64::MAX };
    assert!(message(daemon.ask(long)).contains("one hour"));
}

#[test]
fn garbage_on_the_control_socket_gets_one_error_and_harms_nobody() {
    let daemon = Daemon::start();
    for (bytes, words) in [
        (b"\xff\xfe garbage\n".to_vec(), "not a request"),
        (b"{\"v\":1,\"verb\":".to_vec(), "ends in the middle"),
        (vec![b'x'; 2 * REQUEST_BYTES_MAX], "longer than"),
        (b"{\"v\":9,\"verb\":\"ps\"}\n".to_vec(), "version 9"),
        (b"{\"v\":1,\"verb\":\"dance\"}\n".to_vec(), "dance"),
        (b"{\"v\":1,\"verb\":\"stop\"}\n".to_vec(), "no"),
    ] {
        let answer = daemon.raw_control(&bytes);
        assert!(answer.contains(words) && answer.starts_with(r#"{"type":"error""#), "{answer}");
        assert_eq!(answer.lines().count(), 1);
    }
    assert_eq!(daemon.raw_control(b""), "");
    let _slow: Vec<_> = (0..20).map(|_| UnixStream::connect(daemon.run_dir.join(CONTROL_SOCKET)).unwrap()).collect();
    assert!(daemon.pids().is_empty());
}

#[test]
fn garbage_on_the_registration_socket_is_counted_and_harms_nobody() {
    let daemon = Daemon::start();
    let path = daemon.run_dir.join(REGISTER_SOCKET);
    let _half = UnixStream::connect(&path).unwrap().write_all(b"half");
    UnixStream::connect(&path).unwrap().write_all(&[0xff; HELLO_BYTES]).unwrap();
    let mut huge = UnixStream::connect(&path).unwrap();
    while huge.write_all(&[0xff; 65536]).is_ok() {}
    let slow = UnixStream::connect(&path).unwrap();
    let mut hello = Hello::new("api");
    hello.version = 77;
    let refused = Fake::join_with(&daemon.run_dir, &hello.encode()).unwrap();
    assert!(matches!(&refused, Joining::Refused(why) if why.contains("version 77")), "{refused:?}");
    let fake = daemon.join("api\n");
    wait(|| daemon.metric(r#"tracebyte_registrations_refused_total{reason="garbled"}"#) >= Some(3.0));
    assert_eq!(daemon.metric(r#"tracebyte_registrations_refused_total{reason="version"}"#), Some(1.0));
    drop((slow, fake));
}

#[test]
fn crowds_that_say_nothing_keep_nobody_out() {
    let daemon = Daemon::start();
    let crowd = |socket: &str| -> Vec<_> {
        (0..300).map(|_| UnixStream::connect(daemon.run_dir.join(socket)).unwrap()).collect()
    };
    let start = Instant::now();
    let _silent = (crowd(CONTROL_SOCKET), crowd(REGISTER_SOCKET));
    let _idle: Vec<_> = (0..300).map(|_| TcpStream::connect(daemon.listen).unwrap()).collect();
    daemon.join("api");
    daemon.http("GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn who_asks_for_metrics_and_does_not_read_them_keeps_nobody_out() {
    let daemon = Daemon::start();
    let requests = "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n".repeat(1000);
    let _deaf: Vec<_> = (0..130)
        .map(|_| {
            let mut stream = TcpStream::connect(daemon.listen).unwrap();
            stream.set_nonblocking(true).unwrap();
            // As much as goes.
            let _ = stream.write_all(requests.as_bytes());
            stream
        })
        .collect();
    assert!(daemon.metric("tracebyte_targets{kind=\"runtime-core\"}").is_some());
}

#[test]
fn off_is_off_whoever_switched_it_on_in_our_name() {
    let daemon = Daemon::start();
    let fake = daemon.join("api");
    fake.page().enable_byte(NODE_HTTP, Owner::Operator).store(1, Ordering::Relaxed);
    daemon.off();
    assert!(!fake.is_on());
}

#[test]
fn ten_thousand_registrations_leave_no_trace() {
    let daemon = Daemon::start();
    let held = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = held();
    for _ in 0..10_000 {
        // The end of the last lease may not have been seen yet; that is refused, and fine.
        drop(Fake::join(&daemon.run_dir, "api").unwrap());
    }
    wait(|| daemon.pids().is_empty());
    // Other tests run beside this one: far fewer than ten thousand is the point.
    assert!(held() < before + 500, "{before} descriptors before, {} after", held());
    daemon.join("api");
}

#[test]
fn an_agent_that_stops_ends_sessions_and_leaves_nothing() {
    let mut daemon = Daemon::start();
    let fake = daemon.join("api");
    daemon.on(Select::All, None).unwrap();
    let (mut session, _) = start_stream(&daemon, Verb::Watch { select: Select::All });
    assert!(fake.request(&mut fake.producer(0), 1));
    let watcher = std::thread::spawn(move || read_all(&mut session));
    assert!(daemon.stop() < Duration::from_secs(2));
    assert!(!fake.is_on());
    let (events, end) = watcher.join().unwrap();
    assert_eq!(events.len(), 2);
    assert!(matches!(end, Reply::End { notes, .. } if notes == ["the agent is stopping"]));
    assert_eq!((&fake.socket).read(&mut [0]).unwrap(), 0);
    let left: Vec<_> = std::fs::read_dir(&daemon.run_dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["agent.lock"]);
}

#[test]
fn one_agent_a_run_directory_and_stale_sockets_are_replaced() {
    let daemon = Daemon::start();
    let second = Bound::new(options(&daemon.run_dir, Config::default())).unwrap_err();
    assert!(second.message.contains("another agent") && second.message.contains(&own_pid().to_string()), "{second}");
    let refused = folder();
    let taken = Bound::new(Options { listen: Some(daemon.listen), ..options(&refused, Config::default()) });
    assert!(taken.unwrap_err().message.contains("cannot listen on"));
    std::fs::remove_dir_all(&refused).unwrap();
    let mode = daemon.run_dir.join("agent.lock").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "who may open the lock may hold it");
    let stale = folder();
    drop(Bound::new(options(&stale, Config::default())).unwrap());
    assert!(stale.join(CONTROL_SOCKET).exists(), "left behind as by a crash");
    drop(Bound::new(options(&stale, Config::default())).unwrap());
    std::fs::remove_dir_all(&stale).unwrap();
}

#[test]
fn names_that_do_not_exist_are_found_before_the_start() {
    let mut config = Config::default();
    assert_eq!(super::check_names(&config), Ok(()));
    config.register.allow_users = Some(vec!["no-such-user-here".into()]);
    assert!(super::check_names(&config).unwrap_err().message.contains("no-such-user-here"));
}

#[test]
fn http_serves_two_paths_and_one_method() {
    let daemon = Daemon::start();
    for (line, status) in [
        ("GET /healthz", "200"),
        ("GET /metrics", "200"),
        ("HEAD /metrics", "405"),
        ("POST /metrics", "405"),
        ("GET /", "404"),
        ("GET /debug/pprof", "404"),
        ("DELETE /x", "404"),
        ("nonsense", "400"),
    ] {
        let answer = daemon.http(&format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{line}: {answer}");
    }
    let metrics = daemon.http("GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert!(metrics.contains("content-type: text/plain; version=0.0.4"), "{metrics}");
}

#[test]
fn without_bpf_pages_are_memfds_and_profiles_say_why_not() {
    let daemon = Daemon::with(|bound| bound.reduced = Some("no permission".into()));
    let fake = daemon.join("api");
    daemon.on(Select::All, None).unwrap();
    assert!(fake.is_on());
    let Reply::Targets { targets } = daemon.ask(Verb::Ps).unwrap() else { panic!("not targets") };
    assert_eq!(targets[0].page, "memfd");
    let profile = Verb::Profile { select: Select::All, duration_ms: 10, freq_hz: 99, kernel: true, user: true };
    let failure = daemon.ask(profile).unwrap_err();
    assert!(failure.message.contains("no permission") && failure.remedy.is_some(), "{failure}");
}

#[test]
fn users_who_are_not_named_do_not_register() {
    let daemon = Daemon::with(|bound| bound.allowed = Some([peer::own_uid() + 1].into()));
    let refused = Fake::join(&daemon.run_dir, "api").unwrap();
    assert!(matches!(&refused, Joining::Refused(why) if why.contains("permission denied")), "{refused:?}");
}
