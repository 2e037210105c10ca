//! A private folder of one test, removed with the value.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// What the name of every sandbox begins with, so that leftovers can be found.
pub const NAME_PREFIX: &str = "tracebyte-test-";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A temporary folder with a run directory inside.
#[derive(Debug)]
pub struct Sandbox {
    dir: PathBuf,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Sandbox {
    /// An empty sandbox whose run directory exists.
    pub fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("{NAME_PREFIX}{}-{number}", std::process::id()));
        std::fs::create_dir_all(dir.join("run")).expect("the temporary folder takes a sandbox");
        for folder in [dir.clone(), dir.join("run")] {
            std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).expect("our own folder");
        }
        Self { dir }
    }

    /// The run directory (`--run-dir`).
    pub fn run_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// The sandbox's own folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A path inside the sandbox.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A copy of a program inside the sandbox, where every user may run it.
    pub fn copy_of(&self, program: &Path) -> PathBuf {
        let copy = self.path(&program.file_name().expect("a program has a name").to_string_lossy());
        // By another process: a program that any process of ours, even one forked at this
        // very moment by another test, holds open for writing cannot be started.
        if !copy.exists() {
            let status = std::process::Command::new("cp").args([program, &copy]).status();
            assert!(status.is_ok_and(|status| status.success()), "the sandbox takes a copy of `{}`", program.display());
        }
        copy
    }

    /// Gives the sandbox and its run directory to another user.
    pub fn give_to(&self, uid: u32) {
        for folder in [self.dir.clone(), self.run_dir()] {
            std::os::unix::fs::chown(folder, Some(uid), Some(uid)).expect("root may change an owner");
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
