//! A recording that the environment asks for.
//!
//! Looked at once, when the process joins an agent ([`join`](crate::join)) or makes its first
//! event loop, whichever comes first. A child that is forked later does not record.

use super::{Options, Session};
use crate::trace::Filter;
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};

/// The patterns to record, such as `node.http`.
pub const PATTERNS_ENV: &str = "RUNTIME_CORE_TRACE";
/// The file to record to, with `${rotation}` and `${pid}` in it.
pub const FILE_ENV: &str = "RUNTIME_CORE_TRACE_FILE";

/// Starts the recording that the environment asks for. What is wrong with it is said once, on
/// standard error: it is no reason for the program not to run.
pub(crate) fn start_from_env() {
    static LOOKED: AtomicBool = AtomicBool::new(false);
    if LOOKED.load(Ordering::Relaxed) || LOOKED.swap(true, Ordering::Relaxed) {
        return;
    }
    let text = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let Some(patterns) = text(PATTERNS_ENV) else { return };
    match start(patterns, text(FILE_ENV)) {
        // It ends with the process.
        Ok(session) => std::mem::forget(session),
        Err(reason) => eprintln!("runtime-core: {reason}"),
    }
}

fn start(patterns: OsString, file: Option<OsString>) -> Result<Session, String> {
    let utf8 = |name, value: OsString| value.into_string().map_err(|_| format!("`{name}` is not UTF-8: set it anew"));
    let patterns = utf8(PATTERNS_ENV, patterns)?;
    let filter: Filter = patterns.parse().map_err(|error| format!("`{PATTERNS_ENV}`: {error}"))?;
    let mut options = Options::new(filter).say_why_it_ends();
    if let Some(file) = file {
        options = options.file(utf8(FILE_ENV, file)?);
    }
    Session::start(options).map_err(|error| error.to_string())
}
