//! The agent's own troubles: it starts clearly or not at all, and whatever ends it leaves
//! nothing on.

use crate::rig::{Rig, SOON};
use runtime_core_abi::page::Owner;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tracebyte_tests::agent::{self, NOBODY};
use tracebyte_tests::memory::PageAt;
use tracebyte_tests::{
    Agent, AgentOptions, Output, Sandbox, alone, eventually, http, is_root, skip, together, wait_for,
};

/// A stop may take this long.
const STOP_LIMIT: Duration = Duration::from_secs(2);

fn start_fails(sandbox: &Sandbox, options: &AgentOptions, http: std::net::SocketAddr) -> Output {
    agent::spawn(sandbox, options, http).expect("tracebyte starts").wait(SOON).ends_with(1)
}

#[test]
fn a_second_agent_is_refused() {
    let _held = together();
    let sandbox = Sandbox::new();
    let first = Agent::start(&sandbox, &AgentOptions::default());
    let output = start_fails(&sandbox, &AgentOptions::default(), agent::free_address());
    assert!(output.stderr.contains(&*sandbox.run_dir().to_string_lossy()), "{}", output.stderr);
    first.tracebyte(&["ps", "--json"]).ok();
}

#[test]
fn a_port_in_use_ends_the_start() {
    let _held = together();
    let sandbox = Sandbox::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let output = start_fails(&sandbox, &AgentOptions::default(), taken.local_addr().unwrap());
    assert!(output.stderr.contains(&taken.local_addr().unwrap().to_string()), "{}", output.stderr);
    drop(taken);
    Agent::start(&sandbox, &AgentOptions::default());
}

#[test]
fn a_run_dir_that_cannot_be_written_ends_the_start() {
    let _held = together();
    let sandbox = Sandbox::new();
    // A file in the way stops root, too.
    let file = sandbox.path("file");
    std::fs::write(&file, "").unwrap();
    let run_dir = file.join("run");
    let options = AgentOptions::with(&["--run-dir", &run_dir.to_string_lossy()]);
    let output = start_fails(&sandbox, &options, agent::free_address());
    assert!(output.stderr.contains(&*run_dir.to_string_lossy()), "{}", output.stderr);
}

#[test]
fn a_run_dir_of_somebody_else_is_named() {
    let _held = together();
    if !is_root() {
        skip!("becoming another user needs root");
    }
    let sandbox = Sandbox::new();
    let other = Sandbox::new();
    let run_dir = other.run_dir();
    let options =
        AgentOptions { args: vec!["--run-dir".into(), run_dir.display().to_string()], ..AgentOptions::unprivileged() };
    let output = start_fails(&sandbox, &options, agent::free_address());
    assert!(output.stderr.contains("ermission denied"), "{}", output.stderr);
    assert!(output.stderr.contains(&run_dir.display().to_string()), "{}", output.stderr);
}

#[test]
fn a_missing_run_dir_is_made_and_a_present_one_kept() {
    let _held = together();
    let sandbox = Sandbox::new();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let made = sandbox.path("made");
    let mut first =
        agent::spawn(&sandbox, &AgentOptions::with(&["--run-dir", &made.to_string_lossy()]), agent::free_address())
            .unwrap();
    eventually(SOON, "the run directory is made", || made.join("control.sock").exists());
    assert_eq!(mode(&made), 0o755);
    first.kill();
    std::fs::set_permissions(sandbox.run_dir(), PermissionsExt::from_mode(0o711)).unwrap();
    Agent::start(&sandbox, &AgentOptions::default());
    assert_eq!(mode(&sandbox.run_dir()), 0o711);
}

#[test]
fn a_wrong_configuration_names_the_line() {
    let _held = together();
    let sandbox = Sandbox::new();
    let file = sandbox.path("tracebyte.toml");
    for (text, line, word) in [
        ("# comment\nno_such_key = 1\n", "2", "no_such_key"),
        ("[agent]\n\nlisten = 7\n", "3", "7"),
        ("[agent]\n\n\nlisten = \"nowhere\"\n", "4", "socket address"),
        ("= broken\n", "1", ""),
    ] {
        std::fs::write(&file, text).unwrap();
        let args = ["agent", "--config", &file.to_string_lossy(), "--check-config"];
        let output = agent::tracebyte(&sandbox, &args).ends_with(1);
        let said = &output.stderr;
        assert!(said.contains("tracebyte.toml") && said.contains(line) && said.contains(word), "{text:?}: {said}");
        let options = AgentOptions::with(&["--config", &file.to_string_lossy()]);
        start_fails(&sandbox, &options, agent::free_address());
    }
    std::fs::write(&file, "[agent]\nlisten = \"127.0.0.1:9763\"\n").unwrap();
    agent::tracebyte(&sandbox, &["agent", "--config", &file.to_string_lossy(), "--check-config"]).ok();
}

