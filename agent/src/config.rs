//! The agent's configuration file.

use std::path::Path;

use crate::error::Failure;

/// The configuration, complete: what the file does not say has its default.
#[derive(Clone, Debug, Default)]
pub struct Config {}

impl Config {
    /// Reads `path`, or the default file where none is named.
    pub fn load(_path: Option<&Path>) -> Result<Self, Failure> {
        Ok(Self {})
    }
}
