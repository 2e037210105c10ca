//! From a message on the control socket to what it does.

use super::{Effort, agent, server};
use anyhow::{Context, Result, bail};
use runtime_core_abi::page::Owner;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use tracebyte_tests::rounds::{Figures, Limit, Row};
use tracebyte_tests::{Load, LoadSpec, Sandbox};

/// Measures.
pub fn run(effort: Effort) -> Result<Vec<Value>> {
    let sandbox = Sandbox::new();
    let server = server(&sandbox)?;
    let agent = agent(&sandbox, &server);
    let (run_dir, pid) = (sandbox.run_dir(), server.pid());
    let page = server.memory().shared_page()?;

    let mut visible = Vec::new();
    for _ in 0..effort.rounds * 20 {
        let mut line = String::new();
        let (start, mut answer) = send(&run_dir, &switch("trace_on", pid))?;
        while page.node_http(Owner::Operator)? == 0 {
            if start.elapsed() > Duration::from_secs(5) {
                bail!("the byte was not set within 5 s");
            }
        }
        visible.push(start.elapsed().as_secs_f64() * 1e3);
        answer.read_line(&mut line)?;
        off(&run_dir, pid)?;
    }

    let load = Load::start(&LoadSpec { connections: 1, ..LoadSpec::endless(server.address) });
    let mut first_event = Vec::new();
    for _ in 0..effort.rounds {
        let (_, mut events) = send(&run_dir, &json!({"v": 1, "verb": "watch", "select": {"pid": pid}}))?;
        expect(&mut events, r#""started""#)?;
        let (start, _answer) = send(&run_dir, &switch("trace_on", pid))?;
        expect(&mut events, r#"{"ph":"#)?;
        first_event.push(start.elapsed().as_secs_f64() * 1e3);
        off(&run_dir, pid)?;
    }

    let mut sampling = Vec::new();
    if tracebyte_tests::is_root() {
        for _ in 0..effort.rounds {
            let request = json!({"v": 1, "verb": "profile", "select": {"pid": pid}, "duration_ms": 100,
                "freq_hz": 99, "kernel": true, "user": true});
            let (start, mut answer) = send(&run_dir, &request)?;
            expect(&mut answer, r#""started""#)?;
            sampling.push(start.elapsed().as_secs_f64() * 1e3);
            expect(&mut answer, r#""profile""#)?;
        }
    }
    load.stop().unharmed();
    drop(agent);

    let row = |variant: &str, rounds: Vec<f64>, limit_ms: f64| {
        Row::new("toggle", &Figures { variant: variant.into(), rounds }, "ms").limit(Limit::AtMost(limit_ms)).json()
    };
    let mut rows = vec![
        row("control message to byte in process", visible, 1.0),
        row("control message to first event", first_event, 50.0),
    ];
    if !sampling.is_empty() {
        rows.push(row("command to sampling", sampling, 50.0));
    }
    Ok(rows)
}

fn switch(verb: &str, pid: u32) -> Value {
    json!({"v": 1, "verb": verb, "category": "node.http", "select": {"pid": pid}})
}

fn off(run_dir: &Path, pid: u32) -> Result<()> {
    let (_, mut answer) = send(run_dir, &switch("trace_off", pid))?;
    expect(&mut answer, r#""switched""#)
}

/// Connects and sends one request; the time is taken before it is written.
fn send(run_dir: &Path, request: &Value) -> Result<(Instant, BufReader<UnixStream>)> {
    let mut stream = UnixStream::connect(run_dir.join("control.sock")).context("cannot reach the agent")?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let line = format!("{request}\n");
    let start = Instant::now();
    stream.write_all(line.as_bytes())?;
    Ok((start, BufReader::new(stream)))
}

/// Reads lines up to one that contains `text`.
fn expect(answer: &mut BufReader<UnixStream>, text: &str) -> Result<()> {
    let mut line = String::new();
    while answer.read_line(&mut line).with_context(|| format!("no line with {text} came"))? > 0 {
        if line.contains(text) {
            return Ok(());
        }
        line.clear();
    }
    bail!("the agent closed the connection before a line with {text} came")
}
