//! What the system says of itself, in /proc and /sys.

use std::io;
use std::path::Path;

/// Capabilities by their number in `linux/capability.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Cap {
    DacReadSearch = 2,
    SysPtrace = 19,
    SysAdmin = 21,
    SysResource = 24,
    Syslog = 34,
    Perfmon = 38,
    Bpf = 39,
}

/// What was read. An absent value could not be read.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Release of the kernel, such as `6.1.0-18-amd64`.
    pub release: String,
    /// Its first two numbers.
    pub version: (u32, u32),
    /// Effective capabilities, one bit each.
    pub capabilities: u64,
    /// `kernel.perf_event_paranoid`.
    pub paranoid: Option<i64>,
    /// `kernel.kptr_restrict`.
    pub kptr_restrict: Option<i64>,
    /// `kernel.unprivileged_bpf_disabled`.
    pub unprivileged_bpf_disabled: Option<i64>,
    /// Whether the first kernel symbols have addresses other than 0.
    pub kernel_addresses: Option<bool>,
    /// Whether the kernel publishes its own types.
    pub btf: bool,
    /// Where tracefs is mounted.
    pub tracefs: Option<String>,
    /// The lockdown mode; absent where securityfs does not tell.
    pub lockdown: Option<String>,
    /// Whether this process is in the first PID namespace.
    pub in_init_pid_ns: Option<bool>,
    /// The perf event type of uprobes; absent where the kernel has none.
    pub uprobe_pmu: Option<u32>,
    /// The first CPU online.
    pub cpu: u32,
}

impl Facts {
    /// Reads the facts below a root, `/` but in tests. Fails where there is no /proc.
    pub fn read(root: &Path) -> io::Result<Self> {
        let text = |path: &str| std::fs::read_to_string(root.join(path)).map(|text| text.trim().to_owned());
        let number = |path: &str| text(path).ok().and_then(|text| text.parse().ok());
        let release = text("proc/sys/kernel/osrelease")?;
        let pid_ns = std::fs::read_link(root.join("proc/self/ns/pid")).ok();
        Ok(Self {
            version: version(&release),
            release,
            capabilities: text("proc/self/status").ok().and_then(|status| effective(&status)).unwrap_or(0),
            paranoid: number("proc/sys/kernel/perf_event_paranoid"),
            kptr_restrict: number("proc/sys/kernel/kptr_restrict"),
            unprivileged_bpf_disabled: number("proc/sys/kernel/unprivileged_bpf_disabled"),
            kernel_addresses: kernel_addresses(&root.join("proc/kallsyms")).ok(),
            btf: root.join("sys/kernel/btf/vmlinux").exists(),
            tracefs: text("proc/self/mounts").ok().and_then(|mounts| tracefs(&mounts)),
            lockdown: text("sys/kernel/security/lockdown").ok().and_then(|modes| lockdown(&modes)),
            in_init_pid_ns: pid_ns.map(|link| crate::sys::proc::is_first_pid_namespace(&link)),
            uprobe_pmu: text("sys/bus/event_source/devices/uprobe/type").ok().and_then(|text| text.parse().ok()),
            cpu: text("sys/devices/system/cpu/online").ok().and_then(|list| first_cpu(&list)).unwrap_or(0),
        })
    }

    /// Whether a capability is held. CAP_SYS_ADMIN has what was split from it since.
    pub fn may(&self, cap: Cap) -> bool {
        let held = |cap: Cap| self.capabilities & (1 << cap as u8) != 0;
        held(cap) || matches!(cap, Cap::Bpf | Cap::Perfmon | Cap::Syslog) && held(Cap::SysAdmin)
    }
}

fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Reads no more than the first lines: the file is large.
fn kernel_addresses(path: &Path) -> io::Result<bool> {
    use std::io::BufRead;
    let lines = io::BufReader::new(std::fs::File::open(path)?).lines().take(100);
    for line in lines {
        // Per-CPU symbols lie at 0 on some kernels, so one address is enough.
        if line?.split(' ').next().is_some_and(|address| address.bytes().any(|digit| digit != b'0')) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn tracefs(mounts: &str) -> Option<String> {
    let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    mounts.find(|fields| fields.get(2) == Some(&"tracefs")).map(|fields| fields[1].to_owned())
}

/// The mode in brackets of `none [integrity] confidentiality`.
fn lockdown(modes: &str) -> Option<String> {
    Some(modes.split_once('[')?.1.split_once(']')?.0.to_owned())
}

fn first_cpu(list: &str) -> Option<u32> {
    list.split([',', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_is_there_and_claims_nothing_else() {
        let root = std::env::temp_dir().join(format!("tracebyte-facts-{}", std::process::id()));
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert!(Facts::read(&root).is_err(), "no /proc");
        put("proc/sys/kernel/osrelease", "5.10.0-28-amd64\n");
        let facts = Facts::read(&root).unwrap();
        assert_eq!(facts.version, (5, 10));
        assert_eq!((facts.paranoid, facts.kptr_restrict, facts.lockdown, facts.tracefs), (None, None, None, None));
        assert_eq!((facts.btf, facts.kernel_addresses, facts.in_init_pid_ns), (false, None, None));

        put("proc/sys/kernel/perf_event_paranoid", "3\n");
        put("proc/sys/kernel/kptr_restrict", "2\n");
        put("proc/self/status", "Name:\tx\nCapEff:\t000001fffeffffff\n");
        put("proc/self/mounts", "proc /proc proc rw 0 0\ntracefs /sys/kernel/tracing tracefs rw 0 0\n");
        put("proc/kallsyms", "0000000000000000 A fixed\n0000000000000000 T _stext\n");
        put("sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
        put("sys/kernel/btf/vmlinux", "");
        put("sys/devices/system/cpu/online", "2-3,7\n");
        std::os::unix::fs::symlink("pid:[4026532200]", root.join("proc/self/ns-pid")).unwrap();
        std::fs::create_dir_all(root.join("proc/self/ns")).unwrap();
        std::fs::rename(root.join("proc/self/ns-pid"), root.join("proc/self/ns/pid")).unwrap();
        let facts = Facts::read(&root).unwrap();
        assert_eq!((facts.paranoid, facts.kptr_restrict), (Some(3), Some(2)));
        assert_eq!(facts.tracefs.as_deref(), Some("/sys/kernel/tracing"));
        assert_eq!(facts.lockdown.as_deref(), Some("integrity"));
        assert_eq!((facts.btf, facts.kernel_addresses, facts.in_init_pid_ns), (true, Some(false), Some(false)));
        assert_eq!(facts.cpu, 2);
        assert!(facts.may(Cap::Bpf) && !facts.may(Cap::SysResource));
        std::fs::remove_dir_all(root).unwrap();
    }
}
