//! Joining an agent, losing it, and agents that misbehave: the process goes on as it was.

mod common;

use common::{FakeAgent, Shared, TempDir, accepted, memfd, pipe, refused, send, wait_for};
use runtime_core::page::PAGE;
use runtime_core::trace::Category;
use runtime_core::{Lease, Options, State, join};
use runtime_core_abi::page::{CATEGORIES_MAX, LANES_MAX, NODE_HTTP, Names, Owner, PAGE_BYTES};
use runtime_core_abi::ring;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A process has one lease, so these tests take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn member(dir: &TempDir) -> Lease {
    join(Options::new("lease-test").run_dir(dir.path())).unwrap()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_switched_byte_is_seen_and_goes_off_with_the_agent() {
    let (_turn, dir) = (turn(), TempDir::new());
    let own = Category::named("lease.own");
    own.set_enabled(true);
    let lease = member(&dir);
    let agent = FakeAgent::listen(dir.path());
    let joined = agent.admit();
    assert_eq!(joined.service, "lease-test");
    assert_eq!(joined.name(Names::Categories, NODE_HTTP).unwrap(), "node.http");
    assert_eq!(joined.name(Names::Categories, own.index()).unwrap(), "lease.own");
    assert_eq!(joined.page.page().enable_bytes(own.index()), [1, 0, 0, 0]);
    assert_eq!(joined.page.page().header.pid.load(Ordering::Relaxed), std::process::id());
    wait_for("joined", Duration::from_secs(1), || lease.state() == State::Joined);

    assert!(!Category::NODE_HTTP.enabled());
    joined.switch(true);
    assert!(Category::NODE_HTTP.enabled(), "at once: it is the same memory");
    joined.page.page().enable_byte(own.index(), Owner::Trigger).store(1, Ordering::Relaxed);
    let late = Category::named("lease.late");
    assert_eq!(joined.name(Names::Categories, late.index()).unwrap(), "lease.late");

    drop(agent);
    let common::Member { stream, page, .. } = joined;
    drop(stream);
    let off = wait_for("off", Duration::from_millis(100), || !Category::NODE_HTTP.enabled());
    wait_for("own memory", Duration::from_secs(1), || lease.state() != State::Joined);
    assert_eq!(page.page().enable_bytes(NODE_HTTP), [0; 4], "off in the agent's page too, after {off:?}");
    page.page().enable_byte(NODE_HTTP, Owner::Operator).store(1, Ordering::Relaxed);
    assert!(!Category::NODE_HTTP.enabled(), "the old page is not the process's any more");
    assert_eq!(PAGE.enable_bytes(own.index()), [1, 0, 0, 0], "its own byte stays");

    let next = FakeAgent::listen(dir.path());
    let waited = std::time::Instant::now();
    let joined = next.admit();
    assert!(waited.elapsed() < Duration::from_secs(3));
    assert_eq!(joined.name(Names::Categories, late.index()).unwrap(), "lease.late");
    own.set_enabled(false);
    assert_eq!(joined.page.page().enable_bytes(own.index()), [0; 4]);
    joined.switch(true);
    lease.leave();
    assert!(!Category::NODE_HTTP.enabled());
}

#[test]
fn an_agent_that_misbehaves_is_not_joined() {
    let (_turn, dir) = (turn(), TempDir::new());
    let agent = FakeAgent::listen(dir.path());
    let lease = member(&dir);
    let before = descriptors();
    let own = Category::named("lease.misbehaving");
    own.set_enabled(true);
    let bad_version = Shared::new_page();
    bad_version.page().header.version.store(99, Ordering::Relaxed);
    let bad_magic = Shared::new(PAGE_BYTES);
    let good_page = Shared::new_page();
    let rings = Shared::new(ring::memory_bytes(LANES_MAX, common::RING_BYTES));
    let (small, unsealed, no_memory) = (memfd(4096, true), memfd(PAGE_BYTES, false), pipe());
    let fd = |shared: &Shared| shared.fd.as_raw_fd();
    let mut half = accepted();
    half.truncate(100);
    let mut huge_lanes = accepted();
    huge_lanes[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    let cases: Vec<(&str, Vec<u8>, Vec<i32>)> = vec![
        ("refused", refused("no\x1b[31m thanks"), vec![]),
        ("magic", accepted(), vec![fd(&bad_magic), fd(&rings)]),
        ("version", accepted(), vec![fd(&bad_version), fd(&rings)]),
        ("cannot map", accepted(), vec![no_memory.as_raw_fd(), fd(&rings)]),
        ("4096 bytes", accepted(), vec![small.as_raw_fd(), fd(&rings)]),
        ("not sealed", accepted(), vec![unsealed.as_raw_fd(), fd(&rings)]),
        ("rings are not safe", accepted(), vec![fd(&good_page), small.as_raw_fd()]),
        ("cannot map the agent's event rings", accepted(), vec![fd(&good_page), no_memory.as_raw_fd()]),
        ("0 descriptors", accepted(), vec![]),
        ("1 descriptors", accepted(), vec![fd(&good_page)]),
        ("more descriptors", accepted(), vec![fd(&good_page); 40]),
        ("4 descriptors", accepted(), vec![fd(&good_page); 4]),
        ("not a message", vec![0xff; 300], vec![fd(&good_page), fd(&rings)]),
        ("not a message", huge_lanes, vec![fd(&good_page), fd(&rings)]),
        ("handshake", half, vec![fd(&good_page), fd(&rings)]),
        ("handshake", vec![], vec![]),
    ];
    for (expected, bytes, descriptors) in cases {
        let (stream, _) = agent.accept();
        if !bytes.is_empty() {
            send(&stream, &bytes, &descriptors);
        }
        drop(stream);
        wait_for(expected, Duration::from_secs(4), || match lease.state() {
            State::Alone(why) => why.contains(expected),
            other => panic!("{expected}: {other:?}"),
        });
        assert_eq!(PAGE.check(), Ok(()), "{expected}");
        assert_eq!(PAGE.enable_bytes(own.index()), [1, 0, 0, 0], "{expected}");
    }
    let joined = agent.admit();
    joined.switch(true);
    assert!(Category::NODE_HTTP.enabled(), "a good agent is joined all the same");
    own.set_enabled(false);
    lease.leave();
    drop((bad_version, bad_magic, good_page, rings, small, unsealed, no_memory, joined));
    drop(agent);
    // Fewer now: the agent's and its fixtures' are gone.
    assert!(descriptors() <= before, "descriptors leaked");
}

#[test]
fn a_byte_on_the_lease_ends_it() {
    let (_turn, dir) = (turn(), TempDir::new());
    let agent = FakeAgent::listen(dir.path());
    let lease = member(&dir);
    let joined = agent.admit();
    joined.switch(true);
    send(&joined.stream, b"x", &[]);
    wait_for("off", Duration::from_secs(1), || !Category::NODE_HTTP.enabled());
    assert_eq!(agent.admit().service, "lease-test", "and it comes back");
    lease.leave();
}

#[test]
fn a_silent_agent_holds_up_nothing() {
    let (_turn, dir) = (turn(), TempDir::new());
    let agent = FakeAgent::listen(dir.path());
    let lease = member(&dir);
    let (silent, _) = agent.accept();
    let start = std::time::Instant::now();
    lease.leave();
    assert!(start.elapsed() < Duration::from_millis(500), "leaving does not wait for the handshake");
    drop(silent);
}

#[test]
fn a_page_full_of_garbage_harms_nobody() {
    let (_turn, dir) = (turn(), TempDir::new());
    let agent = FakeAgent::listen(dir.path());
    let lease = member(&dir);
    let joined = agent.admit();
    let page = joined.page.page();
    for category in 0..CATEGORIES_MAX {
        page.enable_byte(category, Owner::Operator).store(0xff, Ordering::Relaxed);
    }
    page.header.generation.store(0xdead_beef, Ordering::Relaxed);
    for lane in &page.lanes {
        lane.tid.store(u32::MAX, Ordering::Relaxed);
        lane.phase.store(u32::MAX, Ordering::Relaxed);
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for id in 0..1000 {
                    runtime_core::trace::event(Category::NODE_HTTP, b'i', "event", id, &[]);
                }
            });
        }
    });
    lease.leave();
    assert!(!Category::NODE_HTTP.enabled());
    assert_eq!(PAGE.check(), Ok(()));
}

#[test]
fn the_lease_thread_takes_no_signals() {
    let (_turn, dir) = (turn(), TempDir::new());
    let lease = member(&dir);
    let blocked = || {
        std::fs::read_dir("/proc/self/task").unwrap().flatten().find_map(|task| {
            let comm = std::fs::read_to_string(task.path().join("comm")).ok()?;
            let status = std::fs::read_to_string(task.path().join("status")).ok()?;
            let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t"))?.to_owned();
            (comm.trim() == "tracebyte-lease").then_some(mask)
        })
    };
    wait_for("the thread", Duration::from_secs(1), || blocked().is_some());
    let mask = u64::from_str_radix(&blocked().unwrap(), 16).unwrap();
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGCHLD, libc::SIGPROF] {
        assert_ne!(mask & 1 << (signal - 1), 0, "signal {signal}");
    }
    lease.leave();
}

#[test]
fn there_is_one_lease() {
    let (_turn, dir) = (turn(), TempDir::new());
    let lease = member(&dir);
    assert!(join(Options::new("second").run_dir(dir.path())).is_err());
    lease.leave();
    member(&dir).leave();
}
