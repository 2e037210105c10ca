//! Sessions on the real kernel: what is busy is seen, by name, on both sides of the system
//! call, and nothing stays behind.

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tracebyte::profile::session::{Stop, prepare, run};
use tracebyte::profile::{Profile, Spec, folded, pprof, svg};
use tracebyte_tests::{is_root, skip};

/// Ends the test where the kernel lets nobody but root sample.
macro_rules! needs_root {
    () => {
        if !is_root() {
            skip!("sampling needs root");
        }
    };
}

fn spec(pids: Option<Vec<u32>>, duration_ms: u64) -> Spec {
    Spec { pids, duration: Duration::from_millis(duration_ms), freq_hz: 499, kernel: true, user: true }
}

/// Runs `work` on a thread while `body` runs.
fn busy<T>(work: fn(&AtomicBool), body: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| work(&done));
        let result = body();
        done.store(true, Ordering::Relaxed);
        result
    })
}

#[inline(never)]
fn spin_in_user_mode(done: &AtomicBool) {
    let mut x = 1u64;
    while !done.load(Ordering::Relaxed) {
        for _ in 0..1000 {
            x = std::hint::black_box(x.wrapping_mul(6364136223846793005).wrapping_add(1));
        }
    }
}

#[inline(never)]
fn read_zeroes(done: &AtomicBool) {
    let mut file = std::fs::File::open("/dev/zero").unwrap();
    let mut bytes = vec![0; 256 * 1024];
    while !done.load(Ordering::Relaxed) {
        file.read_exact(&mut bytes).unwrap();
    }
}

