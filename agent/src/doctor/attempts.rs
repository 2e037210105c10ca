//! What was tried, and how the kernel answered.

use super::btf;
use super::facts::Facts;
use crate::control::protocol::CONTROL_SOCKET;
use crate::sys::probe;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// An answer: done, or the error number of the refusal.
pub type Answer = Result<(), i32>;

/// The answers.
#[derive(Clone, Debug)]
pub struct Attempts {
    /// A plain map.
    pub array: Answer,
    /// A map that user space can map.
    pub mmapable_array: Answer,
    /// A ring buffer.
    pub ring_buffer: Answer,
    /// An empty program of the sampler's type.
    pub program: Answer,
    /// An empty fentry program; absent where the kernel's types do not name its function.
    pub fentry: Option<Answer>,
    /// A software clock on a CPU, kernel samples included.
    pub clock: Answer,
    /// The same without kernel samples.
    pub clock_user: Answer,
    /// A hardware cycle counter on a CPU.
    pub cycles: Answer,
    /// A uprobe; absent where the kernel has no such event source.
    pub uprobe: Option<Answer>,
    /// A connection to the agent.
    pub agent: Answer,
    /// Writing to the run directory, or to the nearest directory above it.
    pub run_dir: Answer,
    /// The soft limit of locked memory, in bytes.
    pub memlock_bytes: Option<u64>,
    /// Finding the binary of another user's process; absent where there is no such process.
    pub foreign_process: Option<Answer>,
}

impl Attempts {
    /// Tries everything once.
    pub fn make(facts: &Facts, run_dir: &Path) -> Self {
        let existing = run_dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
        Self {
            array: number(probe::array()),
            mmapable_array: number(probe::mmapable_array()),
            ring_buffer: number(probe::ring_buffer()),
            program: number(probe::perf_event_program()),
            fentry: fentry(),
            clock: number(probe::cpu_clock(facts.cpu, true)),
            clock_user: number(probe::cpu_clock(facts.cpu, false)),
            cycles: number(probe::cycles(facts.cpu)),
            uprobe: facts.uprobe_pmu.and_then(uprobe),
            agent: number(UnixStream::connect(run_dir.join(CONTROL_SOCKET)).map(drop)),
            run_dir: number(probe::may_write(existing)),
            memlock_bytes: probe::memlock().map(|(soft, _)| soft).ok(),
            foreign_process: foreign_process(),
        }
    }
}

fn number(result: io::Result<()>) -> Answer {
    result.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
}

fn foreign_process() -> Option<Answer> {
    use std::os::unix::fs::MetadataExt;
    let own = std::fs::metadata("/proc/self").ok()?.uid();
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let foreign =
        processes.filter(|entry| entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()));
    let foreign = foreign.filter(|entry| entry.metadata().is_ok_and(|process| process.uid() != own));
    let mut answers = foreign.map(|entry| number(std::fs::read_link(entry.path().join("exe")).map(drop)));
    // Kernel threads have no binary (ENOENT); the first real answer is enough.
    answers.find(|answer| *answer != Err(libc::ENOENT))
}

fn fentry() -> Option<Answer> {
    let types = std::fs::read("/sys/kernel/btf/vmlinux").ok()?;
    let id = btf::function_id(&types, "do_unlinkat").or_else(|| btf::function_id(&types, "vfs_read"))?;
    Some(number(probe::fentry_program(id)))
}

fn uprobe(pmu_type: u32) -> Option<Answer> {
    // A path that stays good in other mount namespaces is not needed: the probe is our own.
    let exe = std::fs::read_link("/proc/self/exe").ok()?;
    Some(number(probe::uprobe(pmu_type, exe.to_str()?, entry_offset(&exe)?)))
}

/// Where in its file the entry point of a 64-bit ELF program lies.
fn entry_offset(path: &Path) -> Option<u64> {
    use std::io::Read;
    let mut head = Vec::new();
    std::fs::File::open(path).ok()?.take(64 * 1024).read_to_end(&mut head).ok()?;
    let u64_at = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
    let u16_at = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
    let (entry, table) = (u64_at(24)?, u64_at(32)? as usize);
    let (size, count) = (u16_at(54)? as usize, u16_at(56)? as usize);
    (0..count).find_map(|index| {
        let at = table + index * size;
        let (offset, address, length) = (u64_at(at + 8)?, u64_at(at + 16)?, u64_at(at + 32)?);
        (u16_at(at)? == 1 && (address..address + length).contains(&entry)).then(|| entry - address + offset)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_its_own_entry_point() {
        assert!(entry_offset(Path::new("/proc/self/exe")).is_some_and(|offset| offset > 64));
    }
}
