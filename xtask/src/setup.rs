//! Installs what a purpose needs, and nothing that is there already.
//!
//! Building and the demo need only cargo, so without a purpose there is nothing to do. Each
//! purpose is a list of steps; a step knows whether it is done. What needs root and cannot
//! have it is printed instead, to be run by hand.

use crate::run::{root, run as run_command};
use anyhow::{Result, bail};
use std::path::Path;
use std::process::{Command, Stdio};
use tracebyte_tests::is_root;
use tracebyte_tests::tools::find;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// What to prepare for; nothing for building and the demo.
    purpose: Option<Purpose>,
}

/// What a machine can be prepared for.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Purpose {
    /// Rebuilding the eBPF object: a compiler with its library sources, LLVM, bpf-linker.
    Ebpf,
    /// Testing: Prometheus and promtool, unpacked below `target`, never installed.
    Test,
    /// Measuring: the load generator wrk, and strace.
    Bench,
}

/// Installs.
pub fn run(args: &Args) -> Result<()> {
    match args.purpose {
        Some(purpose) => prepare(purpose),
        None => Ok(()),
    }
}

/// Does the steps of a purpose that are not done yet; quiet where there are none.
pub fn prepare(purpose: Purpose) -> Result<()> {
    let missing: Vec<Step> = steps(purpose).into_iter().filter(|step| !(step.done)()).collect();
    if !is_root() && missing.iter().any(|step| step.needs_root) {
        let lines: Vec<&str> = missing.iter().flat_map(|step| step.commands).copied().collect();
        bail!("root is needed to install what is missing; run:\n  {}", lines.join("\n  "));
    }
    for step in missing {
        for command in step.commands {
            eprintln!("+ {command}");
            run_command(
                Command::new("sh").args(["-c", command]).current_dir(root()).env("DEBIAN_FRONTEND", "noninteractive"),
            )?;
        }
    }
    Ok(())
}

/// One thing to install.
struct Step {
    /// Whether it is there.
    done: fn() -> bool,
    needs_root: bool,
    /// Shell commands, also shown to whom must run them.
    commands: &'static [&'static str],
}

fn steps(purpose: Purpose) -> Vec<Step> {
    match purpose {
        Purpose::Test => vec![Step {
            done: || find("prometheus").is_some() && find("promtool").is_some(),
            needs_root: false,
            commands: &[
                "mkdir -p target/tools",
                "cd target/tools && (apt-get download -qq prometheus || (apt-get update -qq && apt-get download -qq prometheus))",
                "cd target/tools && dpkg -x prometheus_*.deb . && rm prometheus_*.deb",
            ],
        }],
        Purpose::Bench => vec![Step {
            done: || find("wrk").is_some() && find("strace").is_some(),
            needs_root: true,
            commands: &["apt-get update -qq", "apt-get install -y -qq --no-install-recommends wrk strace"],
        }],
        Purpose::Ebpf => vec![
            Step {
                done: || {
                    ["/usr/bin/rustc", "/usr/bin/cargo", "/usr/lib/rustlib/src/rust/library/core/Cargo.toml"]
                        .iter()
                        .all(|path| Path::new(path).exists())
                },
                needs_root: true,
                commands: &[
                    "apt-get update -qq",
                    "apt-get install -y -qq --no-install-recommends rustc-web cargo-web rust-web-src llvm-22-dev libpolly-22-dev",
                ],
            },
            Step {
                done: || answers("bpf-linker"),
                needs_root: false,
                commands: &["PATH=/usr/lib/llvm-22/bin:$PATH LLVM_PREFIX=/usr/lib/llvm-22 cargo install bpf-linker \
                     --version 0.13.0 --locked --no-default-features --features llvm-22"],
            },
        ],
    }
}

/// Whether a program is on the path and tells its version.
fn answers(program: &str) -> bool {
    let status = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
