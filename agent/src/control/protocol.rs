//! What is said on the control socket. Others script against these names: they only grow.

use crate::error::Failure;
use crate::profile::Profile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the protocol; a request with another is refused.
pub const VERSION: u32 = 1;
/// The name of the control socket in the run directory.
pub const CONTROL_SOCKET: &str = "control.sock";
/// The longest request line in bytes, newline included.
pub const REQUEST_BYTES_MAX: usize = 16 * 1024;

/// Which processes a request is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Select {
    /// Every process that can be traced (for a profile: the whole machine).
    All,
    /// Every process of a service.
    Service(String),
    /// One process.
    Pid(u32),
}

/// A request: `{"v":1,"verb":"trace_on","category":"node.http","select":{"pid":7}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`].
    pub v: u32,
    /// What to do.
    #[serde(flatten)]
    pub verb: Verb,
}

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum Verb {
    /// List what can be traced.
    Ps,
    /// Switch a category on.
    TraceOn {
        /// Its name.
        category: String,
        /// In which processes.
        select: Select,
        /// Switch it off again after so many milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        for_ms: Option<u64>,
    },
    /// Switch a category off, or all of them.
    TraceOff {
        /// Its name; all categories where it is absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        category: Option<String>,
        /// In which processes.
        select: Select,
    },
    /// Stream events until the client stops.
    Watch {
        /// Of which processes.
        select: Select,
    },
    /// Stream exactly the events stamped in a window that begins when `started` is sent.
    Record {
        /// Of which processes.
        select: Select,
        /// Length of the window in milliseconds.
        duration_ms: u64,
    },
    /// Sample stacks.
    Profile {
        /// Of which processes.
        select: Select,
        /// For how many milliseconds.
        duration_ms: u64,
        /// Samples a second and CPU.
        freq_hz: u32,
        /// Take kernel stacks.
        kernel: bool,
        /// Take user stacks.
        user: bool,
    },
    /// End the stream that this connection carries.
    Stop,
}

/// A line of the answer, other than an event.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Reply {
    /// The request failed; the last line.
    Error(Failure),
    /// The answer to `ps`.
    Targets {
        /// What can be traced.
        targets: Vec<TargetInfo>,
    },
    /// `trace_on` or `trace_off` has taken effect.
    Switched {
        /// The processes whose byte was set or cleared.
        pids: Vec<u32>,
        /// Something the person should know.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
    /// A stream begins.
    Started {
        /// Something the person should know, such as that nothing is switched on.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
    /// An event stream ends; the last line.
    End {
        /// Events sent.
        events: u64,
        /// Events of the selected processes lost while it ran, by reason
        /// (`ring_full`, `no_lane`, `malformed`, `slow_reader`); absent reasons lost none.
        lost: BTreeMap<String, u64>,
        /// Something the person should know.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
    /// A profile is done; the last line.
    Profile(Box<Profile>),
}

/// A process that can be traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetInfo {
    /// Process id, as the agent sees it.
    pub pid: u32,
    /// Start time in clock ticks since boot (field 22 of `/proc/PID/stat`): with the pid
    /// it names a process for good.
    pub start_time: u64,
    /// `runtime-core` or `node`.
    pub kind: String,
    /// The service's name.
    pub service: String,
    /// What backs the page: `bpf` or `memfd`.
    pub page: String,
    /// Its categories, read from the live bytes.
    pub categories: Vec<CategoryInfo>,
}

/// A category of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CategoryInfo {
    /// Its name.
    pub name: String,
    /// Whether any owner has it on.
    pub enabled: bool,
    /// Who has it on: `process`, `operator`, `trigger`.
    pub by: Vec<String>,
}
