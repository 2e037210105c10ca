//! Events, exactly: each request once, none while tracing is off, none from outside the
//! window.

use crate::rig::{Rig, SOON};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tracebyte_tests::events::{self, Requests};
use tracebyte_tests::{AgentOptions, Load, LoadSpec, ServerOptions, alone, eventually, together};

#[test]
fn every_request_gives_one_begin_and_one_end() {
    let _held = together();
    let rig = Rig::start();
    let recording = rig.record("trace.json", "chrome");
    rig.on();
    rig.ask(2_000);
    rig.off();
    rig.ask(500);
    assert_eq!(recording.requests(), Requests::whole(2_000));
}

#[test]
fn threads_lose_nothing() {
    let _held = together();
    let rig = Rig::with(&AgentOptions::default(), &ServerOptions { threads: 4, ..ServerOptions::default() });
    let recording = rig.record("trace.ndjson", "ndjson");
    rig.on();
    Load::run(&LoadSpec { connections: 12, ..LoadSpec::requests(rig.server.address, 6_000) }).unharmed();
    rig.off();
    assert_eq!(recording.requests(), Requests::whole(6_000));
}

#[test]
fn with_tracing_off_there_is_nothing() {
    let _held = together();
    let rig = Rig::start();
    for format in ["chrome", "ndjson"] {
        let recording = rig.record(&format!("empty.{format}"), format);
        rig.ask(300);
        assert_eq!(recording.finish(), Vec::<Value>::new());
    }
    assert_eq!(rig.agent.metric("tracebyte_trace_events_total", &[]).unwrap_or(0.0), 0.0);
}

#[test]
fn nothing_on_is_hinted_at() {
    let _held = together();
    let rig = Rig::start();
    let output = rig.agent.tracebyte(&["trace", "record", "--duration", "50ms", "-o", "-"]).ok();
    assert_eq!(events::chrome(&output.stdout).unwrap(), Vec::<Value>::new());
    assert!(output.stderr.contains("trace on"), "{}", output.stderr);
}

#[test]
fn events_say_what_the_request_was() {
    let _held = together();
    let rig = Rig::start();
    let recording = rig.record("trace.json", "chrome");
    rig.on();
    let spec = LoadSpec { path: "/bytes/1024/4/1".into(), ..LoadSpec::requests(rig.server.address, 10) };
    Load::run(&spec).unharmed();
    rig.off();
    let mut pairs: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for event in recording.finish() {
        if event["name"] == "http.server.request" {
            pairs.entry(event["id"].to_string()).or_default().push(event);
        }
    }
    assert_eq!(pairs.len(), 10);
    for pair in pairs.values() {
        let [begin, end] = pair.as_slice() else { panic!("not a pair: {pair:?}") };
        assert_eq!((&begin["ph"], &end["ph"]), (&"b".into(), &"e".into()));
        assert_eq!((&begin["cat"], &begin["pid"]), (&"node.http".into(), &rig.server.pid().into()));
        assert!(begin["tid"].as_u64().unwrap() > 0);
        assert!(begin["ts"].as_f64().unwrap() <= end["ts"].as_f64().unwrap());
        assert_eq!((&begin["args"]["method"], &begin["args"]["url"]), (&"GET".into(), &"/bytes/1024/4/1".into()));
        assert_eq!(end["args"]["statusCode"], 200);
        assert!(end["args"]["bytes"].as_u64().unwrap() >= 1024, "{end}");
    }
}

#[test]
fn older_events_are_left_out() {
    let _held = together();
    let rig = Rig::start();
    rig.on();
    rig.ask(1_000);
    let output = rig.agent.tracebyte(&["trace", "record", "--duration", "200ms", "-o", "-"]).ok();
    assert_eq!(events::chrome(&output.stdout).unwrap(), Vec::<Value>::new());
}

#[test]
fn the_window_is_as_long_as_asked() {
    let _held = alone();
    let rig = Rig::start();
    rig.on();
    let load = rig.load();
    let output = rig.agent.tracebyte(&["trace", "record", "--duration", "1s", "--format", "ndjson", "-o", "-"]).ok();
    load.stop().unharmed();
    let times = events::lines(&output.text()).unwrap();
    let times: Vec<f64> = times.iter().map(|event| event["ts"].as_f64().unwrap()).collect();
    let span = times.iter().copied().fold(f64::MIN, f64::max) - times.iter().copied().fold(f64::MAX, f64::min);
    assert!((900_000.0..=1_000_000.0).contains(&span), "{span} µs of {} events", times.len());
}

#[test]
fn two_recordings_get_everything_each() {
    let _held = together();
    let rig = Rig::start();
    let (one, two) = (rig.record("one.json", "chrome"), rig.record("two.ndjson", "ndjson"));
    rig.on();
    rig.ask(500);
    rig.off();
    assert_eq!((one.requests(), two.requests()), (Requests::whole(500), Requests::whole(500)));
}

#[test]
fn watch_shows_events_as_they_happen() {
    let _held = together();
    let rig = Rig::start();
    let watch = rig.agent.spawn(&["trace", "watch", "--json", "--pid", &rig.pid()]);
    std::thread::sleep(Duration::from_millis(300));
    rig.on();
    rig.ask(50);
    let seen = || Requests::count(&events::lines(&watch.stdout()).unwrap_or_default());
    eventually(SOON, "all events are shown", || seen() == Requests::whole(50));
    watch.signal(libc::SIGINT);
    watch.wait(SOON).ok();
}

#[test]
fn a_full_disk_ends_the_recording_with_a_valid_file() {
    let _held = together();
    let rig = Rig::start();
    let Some(small) = SmallDisk::mount(&rig.sandbox.path("small")) else {
        tracebyte_tests::skip!("mounting a small tmpfs needs root");
    };
    let file = small.0.join("trace.json");
    rig.on();
    let load = rig.load();
    let args = ["trace", "record", "--duration", "20s", "-o", &file.to_string_lossy()];
    let output = rig.agent.tracebyte(&args).ends_with(1);
    load.stop().unharmed();
    assert!(output.stderr.contains("space"), "{}", output.stderr);
    let kept = events::chrome(&std::fs::read(&file).unwrap()).expect("what was written is valid");
    assert!(!kept.is_empty());
    rig.ask(10);
}

/// A file system of 256 KiB, unmounted with the value.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(at: &std::path::Path) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"])
            .arg(at)
            .stderr(std::process::Stdio::null())
            .status();
        mount.is_ok_and(|status| status.success()).then(|| Self(at.to_path_buf()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
