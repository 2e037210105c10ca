//! What is on the machine that tests could leave behind: BPF objects, processes, sockets,
//! files.

use crate::run;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tracebyte_tests::sandbox::NAME_PREFIX;
use tracebyte_tests::sys::{BpfKind, bpf_ids};

/// The kernel frees BPF objects, and reaps processes, a moment after their last user.
const GRACE: Duration = Duration::from_secs(10);
/// Where something of ours could be left.
const PLACES: [&str; 4] = ["/run", "/dev/shm", "/sys/fs/bpf", "/var/tmp"];

/// What there was at one moment.
pub struct Snapshot {
    seen: BTreeSet<String>,
}

impl Snapshot {
    /// Looks now.
    pub fn take() -> Self {
        let mut seen = BTreeSet::new();
        for kind in BpfKind::ALL {
            // Without the privilege to list them we have none to leave behind.
            let ids = bpf_ids(kind).unwrap_or_default();
            seen.extend(ids.into_iter().map(|id| format!("bpf {} {id}", format!("{kind:?}").to_lowercase())));
        }
        seen.extend(processes());
        seen.extend(unix_sockets());
        let mut places: Vec<PathBuf> = PLACES.iter().map(PathBuf::from).collect();
        places.push(std::env::temp_dir());
        seen.extend(places.iter().flat_map(|place| files(place)));
        Self { seen }
    }

    /// What is there now and was not then, once it had time to go.
    pub fn left_over(&self) -> Vec<String> {
        let deadline = Instant::now() + GRACE;
        loop {
            let left: Vec<String> = Self::take().seen.difference(&self.seen).cloned().collect();
            if left.is_empty() || Instant::now() >= deadline {
                return left;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Processes whose program was built or copied by us.
fn processes() -> Vec<String> {
    let target = run::root().join("target");
    let ours = |exe: &Path| exe.starts_with(&target) || exe.to_string_lossy().contains(NAME_PREFIX);
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let exe = std::fs::read_link(entry.path().join("exe")).ok()?;
        (ours(&exe) && pid != std::process::id()).then(|| format!("process {pid} ({})", exe.display()))
    });
    found.collect()
}

/// Bound Unix sockets in sandboxes and run directories.
fn unix_sockets() -> Vec<String> {
    let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let paths = table.lines().filter_map(|line| line.split_ascii_whitespace().nth(7));
    paths.filter(|path| path.contains("tracebyte")).map(|path| format!("socket {path}")).collect()
}

fn files(place: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().contains("tracebyte"));
    ours.map(|entry| format!("file {}", entry.path().display())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_is_seen_and_its_end_too() {
        let before = Snapshot { seen: files(&std::env::temp_dir()).into_iter().collect() };
        let sandbox = tracebyte_tests::Sandbox::new();
        let named = format!("file {}", sandbox.dir().display());
        assert!(!before.seen.contains(&named));
        assert!(files(&std::env::temp_dir()).contains(&named));
        drop(sandbox);
        assert!(!files(&std::env::temp_dir()).contains(&named));
    }
}
