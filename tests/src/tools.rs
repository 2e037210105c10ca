//! Programs of others that some tests use: on the path, or unpacked below `target/tools`
//! by `cargo xtask setup test`.

use crate::bins;
use std::path::PathBuf;

/// Where a program is; `None` where it is not installed.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let unpacked = bins::target_dir().join("tools/usr/bin");
    std::env::split_paths(&path).chain([unpacked]).map(|dir| dir.join(program)).find(|file| file.is_file())
}
