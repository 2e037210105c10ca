//! `tracebyte completions SHELL`: a completion script for a shell.

use super::output;
use crate::error::Failure;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  tracebyte completions bash > /usr/share/bash-completion/completions/tracebyte")]
pub struct Args {
    /// For which shell
    shell: clap_complete::Shell,
}

impl Args {
    pub(super) fn run(self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut super::command(), "tracebyte", &mut script);
        output::print(&String::from_utf8_lossy(&script))
    }
}
