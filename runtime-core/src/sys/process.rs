//! Threads, clocks, signals and `fork`.

use std::io;

/// The calling thread's id, as the process sees it.
pub fn thread_id() -> u32 {
    // SAFETY: takes nothing, changes nothing.
    (unsafe { libc::gettid() }) as u32
}

/// `CLOCK_MONOTONIC` in nanoseconds, by the vDSO: no system call.
#[inline]
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// A monotonic clock of a few milliseconds' grain, in milliseconds: cheap enough for each turn.
#[inline]
pub fn coarse_ms() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC_COARSE) / 1_000_000
}

/// The time of day of the same grain, in seconds since 1970.
#[inline]
pub fn coarse_unix_seconds() -> u64 {
    clock_ns(libc::CLOCK_REALTIME_COARSE) / 1_000_000_000
}

#[inline]
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the struct is ours to fill; these clocks always exist on Linux.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Runs `work` with every signal blocked in the calling thread: a thread spawned in it never
/// takes a signal from the program it lives in.
pub fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    let before = change_mask(libc::SIG_BLOCK, &all_signals());
    let done = work();
    change_mask(libc::SIG_SETMASK, &before);
    done
}

fn all_signals() -> libc::sigset_t {
    // SAFETY: all zeros is a value of this plain C struct; sigfillset fills it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&mut set);
        set
    }
}

fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> libc::sigset_t {
    // SAFETY: both sets are valid; only the calling thread's mask changes.
    unsafe {
        let mut before = std::mem::zeroed();
        libc::pthread_sigmask(how, set, &mut before);
        before
    }
}

/// SIGTERM and SIGINT, blocked so that they can be waited for.
#[derive(Debug)]
pub struct StopSignals(());

impl StopSignals {
    /// Blocks both in the calling thread and in every thread it starts later.
    pub fn block() -> Self {
        change_mask(libc::SIG_BLOCK, &Self::set());
        Self(())
    }

    /// Waits for one of them.
    pub fn wait(&self) -> io::Result<()> {
        let mut signal = 0;
        // SAFETY: the set is valid and the number is ours to fill.
        match unsafe { libc::sigwait(&Self::set(), &mut signal) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    fn set() -> libc::sigset_t {
        // SAFETY: all zeros is a value of this plain C struct; sigemptyset initialises it.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGTERM);
            libc::sigaddset(&mut set, libc::SIGINT);
            set
        }
    }
}

/// Has `before` run ahead of each `fork`, then `parent` and `child`, each in its process.
/// `child` may do only what a signal handler may.
pub fn at_fork(before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) -> io::Result<()> {
    // SAFETY: the functions live as long as the program; they take and return nothing.
    match unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Has `work` run when the process exits by returning from `main` or by `exit`.
pub fn at_exit(work: extern "C" fn()) -> io::Result<()> {
    // SAFETY: the function lives as long as the program; it takes and returns nothing.
    match unsafe { libc::atexit(work) } {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::ENOMEM)),
    }
}

/// Closes a descriptor that the child of a `fork` inherited and that a value of the parent owns.
pub fn close_in_child(fd: libc::c_int) {
    // SAFETY: in the child the owning thread is gone, so nothing uses or closes it again.
    unsafe { libc::close(fd) };
}
