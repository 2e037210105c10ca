//! Counts equal stacks, as addresses, while a session runs. Bounded: what does not fit is
//! counted instead.

use crate::sys::proc;
use std::collections::HashMap;
use tracebyte_ebpf_common::sampler::{Header, IN_KERNEL};

/// The most bytes of distinct stacks a session keeps.
const STACK_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The most processes whose memory map is kept for the time after their end.
const MAPS_MAX: usize = 256;
/// The longest memory map that is kept, in bytes.
const MAP_BYTES_MAX: usize = 256 * 1024;

/// The stacks of a session.
#[derive(Default)]
pub(super) struct Table {
    /// Samples counted in `stacks`.
    pub(super) samples: u64,
    /// Of these, taken in kernel mode.
    pub(super) samples_kernel: u64,
    /// Records that did not fit, or were none.
    pub(super) refused: u64,
    /// By pid.
    pub(super) processes: HashMap<u32, Process>,
    /// Times seen, by pid, number of kernel frames, kernel frames, user frames.
    stacks: HashMap<Box<[u8]>, u64>,
    /// Where a key is put together.
    key: Vec<u8>,
    bytes: usize,
    maps: usize,
}

/// What was read of a process when it was first seen.
pub(super) struct Process {
    /// Its name.
    pub(super) name: String,
    /// Its memory map then, as in `/proc/PID/maps`; what is left where it ends before the
    /// session does.
    pub(super) maps: Option<Vec<u8>>,
    /// When it started: another process may have the pid later.
    pub(super) start_time: Option<u64>,
}

/// A distinct stack: addresses, innermost first.
pub(super) struct RawStack {
    pub(super) pid: u32,
    pub(super) kernel: Vec<u64>,
    pub(super) user: Vec<u64>,
    pub(super) count: u64,
}

impl Table {
    /// Counts one record.
    pub(super) fn add(&mut self, record: &[u8]) {
        let Some((header, kernel, user)) = Header::parse(record) else {
            self.refused += 1;
            return;
        };
        let key = [&header.pid.to_ne_bytes()[..], &header.kernel_frames.to_ne_bytes(), kernel.bytes(), user.bytes()];
        self.key.clear();
        key.iter().for_each(|part| self.key.extend_from_slice(part));
        match self.stacks.get_mut(self.key.as_slice()) {
            Some(count) => *count += 1,
            None if self.bytes + self.key.len() > STACK_BYTES_MAX => {
                self.refused += 1;
                return;
            }
            None => {
                self.bytes += self.key.len();
                self.stacks.insert(self.key.as_slice().into(), 1);
            }
        }
        self.samples += 1;
        self.samples_kernel += u64::from(header.flags & IN_KERNEL != 0);
        self.meet(&header);
    }

    /// Every distinct stack, by process.
    pub(super) fn stacks(&self) -> Vec<RawStack> {
        let mut stacks: Vec<RawStack> = self.stacks.iter().map(|(key, count)| unpack(key, *count)).collect();
        stacks.sort_by(|a, b| (a.pid, &a.user, &a.kernel).cmp(&(b.pid, &b.user, &b.kernel)));
        stacks
    }

    /// Reads what will be gone when the process is: soon, for one that does not live long.
    fn meet(&mut self, header: &Header) {
        let pid = header.pid;
        if self.processes.contains_key(&pid) {
            return;
        }
        let thread = header.comm.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_else(|_| thread.to_vec());
        let name = String::from_utf8_lossy(name.trim_ascii_end()).into_owned();
        let maps = if self.maps < MAPS_MAX { std::fs::read(format!("/proc/{pid}/maps")).ok() } else { None };
        let maps = maps.filter(|maps| !maps.is_empty() && maps.len() <= MAP_BYTES_MAX);
        self.maps += usize::from(maps.is_some());
        self.processes.insert(pid, Process { name, maps, start_time: proc::start_time(pid).ok() });
    }
}

fn unpack(key: &[u8], count: u64) -> RawStack {
    let (words, _) = key.as_chunks::<4>();
    let (pid, kernel_frames) = (u32::from_ne_bytes(words[0]), u32::from_ne_bytes(words[1]) as usize);
    let (frames, _) = key[8..].as_chunks::<8>();
    let frames: Vec<u64> = frames.iter().map(|frame| u64::from_ne_bytes(*frame)).collect();
    let (kernel, user) = frames.split_at(kernel_frames);
    RawStack { pid, kernel: kernel.into(), user: user.into(), count }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(pid: u32, flags: u32, kernel: &[u64], user: &[u64]) -> Vec<u8> {
        let head = [pid, pid, flags, 0, kernel.len() as u32, user.len() as u32];
        let mut record: Vec<u8> = head.iter().flat_map(|word| word.to_ne_bytes()).collect();
        record.extend_from_slice(b"thread\0\0\0\0\0\0\0\0\0\0");
        record.extend(kernel.iter().chain(user).flat_map(|frame| frame.to_ne_bytes()));
        record
    }

    #[test]
    fn equal_stacks_are_counted_and_kept_apart_from_others() {
        let mut table = Table::default();
        let pid = u32::MAX;
        table.add(&record(pid, IN_KERNEL, &[1], &[2, 3]));
        table.add(&record(pid, IN_KERNEL, &[1], &[2, 3]));
        table.add(&record(pid, 0, &[], &[1, 2, 3]));
        table.add(b"no record");
        let stacks = table.stacks();
        assert_eq!((table.samples, table.samples_kernel, table.refused), (3, 2, 1));
        assert_eq!(stacks.len(), 2);
        assert_eq!((&stacks[0].user[..], stacks[0].count), (&[1, 2, 3][..], 1));
        assert_eq!((&stacks[1].kernel[..], &stacks[1].user[..], stacks[1].count), (&[1][..], &[2, 3][..], 2));
        assert_eq!(table.processes[&pid].name, "thread", "of a process that is gone");
    }

    #[test]
    fn a_table_that_is_full_refuses_and_counts() {
        let mut table = Table { bytes: STACK_BYTES_MAX - 16, ..Table::default() };
        table.add(&record(1, 0, &[], &[2]));
        table.add(&record(1, 0, &[], &[3]));
        table.add(&record(1, 0, &[], &[2]));
        assert_eq!((table.samples, table.refused), (2, 1));
    }
}
