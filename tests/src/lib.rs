//! The harness: starts agents, servers and load on private run directories and loopback
//! ports, and ends them all, also when a test panics.
//!
//! It knows the project only as its users do: by the binaries, the command line, the
//! sockets and the files. Every wait has a limit, and what was started is ended by the
//! handle that started it, never by name.

#![warn(missing_docs)]

pub mod agent;
pub mod bins;
pub mod events;
pub mod http;
pub mod joiner;
pub mod load;
pub mod memory;
pub mod process;
pub mod rounds;
pub mod sampler;
pub mod sandbox;
pub mod server;
pub mod skip;
pub mod sys;
pub mod tools;
pub mod wait;

pub use agent::{Agent, AgentOptions};
pub use load::{Counts, Load, LoadSpec};
pub use process::{Output, Running};
pub use sandbox::Sandbox;
pub use server::{Server, ServerOptions};
pub use wait::{eventually, wait_for};

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::new(());

/// Held by an ordinary test: others of its kind run beside it.
pub fn together() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Held by a test that measures time or needs the processors: it runs alone.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this process is root: what needs eBPF skips where it is not.
pub fn is_root() -> bool {
    sys::effective_uid() == 0
}
