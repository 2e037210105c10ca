//! The steps of the demonstration, each through the command line that people use.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tracebyte_tests::events::{self, Requests};
use tracebyte_tests::{Agent, AgentOptions, Load, LoadSpec, Sandbox, Server, ServerOptions, wait_for};

/// Requests made while tracing is on, and again while it is off.
const REQUESTS: u64 = 2_000;
const SERVICE: &str = "demo";
const DURATION: &[(&str, &str)] = &[("service", SERVICE)];

/// Everything that runs, ended with the value.
pub struct Demo {
    out: PathBuf,
    full: bool,
    missing: Vec<String>,
    server: Server,
    agent: Agent,
    sandbox: Sandbox,
}

/// What tracing gave.
#[derive(Debug, Default)]
pub struct Traced {
    /// Requests answered while tracing was on.
    pub requests: u64,
    /// Begin events recorded.
    pub begins: u64,
    /// End events recorded.
    pub ends: u64,
    /// Requests in the agent's histogram.
    pub in_histogram: u64,
    /// Events lost.
    pub lost: u64,
    /// Requests answered while tracing was off.
    pub requests_off: u64,
    /// Events seen meanwhile.
    pub events_off: u64,
}

impl Traced {
    /// Whether every request was seen exactly once, and none while tracing was off.
    pub fn agrees(&self) -> bool {
        let Self { requests, begins, ends, in_histogram, .. } = *self;
        requests == REQUESTS
            && begins == requests
            && ends == requests
            && in_histogram == requests
            && self.events_off == 0
    }
}

/// What the profile gave.
#[derive(Debug)]
pub struct Profiled {
    /// Samples taken.
    pub samples: u64,
    /// The share in the kernel in percent, where it was told.
    pub kernel: Option<u64>,
}

impl Demo {
    /// Starts agent and server, and waits until the server has joined.
    pub fn start(out: PathBuf) -> Result<Self> {
        let sandbox = Sandbox::new();
        let agent = Agent::try_start(&sandbox, &AgentOptions::default())
            .map_err(|said| anyhow::anyhow!("the agent did not start: {}", said.trim()))?;
        let server = Server::start(&sandbox, &ServerOptions { threads: 2, ..ServerOptions::named(SERVICE) });
        agent.wait_for_target(server.pid());
        let targets = agent.tracebyte(&["ps", "--json"]).json();
        let full = targets.as_array().is_some_and(|all| all.iter().any(|target| target["page"] == "bpf"));
        let mut demo = Self { out, full, missing: Vec::new(), server, agent, sandbox };
        if !full {
            demo.missing = demo.ask_doctor();
        }
        Ok(demo)
    }

