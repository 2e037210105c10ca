//! A process that records, and forks. One test, for it forks.

use runtime_core::trace::session::{Options, Session};
use runtime_core::trace::{Category, Named};
use runtime_core::trace_instant;
use tracebyte_tests::Sandbox;

static FORKED: Named = Named::new("fork.test");

/// What the child finds wrong; 0 for nothing. It may not panic: the harness is its parent's.
fn child(session: Session, sandbox: &Sandbox) -> i32 {
    if session.is_recording() || FORKED.enabled() {
        return 1;
    }
    trace_instant!(FORKED, "of the child, to nobody");
    if session.finish().is_ok() {
        return 2;
    }
    let Ok(own) = Session::start(options(sandbox)) else { return 3 };
    trace_instant!(FORKED, "of the child", n = 1);
    match own.finish() {
        Ok(summary) if (summary.events, summary.events_lost) == (1, 0) => 0,
        _ => 4,
    }
}

fn options(sandbox: &Sandbox) -> Options {
    Options::new("fork.*".parse().unwrap()).file(sandbox.path("trace.${pid}").to_str().unwrap())
}

#[test]
fn the_child_does_not_record_and_may_begin_anew() {
    let sandbox = Sandbox::new();
    let session = Session::start(options(&sandbox)).unwrap();
    trace_instant!(FORKED, "of the parent");
    // SAFETY: the child ends by `_exit` and touches nothing that the harness' threads hold.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let found = child(session, &sandbox);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(found) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was made above.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert_eq!(libc::WEXITSTATUS(status), 0, "what the child found: {status:#x}");
    assert!(session.is_recording() && Category::named("fork.test").enabled());
    trace_instant!(FORKED, "of the parent");
    assert_eq!(session.finish().unwrap().events, 2);
    for process in [std::process::id(), pid as u32] {
        let text = std::fs::read(sandbox.path(&format!("trace.{process}"))).unwrap();
        let all: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert!(all["traceEvents"].as_array().unwrap().iter().all(|event| event["pid"] == process));
    }
}
