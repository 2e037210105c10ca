//! Without eBPF: toggles, events and metrics work, and what does not says why.

use crate::rig::Rig;
use std::path::Path;
use tracebyte_tests::agent::NOBODY;
use tracebyte_tests::events::Requests;
use tracebyte_tests::{AgentOptions, ServerOptions, is_root, skip, together};

fn unprivileged() -> Rig {
    let server = ServerOptions { uid: Some(NOBODY), ..ServerOptions::default() };
    Rig::with(&AgentOptions::unprivileged(), &server)
}

#[test]
fn toggles_events_and_metrics_work() {
    let _held = together();
    if !is_root() {
        skip!("becoming another user needs root");
    }
    let rig = unprivileged();
    assert_eq!(rig.listed()["page"], "memfd");
    let recording = rig.record("trace.json", "chrome");
    rig.on();
    rig.ask(500);
    rig.off();
    rig.ask(100);
    assert_eq!(recording.requests(), Requests::whole(500));
    let served = rig.agent.metric("http_server_request_duration_seconds_count", &[("service", "demo")]);
    assert_eq!(served, Some(500.0));
}

#[test]
fn a_profile_says_why_it_cannot_be() {
    let _held = together();
    if !is_root() {
        skip!("becoming another user needs root");
    }
    let rig = unprivileged();
    let output = rig.agent.tracebyte(&["profile", "--all", "--duration", "100ms", "-o", "-"]).ends_with(1);
    assert!(output.stderr.contains("eBPF") && output.stderr.contains("remedy"), "{}", output.stderr);
    assert!(!rig.agent.metrics().contains("\ntracebyte_profile_samples_total "), "unmeasured, and shown");
}

#[test]
fn doctor_names_each_remedy() {
    let _held = together();
    if !is_root() {
        skip!("becoming another user needs root");
    }
    let rig = unprivileged();
    let output = tracebyte_tests::agent::tracebyte_as(NOBODY, &rig.sandbox, &["doctor", "--json"]);
    let rows = output.json();
    let missing: Vec<_> = rows.as_array().unwrap().iter().filter(|row| row["state"] == "missing").collect();
    assert!(!missing.is_empty(), "{rows}");
    assert!(missing.iter().all(|row| row["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty())), "{rows}");
}

#[test]
fn a_paranoid_kernel_is_named_with_its_value() {
    let _held = tracebyte_tests::alone();
    if !is_root() {
        skip!("changing a sysctl needs root");
    }
    let Some(_sysctl) = Sysctl::set("/proc/sys/kernel/perf_event_paranoid", "3") else {
        skip!("perf_event_paranoid cannot be changed here");
    };
    let rig = unprivileged();
    let output = tracebyte_tests::agent::tracebyte_as(NOBODY, &rig.sandbox, &["doctor"]);
    assert!(output.text().contains("perf_event_paranoid"), "{}", output.text());
}

/// A sysctl, put back with the value.
pub struct Sysctl {
    file: &'static Path,
    before: String,
}

impl Sysctl {
    pub fn set(file: &'static str, value: &str) -> Option<Self> {
        let file = Path::new(file);
        let before = std::fs::read_to_string(file).ok()?;
        std::fs::write(file, value).ok()?;
        Some(Self { file, before })
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        let _ = std::fs::write(self.file, &self.before);
    }
}
