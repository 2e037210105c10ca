//! The judgement: one row a feature, from facts and attempts alone.

use super::Row;
use super::attempts::{Answer, Attempts};
use super::facts::{Cap, Facts};
use std::path::Path;

/// What each capability is for.
const CAPABILITIES: [(Cap, &str, &str); 5] = [
    (Cap::Bpf, "CAP_BPF", "eBPF"),
    (Cap::Perfmon, "CAP_PERFMON", "sampling every process"),
    (Cap::Syslog, "CAP_SYSLOG", "addresses of kernel symbols"),
    (Cap::SysPtrace, "CAP_SYS_PTRACE", "memory maps of other users' processes"),
    (Cap::DacReadSearch, "CAP_DAC_READ_SEARCH", "binaries of other users' processes"),
];
/// Locked memory that the agent's maps may need on kernels that charge it, in bytes.
const MEMLOCK_BYTES_MIN: u64 = 64 << 20;

/// Every row, in the order of what people ask first.
pub fn rows(facts: &Facts, attempts: &Attempts, run_dir: &Path) -> Vec<Row> {
    vec![
        agent(attempts, run_dir),
        run_directory(attempts, run_dir),
        live_tracing(facts, attempts),
        kernel_stacks(facts, attempts),
        user_stacks(facts, attempts),
        cycles(attempts),
        kernel_symbols(facts),
        foreign_symbols(facts, attempts),
        ebpf(facts, attempts),
        perf_events(facts, attempts),
        capabilities(facts),
        process_ids(facts),
        locked_memory(facts, attempts),
        kernel(facts),
        lockdown(facts),
        btf(facts),
        tracefs(facts),
        uprobes(facts, attempts),
        fentry(facts, attempts),
    ]
}

fn agent(attempts: &Attempts, run_dir: &Path) -> Row {
    const NAME: &str = "agent";
    let at = run_dir.display();
    match attempts.agent {
        Ok(()) => Row::ok(NAME, format!("it listens in {at}")),
        Err(libc::EACCES | libc::EPERM) => Row::degraded(
            NAME,
            format!("permission denied: its socket in {at} is for root and one group"),
            "use sudo, or join that group",
        ),
        Err(libc::ENOENT) => Row::missing(NAME, format!("none runs in {at}"), "start it with `sudo tracebyte agent`"),
        Err(libc::ECONNREFUSED) => Row::missing(
            NAME,
            format!("it has ended and left its socket in {at}"),
            "start it with `sudo tracebyte agent`",
        ),
        Err(errno) => {
            Row::missing(NAME, format!("its socket in {at} cannot be used: {}", name(errno)), "see the agent's log")
        }
    }
}

fn run_directory(attempts: &Attempts, run_dir: &Path) -> Row {
    const NAME: &str = "run directory";
    match attempts.run_dir {
        Ok(()) => Row::ok(NAME, format!("this user can make the agent's sockets in {}", run_dir.display())),
        Err(errno) => Row::degraded(
            NAME,
            format!("this user cannot run the agent in {}: {}", run_dir.display(), name(errno)),
            "run the agent with sudo, or give it another --run-dir",
        ),
    }
}

fn live_tracing(facts: &Facts, attempts: &Attempts) -> Row {
    const NAME: &str = "live tracing";
    match attempts.mmapable_array {
        Ok(()) => Row::ok(NAME, "toggling, events and metrics work, on pages that kernel programs can read"),
        Err(errno) => Row::degraded(
            NAME,
            format!(
                "toggling, events and metrics work, on plain memory: a BPF page is refused ({})",
                bpf_refusal(facts, errno)
            ),
            bpf_remedy(facts, errno),
        ),
    }
}

fn kernel_stacks(facts: &Facts, attempts: &Attempts) -> Row {
    stacks("kernel-stack profiles", facts, attempts, attempts.clock)
}

fn user_stacks(facts: &Facts, attempts: &Attempts) -> Row {
    stacks("user-stack profiles", facts, attempts, attempts.clock_user)
}

