//! `tracebyte ps`: what can be traced.

use super::{output, table};
use crate::control::client;
use crate::control::protocol::{Reply, TargetInfo, Verb};
use crate::error::Failure;
use std::path::Path;

/// List the processes that can be traced
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tracebyte ps
  tracebyte ps --json | jq '.[].pid'")]
pub struct Args {
    /// Print an array of JSON objects
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) fn run(self, run_dir: &Path) -> Result<(), Failure> {
        let targets = targets(run_dir)?;
        if self.json {
            return output::print_json(&targets);
        }
        hint_if_none(&targets);
        let rows: Vec<_> = targets.iter().map(row).collect();
        output::print(&table::render(&["PID", "SERVICE", "KIND", "PAGE", "CATEGORIES", "ON"], &rows))
    }
}

/// Asks the agent what can be traced.
pub fn targets(run_dir: &Path) -> Result<Vec<TargetInfo>, Failure> {
    match client::ask(run_dir, Verb::Ps)? {
        Reply::Targets { targets } => Ok(targets),
        other => Err(unexpected(&other)),
    }
}

/// The failure of an answer that does not fit the request.
pub fn unexpected(reply: &Reply) -> Failure {
    Failure::new(format!("the agent gave an answer that does not fit the request: {reply:?}"))
        .remedy("the agent and this command may be of different versions: compare `tracebyte --version`")
}

/// Says on standard error why a table is empty.
pub fn hint_if_none(targets: &[TargetInfo]) {
    if targets.is_empty() {
        output::say("note: nothing has joined; a process joins when it finds the agent's run directory");
    }
}

fn row(target: &TargetInfo) -> Vec<String> {
    let on: Vec<&str> = target.categories.iter().filter(|c| c.enabled).map(|c| c.name.as_str()).collect();
    vec![
        target.pid.to_string(),
        printable(&target.service),
        target.kind.clone(),
        target.page.clone(),
        target.categories.len().to_string(),
        if on.is_empty() { "-".to_owned() } else { printable(&on.join(",")) },
    ]
}

/// Text that a process chose, without what would steer a terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::CategoryInfo;

    #[test]
    fn a_row_names_what_is_on_and_cannot_steer_the_terminal() {
        let category = |name: &str, enabled| CategoryInfo { name: name.to_owned(), enabled, by: Vec::new() };
        let target = TargetInfo {
            pid: 7,
            start_time: 1,
            kind: "runtime-core".to_owned(),
            service: "a\x1b[2Jb".to_owned(),
            page: "bpf".to_owned(),
            categories: vec![category("node.http", true), category("node", false)],
        };
        assert_eq!(row(&target), ["7", "a\u{fffd}[2Jb", "runtime-core", "bpf", "2", "node.http"]);
    }
}
