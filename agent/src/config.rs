//! The agent's configuration file: TOML, every key optional, no key unknown.
//!
//! An error names the file, the line and the key, since whoever reads it has the file
//! open in an editor.

use crate::error::Failure;
use runtime_core_abi::ring;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The file that is read where none is named.
pub const DEFAULT_PATH: &str = "/etc/tracebyte/tracebyte.toml";

/// The configuration, complete: what the file does not say has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `[agent]`.
    pub agent: Agent,
    /// `[control]`.
    pub control: Control,
    /// `[register]`.
    pub register: Register,
    /// `[limits]`.
    pub limits: Limits,
}

/// Where the agent is found.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Agent {
    /// The folder of the two sockets and the lock.
    pub run_dir: PathBuf,
    /// Where `/metrics` and `/healthz` are served.
    pub listen: SocketAddr,
}

impl Default for Agent {
    fn default() -> Self {
        Self { run_dir: runtime_core_abi::handshake::RUN_DIR.into(), listen: SocketAddr::from(([127, 0, 0, 1], 9763)) }
    }
}

/// Who may use the control socket, besides root and the agent's own user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Control {
    /// A group, by name or number; the socket belongs to it.
    pub group: Option<String>,
    /// Users, by name or number.
    pub users: Vec<String>,
}

/// Who may register processes, and how many.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Register {
    /// Users, by name or number; everybody where the key is absent.
    pub allow_users: Option<Vec<String>>,
    /// Pages of one user, those kept alive past their lease included.
    pub pages_per_user_max: usize,
    /// Processes that can be registered at once.
    pub connections_max: usize,
}

impl Default for Register {
    fn default() -> Self {
        Self { allow_users: None, pages_per_user_max: 256, connections_max: 1024 }
    }
}

/// Bounds of the agent's memory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Service names in the metrics; the rest share `other`.
    pub services_max: usize,
    /// Bytes of each thread's event ring: a power of two.
    pub ring_bytes_per_lane: usize,
    /// Requests on the control socket that are served at once.
    pub streams_max: usize,
    /// Requests that have begun and not ended, remembered for their duration.
    pub open_requests_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { services_max: 100, ring_bytes_per_lane: 1 << 20, streams_max: 32, open_requests_max: 65_536 }
    }
}

impl Config {
    /// Reads `path`, which must exist; where none is named, [`DEFAULT_PATH`], which may not.
    pub fn load(path: Option<&Path>) -> Result<Self, Failure> {
        let (file, named) = (path.unwrap_or(Path::new(DEFAULT_PATH)), path.is_some());
        match std::fs::read_to_string(file) {
            Ok(text) => Self::parse(file, &text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !named => Ok(Self::default()),
            Err(error) => Err(Failure::new(format!("cannot read the configuration {}: {error}", file.display()))),
        }
    }

    fn parse(file: &Path, text: &str) -> Result<Self, Failure> {
        let at = |line: Option<usize>, what: &str| {
            let line = line.map(|line| format!(" line {line}:")).unwrap_or_default();
            Failure::new(format!("configuration {}:{line} {}", file.display(), what.trim_end().replace('\n', "; ")))
                .remedy("correct the file, then try it with `tracebyte agent --check-config`")
        };
        let config: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| line_of(text, span.start));
            at(line, error.message())
        })?;
        match config.first_fault() {
            Some((section, key, fault)) => {
                Err(at(line_of_key(text, section, key), &format!("`{section}.{key}` {fault}")))
            }
            None => Ok(config),
        }
    }

    /// The first value that has the right type and is wrong all the same: section, key,
    /// and what is wrong with it.
    fn first_fault(&self) -> Option<(&'static str, &'static str, String)> {
        let range = |section, key, value: usize, min: usize, max: usize| {
            let fault = || (section, key, format!("is {value}, but must be from {min} to {max}"));
            (!(min..=max).contains(&value)).then(fault)
        };
        let (register, limits) = (&self.register, &self.limits);
        if !self.agent.run_dir.is_absolute() {
            let fault = format!("is {}, but must be an absolute path", self.agent.run_dir.display());
            return Some(("agent", "run_dir", fault));
        }
        if !ring::data_bytes_valid(limits.ring_bytes_per_lane) {
            let (value, min, max) = (limits.ring_bytes_per_lane, ring::DATA_BYTES_MIN, ring::DATA_BYTES_MAX);
            let fault = format!("is {value}, but must be a power of two from {min} to {max}");
            return Some(("limits", "ring_bytes_per_lane", fault));
        }
        range("register", "pages_per_user_max", register.pages_per_user_max, 1, 4096)
            .or_else(|| range("register", "connections_max", register.connections_max, 1, 4096))
            .or_else(|| range("limits", "services_max", limits.services_max, 1, 10_000))
            .or_else(|| range("limits", "streams_max", limits.streams_max, 1, 1024))
            .or_else(|| range("limits", "open_requests_max", limits.open_requests_max, 1, 10_000_000))
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
}

