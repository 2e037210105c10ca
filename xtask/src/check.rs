//! What must hold of the sources before they are merged.

mod field_cases;
mod traces;

use crate::run;
use anyhow::{Result, bail};
use std::process::Command;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {}

type Step = (&'static str, fn() -> Result<()>);

const STEPS: [Step; 6] = [
    ("formatting", formatting),
    ("lints", lints),
    ("documentation", documentation),
    ("the eBPF object", ebpf),
    ("tests of field cases", field_cases::check),
    ("traces of the building machine", traces::check),
];

/// Runs every step, also after one has failed, and fails if one did.
pub fn run(_args: &Args) -> Result<()> {
    let mut failed = Vec::new();
    for (name, step) in STEPS {
        match step() {
            Ok(()) => println!("ok: {name}"),
            Err(error) => {
                println!("failed: {name}: {error:#}");
                failed.push(name);
            }
        }
    }
    if !failed.is_empty() {
        bail!("{} of {} checks failed: {}", failed.len(), STEPS.len(), failed.join(", "));
    }
    Ok(())
}

fn formatting() -> Result<()> {
    run::run(run::cargo().args(["fmt", "--all", "--check"]))
}

fn lints() -> Result<()> {
    run::run(run::cargo().args(["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn documentation() -> Result<()> {
    let mut doc = run::cargo();
    run::run(doc.args(["doc", "--quiet", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
}

fn ebpf() -> Result<()> {
    let mut xtask = Command::new(std::env::current_exe()?);
    run::run(xtask.args(["ebpf", "--verify"]).current_dir(run::root()))
}

/// The files under version control, relative to the root.
fn tracked() -> Result<Vec<String>> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(run::root()).output()?;
    if !output.status.success() {
        bail!("`git ls-files` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let names = output.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}
