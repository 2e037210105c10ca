//! `fork` in a process that has joined: the child is a process of its own.

mod common;

use common::{FakeAgent, Shared, TempDir, wait_for};
use mio::Registry;
use mio::event::Event;
use runtime_core::event_loop::{Driver, EventLoop};
use runtime_core::page::PAGE;
use runtime_core::trace::{Category, Phase, lane};
use runtime_core::{Options, join};
use runtime_core_abi::page::{NODE_HTTP, Owner};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

struct Nothing;

impl Driver for Nothing {
    fn ready(&mut self, _: &Event, _: &Registry, _: u64) {}

    fn finish_turn(&mut self, _: &Registry, _: u64) -> Option<Duration> {
        Some(Duration::from_millis(5))
    }
}

/// What the child does; its exit code says which step went wrong.
fn child(parents_page: &Shared, own_category: usize) -> i32 {
    if Category::NODE_HTTP.enabled() || PAGE.enable_bytes(NODE_HTTP) != [0; 4] {
        return 1;
    }
    if PAGE.enable_bytes(own_category) != [1, 0, 0, 0] {
        return 2;
    }
    // What the child stores does not reach the parent, whose page this process sees through
    // the agent's mapping.
    PAGE.enable_byte(NODE_HTTP, Owner::Operator).store(7, Ordering::Relaxed);
    if parents_page.page().enable_byte(NODE_HTTP, Owner::Operator).load(Ordering::Relaxed) != 1 {
        return 3;
    }
    PAGE.enable_byte(NODE_HTTP, Owner::Operator).store(0, Ordering::Relaxed);
    if PAGE.header.pid.load(Ordering::Relaxed) != std::process::id() {
        return 4;
    }
    lane::claim();
    lane::set_phase(Phase::User);
    let thread = std::process::id();
    if PAGE.lanes.iter().filter(|lane| lane.tid.load(Ordering::Relaxed) != 0).count() != 1 {
        return 5;
    }
    if !PAGE.lanes.iter().any(|lane| lane.tid.load(Ordering::Relaxed) == thread) {
        return 6;
    }
    let Ok(event_loop) = EventLoop::new() else { return 7 };
    let stopper = event_loop.stopper();
    let watch = std::thread::spawn(move || {
        let mut seen = false;
        for _ in 0..5000 {
            seen |= Category::NODE_HTTP.enabled();
            if seen {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        stopper.stop();
        seen
    });
    if event_loop.run(&mut Nothing).is_err() {
        return 8;
    }
    if watch.join().unwrap_or(false) { 0 } else { 9 }
}

#[test]
fn the_child_is_on_its_own_and_joins_for_itself() {
    let dir = TempDir::new();
    let agent = FakeAgent::listen(dir.path());
    let own = Category::named("fork.own");
    own.set_enabled(true);
    let lease = join(Options::new("forking").run_dir(dir.path())).unwrap();
    let parents = agent.admit();
    parents.switch(true);
    lane::claim();
    lane::set_phase(Phase::Buffer);
    runtime_core::trace::event(Category::NODE_HTTP, b'i', "before", 1, &[]);

    // SAFETY: the child uses what glibc and the runtime make good after a fork, and leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = child(&parents.page, own.index());
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(code) };
    }
    assert!(pid > 0);
    let childs = agent.admit();
    assert_eq!(childs.service, "forking");
    assert_eq!(peer(&childs.stream), pid);
    assert_eq!(childs.page.page().header.pid.load(Ordering::Relaxed), pid as u32);
    childs.switch(true);
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert!(libc::WIFEXITED(status), "the child died of a signal: {status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 0, "the step that failed in the child");

    assert!(Category::NODE_HTTP.enabled(), "the parent's flags are as they were");
    assert_eq!(parents.page.page().enable_bytes(NODE_HTTP), [0, 1, 0, 0]);
    runtime_core::trace::event(Category::NODE_HTTP, b'i', "after", 2, &[]);
    let mut parents = parents;
    let ids: Vec<u64> = parents.drain().0.iter().map(|event| event.id).collect();
    assert_eq!(ids, [1, 2], "the parent's ring is the parent's alone");
    drop(parents);
    wait_for("off", Duration::from_secs(1), || !Category::NODE_HTTP.enabled());
    lease.leave();
}

fn peer(stream: &std::os::unix::net::UnixStream) -> i32 {
    // SAFETY: the struct is ours to fill, its length true.
    unsafe {
        let mut credentials: libc::ucred = std::mem::zeroed();
        let mut length = size_of::<libc::ucred>() as u32;
        let done = libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &mut length,
        );
        assert_eq!(done, 0);
        credentials.pid
    }
}
