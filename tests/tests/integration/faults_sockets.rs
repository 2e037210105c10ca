//! Nonsense on the two sockets: refused by name, and everybody else is served.

use crate::rig::{Rig, SOON};
use runtime_core_abi::handshake::{HELLO_BYTES, Hello, Welcome};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tracebyte_tests::agent::NOBODY;
use tracebyte_tests::{
    Agent, AgentOptions, Sandbox, Server, ServerOptions, alone, eventually, is_root, joiner, skip, together,
};

fn agent() -> (Agent, Sandbox) {
    let sandbox = Sandbox::new();
    (Agent::start(&sandbox, &AgentOptions::default()), sandbox)
}

fn control(sandbox: &Sandbox) -> UnixStream {
    let socket = UnixStream::connect(sandbox.run_dir().join("control.sock")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    socket
}

/// Sends a line and reads the one that answers it; `None` where the agent just hangs up.
fn answer(sandbox: &Sandbox, line: &[u8]) -> Option<Value> {
    let mut socket = control(sandbox);
    // An agent may refuse before it has read everything.
    let _ = socket.write_all(line);
    let mut said = String::new();
    BufReader::new(socket).read_line(&mut said).ok()?;
    serde_json::from_str(&said).ok()
}

#[test]
fn control_garbage_is_refused_by_name() {
    let _held = together();
    let (agent, sandbox) = agent();
    for line in [
        &b"garbage\n"[..],
        b"\n",
        b"{}\n",
        b"[1,2]\n",
        b"\xff\xfe\x00\n",
        b"{\"v\":1,\"verb\":\"explode\"}\n",
        b"{\"v\":1,\"verb\":\"trace_on\",\"category\":7,\"select\":\"all\"}\n",
    ] {
        let reply = answer(&sandbox, line).expect("an error, as a line");
        assert_eq!(reply["type"], "error", "{reply}");
        assert!(reply["message"].as_str().is_some_and(|message| !message.is_empty()), "{reply}");
    }
    agent.tracebyte(&["ps", "--json"]).ok();
}

#[test]
fn another_version_is_refused_by_number() {
    let _held = together();
    let (agent, sandbox) = agent();
    let reply = answer(&sandbox, b"{\"v\":999,\"verb\":\"ps\"}\n").expect("an error, as a line");
    assert_eq!(reply["type"], "error");
    assert!(reply["message"].as_str().unwrap().contains("999"), "{reply}");
    agent.tracebyte(&["ps", "--json"]).ok();
}

#[test]
fn half_a_request_harms_nobody() {
    let _held = together();
    let (agent, sandbox) = agent();
    let mut half = control(&sandbox);
    half.write_all(b"{\"v\":1,\"ve").unwrap();
    agent.tracebyte(&["ps", "--json"]).ok();
    half.shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    let _ = half.read_to_end(&mut rest);
    agent.tracebyte(&["ps", "--json"]).ok();
}

#[test]
fn a_huge_request_is_cut_off() {
    let _held = together();
    let (agent, sandbox) = agent();
    let before = resident_kib(agent.pid());
    let huge = vec![b'x'; 64 << 20];
    let reply = answer(&sandbox, &huge);
    assert!(reply.is_none_or(|reply| reply["type"] == "error"));
    let after = resident_kib(agent.pid());
    // Less than the request; the agent's own preparations after its start are in it, too.
    assert!(after < before + 32 * 1024, "resident memory went from {before} to {after} KiB");
    agent.tracebyte(&["ps", "--json"]).ok();
}

#[test]
fn slow_clients_harm_nobody() {
    let _held = together();
    let rig = Rig::start();
    let _silent: Vec<UnixStream> = (0..50).map(|_| control(&rig.sandbox)).collect();
    let _unregistered: Vec<UnixStream> = (0..50).filter_map(|_| joiner::connect(&rig.sandbox.run_dir()).ok()).collect();
    // Two that ask for a stream and never read it.
    let _deaf: Vec<UnixStream> = (0..2)
        .map(|_| {
            let mut socket = control(&rig.sandbox);
            socket.write_all(b"{\"v\":1,\"verb\":\"watch\",\"select\":\"all\"}\n").unwrap();
            socket
        })
        .collect();
    let recording = rig.record("trace.json", "chrome");
    rig.on();
    rig.ask(20_000);
    rig.off();
    assert_eq!(recording.requests(), tracebyte_tests::events::Requests::whole(20_000));
}

#[test]
fn register_garbage_is_dropped() {
    let _held = together();
    let rig = Rig::start();
    let run_dir = rig.sandbox.run_dir();
    for garbage in [&[0u8; HELLO_BYTES][..], &[0xff; 3 * HELLO_BYTES], b"GET / HTTP/1.1\r\n\r\n", b"T"] {
        let mut socket = joiner::connect(&run_dir).unwrap();
        let _ = socket.write_all(garbage);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest);
    }
    let mut huge = joiner::connect(&run_dir).unwrap();
    let _ = huge.write_all(&vec![7; 8 << 20]);
    assert_eq!(rig.listed()["service"], "demo");
    rig.on();
    rig.ask(10);
}

