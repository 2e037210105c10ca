//! What /proc says about a process.

use std::io;

/// When a process started, in clock ticks since boot (field 22 of `/proc/PID/stat`).
pub fn start_time(pid: u32) -> io::Result<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat"))?;
    parse_start_time(&stat).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no start time in /proc/PID/stat"))
}

/// Whether there is a process with this id.
pub fn exists(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

/// Whether `/proc/self/ns/pid` links to the PID namespace that the kernel began with. Only
/// there are process ids the kernel's own.
pub fn is_first_pid_namespace(link: &std::path::Path) -> bool {
    // The inode number of the first one is fixed in the kernel.
    link.as_os_str() == "pid:[4026531836]"
}

fn parse_start_time(stat: &[u8]) -> Option<u64> {
    // The command's name comes second, in parentheses, and may hold any byte: what follows
    // its last parenthesis begins with field 3.
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    std::str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_full_of_parentheses_does_not_matter() {
        let stat = b"7 (a) 1 (b\xff) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 99 1\n";
        assert_eq!(parse_start_time(stat), Some(4711));
        assert_eq!(parse_start_time(b"7 (a) S 1"), None);
        assert_eq!(parse_start_time(b""), None);
    }

    #[test]
    fn this_process_has_started() {
        assert!(start_time(std::process::id()).unwrap() > 0);
        assert!(exists(std::process::id()));
        assert!(start_time(0).is_err());
    }
}
