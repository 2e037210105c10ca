//! Resource limits that a daemon raises for itself.

use std::io;

/// Raises the soft limit of open files to the hard one and returns it.
pub fn raise_open_files() -> io::Result<u64> {
    let mut limit = get(libc::RLIMIT_NOFILE)?;
    limit.rlim_cur = limit.rlim_max;
    set(libc::RLIMIT_NOFILE, limit)?;
    Ok(limit.rlim_cur)
}

/// Lifts the limit of locked memory, against which kernels before 5.11 charge BPF maps.
pub fn lift_locked_memory() -> io::Result<()> {
    let infinity = libc::RLIM_INFINITY;
    set(libc::RLIMIT_MEMLOCK, libc::rlimit { rlim_cur: infinity, rlim_max: infinity })
}

fn get(resource: libc::__rlimit_resource_t) -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a writable rlimit.
    super::check(unsafe { libc::getrlimit(resource, &raw mut limit) })?;
    Ok(limit)
}

fn set(resource: libc::__rlimit_resource_t, limit: libc::rlimit) -> io::Result<()> {
    // SAFETY: `limit` is a readable rlimit.
    super::check(unsafe { libc::setrlimit(resource, &raw const limit) }).map(drop)
}
