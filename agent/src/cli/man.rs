//! `tracebyte man DIR`: man pages, for `cargo xtask install` and for packagers.

use crate::error::Failure;
use std::path::PathBuf;

/// Write a man page of every verb into a directory
#[derive(Debug, clap::Args)]
#[command(hide = true, after_help = "Example:\n  tracebyte man target/man")]
pub struct Args {
    /// An existing directory
    dir: PathBuf,
}

impl Args {
    pub(super) fn run(self) -> Result<(), Failure> {
        clap_mangen::generate_to(super::command(), &self.dir)
            .map_err(|error| Failure::new(format!("cannot write man pages into {}: {error}", self.dir.display())))
    }
}