/// The line of a value that was parsed already, however its key is written.
fn line_of_key(text: &str, section: &str, key: &str) -> Option<usize> {
    let document = toml::de::DeTable::parse(text).ok()?;
    let value = document.get_ref().get(section)?.get_ref().as_table()?.get(key)?;
    Some(line_of(text, value.span().start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("/etc/t.toml"), text).map_err(|failure| failure.message)
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        assert_eq!(parse(""), Ok(Config::default()));
        assert_eq!(Config::default().first_fault(), None);
    }

    #[test]
    fn every_key_is_read() {
        let config = parse(
            "[agent]\nrun_dir = \"/tmp/x\"\nlisten = \"127.0.0.1:1\"\n[control]\ngroup = \"adm\"\nusers = [\"7\"]\n\
             [register]\nallow_users = []\npages_per_user_max = 3\nconnections_max = 4\n\
             [limits]\nservices_max = 5\nring_bytes_per_lane = 65536\nstreams_max = 6\nopen_requests_max = 7\n",
        )
        .unwrap();
        assert_eq!(config.agent.run_dir, Path::new("/tmp/x"));
        assert_eq!(config.register.allow_users, Some(vec![]));
        assert_eq!(config.limits.open_requests_max, 7);
    }

    #[test]
    fn faults_name_file_line_and_key() {
        for (text, words) in [
            ("[agent]\n\nrundir = 1\n", ["/etc/t.toml", "line 3", "rundir"]),
            ("[agent]\nlisten = \"nowhere\"\n", ["/etc/t.toml", "line 2", "address"]),
            ("[register]\nconnections_max = \"x\"\n", ["/etc/t.toml", "line 2", "usize"]),
            ("# c\n[limits]\nservices_max=0 # none\n", ["line 3", "limits.services_max", "from 1 to 10000"]),
            ("[limits]\nring_bytes_per_lane = 100000\n", ["line 2", "ring_bytes_per_lane", "power of two"]),
            ("[agent]\nrun_dir = \"here\"\n", ["line 2", "agent.run_dir", "absolute"]),
            ("\nlimits.services_max = 0\n", ["line 2", "limits.services_max", "from 1"]),
            ("\n\nlimits = { \"services_max\" = 0 }\n", ["line 3", "limits.services_max", "from 1"]),
            ("[agent\n", ["/etc/t.toml", "line 1", ""]),
            ("[nothing]\n", ["/etc/t.toml", "line 1", "nothing"]),
        ] {
            let message = parse(text).unwrap_err();
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
        }
    }

    #[test]
    fn a_named_file_must_exist() {
        let failure = Config::load(Some(Path::new("/no/such/file"))).unwrap_err();
        assert!(failure.message.contains("/no/such/file"), "{failure}");
    }
}
