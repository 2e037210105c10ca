//! Profiling sessions: what a session is asked, and what comes of it.
//!
//! A session loads its own copy of the sampler, so that two run side by side and nothing
//! is in the kernel while none runs.

pub mod folded;
mod maps;
pub mod pprof;
mod refusal;
mod sampler;
pub mod session;
pub mod svg;
mod symbols;
mod table;

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

/// What stands for samples whose stack was lost.
pub const MISSED_STACK: &str = "[missed stack]";

/// A line of a rendered profile.
pub struct Row<'a> {
    /// The process's name, which every format shows as the root frame.
    pub process: &'a str,
    /// Its pid; `None` for samples that were lost.
    pub pid: Option<u32>,
    /// Root first; user frames before kernel frames.
    pub frames: Vec<&'a Frame>,
    /// Samples.
    pub count: u64,
}

impl Profile {
    /// What the renderers show: every stack, and the lost samples as a row of their own.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let frames = |stack: &Stack| stack.frames.iter().filter_map(|at| self.frames.get(*at as usize)).collect();
        let kept = self.stacks.iter().map(move |stack| Row {
            process: &stack.process,
            pid: Some(stack.pid),
            frames: frames(stack),
            count: stack.count,
        });
        let lost = Row { process: MISSED_STACK, pid: None, frames: Vec::new(), count: self.lost };
        kept.chain((self.lost > 0).then_some(lost))
    }

    /// What to say beside the stacks, one fact a line: how it was measured, what was left
    /// out or lost, then the notes.
    pub fn facts(&self) -> Vec<String> {
        let mut facts = vec![
            format!("{} at {} Hz", self.event, self.freq_hz),
            format!("{:.1} s", self.duration_ns as f64 / 1e9),
            format!("{} samples ({} in the kernel)", self.samples, self.samples_kernel),
            format!("{} lost", self.lost),
            format!("{} idle left out", self.idle),
        ];
        facts.extend(self.notes.iter().cloned());
        facts
    }
}

#[cfg(test)]
pub(crate) mod tests {
    //! Profiles that the renderers' tests share.

    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// A small profile with user and kernel frames, losses and a note.
    pub(crate) fn profile() -> Profile {
        let frame = |name: &str, module: &str, kernel| Frame { name: name.into(), module: module.into(), kernel };
        let stack = |frames: &[u32], count| Stack { pid: 7, process: "server".into(), frames: frames.into(), count };
        Profile {
            event: "cpu-clock".into(),
            freq_hz_asked: 99,
            freq_hz: 99,
            start_unix_ns: 1,
            duration_ns: 1_000_000_000,
            samples: 6,
            samples_kernel: 2,
            lost: 3,
            idle: 5,
            notes: vec!["a note".into()],
            frames: vec![
                frame("main", "/bin/server", false),
                frame("work", "/bin/server", false),
                frame("sys_read", "[kernel]", true),
            ],
            stacks: vec![stack(&[0, 1], 4), stack(&[0, 1, 2], 2)],
        }
    }

    /// Names as hostile processes and symbol tables have them.
    fn name() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<String>(),
            "[\\x00-\\x20;#_<>&\"'\\[\\]kj0-9.\u{85}\u{2028}\u{fffe}\u{ffff}-]{0,12}",
            Just("a_[k]".to_owned()),
            Just("--".to_owned()),
            Just("x 1".to_owned()),
        ]
    }

    prop_compose! {
        /// A profile with any names, and indexes that may point nowhere.
        pub(crate) fn hostile_profile()(
            frames in vec((name(), name(), any::<bool>()), 0..6),
            stacks in vec((any::<u32>(), name(), vec(0u32..8, 0..6), 0u64..1000), 0..6),
            notes in vec(name(), 0..3),
            lost in 0u64..3,
        ) -> Profile {
            let samples = stacks.iter().map(|stack| stack.3).sum();
            let frames = frames.into_iter().map(|(name, module, kernel)| Frame { name, module, kernel }).collect();
            let stacks = stacks
                .into_iter()
                .map(|(pid, process, frames, count)| Stack { pid, process, frames, count })
                .collect();
            Profile { frames, stacks, notes, lost, samples, ..Profile::default() }
        }
    }
}
