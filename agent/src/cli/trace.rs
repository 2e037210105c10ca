//! `tracebyte trace`: switch categories on and off, and see their events.

use super::select::{self, Selection};
use super::{duration, output, ps, record, table, watch};
use crate::control::client;
use crate::control::protocol::{Reply, TargetInfo, Verb};
use crate::error::Failure;
use std::path::Path;
use std::time::Duration;

/// Switch tracing on and off, watch and record events
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  tracebyte trace on node.http --service shop --for 30s
  tracebyte trace record --duration 5s -o trace.json")]
pub struct Args {
    #[command(subcommand)]
    verb: TraceVerb,
}

#[derive(Debug, clap::Subcommand)]
enum TraceVerb {
    On(OnArgs),
    Off(OffArgs),
    Status(StatusArgs),
    Watch(watch::Args),
    Record(record::Args),
}

/// Switch a category on
///
/// Returns once the category is on. It stays on until `trace off`, the end of `--for`, or
/// the end of the agent.
#[derive(Debug, clap::Args)]
#[command(
    mut_group("selection", select::required),
    after_help = "\
Examples:
  tracebyte trace on node.http --pid 4711
  tracebyte trace on node.http --service shop --for 30s"
)]
struct OnArgs {
    /// Name of the category, such as node.http
    category: String,
    #[command(flatten)]
    selection: Selection,
    /// Switch it off again after this time, such as 500ms, 30s, 2m
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    for_: Option<Duration>,
}

/// Switch a category off, or all of them
#[derive(Debug, clap::Args)]
#[command(
    mut_group("selection", select::required),
    after_help = "\
Examples:
  tracebyte trace off node.http --pid 4711
  tracebyte trace off --all"
)]
struct OffArgs {
    /// Name of the category; all of them where none is named
    category: Option<String>,
    #[command(flatten)]
    selection: Selection,
}

/// Show every category of every process, whether it is on, and who has it on
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tracebyte trace status
  tracebyte trace status --json")]
struct StatusArgs {
    /// Print an array of JSON objects, the same as `ps --json`
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) fn run(self, run_dir: &Path) -> Result<(), Failure> {
        match self.verb {
            TraceVerb::On(args) => args.run(run_dir),
            TraceVerb::Off(args) => args.run(run_dir),
            TraceVerb::Status(args) => args.run(run_dir),
            TraceVerb::Watch(args) => args.run(run_dir),
            TraceVerb::Record(args) => args.run(run_dir),
        }
    }
}

impl OnArgs {
    fn run(self, run_dir: &Path) -> Result<(), Failure> {
        let said = ps::printable(&self.category);
        let for_ms = self.for_.map(duration::as_ms);
        let verb = Verb::TraceOn { category: self.category, select: self.selection.select(), for_ms };
        switch(run_dir, verb, &format!("{said} is on"))
    }
}

impl OffArgs {
    fn run(self, run_dir: &Path) -> Result<(), Failure> {
        let said = self.category.as_deref().map_or_else(|| "everything".to_owned(), ps::printable);
        let verb = Verb::TraceOff { category: self.category, select: self.selection.select() };
        switch(run_dir, verb, &format!("{said} is off"))
    }
}

fn switch(run_dir: &Path, verb: Verb, said: &str) -> Result<(), Failure> {
    match client::ask(run_dir, verb)? {
        Reply::Switched { pids, notes } => {
            output::note(&notes);
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            match pids.as_slice() {
                [] => output::print(&format!("{said} in no process\n")),
                [pid] => output::print(&format!("{said} in process {pid}\n")),
                _ => output::print(&format!("{said} in {} processes: {}\n", pids.len(), pids.join(" "))),
            }
        }
        other => Err(ps::unexpected(&other)),
    }
}

impl StatusArgs {
    fn run(self, run_dir: &Path) -> Result<(), Failure> {
        let targets = ps::targets(run_dir)?;
        if self.json {
            return output::print_json(&targets);
        }
        ps::hint_if_none(&targets);
        let rows: Vec<_> = targets.iter().flat_map(rows).collect();
        output::print(&table::render(&["PID", "SERVICE", "CATEGORY", "STATE", "BY"], &rows))
    }
}

fn rows(target: &TargetInfo) -> Vec<Vec<String>> {
    let row = |category: &crate::control::protocol::CategoryInfo| {
        vec![
            target.pid.to_string(),
            ps::printable(&target.service),
            ps::printable(&category.name),
            if category.enabled { "on" } else { "off" }.to_owned(),
            category.by.join(","),
        ]
    };
    target.categories.iter().map(row).collect()
}
