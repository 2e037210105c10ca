//! The daemon.

use crate::config::Config;
use crate::error::Failure;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What the command line says; it wins over the configuration file.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The configuration, loaded.
    pub config: Config,
    /// The run directory, where the command line or the environment names one.
    pub run_dir: Option<PathBuf>,
    /// The address for `/metrics`, where the command line names one.
    pub listen: Option<SocketAddr>,
}

/// Runs the agent until SIGTERM or SIGINT.
pub fn run(_options: Options) -> Result<(), Failure> {
    Err(Failure::new("the agent is not written yet"))
}
