//! Profiles of a real server, down to the kernel, in every format.

use crate::reduced::Sysctl;
use crate::rig::{Rig, SOON};
use quick_xml::events::Event;
use std::time::{Duration, Instant};
use tracebyte_tests::{Running, alone, is_root, skip, together, tools};

/// Ends the test where profiles are not to be had.
macro_rules! needs_root {
    () => {
        if !is_root() {
            skip!("profiles need root");
        }
    };
}

/// Profiles the loaded server and returns standard output and what was said beside it.
#[track_caller]
fn sample(rig: &Rig, more: &[&str]) -> tracebyte_tests::Output {
    let load = rig.load();
    let pid = rig.pid();
    let mut args = vec!["profile", "--pid", &pid, "--duration", "1s", "--freq", "499", "-o", "-"];
    args.extend(more);
    let output = rig.agent.tracebyte(&args).ok();
    load.stop().unharmed();
    output
}

/// The lines of a folded profile as frames and count.
#[track_caller]
fn folded(text: &str) -> Vec<(&str, u64)> {
    let line = |line| -> Option<(&str, u64)> {
        let (frames, count) = str::rsplit_once(line, ' ')?;
        (!frames.is_empty()).then_some((frames, count.parse().ok()?))
    };
    text.lines().map(|text| line(text).unwrap_or_else(|| panic!("not `frames count`: {text:?}"))).collect()
}

#[test]
fn folded_lines_reach_from_the_server_into_the_kernel() {
    let _held = alone();
    needs_root!();
    let rig = Rig::start();
    let output = sample(&rig, &["--format", "folded"]);
    let text = output.text();
    let stacks = folded(&text);
    let all: u64 = stacks.iter().map(|(_, count)| count).sum();
    assert!(all > 50, "{all} samples\n{text}\n{}", output.stderr);
    let holding = |words: &[&str]| -> u64 {
        let holds = |frames: &str| words.iter().any(|word| frames.contains(word));
        stacks.iter().filter(|(frames, _)| holds(frames)).map(|(_, count)| count).sum()
    };
    assert!(holding(&["tcp_", "sys_", "sock_"]) * 5 > all, "hardly any kernel frames:\n{text}");
    assert!(holding(&["runtime_core"]) * 5 > all, "hardly any frames of the server:\n{text}");
}

#[test]
fn one_side_only_when_asked() {
    let _held = alone();
    needs_root!();
    let rig = Rig::start();
    let user = sample(&rig, &["--format", "folded", "--user-only"]).text();
    assert!(!folded(&user).is_empty() && !user.contains("tcp_sendmsg"), "{user}");
    let kernel = sample(&rig, &["--format", "folded", "--kernel-only"]).text();
    assert!(!folded(&kernel).is_empty() && !kernel.contains("runtime_core::"), "{kernel}");
}

#[test]
fn the_svg_is_xml() {
    let _held = together();
    needs_root!();
    let rig = Rig::start();
    let svg = sample(&rig, &["--format", "svg"]).text();
    let mut reader = quick_xml::Reader::from_str(&svg);
    let mut boxes = 0;
    loop {
        match reader.read_event() {
            Ok(Event::Eof) => break,
            Ok(Event::Start(tag) | Event::Empty(tag)) => boxes += usize::from(tag.name().as_ref() == "rect"),
            Ok(_) => {}
            Err(error) => panic!("not XML at {}: {error}", reader.buffer_position()),
        }
    }
    assert!(boxes > 5, "{boxes} boxes");
    assert!(svg.contains("in the kernel"), "the subtitle says what was measured");
}

#[test]
fn the_pprof_is_valid() {
    let _held = together();
    needs_root!();
    let rig = Rig::start();
    let bytes = sample(&rig, &["--format", "pprof"]).stdout;
    assert_eq!(bytes[..2], [0x1f, 0x8b]);
    assert_eq!(tracebyte::profile::pprof::check_valid(&bytes), Ok(()));
}

#[test]
fn go_reads_the_pprof() {
    let _held = together();
    needs_root!();
    let Some(go) = tools::find("go") else { skip!("Go is not installed") };
    let rig = Rig::start();
    let file = rig.sandbox.path("profile.pb.gz");
    std::fs::write(&file, sample(&rig, &["--format", "pprof"]).stdout).unwrap();
    let mut command = std::process::Command::new(go);
    command.args(["tool", "pprof", "-raw"]).arg(&file).env("HOME", rig.sandbox.dir());
    let output = Running::spawn(&mut command).unwrap().wait(Duration::from_secs(60)).ok();
    assert!(output.text().contains("Samples:") && output.text().contains("Locations"), "{}", output.text());
}

#[test]
fn the_idle_task_is_left_out_and_counted() {
    let _held = alone();
    needs_root!();
    let rig = Rig::start();
    let args = ["profile", "--all", "--duration", "1s", "-o", "-", "--format", "folded"];
    let output = rig.agent.tracebyte(&args).ok();
    assert!(!output.text().contains("swapper"), "{}", output.text());
    assert!(output.stderr.contains("idle"), "{}", output.stderr);
}

#[test]
fn the_clock_in_use_is_told() {
    let _held = together();
    needs_root!();
    let rig = Rig::start();
    let said = sample(&rig, &["--format", "folded"]).stderr;
    assert!(said.contains("cycles") || said.contains("cpu-clock"), "{said}");
}

