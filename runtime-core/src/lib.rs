//! A small HTTP runtime whose tracing is switched by one byte of a shared page.
//!
//! * [`http`]: an HTTP/1.1 server on an event loop of its own ([`event_loop`]).
//! * [`buffer`]: bytes that are cheap to make and to share, with Node's conversions.
//! * [`callback`]: entering user code: async contexts, hooks, ticks and microtasks.
//! * [`stream`]: writing to sockets and pipes: corked, in order, with callbacks.
//! * [`trace`]: categories, events, and what each thread is doing.
//! * [`worker`]: message ports between threads and within one.
//! * [`check`]: whether a category is on, one compare and one branch.
//! * [`snapshot`]: categories and registered state as bytes and back.
//! * [`join`]: joins a tracebyte agent, if there is one. Without it everything works just as
//!   well; with it, somebody outside can switch categories on and read the events.
//!
//! The system calls that joining needs are listed in the source of `sys`. Under a seccomp
//! filter that refuses some of them join before the filter, or opt out by
//! `RUNTIME_CORE_AGENT=off`.

#![warn(missing_docs)]

pub mod buffer;
pub mod callback;
pub mod check;
pub mod event_loop;
pub mod http;
mod lease;
pub mod page;
pub mod snapshot;
pub mod stream;
mod sys;
pub mod trace;
pub mod worker;

pub use lease::{AGENT_ENV, JoinError, Lease, Options, State, join};
pub use sys::process::StopSignals;

/// The examples of the guide, as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/tracing.md")]
struct TracingGuide;
