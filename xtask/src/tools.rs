//! Programs of others that the tests use. They are unpacked below `target/tools`, never
//! installed: nothing of them starts by itself, and removing `target` removes them.

use crate::run;
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tracebyte_tests::tools::find;

/// Debian's package with `prometheus` and `promtool`.
const PACKAGE: &str = "prometheus";
const PROGRAMS: [&str; 2] = ["prometheus", "promtool"];

/// Unpacks what the tests need and the machine lacks. Where that is not possible it says
/// what to run; the tests that depend on it skip.
pub fn set_up() {
    if PROGRAMS.iter().all(|program| find(program).is_some()) {
        return;
    }
    println!("unpacking {PACKAGE} into {}", dir().display());
    if let Err(error) = unpack() {
        println!("cannot unpack {PACKAGE}: {error:#}");
        println!("  remedy: `apt-get install --no-install-recommends {PACKAGE}`; until then its tests are skipped");
    }
}

fn dir() -> PathBuf {
    run::root().join("target/tools")
}

fn unpack() -> Result<()> {
    let dir = dir();
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make `{}`", dir.display()))?;
    if download(&dir).is_err() {
        // A fresh machine knows no package lists yet.
        run::run(Command::new("apt-get").args(["update", "-qq"]).stdout(Stdio::null()))?;
        download(&dir)?;
    }
    for entry in std::fs::read_dir(&dir)? {
        let file = entry?.path();
        if file.extension().is_some_and(|ext| ext == "deb") {
            run::run(Command::new("dpkg").arg("-x").args([&file, &dir]))?;
            std::fs::remove_file(&file)?;
        }
    }
    Ok(())
}

fn download(dir: &PathBuf) -> Result<()> {
    let mut apt = Command::new("apt-get");
    apt.args(["download", "-qq", PACKAGE]).current_dir(dir).stdout(Stdio::null()).stderr(Stdio::null());
    run::run(&mut apt)
}
