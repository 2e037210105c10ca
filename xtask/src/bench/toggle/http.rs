//! CPU of one and the same server a request, in each state of tracing.

use super::{Effort, agent, server, stop};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::process::Command;
use tracebyte_tests::rounds::{Figures, Limit, Row};
use tracebyte_tests::{Sandbox, Server};

const STATES: [&str; 3] = ["no agent", "agent, tracing off", "tracing on"];

/// Measures. One server serves all rounds, so that nothing but the agent differs between
/// the states; every other round takes them backwards.
pub fn run(effort: Effort) -> Result<Vec<Value>> {
    let sandbox = Sandbox::new();
    let server = server(&sandbox)?;
    let mut figures = STATES.map(|state| Figures { variant: state.into(), rounds: Vec::new() });
    for round in 0..=effort.rounds {
        let mut order = [0, 1, 2];
        if round % 2 == 1 {
            order.reverse();
        }
        for state in order {
            let agent = (state > 0).then(|| agent(&sandbox, &server));
            if let (2, Some(agent)) = (state, &agent) {
                agent.tracebyte(&["trace", "on", "node.http", "--pid", &server.pid().to_string()]).ok();
            }
            let us = cpu_us_a_request(&server, effort.load_s)?;
            if round > 0 {
                figures[state].rounds.push(us);
            }
            if let Some(agent) = agent {
                stop(agent, &server);
            }
        }
    }
    let [none, off, on] = &figures;
    let row = |state: &Figures| Row::new("http 4 B, c=50", state, "us CPU/req");
    Ok(vec![
        row(none).json(),
        row(off).against(STATES[0], off.ratio_to(none)).limit(Limit::AtMost(1.01)).json(),
        row(on).against(STATES[0], on.ratio_to(none)).limit(Limit::AtMost(1.03)).json(),
    ])
}

/// Runs `wrk` and gives the server's CPU microseconds a request.
fn cpu_us_a_request(server: &Server, seconds: u64) -> Result<f64> {
    let before = cpu_ns(server.pid())?;
    let url = format!("http://{}/buffer/4/1/0", server.address);
    let output = Command::new("wrk")
        .args(["-t", "1", "-c", "50", "-d", &format!("{seconds}s"), &url])
        .output()
        .context("cannot start `wrk`; install it with `cargo xtask setup bench`")?;
    let after = cpu_ns(server.pid())?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(!text.contains("Non-2xx"), "wrk saw refused requests:\n{text}");
    let requests = text.lines().find_map(|line| line.trim().split_once(" requests in ")?.0.parse::<f64>().ok());
    match requests {
        Some(requests) if requests > 0.0 => Ok((after - before) / requests / 1e3),
        _ => bail!("wrk counted no requests:\n{text}"),
    }
}

/// CPU time of all threads of a process, in nanoseconds.
pub fn cpu_ns(pid: u32) -> Result<f64> {
    let mut total = 0.0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = task?.path().join("schedstat");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        total += text.split_ascii_whitespace().next().and_then(|word| word.parse::<f64>().ok()).unwrap_or_default();
    }
    Ok(total)
}
