//! A process's page as the process itself sees it, read through `/proc/PID/mem`: the
//! agent is not asked, so what is read holds when there is none.

use runtime_core_abi::page::{ENABLE_OFFSET, MAGIC, NODE_HTTP, Owner, PAGE_BYTES};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Another process, by id.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    pid: u32,
}

/// Where a process's page is: an address that stays the same over every swap.
#[derive(Debug)]
pub struct PageAt {
    memory: File,
    address: u64,
}

impl Process {
    /// The process with this id.
    pub fn new(pid: u32) -> Self {
        Self { pid }
    }

    /// Whether a shared page (not the process's private memory) is mapped at the moment.
    pub fn has_shared_page(&self) -> bool {
        self.writable_mappings().is_ok_and(|all| all.iter().any(|mapping| mapping.is_shared_page()))
    }

    /// Finds the page: the shared mapping of its size that bears its magic.
    pub fn shared_page(&self) -> io::Result<PageAt> {
        let memory = File::open(format!("/proc/{}/mem", self.pid))?;
        for mapping in self.writable_mappings()?.into_iter().filter(Mapping::is_shared_page) {
            let mut magic = [0; 8];
            memory.read_exact_at(&mut magic, mapping.start)?;
            if u64::from_le_bytes(magic) == MAGIC {
                return Ok(PageAt { memory, address: mapping.start });
            }
        }
        Err(io::Error::new(io::ErrorKind::NotFound, format!("process {} maps no page", self.pid)))
    }

    fn writable_mappings(&self) -> io::Result<Vec<Mapping>> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid))?;
        Ok(maps.lines().filter_map(Mapping::parse).collect())
    }
}

impl PageAt {
    /// The byte of an owner of `node.http`.
    pub fn node_http(&self, owner: Owner) -> io::Result<u8> {
        let mut byte = [0];
        let offset = ENABLE_OFFSET + 4 * NODE_HTTP + owner as usize;
        self.memory.read_exact_at(&mut byte, self.address + offset as u64)?;
        Ok(byte[0])
    }
}

#[derive(Debug)]
struct Mapping {
    start: u64,
    end: u64,
    shared_writable: bool,
    name: String,
}

impl Mapping {
    /// A line such as `7f00-8f00 rw-s 00000000 00:0e 1049 anon_inode:bpf-map`.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let shared_writable = words.next()?.starts_with("rw-s");
        let name = words.skip(3).collect::<Vec<_>>().join(" ");
        let hex = |text| u64::from_str_radix(text, 16).ok();
        Some(Self { start: hex(start)?, end: hex(end)?, shared_writable, name })
    }

    fn is_shared_page(&self) -> bool {
        let backed = self.name.contains("bpf-map") || self.name.contains("memfd:");
        self.shared_writable && self.end - self.start == PAGE_BYTES as u64 && backed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_shared_mapping_of_the_right_size_is_a_page() {
        let page = |line| Mapping::parse(line).is_some_and(|mapping| mapping.is_shared_page());
        assert!(page("7f0000000000-7f0000004000 rw-s 00000000 00:0e 1049    anon_inode:bpf-map"));
        assert!(page("7f0000000000-7f0000004000 rw-s 00000000 00:01 7   /memfd:page (deleted)"));
        assert!(!page("7f0000000000-7f0000004000 rw-p 00000000 00:00 0"));
        assert!(!page("7f0000000000-7f0004004000 rw-s 00000000 00:01 8   /memfd:rings (deleted)"));
        assert!(!page("garbage"));
    }
}
