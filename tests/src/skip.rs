//! Tests that cannot run here say so, and are counted as skipped rather than passed.

use std::io::Write;

/// The environment variable that names the file skips are appended to.
pub const SKIPS_ENV: &str = "TRACEBYTE_SKIPS";

/// Ends the test that calls it, as skipped for this reason.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)*) => {{
        $crate::skip::record(&format!($($reason)*));
        return;
    }};
}

/// Notes that the running test is skipped: a line `test<TAB>reason`.
pub fn record(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("unknown test");
    let line = format!("{test}\t{}\n", reason.replace(['\n', '\t'], " "));
    let file = std::env::var_os(SKIPS_ENV).map(|path| std::fs::OpenOptions::new().create(true).append(true).open(path));
    match file {
        // One write a line: tests of several threads append to the same file.
        Some(Ok(mut file)) => file.write_all(line.as_bytes()).expect("the skip file takes a line"),
        Some(Err(error)) => panic!("cannot note a skip: {error}"),
        None => eprint!("skipped {line}"),
    }
}
