//! The control socket: lines of JSON, one request a connection.
//!
//! The client sends one [`protocol::Request`] line. The answer is one
//! [`protocol::Reply`] line, or, for `watch`, `record` and `profile`, a `started` line,
//! then event lines (Chrome trace objects, which begin with `{"ph":`), then an `end` or
//! `profile` line. During a stream the client may send `{"v":1,"verb":"stop"}`: the
//! window closes, the rest is drained, and the closing line comes. A connection that
//! ends early ends its session.

pub mod client;
pub mod protocol;
pub mod server;

use crate::error::Failure;
use runtime_core_abi::handshake::RUN_DIR_BYTES_MAX;
use std::path::Path;

/// Whether sockets can have their addresses in a run directory.
///
/// # Errors
/// Its path is too long: a usage error.
pub fn check_run_dir(run_dir: &Path) -> Result<(), Failure> {
    let bytes = run_dir.as_os_str().len();
    if bytes <= RUN_DIR_BYTES_MAX {
        return Ok(());
    }
    let run_dir = run_dir.display();
    Err(Failure::usage(format!("the run directory {run_dir} is too long a path for sockets: {bytes} bytes"))
        .remedy(format!("name one of at most {RUN_DIR_BYTES_MAX} bytes with --run-dir")))
}