fn stacks(feature: &'static str, facts: &Facts, attempts: &Attempts, clock: Answer) -> Row {
    let steps = [("the sampler", attempts.program), ("its ring buffer", attempts.ring_buffer)];
    for (step, answer) in steps {
        if let Err(errno) = answer {
            return Row::missing(
                feature,
                format!("{step} is refused: {}", bpf_refusal(facts, errno)),
                bpf_remedy(facts, errno),
            );
        }
    }
    match clock {
        Ok(()) => Row::ok(feature, "the sampler loads and its clock opens on a CPU"),
        Err(errno) => {
            Row::missing(feature, format!("its clock is refused: {}", perf_refusal(facts, errno)), perf_remedy(facts))
        }
    }
}

fn cycles(attempts: &Attempts) -> Row {
    const NAME: &str = "hardware cycles";
    match attempts.cycles {
        Ok(()) => Row::ok(NAME, "profiles sample CPU cycles"),
        Err(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => Row::missing(
            NAME,
            "this machine shows no counter, as most virtual machines; profiles sample the software clock",
            "none is needed; on a virtual machine ask the host for a virtual PMU",
        ),
        Err(errno) => Row::missing(
            NAME,
            format!("the counter is refused ({}); profiles sample the software clock where they may", name(errno)),
            "run as root, or with CAP_PERFMON",
        ),
    }
}

fn kernel_symbols(facts: &Facts) -> Row {
    const NAME: &str = "kernel symbols";
    let restrict = facts.kptr_restrict.map_or("unknown".to_owned(), |value| value.to_string());
    match facts.kernel_addresses {
        Some(true) => Row::ok(NAME, format!("/proc/kallsyms shows addresses (kernel.kptr_restrict is {restrict})")),
        Some(false) if facts.kptr_restrict == Some(2) => Row::degraded(
            NAME,
            "kernel.kptr_restrict is 2 and hides every address, from root too; kernel frames are shown as [kernel]",
            "sysctl kernel.kptr_restrict=1",
        ),
        Some(false) => Row::degraded(
            NAME,
            format!(
                "/proc/kallsyms hides addresses from this user (kernel.kptr_restrict is {restrict}); kernel frames are shown as [kernel]"
            ),
            "run the agent as root, or with CAP_SYSLOG",
        ),
        None => Row::degraded(
            NAME,
            "there is no /proc/kallsyms; kernel frames are shown as [kernel]",
            "a kernel with CONFIG_KALLSYMS",
        ),
    }
}

fn foreign_symbols(facts: &Facts, attempts: &Attempts) -> Row {
    const NAME: &str = "other users' symbols";
    let may = facts.may(Cap::SysPtrace) && facts.may(Cap::DacReadSearch);
    let as_root = "run the agent as root, or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH";
    match attempts.foreign_process {
        Some(Ok(())) => Row::ok(NAME, "the binary of another user's process was found"),
        None if may => Row::ok(NAME, "this user has the capabilities; no other user's process runs to try them on"),
        None => Row::degraded(NAME, "this user lacks the capabilities for other users' processes", as_root),
        Some(Err(errno)) => Row::degraded(
            NAME,
            format!(
                "another user's process refused to be looked into ({}): its frames keep their addresses",
                name(errno)
            ),
            if may { "allow ptrace of these processes in the security module or the container" } else { as_root },
        ),
    }
}

fn ebpf(facts: &Facts, attempts: &Attempts) -> Row {
    const NAME: &str = "eBPF";
    match attempts.array.and(attempts.program) {
        Ok(()) => Row::ok(NAME, "a map and a program load"),
        Err(errno) => Row::missing(NAME, bpf_refusal(facts, errno), bpf_remedy(facts, errno)),
    }
}

fn perf_events(facts: &Facts, attempts: &Attempts) -> Row {
    const NAME: &str = "perf events";
    let paranoid = facts.paranoid.map_or("unknown".to_owned(), |value| value.to_string());
    match attempts.clock {
        Ok(()) => Row::ok(
            NAME,
            format!("this user may sample every process and the kernel (kernel.perf_event_paranoid is {paranoid})"),
        ),
        Err(errno) => Row::missing(NAME, perf_refusal(facts, errno), perf_remedy(facts)),
    }
}

fn capabilities(facts: &Facts) -> Row {
    const NAME: &str = "capabilities";
    let mut lacking: Vec<String> = CAPABILITIES
        .iter()
        .filter(|(cap, ..)| !facts.may(*cap))
        .map(|(_, name, purpose)| format!("{name} ({purpose})"))
        .collect();
    if counts_locked_memory(facts) && !facts.may(Cap::SysResource) {
        lacking.push("CAP_SYS_RESOURCE (locked memory, before Linux 5.11)".to_owned());
    }
    if lacking.is_empty() {
        return Row::ok(NAME, "this user has all that the agent needs");
    }
    Row::degraded(
        NAME,
        format!("this user lacks {}", lacking.join(", ")),
        "run the agent as root, or from its systemd unit",
    )
}

fn process_ids(facts: &Facts) -> Row {
    const NAME: &str = "process ids";
    let remedy = "run the agent on the host, or in a container with the host's PID namespace (--pid=host)";
    match facts.in_init_pid_ns {
        Some(true) => Row::ok(NAME, "this is the first PID namespace: ids here are the kernel's"),
        Some(false) => Row::missing(
            NAME,
            "this is a PID namespace of its own: the kernel counts processes otherwise, so the agent refuses profiles here; tracing works",
            remedy,
        ),
        None => Row::degraded(NAME, "/proc/self/ns/pid cannot be read, so nobody knows whose ids these are", remedy),
    }
}

fn counts_locked_memory(facts: &Facts) -> bool {
    facts.version < (5, 11)
}

fn locked_memory(facts: &Facts, attempts: &Attempts) -> Row {
    const NAME: &str = "locked memory";
    if !counts_locked_memory(facts) {
        return Row::ok(NAME, "since Linux 5.11 eBPF does not count against it");
    }
    match attempts.memlock_bytes {
        _ if facts.may(Cap::SysResource) => {
            Row::ok(NAME, "the agent raises its limit, which kernels before 5.11 need for eBPF")
        }
        Some(bytes) if bytes >= MEMLOCK_BYTES_MIN => {
            Row::ok(NAME, format!("the limit of {} MiB is enough", bytes >> 20))
        }
        Some(bytes) => Row::degraded(
            NAME,
            format!("kernels before 5.11 count eBPF maps against a limit that is {} KiB here", bytes >> 10),
            "raise it (`ulimit -l unlimited`, LimitMEMLOCK=infinity), or give CAP_SYS_RESOURCE",
        ),
        None => Row::degraded(NAME, "the limit cannot be read", "run as root"),
    }
}

fn kernel(facts: &Facts) -> Row {
    const NAME: &str = "kernel";
    let why = format!("Linux {} on {}", facts.release, std::env::consts::ARCH);
    if facts.version >= (5, 10) { Row::ok(NAME, why) } else { Row::degraded(NAME, why, "Linux 5.10 or newer") }
}

fn lockdown(facts: &Facts) -> Row {
    const NAME: &str = "lockdown";
    match facts.lockdown.as_deref() {
        Some("confidentiality") => Row::degraded(
            NAME,
            "its mode is confidentiality: kernel memory may not be read by eBPF or perf",
            "boot with lockdown=integrity or without lockdown",
        ),
        Some(mode) => Row::ok(NAME, format!("its mode is {mode}, which forbids nothing that tracebyte needs")),
        None => Row::ok(
            NAME,
            "the kernel does not tell its mode; what it forbids shows in the rows above, which were tried",
        ),
    }
}

fn btf(facts: &Facts) -> Row {
    const NAME: &str = "kernel types (BTF)";
    if facts.btf {
        return Row::ok(NAME, "/sys/kernel/btf/vmlinux is there");
    }
    Row::missing(
        NAME,
        "there is no /sys/kernel/btf/vmlinux; only fentry programs depend on it, profiles and tracing do not",
        "a kernel with CONFIG_DEBUG_INFO_BTF, where you want them",
    )
}

fn tracefs(facts: &Facts) -> Row {
    const NAME: &str = "tracefs";
    match &facts.tracefs {
        Some(at) => Row::ok(NAME, format!("mounted at {at}")),
        None => Row::missing(
            NAME,
            "not mounted; profiles and tracing do not need it, only tracepoints by name do",
            "mount -t tracefs tracefs /sys/kernel/tracing, where you want them",
        ),
    }
}

fn uprobes(facts: &Facts, attempts: &Attempts) -> Row {
    const NAME: &str = "uprobes";
    match attempts.uprobe {
        Some(Ok(())) => Row::ok(NAME, "a probe on this program was accepted"),
        Some(Err(errno)) if !facts.may(Cap::SysAdmin) => Row::missing(
            NAME,
            format!(
                "a probe on this program was refused ({}); CAP_PERFMON alone is not enough; nothing needs it yet",
                name(errno)
            ),
            "run the agent as root, or with CAP_SYS_ADMIN",
        ),
        Some(Err(errno)) => Row::missing(
            NAME,
            format!("a probe on this program was refused ({}); nothing needs it yet", name(errno)),
            "see the kernel's log",
        ),
        None => Row::missing(
            NAME,
            "the kernel has no such event source, or its type cannot be read; nothing needs it yet",
            "a kernel with CONFIG_UPROBE_EVENTS",
        ),
    }
}

fn fentry(facts: &Facts, attempts: &Attempts) -> Row {
    const NAME: &str = "fentry";
    match attempts.fentry {
        Some(Ok(())) => Row::ok(NAME, "an empty program loads"),
        Some(Err(errno)) => Row::missing(
            NAME,
            format!("an empty program is refused ({}); nothing depends on it", name(errno)),
            if facts.may(Cap::Bpf) && facts.may(Cap::Perfmon) {
                "none is needed: the kernel or its lockdown forbids it"
            } else {
                "run as root"
            },
        ),
        None => Row::missing(
            NAME,
            "the kernel's types (BTF) do not name a function to try; nothing depends on it",
            "a kernel with CONFIG_DEBUG_INFO_BTF",
        ),
    }
}

fn bpf_refusal(facts: &Facts, errno: i32) -> String {
    match errno {
        libc::ENOSYS => "this kernel has no bpf system call (CONFIG_BPF_SYSCALL)".to_owned(),
        libc::EINVAL => format!("{}: this kernel ({}) does not know it", name(errno), facts.release),
        libc::EPERM | libc::EACCES => {
            let setting = facts
                .unprivileged_bpf_disabled
                .map_or(String::new(), |value| format!(" (kernel.unprivileged_bpf_disabled is {value})"));
            if counts_locked_memory(facts) && facts.may(Cap::Bpf) {
                format!("{}: locked memory is limited, or a container or lockdown forbids it", name(errno))
            } else if facts.may(Cap::Bpf) && facts.may(Cap::Perfmon) {
                format!("{}: a container, a seccomp filter or lockdown forbids it", name(errno))
            } else {
                format!("{}: this user lacks CAP_BPF and CAP_PERFMON{setting}", name(errno))
            }
        }
        _ => name(errno),
    }
}

fn bpf_remedy(facts: &Facts, errno: i32) -> &'static str {
    match errno {
        libc::ENOSYS => "a kernel with CONFIG_BPF_SYSCALL",
        libc::EINVAL => "Linux 5.10 or newer",
        _ if facts.may(Cap::Bpf) && facts.may(Cap::Perfmon) => {
            "allow the bpf system call in the container's seccomp profile, and raise the memlock limit before Linux 5.11"
        }
        _ => "run the agent as root, or with CAP_BPF and CAP_PERFMON",
    }
}

