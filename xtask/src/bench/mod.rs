//! Measures, and says what was measured beside what must be reached. A figure is a median
//! of interleaved rounds of one run; a missed limit is shown, not failed.

mod toggle;

use crate::{run, setup};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Stdio;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// What to measure; everything where nothing is named.
    #[arg(value_parser = WORKLOADS.map(|(name, _)| name))]
    workloads: Vec<String>,
    /// Write the rows here too, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Fewer and shorter rounds.
    #[arg(long)]
    quick: bool,
}

/// How much time to take.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Rounds after the one that warms up; at least 5.
    pub rounds: usize,
    /// Seconds that a load runs in a round.
    pub load_s: u64,
}

impl Effort {
    /// The argument that tells a bench program to be quick, where it should be.
    fn quick(self) -> &'static [&'static str] {
        if self.rounds <= ROUNDS_MIN { &["--quick"] } else { &[] }
    }
}

/// The fewest rounds that make a median.
const ROUNDS_MIN: usize = 5;

type Workload = fn(Effort) -> Result<Vec<Value>>;

const WORKLOADS: [(&str, Workload); 6] = [
    ("toggle", toggle::run),
    ("check", |_| program("runtime-core", "check", &[])),
    ("buffer-of", |effort| program("runtime-core", "buffer", effort.quick())),
    ("c2s-cork", |effort| program("runtime-core", "cork", effort.quick())),
    ("make-callback", |effort| program("runtime-core", "callback", effort.quick())),
    ("messageport", |effort| program("runtime-core", "worker", effort.quick())),
];

/// Measures what was asked.
pub fn run(args: &Args) -> Result<()> {
    setup::prepare(setup::Purpose::Bench)?;
    let effort = if args.quick { Effort { rounds: ROUNDS_MIN, load_s: 1 } } else { Effort { rounds: 9, load_s: 3 } };
    let mut rows = Vec::new();
    for (name, workload) in WORKLOADS {
        if args.workloads.is_empty() || args.workloads.iter().any(|asked| asked == name) {
            let more = workload(effort).with_context(|| format!("cannot measure `{name}`"))?;
            more.iter().for_each(print);
            rows.extend(more);
        }
    }
    let missed = rows.iter().filter(|row| row["met"] == json!(false)).count();
    println!("{} rows, {missed} limits missed", rows.len());
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&json!({ "rows": rows }))? + "\n";
        std::fs::write(file, text).with_context(|| format!("cannot write `{}`", file.display()))?;
    }
    Ok(())
}

/// Runs a bench program of a package and collects the rows that it prints, one JSON object
/// a line.
pub fn program(package: &str, bench: &str, arguments: &[&str]) -> Result<Vec<Value>> {
    let output = run::cargo()
        .args(["bench", "--quiet", "--package", package, "--bench", bench, "--", "--json"])
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start the bench `{bench}`"))?;
    if !output.status.success() {
        bail!("the bench `{bench}` failed: {}", output.status);
    }
    let text = String::from_utf8(output.stdout).context("a bench printed something that is not text")?;
    let lines = text.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).with_context(|| format!("not a row: {line}"))).collect()
}

fn print(row: &Value) {
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let mut line = format!(
        "{:<14} {:<34} {:>12.3} {:<10}",
        text("workload"),
        text("variant"),
        row["median"].as_f64().unwrap_or(f64::NAN),
        text("unit")
    );
    if let Some(ratio) = row["ratio"].as_f64() {
        line += &format!(" {ratio:>9.3} against {}", text("peer"));
    }
    if let Some(limit) = row["limit"].as_str() {
        line += &format!("  [{limit}: {}]", if row["met"] == json!(true) { "met" } else { "MISSED" });
    }
    println!("{line}");
}
