//! Where the binaries under test are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The environment variable that names the folder of the binaries.
pub const BIN_DIR_ENV: &str = "TRACEBYTE_BIN_DIR";

/// The command line and the agent.
pub fn tracebyte() -> PathBuf {
    dir().join("tracebyte")
}

/// The demonstration server.
pub fn runtime_core_http() -> PathBuf {
    dir().join("runtime-core-http")
}

/// The folder of the binaries: the one that [`BIN_DIR_ENV`] names, else the release folder
/// beside the running program's own, built first where it is missing.
pub fn dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| std::env::var_os(BIN_DIR_ENV).map(PathBuf::from).or_else(built).unwrap_or_else(build))
}

/// The folder `target` that the running program was built in, or the workspace's.
pub fn target_dir() -> PathBuf {
    let own = std::env::current_exe()
        .ok()
        .and_then(|exe| exe.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file()).map(Path::to_path_buf));
    own.unwrap_or_else(|| workspace().join("target"))
}

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie in the workspace").to_path_buf()
}

/// A program among the examples of the tests: `cargo test` builds them beside the tests.
pub fn example(name: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("a running program has a path");
    let beside = exe.ancestors().map(|folder| folder.join("examples").join(name)).find(|file| file.is_file());
    beside.unwrap_or_else(|| {
        cargo(&["build", "--quiet", "--package", "tracebyte-tests", "--example", name]);
        target_dir().join("debug/examples").join(name)
    })
}

fn built() -> Option<PathBuf> {
    let dir = target_dir().join("release");
    (dir.join("tracebyte").is_file() && dir.join("runtime-core-http").is_file()).then_some(dir)
}

fn build() -> PathBuf {
    cargo(&["build", "--quiet", "--release", "--bins"]);
    target_dir().join("release")
}

fn cargo(args: &[&str]) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(args)
        .current_dir(workspace())
        .env("CARGO_TARGET_DIR", target_dir())
        .status()
        .expect("cargo starts");
    assert!(status.success(), "`cargo {}` failed: {status}", args.join(" "));
}
