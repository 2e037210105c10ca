//! What the agent takes while nobody asks it anything, with one process joined.

use super::http::cpu_ns;
use super::{Effort, agent, server};
use anyhow::{Context, Result};
use serde_json::Value;
use std::time::{Duration, Instant};
use tracebyte_tests::Sandbox;
use tracebyte_tests::rounds::{Figures, Limit, Row};

/// Measures.
pub fn run(effort: Effort) -> Result<Vec<Value>> {
    let sandbox = Sandbox::new();
    let server = server(&sandbox)?;
    let agent = agent(&sandbox, &server);
    std::thread::sleep(Duration::from_secs(1));
    let (mut memory, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..effort.rounds {
        let (before, start) = (cpu_ns(agent.pid())?, Instant::now());
        std::thread::sleep(Duration::from_secs(2));
        cpu.push((cpu_ns(agent.pid())? - before) / start.elapsed().as_nanos() as f64 * 100.0);
        memory.push(resident_mb(agent.pid())?);
    }
    let row = |variant: &str, rounds, unit: &str, most| {
        Row::new("idle agent", &Figures { variant: variant.into(), rounds }, unit).limit(Limit::AtMost(most)).json()
    };
    Ok(vec![row("resident memory", memory, "MB", 20.0), row("CPU", cpu, "% of a core", 0.1)])
}

fn resident_mb(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kb =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    Ok(kb.context("the kernel tells no resident size")? / 1000.0)
}
