//! The traced process's troubles, and the trouble it makes: the agent believes nothing
//! that a process wrote, and a process needs no agent.

use crate::rig::{Rig, SOON};
use runtime_core_abi::handshake::{Backing, REGISTER_SOCKET, Welcome};
use runtime_core_abi::page::{LANES_MAX, Owner, PAGE_BYTES};
use runtime_core_abi::ring;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::time::Duration;
use tracebyte_tests::events::{self, Requests};
use tracebyte_tests::memory::Process;
use tracebyte_tests::sys::{self, BpfKind};
use tracebyte_tests::{
    Agent, AgentOptions, Load, LoadSpec, Running, Sandbox, Server, ServerOptions, bins, eventually, is_root, joiner,
    skip, together,
};

#[test]
fn without_an_agent_everything_is_served() {
    let _held = together();
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, &ServerOptions::default());
    Load::run(&LoadSpec::requests(server.address, 1_000)).unharmed();
    let agent = Agent::start(&sandbox, &AgentOptions::default());
    agent.wait_for_target(server.pid());
}

#[test]
fn a_killed_process_is_forgotten_and_others_go_on() {
    let _held = together();
    let mut rig = Rig::start();
    let other = Server::start(&rig.sandbox, &ServerOptions::named("other"));
    rig.agent.wait_for_target(other.pid());
    rig.agent.tracebyte(&["trace", "on", "node.http", "--all"]).ok();
    rig.ask(100);
    rig.server.process.kill();
    eventually(SOON, "the dead process is not listed", || {
        let list = rig.agent.tracebyte(&["ps", "--json"]).ok().json();
        list.as_array().unwrap().iter().all(|target| target["pid"] != rig.server.pid())
    });
    let gone = rig.agent.tracebyte(&["trace", "on", "node.http", "--pid", &rig.pid()]).ends_with(1);
    assert!(gone.stderr.contains(&rig.pid()), "{}", gone.stderr);
    Load::run(&LoadSpec::requests(other.address, 100)).unharmed();
}

#[test]
fn a_process_that_dies_while_it_is_recorded_ends_nothing() {
    let _held = together();
    let mut rig = Rig::start();
    let other = Server::start(&rig.sandbox, &ServerOptions::named("other"));
    rig.agent.wait_for_target(other.pid());
    let recording = rig.record("trace.ndjson", "ndjson");
    rig.agent.tracebyte(&["trace", "on", "node.http", "--all"]).ok();
    rig.ask(200);
    rig.server.process.kill();
    Load::run(&LoadSpec::requests(other.address, 300)).unharmed();
    rig.agent.tracebyte(&["trace", "off", "--all"]).ok();
    assert_eq!(recording.requests(), Requests::whole(500));
}

#[test]
fn garbage_in_page_and_rings_is_bounded() {
    let _held = together();
    let rig = Rig::start();
    let hostile = joiner::join(&rig.sandbox.run_dir(), "evil\n\"{}\\\u{7f}").unwrap();
    rig.agent.tracebyte(&["trace", "on", "node.http", "--all"]).ok();
    for seed in 1..=40u64 {
        hostile.page.write(64, &noise(seed, PAGE_BYTES - 64));
        // Each ring's positions and first data: noise, ones, and a plausible length of noise.
        let stride = hostile.rings_bytes / LANES_MAX;
        for lane in 0..LANES_MAX {
            let at = lane * stride;
            let head = match seed % 3 {
                0 => u64::MAX,
                1 => 64 * seed,
                _ => noise_word(seed, lane as u64),
            };
            hostile.rings.write(at + ring::HEADER_BYTES, &noise(seed + lane as u64, 4096));
            hostile.rings.write(at, &head.to_le_bytes());
            hostile.rings.write(at + 128, &noise(seed, 8));
        }
        rig.agent.tracebyte(&["ps", "--json"]).ok().json();
    }
    let recording = rig.record("trace.json", "chrome");
    rig.ask(500);
    rig.off();
    let seen = recording.finish();
    let ours: Vec<_> = seen.into_iter().filter(|event| event["pid"] == rig.server.pid()).collect();
    assert_eq!(Requests::count(&ours), Requests::whole(500));
    assert!(rig.agent.metrics().len() < 1 << 20);
    rig.agent.tracebyte(&["trace", "off", "--all"]).ok();
}

