//! Profiling sessions: what a session is asked, and what comes of it.
//!
//! A session loads its own copy of the sampler, so that two run side by side and nothing
//! is in the kernel while none runs.

pub mod folded;
pub mod pprof;
pub mod session;
pub mod svg;
pub mod symbols;

use serde::{Deserialize, Serialize};

/// What to sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The processes to sample; `None` for the whole machine.
    pub pids: Option<Vec<u32>>,
    /// For how long at most.
    pub duration: std::time::Duration,
    /// Samples a second and CPU that were asked for.
    pub freq_hz: u32,
    /// Take kernel stacks.
    pub kernel: bool,
    /// Take user stacks.
    pub user: bool,
}

/// A finished profile: symbolized, compact, ready for any of the renderers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// The event that was sampled: `cycles`, or `cpu-clock` where there is no counter.
    pub event: String,
    /// Samples a second and CPU that were asked for.
    pub freq_hz_asked: u32,
    /// Samples a second and CPU in use.
    pub freq_hz: u32,
    /// When it began, in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// How long it ran, in nanoseconds.
    pub duration_ns: u64,
    /// Samples in `stacks`.
    pub samples: u64,
    /// Of these, taken while the CPU ran in the kernel.
    pub samples_kernel: u64,
    /// Samples taken but lost on the way.
    pub lost: u64,
    /// Samples of the idle task, left out.
    pub idle: u64,
    /// What the person should know: a clamped frequency, missing symbols and why.
    pub notes: Vec<String>,
    /// Every distinct frame; stacks refer to them by index.
    pub frames: Vec<Frame>,
    /// Every distinct stack.
    pub stacks: Vec<Stack>,
}

/// A place in a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// The symbol, or what is known instead (`[kernel]`, a module's name).
    pub name: String,
    /// File of the module the code belongs to; empty where unknown; `[kernel]` for the kernel.
    pub module: String,
    /// Whether it is kernel code.
    pub kernel: bool,
}

/// A stack and how often it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stack {
    /// Process id.
    pub pid: u32,
    /// The process's name (its `comm`).
    pub process: String,
    /// Indexes into [`Profile::frames`], outermost (root) first; user frames before kernel
    /// frames.
    pub frames: Vec<u32>,
    /// Times seen.
    pub count: u64,
}