#[test]
fn only_its_two_pages_are_served() {
    let _held = together();
    let sandbox = Sandbox::new();
    let agent = Agent::start(&sandbox, &AgentOptions::default());
    for (method, path) in
        [("GET", "/"), ("GET", "/metrics/x"), ("POST", "/metrics"), ("PUT", "/healthz"), ("GET", "/..")]
    {
        let answer = http::request(agent.http, method, path).unwrap();
        assert!(answer.status >= 400, "{method} {path}: {}", answer.status);
    }
    assert_eq!(http::get(agent.http, "/healthz").unwrap().status, 200);
}

#[test]
fn both_signals_stop_it_in_time_with_every_byte_off() {
    let _held = together();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let rig = Rig::start();
        let page = rig.server.memory().shared_page().unwrap();
        rig.on();
        let watch = rig.agent.spawn(&["trace", "watch", "--json"]);
        let load = rig.load();
        rig.agent.stop(signal, STOP_LIMIT).ends_with(0);
        eventually(Duration::from_millis(100), "the byte is off", || page.node_http(Owner::Operator).unwrap() == 0);
        load.stop().unharmed();
        watch.wait(SOON);
        assert!(!rig.sandbox.run_dir().join("control.sock").exists(), "the socket is left behind");
    }
}

#[test]
fn a_stop_does_not_wait_for_a_profile() {
    let _held = together();
    if !is_root() {
        skip!("profiles need root");
    }
    let rig = Rig::start();
    let profile = rig.agent.spawn(&["profile", "--all", "--duration", "60s", "-o", "-", "--format", "folded"]);
    std::thread::sleep(Duration::from_millis(700));
    rig.agent.stop(libc::SIGTERM, STOP_LIMIT).ends_with(0);
    profile.wait(SOON);
}

#[test]
fn a_killed_agent_leaves_no_byte_on() {
    let _held = alone();
    killed(|_| None);
}

#[test]
fn an_agent_killed_while_it_samples_leaves_no_byte_on() {
    let _held = alone();
    if !is_root() {
        skip!("profiles need root");
    }
    killed(|rig| {
        let profile = rig.agent.spawn(&["profile", "--all", "--duration", "60s", "-o", "-", "--format", "folded"]);
        std::thread::sleep(Duration::from_millis(700));
        Some(profile)
    });
}

/// Kills an agent with tracing on, a load running and every processor busy: the byte must
/// be off within 100 ms, the requests unharmed, the next agent joined within 3 s.
fn killed(before: impl FnOnce(&Rig) -> Option<tracebyte_tests::Running>) {
    let rig = Rig::start();
    rig.on();
    let page = rig.server.memory().shared_page().unwrap();
    let client = before(&rig);
    let load = rig.load();
    let busy = Busy::start();
    std::thread::sleep(Duration::from_millis(300));
    assert_ne!(page.node_http(Owner::Operator).unwrap(), 0);
    let Rig { server, mut agent, sandbox } = rig;
    let took = off_after(&page, || agent.process.signal(libc::SIGKILL));
    assert!(took < Duration::from_millis(100), "off after {took:?}");
    agent.process.kill();
    drop(client);
    drop(busy);
    let next = Agent::start(&sandbox, &AgentOptions::default());
    let begin = Instant::now();
    next.wait_for_target(server.pid());
    assert!(begin.elapsed() < Duration::from_secs(3), "joined after {:?}", begin.elapsed());
    next.tracebyte(&["trace", "on", "node.http", "--all"]).ok();
    eventually(SOON, "the next agent's byte is seen", || page.node_http(Owner::Operator).unwrap_or(0) != 0);
    load.stop().unharmed();
}

fn off_after(page: &PageAt, kill: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    kill();
    wait_for(SOON, || (page.node_http(Owner::Operator).ok()? == 0).then(|| begin.elapsed())).expect("the byte goes off")
}

/// Keeps every processor busy.
struct Busy {
    stop: Arc<AtomicBool>,
}

impl Busy {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            let stop = stop.clone();
            std::thread::spawn(move || while !stop.load(Ordering::Relaxed) {});
        }
        Self { stop }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[test]
fn other_users_are_told_who_may() {
    let _held = together();
    if !is_root() {
        skip!("becoming another user needs root");
    }
    let rig = Rig::start();
    for args in [&["ps"][..], &["trace", "on", "node.http", "--all"], &["trace", "watch"]] {
        let output = agent::tracebyte_as(NOBODY, &rig.sandbox, args).ends_with(1);
        assert!(output.stderr.contains("permission denied") && output.stderr.contains("root"), "{}", output.stderr);
    }
    assert_eq!(rig.listed()["categories"][0]["enabled"], false);
}