#[test]
fn a_wrong_header_in_the_page_harms_nobody() {
    let _held = together();
    let rig = Rig::start();
    let hostile = joiner::join(&rig.sandbox.run_dir(), "evil").unwrap();
    hostile.page.write(0, &noise(3, 64));
    rig.agent.tracebyte(&["trace", "on", "node.http", "--all"]);
    rig.agent.tracebyte(&["ps", "--json"]).ok().json();
    rig.on();
    rig.ask(50);
}

#[test]
fn a_frozen_or_pinned_page_still_goes_off() {
    let _held = together();
    if !is_root() {
        skip!("pages are BPF maps only for root");
    }
    let sandbox = Sandbox::new();
    let agent = Agent::start(&sandbox, &AgentOptions::default());
    let hostile = joiner::join(&sandbox.run_dir(), "evil").unwrap();
    agent.wait_for_target(std::process::id());
    let frozen = sys::bpf_freeze(&hostile.page_fd);
    assert!(frozen.is_err(), "a holder froze the page");
    let pin = std::ffi::CString::new("/sys/fs/bpf/tracebyte-test-pin").unwrap();
    let pinned = sys::bpf_pin(&hostile.page_fd, &pin).is_ok();
    agent.tracebyte(&["trace", "on", "node.http", "--all"]).ok();
    agent.tracebyte(&["trace", "off", "--all"]).ok();
    let word = hostile.page.read(64, 4);
    if pinned {
        std::fs::remove_file("/sys/fs/bpf/tracebyte-test-pin").unwrap();
    }
    assert_eq!(word, [0; 4]);
}