    /// `full`, or `reduced` where the kernel's part is not to be had.
    pub fn mode(&self) -> &'static str {
        if self.full { "full" } else { "reduced" }
    }

    /// What is missing, why, and how to get it: a line each.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// The agent's run directory.
    pub fn run_dir(&self) -> PathBuf {
        self.sandbox.run_dir()
    }

    /// The server's process id.
    pub fn server_pid(&self) -> u32 {
        self.server.pid()
    }

    /// Where the server listens.
    pub fn server_address(&self) -> SocketAddr {
        self.server.address
    }

    /// Counts a bounded number of requests with tracing on, and again with tracing off.
    pub fn trace(&self) -> Result<Traced> {
        let file = self.out.join("trace.json");
        let pid = self.server.pid().to_string();
        let record = self.agent.spawn(&["trace", "record", "--duration", "60s", "-o", &file.to_string_lossy()]);
        // Begins within 100 ms of its start, by its own promise; the rest is the start itself.
        std::thread::sleep(Duration::from_millis(500));
        self.tracebyte(&["trace", "on", "node.http", "--pid", &pid])?;
        let on = Load::run(&LoadSpec::requests(self.server.address, REQUESTS));
        self.tracebyte(&["trace", "off", "node.http", "--pid", &pid])?;
        // The agent drains on a timer: what was traced is counted a moment later.
        wait_for(Duration::from_secs(1), || (self.events_total() >= 2 * on.answered).then_some(()));
        let before_off = self.events_total();
        let off = Load::run(&LoadSpec::requests(self.server.address, REQUESTS));
        record.signal(libc::SIGINT);
        let output = record.wait(Duration::from_secs(10));
        if output.code() != 0 {
            bail!("`tracebyte trace record` failed: {}", output.stderr.trim());
        }
        let bytes = std::fs::read(&file).with_context(|| format!("cannot read `{}`", file.display()))?;
        let recorded = events::chrome(&bytes).map_err(|why| anyhow::anyhow!("`{}`: {why}", file.display()))?;
        let Requests { begins, ends } = Requests::count(&recorded);
        Ok(Traced {
            requests: on.answered,
            begins,
            ends,
            in_histogram: self.metric("http_server_request_duration_seconds_count"),
            lost: self.metric("tracebyte_trace_events_lost_total"),
            requests_off: off.answered,
            events_off: self.events_total().saturating_sub(before_off),
        })
    }

    /// Profiles the server under load; `None` where the kernel's part is not to be had.
    pub fn profile(&self) -> Result<Option<Profiled>> {
        if !self.full {
            return Ok(None);
        }
        let load = Load::start(&LoadSpec::endless(self.server.address));
        let file = self.out.join("flame.svg");
        let pid = self.server.pid().to_string();
        let args = ["profile", "--pid", &pid, "--duration", "3s", "--freq", "499", "-o", &file.to_string_lossy()];
        let output = self.agent.tracebyte(&args);
        load.stop();
        if output.code() != 0 {
            bail!("`tracebyte profile` failed: {}", output.stderr.trim());
        }
        let svg = std::fs::read_to_string(&file).with_context(|| format!("cannot read `{}`", file.display()))?;
        let kernel = share_in_kernel(&output.stderr).or_else(|| share_in_kernel(&svg));
        Ok(Some(Profiled { samples: self.metric("tracebyte_profile_samples_total"), kernel }))
    }

    /// Writes the agent's metrics as they are now.
    pub fn write_metrics(&self) -> Result<()> {
        let file = self.out.join("metrics.txt");
        std::fs::write(&file, self.agent.metrics()).with_context(|| format!("cannot write `{}`", file.display()))
    }

    /// The files written.
    pub fn written(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.out).into_iter().flatten().flatten();
        let mut files: Vec<String> = entries.map(|entry| entry.path().display().to_string()).collect();
        files.sort();
        files
    }

    /// Puts the server under load and says what can be tried.
    pub fn invite(&self) -> Load {
        let run_dir = self.run_dir();
        let tracebyte = tracebyte_tests::bins::tracebyte();
        println!("\neverything stays up until Ctrl-C; in another terminal:");
        println!("  export TRACEBYTE_RUN_DIR={}", run_dir.display());
        println!("  curl http://{}/", self.server.address);
        println!("  curl http://{}/metrics", self.agent.http);
        for words in ["ps", "trace on node.http --all", "trace watch", "trace off --all"] {
            println!("  {} {words}", tracebyte.display());
        }
        if self.full {
            println!("  {} profile --all --duration 5s -o flame.svg", tracebyte.display());
        }
        Load::start(&LoadSpec::endless(self.server.address))
    }

    fn tracebyte(&self, args: &[&str]) -> Result<()> {
        let output = self.agent.tracebyte(args);
        if output.code() != 0 {
            bail!("`tracebyte {}` failed: {}", args.join(" "), output.stderr.trim());
        }
        Ok(())
    }

    fn metric(&self, name: &str) -> u64 {
        self.agent.metric(name, &[]).unwrap_or(0.0) as u64
    }

    fn events_total(&self) -> u64 {
        self.agent.metric("tracebyte_trace_events_total", DURATION).unwrap_or(0.0) as u64
    }

    fn ask_doctor(&self) -> Vec<String> {
        let output = self.agent.tracebyte(&["doctor", "--json"]);
        let rows: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let rows = rows.as_array().into_iter().flatten().filter(|row| row["state"] == "missing");
        rows.map(|row| {
            let (feature, why, remedy) = (text(row, "feature"), text(row, "why"), text(row, "remedy"));
            format!("missing: {feature}: {why}{}{remedy}", if remedy.is_empty() { "" } else { "; remedy: " })
        })
        .collect()
    }
}

/// The number before `% in the kernel`.
fn share_in_kernel(text: &str) -> Option<u64> {
    let before = &text[..text.find("% in the kernel")?];
    let digits = before.rfind(|letter: char| !letter.is_ascii_digit() && letter != '.').map_or(0, |at| at + 1);
    before[digits..].parse::<f64>().ok().map(|share| share.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_read_from_the_summary() {
        assert_eq!(share_in_kernel("812 samples (71% in the kernel) in 3 s"), Some(71));
        assert_eq!(share_in_kernel("70.6% in the kernel"), Some(71));
        assert_eq!(share_in_kernel("0 samples"), None);
    }
}