#[test]
fn another_page_version_is_refused_by_number() {
    let _held = together();
    let (_agent, sandbox) = agent();
    let mut socket = joiner::connect(&sandbox.run_dir()).unwrap();
    let mut hello = Hello::new("future");
    hello.version = 77;
    let (welcome, descriptors) = joiner::greet(&mut socket, &hello.encode()).unwrap();
    let Welcome::Refused(reason) = welcome else { panic!("accepted") };
    assert!(String::from_utf8_lossy(reason.bytes()).contains("77"), "{reason:?}");
    assert!(descriptors.is_empty());
}

#[test]
fn a_live_process_is_refused_a_second_lease() {
    let _held = together();
    let (agent, sandbox) = agent();
    let first = joiner::join(&sandbox.run_dir(), "mine").unwrap();
    let second = joiner::join(&sandbox.run_dir(), "theirs").expect_err("refused");
    assert!(!second.to_string().is_empty());
    let list = agent.tracebyte(&["ps", "--json"]).ok().json();
    assert_eq!((list[0]["service"].as_str(), list.as_array().unwrap().len()), (Some("mine"), 1));
    drop(first);
    eventually(SOON, "the process may come back", || joiner::join(&sandbox.run_dir(), "mine").is_ok());
}

#[test]
fn ten_thousand_registrations_leave_nothing() {
    let _held = alone();
    let rig = Rig::start();
    let run_dir = rig.sandbox.run_dir();
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", rig.agent.pid())).unwrap().count();
    let before = (descriptors(), resident_kib(rig.agent.pid()));
    let mut joined = 0;
    for _ in 0..10_000 {
        // Refused while the agent still ends the lease before: that is an answer, too.
        joined += usize::from(joiner::join(&run_dir, "flood").is_ok());
    }
    assert!(joined > 0);
    eventually(SOON, "only the server is listed", || {
        rig.agent.tracebyte(&["ps", "--json"]).ok().json().as_array().unwrap().len() == 1
    });
    eventually(SOON, "descriptors are closed", || descriptors() <= before.0 + 8);
    let after = resident_kib(rig.agent.pid());
    assert!(after < before.1 + 16 * 1024, "resident memory went from {} to {after} KiB", before.1);
    rig.on();
    rig.ask(100);
}

#[test]
fn any_user_may_register() {
    let _held = together();
    if !is_root() {
        skip!("becoming another user needs root");
    }
    let rig = Rig::start();
    let server = Server::start(&rig.sandbox, &ServerOptions { uid: Some(NOBODY), ..ServerOptions::named("guest") });
    rig.agent.wait_for_target(server.pid());
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