/// Sampling every process of a CPU needs a value below 1, kernel samples one below 2.
fn perf_refusal(facts: &Facts, errno: i32) -> String {
    match (errno, facts.paranoid) {
        (libc::EPERM | libc::EACCES, Some(value)) if value > 0 && !facts.may(Cap::Perfmon) => {
            format!(
                "{}: kernel.perf_event_paranoid is {value}, and without CAP_PERFMON it must be 0 or less",
                name(errno)
            )
        }
        (libc::EPERM | libc::EACCES, _) => {
            format!("{}: a container, a seccomp filter or a security module forbids it", name(errno))
        }
        _ => name(errno),
    }
}

fn perf_remedy(facts: &Facts) -> &'static str {
    match facts.may(Cap::Perfmon) {
        true => "allow the perf_event_open system call in the container's seccomp profile",
        false => "run the agent as root, or with CAP_PERFMON; or sysctl kernel.perf_event_paranoid=0",
    }
}

/// An error number in words.
fn name(errno: i32) -> String {
    let error = std::io::Error::from_raw_os_error(errno).to_string();
    let words = error.split(" (os error").next().unwrap_or_default();
    words.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    /// A machine on which everything works, for root.
    fn good() -> (Facts, Attempts) {
        let facts = Facts {
            release: "6.1.0".to_owned(),
            version: (6, 1),
            capabilities: u64::MAX,
            paranoid: Some(2),
            kptr_restrict: Some(0),
            unprivileged_bpf_disabled: Some(2),
            kernel_addresses: Some(true),
            btf: true,
            tracefs: Some("/sys/kernel/tracing".to_owned()),
            lockdown: Some("none".to_owned()),
            in_init_pid_ns: Some(true),
            uprobe_pmu: Some(8),
            cpu: 0,
        };
        let yes = Ok(());
        let attempts = Attempts {
            array: yes,
            mmapable_array: yes,
            ring_buffer: yes,
            program: yes,
            fentry: Some(yes),
            clock: yes,
            clock_user: yes,
            cycles: yes,
            uprobe: Some(yes),
            agent: yes,
            run_dir: yes,
            memlock_bytes: Some(8 << 20),
            foreign_process: Some(yes),
        };
        (facts, attempts)
    }

    fn row(feature: &str, facts: &Facts, attempts: &Attempts) -> Row {
        let rows = rows(facts, attempts, Path::new("/run/tracebyte"));
        rows.into_iter().find(|row| row.feature == feature).expect(feature)
    }

    #[test]
    fn a_good_machine_has_nothing_to_remedy() {
        let (facts, attempts) = good();
        for row in rows(&facts, &attempts, Path::new("/run/tracebyte")) {
            assert_eq!((row.state, &row.remedy), (State::Ok, &None), "{row:?}");
        }
    }

    #[test]
    fn every_feature_has_one_row_and_what_is_not_ok_has_a_remedy() {
        let no = Err(libc::EPERM);
        let attempts = Attempts {
            array: no,
            mmapable_array: no,
            ring_buffer: no,
            program: no,
            fentry: None,
            clock: no,
            clock_user: no,
            cycles: no,
            uprobe: None,
            agent: no,
            run_dir: no,
            memlock_bytes: None,
            foreign_process: Some(no),
        };
        let rows = rows(&Facts::default(), &attempts, Path::new("/run/tracebyte"));
        let features: std::collections::BTreeSet<_> = rows.iter().map(|row| row.feature).collect();
        assert_eq!(features.len(), rows.len());
        for row in rows {
            assert_eq!(row.state == State::Ok, row.remedy.is_none(), "{row:?}");
        }
    }

    #[test]
    fn kptr_restrict_2_is_named_even_for_root() {
        let (mut facts, attempts) = good();
        (facts.kptr_restrict, facts.kernel_addresses) = (Some(2), Some(false));
        let row = row("kernel symbols", &facts, &attempts);
        assert_eq!(row.state, State::Degraded);
        assert!(row.why.contains("kptr_restrict is 2") && row.why.contains("[kernel]"), "{row:?}");
        assert_eq!(row.remedy.as_deref(), Some("sysctl kernel.kptr_restrict=1"));
    }

    #[test]
    fn perf_event_paranoid_is_told_with_what_is_needed_and_what_lifts_it() {
        let (mut facts, mut attempts) = good();
        (facts.paranoid, facts.capabilities) = (Some(3), 0);
        (attempts.clock, attempts.clock_user) = (Err(libc::EACCES), Err(libc::EACCES));
        for feature in ["perf events", "kernel-stack profiles", "user-stack profiles"] {
            let row = row(feature, &facts, &attempts);
            assert_eq!(row.state, State::Missing);
            assert!(row.why.contains("perf_event_paranoid is 3") && row.why.contains("must be 0 or less"), "{row:?}");
            assert!(row.remedy.unwrap().contains("CAP_PERFMON"));
        }
    }

    #[test]
    fn no_btf_names_the_option_and_takes_nothing_else_along() {
        let (mut facts, mut attempts) = good();
        (facts.btf, attempts.fentry) = (false, None);
        let found = row("kernel types (BTF)", &facts, &attempts);
        assert_eq!(found.state, State::Missing);
        assert!(found.remedy.unwrap().contains("CONFIG_DEBUG_INFO_BTF"));
        assert_eq!(row("kernel-stack profiles", &facts, &attempts).state, State::Ok);
        assert_eq!(row("live tracing", &facts, &attempts).state, State::Ok);
    }

    #[test]
    fn no_tracefs_says_that_it_is_not_needed() {
        let (mut facts, attempts) = good();
        facts.tracefs = None;
        let found = row("tracefs", &facts, &attempts);
        assert_eq!(found.state, State::Missing);
        assert!(found.why.contains("do not need it") && found.remedy.unwrap().contains("mount -t tracefs"));
        assert_eq!(row("kernel-stack profiles", &facts, &attempts).state, State::Ok);
    }

    #[test]
    fn without_ebpf_tracing_is_degraded_and_profiles_are_missing() {
        let (mut facts, mut attempts) = good();
        facts.capabilities = 0;
        let no = Err(libc::EPERM);
        (attempts.array, attempts.mmapable_array, attempts.ring_buffer, attempts.program) = (no, no, no, no);
        assert_eq!(row("live tracing", &facts, &attempts).state, State::Degraded);
        assert_eq!(row("kernel-stack profiles", &facts, &attempts).state, State::Missing);
        let found = row("eBPF", &facts, &attempts);
        assert!(found.why.contains("CAP_BPF") && found.why.contains("unprivileged_bpf_disabled is 2"), "{found:?}");
    }

    #[test]
    fn no_counter_is_no_fault() {
        let (facts, mut attempts) = good();
        attempts.cycles = Err(libc::ENOENT);
        assert!(row("hardware cycles", &facts, &attempts).why.contains("software clock"));
        assert_eq!(row("kernel-stack profiles", &facts, &attempts).state, State::Ok);
    }

    #[test]
    fn a_pid_namespace_refuses_the_agent() {
        let (mut facts, attempts) = good();
        facts.in_init_pid_ns = Some(false);
        let row = row("process ids", &facts, &attempts);
        assert_eq!(row.state, State::Missing);
        assert!(row.remedy.unwrap().contains("--pid=host"));
    }

    #[test]
    fn old_kernels_count_locked_memory() {
        let (mut facts, mut attempts) = good();
        (facts.version, facts.capabilities) = ((5, 10), !(1 << Cap::SysResource as u8));
        attempts.memlock_bytes = Some(64 << 10);
        assert_eq!(row("locked memory", &facts, &attempts).state, State::Degraded);
        assert!(row("capabilities", &facts, &attempts).why.contains("CAP_SYS_RESOURCE"));
    }
}