#[test]
fn a_frequency_too_high_is_clamped_and_told() {
    let _held = together();
    needs_root!();
    let rig = Rig::start();
    let pid = rig.pid();
    let args = ["profile", "--pid", &pid, "--duration", "200ms", "--freq", "1000000", "-o", "-", "--format", "folded"];
    let output = rig.agent.tracebyte(&args).ok();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").unwrap();
    // The lower of the kernel's limit and the agent's own: at the kernel's usual 100 kHz a
    // machine has no time left, not even to end the session.
    let max = kernel.trim().parse::<u32>().unwrap().min(10_000);
    assert!(output.stderr.contains(&max.to_string()), "{} of at most {max}", output.stderr);
}

#[test]
fn ctrl_c_keeps_what_was_taken() {
    let _held = together();
    needs_root!();
    let rig = Rig::start();
    let load = rig.load();
    let pid = rig.pid();
    let args = ["profile", "--pid", &pid, "--duration", "60s", "--freq", "499", "-o", "-", "--format", "folded"];
    let profile = rig.agent.spawn(&args);
    std::thread::sleep(Duration::from_millis(1_500));
    profile.signal(libc::SIGINT);
    let output = profile.wait(SOON * 2).ok();
    load.stop().unharmed();
    assert!(!folded(&output.text()).is_empty(), "{}", output.stderr);
}

#[test]
fn a_process_that_dies_in_the_middle_keeps_the_profile() {
    let _held = together();
    needs_root!();
    let mut rig = Rig::start();
    let load = rig.load();
    let pid = rig.pid();
    let args = ["profile", "--pid", &pid, "--duration", "2s", "--freq", "499", "-o", "-", "--format", "folded"];
    let profile = rig.agent.spawn(&args);
    std::thread::sleep(Duration::from_millis(1_200));
    rig.server.process.kill();
    drop(load);
    let output = profile.wait(SOON * 2).ok();
    assert!(!folded(&output.text()).is_empty(), "{}", output.stderr);
}

#[test]
fn two_sessions_run_side_by_side() {
    let _held = together();
    needs_root!();
    let rig = Rig::start();
    let load = rig.load();
    let pid = rig.pid();
    let args = ["profile", "--pid", &pid, "--duration", "1s", "--freq", "199", "-o", "-", "--format", "folded"];
    let (one, two) = (rig.agent.spawn(&args), rig.agent.spawn(&args));
    for output in [one.wait(SOON * 3).ok(), two.wait(SOON * 3).ok()] {
        assert!(!folded(&output.text()).is_empty(), "{}", output.stderr);
    }
    load.stop().unharmed();
}

#[test]
fn nothing_is_in_the_kernel_when_no_session_runs() {
    let _held = together();
    needs_root!();
    let rig = Rig::start();
    sample(&rig, &["--format", "folded"]);
    let held: Vec<String> = std::fs::read_dir(format!("/proc/{}/fd", rig.agent.pid()))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .map(|link| link.display().to_string())
        .filter(|link| link.contains("bpf-prog") || link.contains("bpf_link") || link.contains("perf_event"))
        .collect();
    assert_eq!(held, Vec::<String>::new());
}

#[test]
fn hidden_kernel_symbols_are_explained() {
    let _held = alone();
    needs_root!();
    let Some(_sysctl) = Sysctl::set("/proc/sys/kernel/kptr_restrict", "2") else {
        skip!("kptr_restrict cannot be changed here");
    };
    let rig = Rig::start();
    let output = sample(&rig, &["--format", "folded"]);
    assert!(output.stderr.contains("kptr_restrict"), "{}", output.stderr);
    assert!(output.text().contains("[kernel]"), "{}", output.text());
    assert!(output.text().contains("runtime_core"), "user stacks are kept: {}", output.text());
}

#[test]
fn a_second_profile_reads_kernel_symbols_anew() {
    let _held = alone();
    needs_root!();
    let rig = Rig::start();
    let hidden = Sysctl::set("/proc/sys/kernel/kptr_restrict", "2");
    if hidden.is_none() {
        skip!("kptr_restrict cannot be changed here");
    }
    sample(&rig, &["--format", "folded", "--kernel-only"]);
    drop(hidden);
    // What the first session could not see, the second does: nothing is kept between them.
    let text = sample(&rig, &["--format", "folded", "--kernel-only"]).text();
    assert!(text.contains("sys_"), "{text}");
}

#[test]
fn sampling_is_counted() {
    let _held = together();
    needs_root!();
    let rig = Rig::start();
    let text = sample(&rig, &["--format", "folded"]).text();
    let rows: u64 = folded(&text).iter().map(|(_, count)| count).sum();
    let counted = rig.agent.metric("tracebyte_profile_samples_total", &[]).expect("it was measured");
    let lost = rig.agent.metric("tracebyte_profile_samples_lost_total", &[]).expect("it was measured");
    // Losses are rows of the profile, too.
    assert_eq!(rows as f64, counted + lost);
}

#[test]
fn an_unknown_process_is_refused() {
    let _held = together();
    needs_root!();
    let rig = Rig::start();
    let begin = Instant::now();
    let args = ["profile", "--pid", "4194300", "--duration", "30s", "-o", "-"];
    let output = rig.agent.tracebyte(&args).ends_with(1);
    assert!(output.stderr.contains("4194300"), "{}", output.stderr);
    assert!(begin.elapsed() < SOON);
}
