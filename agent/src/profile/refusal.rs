//! What the kernel's refusals mean to a person: the value, the value that is needed, and
//! the capability that lifts it.

use crate::error::Failure;
use crate::sys;
use std::error::Error;

/// The system's error number at the root of an error.
pub(super) fn errno(error: &(impl Error + 'static)) -> Option<i32> {
    let mut at: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = at {
        if let Some(os) = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error) {
            return Some(os);
        }
        at = error.source();
    }
    None
}

/// Creating a map or loading the program failed.
pub(super) fn of_load(error: &(impl Error + 'static)) -> Failure {
    let message = |why: &str| format!("cannot load the sampler into the kernel: {why}");
    match errno(error) {
        Some(libc::EPERM | libc::EACCES) if sys::kernel::before_5_11() => Failure::new(message("not permitted"))
            .remedy(
                "run the agent as root, or give it CAP_BPF and CAP_PERFMON, and CAP_SYS_RESOURCE to lift the limit of \
                 locked memory (this kernel charges eBPF maps against it)",
            ),
        Some(libc::EPERM | libc::EACCES) => Failure::new(message("not permitted; it takes CAP_BPF and CAP_PERFMON"))
            .remedy("run the agent as root, or give it CAP_BPF and CAP_PERFMON"),
        Some(libc::ENOSYS) => Failure::new(message("it is built without eBPF"))
            .remedy("use a kernel with CONFIG_BPF_SYSCALL and CONFIG_PERF_EVENTS; toggling and events work without"),
        _ => Failure::new(message(&chain(error))),
    }
}

/// Opening the event on a CPU, or attaching the program to it, failed.
pub(super) fn of_attach(error: &(impl Error + 'static), cpu: u32) -> Failure {
    let message = |why: &str| format!("cannot sample CPU {cpu}: {why}");
    match errno(error) {
        Some(libc::EPERM | libc::EACCES) => {
            let paranoid = sys::kernel::setting::<i32>("kernel/perf_event_paranoid");
            let paranoid = paranoid.map_or("unknown".to_owned(), |value| value.to_string());
            Failure::new(message(&format!(
                "not permitted; kernel.perf_event_paranoid is {paranoid}, and sampling whole CPUs takes CAP_PERFMON or at most 0"
            )))
            .remedy("run the agent as root or with CAP_PERFMON, or run `sysctl kernel.perf_event_paranoid=0`")
        }
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENOSYS) => {
            Failure::new(message("the kernel has neither hardware cycles nor the software clock"))
                .remedy("use a kernel with CONFIG_PERF_EVENTS")
        }
        Some(libc::EMFILE) => Failure::new(message("too many open files"))
            .remedy("raise the limit of open files (`LimitNOFILE=` in the unit): a session takes two a CPU"),
        _ => Failure::new(message(&chain(error))),
    }
}

/// The sampler sees the kernel's process ids, and in a PID namespace ours are others: the
/// profile would be of other processes than were asked for.
pub(super) fn in_pid_namespace() -> Result<(), Failure> {
    match std::fs::read_link("/proc/self/ns/pid") {
        Ok(link) if !sys::proc::is_first_pid_namespace(&link) => {
            Err(Failure::new("cannot profile: the agent is in a PID namespace, where process ids are not the kernel's")
                .remedy("run the agent on the host, or in a container with the host's PID namespace (--pid=host)"))
        }
        _ => Ok(()),
    }
}

/// An error and its causes, in a line.
fn chain(error: &(impl Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut at = error.source();
    while let Some(cause) = at {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        at = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use aya::programs::ProgramError;
    use aya::sys::SyscallError;

    fn refused(no: i32) -> ProgramError {
        ProgramError::SyscallError(SyscallError {
            call: "perf_event_open",
            io_error: std::io::Error::from_raw_os_error(no),
        })
    }

    #[test]
    fn a_refused_event_names_the_setting_and_the_capability() {
        let failure = of_attach(&refused(libc::EACCES), 1).to_string();
        let value = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
        assert!(failure.contains(&format!("kernel.perf_event_paranoid is {}", value.trim())), "{failure}");
        assert!(failure.contains("CAP_PERFMON") && failure.contains("CPU 1"), "{failure}");
    }

    #[test]
    fn a_refused_load_names_the_capabilities() {
        let failure = of_load(&refused(libc::EPERM)).to_string();
        assert!(failure.contains("CAP_BPF") && failure.contains("CAP_PERFMON"), "{failure}");
        assert!(of_load(&refused(libc::ENOSYS)).to_string().contains("CONFIG_BPF_SYSCALL"));
        assert!(of_load(&refused(libc::EIO)).message.contains("perf_event_open"));
    }
}
