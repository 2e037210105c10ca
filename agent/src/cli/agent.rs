//! `tracebyte agent`: run the daemon, or only check its configuration.

use super::output;
use crate::config::Config;
use crate::daemon::{self, Options};
use crate::error::Failure;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Run the agent (as root, until SIGTERM or Ctrl-C)
///
/// Not as root, or where the kernel refuses eBPF, it runs in a reduced mode: toggling,
/// events and metrics work, profiles do not. `tracebyte doctor` tells which it will be.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo tracebyte agent
  tracebyte agent --run-dir /tmp/tb --listen 127.0.0.1:0
  tracebyte agent --check-config --config tracebyte.toml")]
pub struct Args {
    /// Configuration file; the default one may be missing [default: /etc/tracebyte/tracebyte.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address for /metrics and /healthz [default: 127.0.0.1:9763]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// Check the configuration and exit
    #[arg(long)]
    check_config: bool,
}

impl Args {
    pub(super) fn run(self, run_dir: Option<PathBuf>) -> Result<(), Failure> {
        let config = Config::load(self.config.as_deref())?;
        if self.check_config {
            daemon::check_names(&config)?;
            return output::print("the configuration is good\n");
        }
        daemon::run(Options { config, run_dir, listen: self.listen })
    }
}
