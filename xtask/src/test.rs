//! Runs every test, counts them, and sees to it that nothing is left behind.

mod report;
mod snapshot;

use crate::run;
use crate::setup::{self, Purpose};
use anyhow::{Context, Result, bail};
use report::Report;
use snapshot::Snapshot;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use tracebyte_tests::{bins, skip};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Only tests whose name contains this.
    filter: Option<String>,
}

/// Sets up, builds, runs, counts.
pub fn run(args: &Args) -> Result<()> {
    if let Err(error) = setup::prepare(Purpose::Test) {
        println!("cannot set up for the tests, those that need it are skipped: {error:#}");
    }
    run::run(run::cargo().args(["build", "--release", "--bins"]))?;
    let skips = std::env::temp_dir().join(format!("tracebyte-skips-{}", std::process::id()));
    let before = Snapshot::take();
    let mut report = run_tests(args, &skips)?;
    report.skips(&std::fs::read_to_string(&skips).unwrap_or_default());
    let _ = std::fs::remove_file(&skips);
    report.left_over(&before.left_over());
    if std::env::var_os("CI").is_some() {
        let file = run::root().join("tests/skips.toml");
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read `{}`", file.display()))?;
        report.unlisted_skips_fail(&toml::from_str(&text).context("tests/skips.toml")?);
    }
    report.print();
    if report.failed > 0 {
        bail!("{} failed", report.failed);
    }
    Ok(())
}

fn run_tests(args: &Args, skips: &std::path::Path) -> Result<Report> {
    let mut cargo = run::cargo();
    cargo.args(["test", "--workspace", "--no-fail-fast", "--"]).args(&args.filter);
    cargo.env(skip::SKIPS_ENV, skips).env(bins::BIN_DIR_ENV, run::root().join("target/release"));
    let mut tests = cargo.stdout(Stdio::piped()).spawn().context("cannot start `cargo test`")?;
    let mut report = Report::default();
    for line in BufReader::new(tests.stdout.take().expect("piped above")).lines() {
        let line = line.context("cannot read what the tests print")?;
        println!("{line}");
        report.line(&line);
    }
    let status = tests.wait()?;
    if !status.success() && report.failed == 0 {
        report.fail("cargo test", &format!("ended with {status}; did it compile?"));
    }
    Ok(report)
}
