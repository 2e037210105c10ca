//! What a developer and CI run. `cargo xtask --help` lists the verbs.

mod bench;
mod check;
mod demo;
mod ebpf;
mod install;
mod run;
mod setup;
mod test;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Developer tasks of tracebyte.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run the main job on a real server under load, and show it.
    Demo(demo::Args),
    /// Set up, then run every test.
    Test(test::Args),
    /// Formatting, lints, documentation, the eBPF object, named tests.
    Check(check::Args),
    /// Measure, as ratios within one run.
    Bench(bench::Args),
    /// Install what a purpose needs; quiet when there is nothing to do.
    Setup(setup::Args),
    /// Rebuild the checked-in eBPF object, or verify it.
    Ebpf(ebpf::Args),
    /// Install the binary, the systemd unit, an example configuration, man pages and completions.
    Install(install::Args),
    /// Remove what `install` put there.
    Uninstall(install::Args),
}

fn main() -> ExitCode {
    match dispatch(Cli::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Demo(args) => demo::run(&args),
        Verb::Test(args) => test::run(&args),
        Verb::Check(args) => check::run(&args),
        Verb::Bench(args) => bench::run(&args),
        Verb::Setup(args) => setup::run(&args),
        Verb::Ebpf(args) => ebpf::run(&args),
        Verb::Install(args) => install::install(&args),
        Verb::Uninstall(args) => install::uninstall(&args),
    }
}
