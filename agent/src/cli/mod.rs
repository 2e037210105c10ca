//! The command line: one file a verb.
//!
//! A verb parses its arguments, talks to the agent over the control socket, and prints.
//! Answers go to standard output; progress, notes and errors to standard error, so that a
//! pipe carries nothing but the answer. Exit codes: 0 done, 1 failed or refused, 2 wrong
//! usage (clap's own errors have it too).

mod agent;
mod completions;
mod doctor;
mod duration;
mod eventfile;
mod interrupt;
mod man;
mod output;
mod profile;
mod progress;
mod ps;
mod record;
mod select;
mod table;
mod trace;
mod watch;

use crate::control::check_run_dir;
use crate::error::{Failure, Kind};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{CommandFactory, Parser, Subcommand};
use runtime_core_abi::handshake::{RUN_DIR, RUN_DIR_ENV};
use std::path::PathBuf;
use std::process::ExitCode;

/// See what HTTP services do right now, down to the kernel.
///
/// The agent runs as root; the other verbs talk to it. Tracing is switched on and off in
/// running processes, costs nothing while it is off, and goes off by itself when the agent
/// ends.
#[derive(Debug, Parser)]
#[command(name = "tracebyte", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Cli {
    /// Directory of the agent's sockets [default: /run/tracebyte]
    #[arg(long, global = true, value_name = "DIR", env = RUN_DIR_ENV, hide_env_values = true, display_order = 900)]
    // An empty variable is as good as none, here as in the processes that join.
    #[arg(value_parser = OsStringValueParser::new().map(PathBuf::from))]
    run_dir: Option<PathBuf>,

    #[command(subcommand)]
    verb: Verb,
}

const EXAMPLES: &str = "\
Examples:
  sudo tracebyte agent                          run the agent
  tracebyte doctor                              what works on this machine
  tracebyte ps                                  what can be traced
  tracebyte trace on node.http --all --for 30s  switch request tracing on
  tracebyte trace watch                         see the events live
  tracebyte profile --all --duration 10s -o flame.svg

Exit codes: 0 done, 1 failed or refused, 2 wrong usage";

#[derive(Debug, Subcommand)]
enum Verb {
    Agent(agent::Args),
    Doctor(doctor::Args),
    Ps(ps::Args),
    Trace(trace::Args),
    Profile(profile::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Cli {
    fn run(self) -> Result<(), Failure> {
        // The agent also has a configuration file to ask, so it must know what was said.
        let said = self.run_dir.filter(|dir| !dir.as_os_str().is_empty());
        let run_dir = said.clone().unwrap_or_else(|| RUN_DIR.into());
        match self.verb {
            Verb::Agent(args) => args.run(said),
            Verb::Doctor(args) => check_run_dir(&run_dir).and_then(|()| args.run(&run_dir)),
            Verb::Ps(args) => args.run(&run_dir),
            Verb::Trace(args) => args.run(&run_dir),
            Verb::Profile(args) => args.run(&run_dir),
            Verb::Completions(args) => args.run(),
            Verb::Man(args) => args.run(),
        }
    }
}

/// The whole command line as clap knows it: for help, man pages and completions.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command line and returns its exit code.
pub fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::complain(&failure);
            ExitCode::from(match failure.kind {
                Kind::Failed => 1,
                Kind::Usage => 2,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_accepts_the_definitions() {
        command().debug_assert();
    }

    #[test]
    fn every_verb_shows_an_example() {
        fn visit(command: &clap::Command) {
            for verb in command.get_subcommands() {
                let help = verb.clone().render_long_help().to_string();
                assert!(help.contains("Example"), "`{}` has no example", verb.get_name());
                visit(verb);
            }
        }
        visit(&command());
    }

    #[test]
    fn what_must_be_selected_is_a_matter_of_usage() {
        for (line, accepted) in [
            ("tracebyte trace on node.http --pid 7", true),
            ("tracebyte trace on node.http --service shop --for 30s", true),
            ("tracebyte trace on node.http", false),
            ("tracebyte trace on node.http --pid 7 --all", false),
            ("tracebyte trace on --all", false),
            ("tracebyte trace on node.http --pid 0", false),
            ("tracebyte trace off --all", true),
            ("tracebyte trace off node.http --pid 7", true),
            ("tracebyte trace off node.http", false),
            ("tracebyte trace watch", true),
            ("tracebyte trace watch --pid 7 --service shop", false),
            ("tracebyte trace record --duration 5s -o x", true),
            ("tracebyte trace record --duration 5s", false),
            ("tracebyte trace record -o x", false),
            ("tracebyte profile --all --duration 1s -o x", true),
            ("tracebyte profile --duration 1s -o x", false),
            ("tracebyte profile --all --duration 1s -o x --kernel-only --user-only", false),
            ("tracebyte profile --all --duration 1s -o x --freq 0", false),
            ("tracebyte ps --run-dir /tmp/x", true),
            ("tracebyte --run-dir /tmp/x ps", true),
        ] {
            let parsed = Cli::try_parse_from(line.split(' '));
            assert_eq!(parsed.is_ok(), accepted, "{line}: {:?}", parsed.err().map(|e| e.to_string()));
        }
    }
}
