//! The idle agent: small, quiet, and holding nothing.

use crate::rig::Rig;
use std::time::Duration;
use tracebyte_tests::{alone, together};

#[test]
fn an_idle_agent_is_small_and_quiet() {
    let _held = alone();
    let rig = Rig::start();
    let proc = format!("/proc/{}", rig.agent.pid());
    let ticks = || -> u64 {
        let stat = std::fs::read_to_string(format!("{proc}/stat")).unwrap();
        let fields = stat.rsplit_once(')').unwrap().1;
        fields.split_ascii_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
    };
    std::thread::sleep(Duration::from_millis(500));
    let before = ticks();
    std::thread::sleep(Duration::from_secs(5));
    // A tick is 10 ms: 5 of 500 would be 1% of a core, ten times what the bench allows.
    assert!(ticks() - before < 5, "{} ticks in 5 s", ticks() - before);
    let status = std::fs::read_to_string(format!("{proc}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap().trim();
    let kib: u64 = resident.trim_end_matches(" kB").parse().unwrap();
    assert!(kib <= 20 * 1024, "{resident} resident");
}

#[test]
fn a_stop_leaves_an_empty_run_dir_behind() {
    let _held = together();
    let rig = Rig::start();
    let run_dir = rig.sandbox.run_dir();
    rig.agent.stop(libc::SIGTERM, Duration::from_secs(2)).ends_with(0);
    let sockets: Vec<_> = std::fs::read_dir(run_dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.to_string_lossy().ends_with(".sock"))
        .collect();
    assert!(sockets.is_empty(), "{sockets:?}");
}
