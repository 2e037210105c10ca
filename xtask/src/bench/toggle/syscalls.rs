//! System calls a request, with and without an agent: the same.

use super::{agent, server};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::Duration;
use tracebyte_tests::rounds::{Figures, Limit, Row};
use tracebyte_tests::{Load, LoadSpec, Sandbox, Server};

const REQUESTS: u64 = 2000;
/// What a call at the edges of the count (an accept, a close) makes of so many requests.
const EDGE_CALLS: f64 = 8.0 / REQUESTS as f64;

/// Counts. One connection and one request at a time, so that the order of the server's
/// calls does not depend on timing.
pub fn run() -> Result<Vec<Value>> {
    let sandbox = Sandbox::new();
    let server = server(&sandbox)?;
    let none = calls_a_request(&server)?;
    let agent = agent(&sandbox, &server);
    let off = calls_a_request(&server)?;
    drop(agent);
    let figures = |variant: &str, calls| Figures { variant: variant.into(), rounds: vec![calls] };
    let (none, off) = (figures("no agent", none), figures("agent, tracing off", off));
    let row = |figures| Row::new("system calls", figures, "calls/req");
    Ok(vec![
        row(&none).json(),
        row(&off).against("no agent, calls more", off.over(&none)).limit(Limit::AtMost(EDGE_CALLS)).json(),
    ])
}

fn calls_a_request(server: &Server) -> Result<f64> {
    let strace = Command::new("strace")
        .args(["-f", "-q", "-c", "-S", "calls", "-p", &server.pid().to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start `strace`; install it with `cargo xtask setup bench`")?;
    wait_until_traced(server.pid())?;
    Load::run(&LoadSpec { connections: 1, ..LoadSpec::requests(server.address, REQUESTS) }).unharmed();
    tracebyte_tests::sys::signal(strace.id(), libc::SIGINT);
    let output = strace.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    // The last line: `100.00  0.012  2  6007  total`.
    let total = text.lines().find(|line| line.trim_end().ends_with(" total"));
    match total.and_then(|line| line.split_ascii_whitespace().nth(3)?.parse::<f64>().ok()) {
        Some(calls) => Ok(calls / REQUESTS as f64),
        None => bail!("strace printed no total:\n{text}"),
    }
}

/// Waits until every thread has its tracer.
fn wait_until_traced(pid: u32) -> Result<()> {
    let traced = || -> Option<()> {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let statuses = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("status")));
        statuses.flatten().all(|status| !status.contains("TracerPid:\t0")).then_some(())
    };
    tracebyte_tests::wait_for(Duration::from_secs(5), traced).context("strace did not attach within 5 s")
}
