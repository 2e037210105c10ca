//! The command line as people and scripts meet it: the binary is run, and where it needs an
//! agent it meets one that says exactly what the test wants.

mod dist;
mod fake;
mod help;
mod outcomes;
mod streams;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A command that runs the binary, untouched by the environment of the test run.
pub fn tracebyte<I: AsRef<OsStr>>(args: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tracebyte"));
    command.args(args).env_remove("TRACEBYTE_RUN_DIR").env_remove("COLUMNS").stdin(Stdio::null());
    command
}

/// Runs the binary with words of one line, in a run directory.
pub fn run(run_dir: &Path, line: &str) -> Output {
    tracebyte(line.split(' ')).env("TRACEBYTE_RUN_DIR", run_dir).output().expect("the binary runs")
}

pub fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("standard output is UTF-8")
}

pub fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("standard error is UTF-8")
}

/// A directory of the test's own, removed with its handle.
pub struct TempDir(pub PathBuf);

impl TempDir {
    pub fn make() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tracebyte-cli-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("a fresh directory");
        Self(path)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
