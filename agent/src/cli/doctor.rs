//! `tracebyte doctor`: what works on this machine, what does not, and the remedy.

use super::output;
use crate::doctor::{self, Row, State};
use crate::error::Failure;
use std::io::IsTerminal;
use std::path::Path;

/// Tell what works on this machine, what does not, and the remedy
///
/// Needs no agent and no privileges, and tries what it can instead of guessing. It speaks
/// for the user who runs it: run it as the agent's user (`sudo`) to learn about the agent.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo tracebyte doctor
  tracebyte doctor --json | jq '.[] | select(.state != \"ok\")'")]
pub struct Args {
    /// Print an array of JSON objects
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) fn run(self, run_dir: &Path) -> Result<(), Failure> {
        let rows = doctor::examine(run_dir)?;
        if self.json {
            return output::print_json(&rows);
        }
        let coloured = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        output::print(&for_people(&rows, coloured))
    }
}

/// One line a feature, its remedy below it.
fn for_people(rows: &[Row], coloured: bool) -> String {
    let width = rows.iter().map(|row| row.feature.len()).max().unwrap_or(0);
    let mut text = String::new();
    for row in rows {
        let (word, colour) = match row.state {
            State::Ok => ("ok", "\x1b[32m"),
            State::Degraded => ("degraded", "\x1b[33m"),
            State::Missing => ("missing", "\x1b[31m"),
        };
        let (before, after) = if coloured { (colour, "\x1b[0m") } else { ("", "") };
        text += &format!("{before}{word:<8}{after}  {:width$}  {}\n", row.feature, row.why);
        if let Some(remedy) = &row.remedy {
            text += &format!("{:8}  {:width$}  remedy: {remedy}\n", "", "");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_feature_and_colour_only_where_asked() {
        let row = Row::missing("tracefs", "not mounted", "mount it");
        let text = for_people(std::slice::from_ref(&row), false);
        assert_eq!(text, "missing   tracefs  not mounted\n                   remedy: mount it\n");
        assert!(for_people(&[row], true).contains("\x1b[31mmissing"));
    }
}