#[test]
fn a_process_that_comes_back_gets_the_page_it_had() {
    let _held = together();
    if !is_root() {
        skip!("pages are BPF maps only for root");
    }
    let sandbox = Sandbox::new();
    let _agent = Agent::start(&sandbox, &AgentOptions::default());
    let mut kept = Vec::new();
    let before = sys::bpf_ids(BpfKind::Map).unwrap().len();
    for _ in 0..200 {
        // The lease ends with the socket; the page stays mapped by us.
        if let Ok(joined) = joiner::join(&sandbox.run_dir(), "again") {
            kept.push((joined.page_fd, joined.page));
        } else {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert!(kept.len() > 10, "{}", kept.len());
    let after = sys::bpf_ids(BpfKind::Map).unwrap().len();
    assert!(after < before + 20, "{} maps for one process", after - before);
}

#[test]
fn a_page_that_cannot_be_used_is_dropped() {
    let _held = together();
    let sandbox = Sandbox::new();
    let listener = UnixListener::bind(sandbox.run_dir().join(REGISTER_SOCKET)).unwrap();
    let server = Server::start(&sandbox, &ServerOptions::default());
    let load = Load::start(&LoadSpec::endless(server.address));
    let welcome = Welcome::Accepted { backing: Backing::Memfd, lanes: 1, ring_data_bytes: 1 << 20 };
    let rings = || sys::memfd(ring::memory_bytes(1, 1 << 20) as u64).unwrap();
    // No magic; too short; nothing to map at all; no descriptors.
    let pages = [
        vec![sys::memfd(PAGE_BYTES as u64).unwrap(), rings()],
        vec![sys::memfd(100).unwrap(), rings()],
        vec![std::fs::File::open("/proc/self/status").unwrap().into(), rings()],
        vec![sys::memfd(PAGE_BYTES as u64).unwrap()],
    ];
    for descriptors in pages {
        let socket = joiner::welcome_once(&listener, &welcome, &descriptors).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        drop(socket);
    }
    assert!(!server.memory().has_shared_page());
    load.stop().unharmed();
    drop(listener);
    std::fs::remove_file(sandbox.run_dir().join(REGISTER_SOCKET)).unwrap();
    let agent = Agent::start(&sandbox, &AgentOptions::default());
    agent.wait_for_target(server.pid());
}

#[test]
fn a_process_without_room_to_map_goes_on_with_its_own_page() {
    let _held = together();
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, &ServerOptions::default());
    // Warmed up: what serving needs is there already.
    Load::run(&LoadSpec::requests(server.address, 100)).unharmed();
    // No more address space from here on: the page cannot be mapped.
    let mut prlimit = std::process::Command::new("prlimit");
    prlimit.args(["--pid", &server.pid().to_string(), "--as=1048576"]);
    if !prlimit.status().is_ok_and(|status| status.success()) {
        skip!("prlimit is not installed");
    }
    let _agent = Agent::start(&sandbox, &AgentOptions::default());
    std::thread::sleep(Duration::from_millis(1_500));
    Load::run(&LoadSpec::requests(server.address, 500)).unharmed();
    assert!(!server.memory().has_shared_page());
}

#[test]
fn a_child_of_a_fork_is_on_its_own() {
    let _held = together();
    let sandbox = Sandbox::new();
    let agent = Agent::start(&sandbox, &AgentOptions::default());
    let mut command = std::process::Command::new(bins::example("forks"));
    command.env("TRACEBYTE_RUN_DIR", sandbox.run_dir()).current_dir(sandbox.dir());
    let mut process = Running::spawn(&mut command).unwrap();
    let mut told = |who: &str| -> (u32, SocketAddr) {
        let found = process.line(SOON, |line| {
            let (pid, address) = line.strip_prefix(who)?.trim().split_once(' ')?;
            Some((pid.parse().ok()?, address.parse().ok()?))
        });
        found.unwrap_or_else(|| panic!("no {who}: {}", process.stderr()))
    };
    let (parent, parent_address) = told("parent");
    agent.wait_for_target(parent);
    let on = |pid: u32| agent.tracebyte(&["trace", "on", "node.http", "--pid", &pid.to_string()]).ok();
    on(parent);
    std::fs::write(sandbox.path("fork"), "").unwrap();
    let (child, child_address) = told("child");
    agent.wait_for_target(child);
    let byte = |pid| Process::new(pid).shared_page().unwrap().node_http(Owner::Operator).unwrap();
    eventually(SOON, "the child maps its own page", || Process::new(child).has_shared_page());
    assert_eq!((byte(parent) != 0, byte(child)), (true, 0));

    let file = sandbox.path("trace.ndjson");
    let path = file.to_string_lossy();
    let record = agent.spawn(&["trace", "record", "--duration", "60s", "--format", "ndjson", "--all", "-o", &path]);
    std::thread::sleep(Duration::from_millis(500));
    Load::run(&LoadSpec::requests(child_address, 100)).unharmed();
    Load::run(&LoadSpec::requests(parent_address, 200)).unharmed();
    on(child);
    Load::run(&LoadSpec::requests(child_address, 300)).unharmed();
    record.signal(libc::SIGINT);
    record.wait(SOON).ok();
    let seen = events::lines(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let of = |pid: u32| Requests::count(seen.iter().filter(|event| event["pid"] == pid));
    assert_eq!((of(parent), of(child)), (Requests::whole(200), Requests::whole(300)));
    process.kill();
    eventually(SOON, "the child ends with its parent", || !std::path::Path::new(&format!("/proc/{child}")).exists());
}

/// Bytes without a pattern, the same for the same seed.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes.div_ceil(8)).flat_map(|i| noise_word(seed, i as u64).to_le_bytes()).take(bytes).collect()
}

fn noise_word(seed: u64, i: u64) -> u64 {
    let mut word = (seed << 32 | i).wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word ^ word >> 31
}