fn lines(profile: &Profile) -> String {
    let mut out = Vec::new();
    folded::write(profile, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Samples in lines that hold a text.
fn holding(text: &str, lines: &str) -> u64 {
    let counts = lines.lines().filter(|line| line.contains(text)).map(|line| line.rsplit_once(' ').unwrap().1);
    counts.map(|count| count.parse::<u64>().unwrap()).sum()
}

#[test]
fn a_busy_function_is_found_by_name() {
    needs_root!();
    // One process: what one test keeps busy another would sample.
    let _alone = tracebyte_tests::alone();
    let pid = std::process::id();
    let profile = busy(spin_in_user_mode, || run(&spec(Some(vec![pid]), 1_000), || {}, &Stop::new())).unwrap();
    let lines = lines(&profile);
    // A machine that is busy with other things gives few.
    assert!(profile.samples >= 10, "{profile:?}");
    assert!(holding("spin_in_user_mode", &lines) * 2 > profile.samples, "{lines}");
    assert!(profile.stacks.iter().all(|stack| stack.pid == pid), "{profile:?}");
    assert_eq!(profile.stacks.iter().map(|stack| stack.count).sum::<u64>(), profile.samples);
}

#[test]
fn a_stack_reaches_from_main_into_the_kernel() {
    needs_root!();
    // One process: what one test keeps busy another would sample.
    let _alone = tracebyte_tests::alone();
    let pid = std::process::id();
    let profile = busy(read_zeroes, || run(&spec(Some(vec![pid]), 1_000), || {}, &Stop::new())).unwrap();
    let text = lines(&profile);
    let whole = text.lines().filter(|line| {
        let at = |name: &str| line.find(name);
        matches!((at("read_zeroes"), at("read_zero;").or(at("read_iter_zero")).or(at("vfs_read"))), (Some(user), Some(kernel)) if user < kernel)
    });
    assert!(whole.count() > 0, "{text}");
    assert!(profile.samples_kernel * 2 > profile.samples, "{profile:?}");
    let mut bytes = Vec::new();
    pprof::write(&profile, &mut bytes).unwrap();
    pprof::check_valid(&bytes).unwrap();
    let mut picture = Vec::new();
    svg::write(&profile, &mut picture).unwrap();
    assert!(String::from_utf8(picture).unwrap().contains("read_zeroes"));
}

#[test]
fn one_side_only_when_asked() {
    needs_root!();
    // One process: what one test keeps busy another would sample.
    let _alone = tracebyte_tests::alone();
    let pid = std::process::id();
    let sides = |kernel, user| {
        let spec = Spec { kernel, user, ..spec(Some(vec![pid]), 500) };
        busy(read_zeroes, || run(&spec, || {}, &Stop::new())).unwrap()
    };
    let kernel = sides(true, false);
    assert!(kernel.samples > 0 && kernel.frames.iter().all(|frame| frame.kernel), "{kernel:?}");
    let user = sides(false, true);
    assert!(user.samples > 0 && user.frames.iter().all(|frame| !frame.kernel), "{user:?}");
    assert!(user.samples_kernel > 0, "what ran in the kernel is counted all the same");
}

#[test]
fn sampling_begins_soon_and_ends_when_told() {
    needs_root!();
    // One process: what one test keeps busy another would sample.
    let _alone = tracebyte_tests::alone();
    prepare();
    let (stop, begin) = (Stop::new(), Instant::now());
    let (sender, started) = mpsc::channel();
    let session = std::thread::spawn({
        let stop = stop.clone();
        move || run(&spec(None, 60_000), || sender.send(begin.elapsed()).unwrap(), &stop)
    });
    let started_after = started.recv().unwrap();
    std::thread::sleep(Duration::from_millis(120));
    let stopped = Instant::now();
    stop.stop();
    let profile = session.join().unwrap().unwrap();
    eprintln!("started after {started_after:?}, whole profile {:?} after the stop", stopped.elapsed());
    let sampled = Duration::from_nanos(profile.duration_ns);
    assert!(sampled < Duration::from_secs(10), "{sampled:?}");
}

#[test]
fn two_sessions_run_side_by_side() {
    needs_root!();
    // One process: what one test keeps busy another would sample.
    let _alone = tracebyte_tests::alone();
    let pid = std::process::id();
    busy(spin_in_user_mode, || {
        let other = std::thread::spawn(move || run(&spec(Some(vec![pid]), 400), || {}, &Stop::new()));
        let one = run(&spec(Some(vec![pid]), 400), || {}, &Stop::new()).unwrap();
        assert!(one.samples > 0 && other.join().unwrap().unwrap().samples > 0);
    });
}

#[test]
fn what_ran_and_ended_keeps_its_samples_and_its_names() {
    needs_root!();
    // One process: what one test keeps busy another would sample.
    let _alone = tracebyte_tests::alone();
    let mut child = std::process::Command::new("sh")
        .args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"])
        .spawn()
        .unwrap();
    let profile = run(&spec(Some(vec![child.id()]), 1_500), || {}, &Stop::new()).unwrap();
    child.wait().unwrap();
    eprintln!("{}", lines(&profile));
    assert!(profile.samples > 0, "{profile:?}");
    assert!(profile.stacks.iter().all(|stack| stack.process == "sh" || stack.process == "dash"), "{profile:?}");
}

#[test]
fn a_pid_that_is_nobody_gives_an_empty_profile() {
    needs_root!();
    // One process: what one test keeps busy another would sample.
    let _alone = tracebyte_tests::alone();
    let profile = run(&spec(Some(vec![u32::MAX - 1]), 100), || {}, &Stop::new()).unwrap();
    assert_eq!((profile.samples, profile.stacks.len()), (0, 0));
    assert!(profile.event == "cycles" || profile.event == "cpu-clock");
}

#[test]
fn a_refusal_says_what_is_missing() {
    // Privileges belong to a thread: this one gives its own up for good.
    let refused = std::thread::spawn(|| {
        drop_capabilities();
        run(&spec(None, 100), || panic!("sampling began"), &Stop::new()).unwrap_err()
    });
    let refused = refused.join().unwrap().to_string();
    assert!(refused.contains("CAP_BPF") && refused.contains("CAP_PERFMON") && refused.contains("remedy"), "{refused}");
}

fn drop_capabilities() {
    let header = [0x2008_0522u32, 0];
    let none = [[0u32; 3]; 2];
    // SAFETY: a version-3 header for the calling thread, and the two sets it goes with.
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
