//! What is measured is right, what is not is absent, and Prometheus reads it.

use crate::rig::{Rig, SOON};
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;
use tracebyte_tests::http::Connection;
use tracebyte_tests::{Running, agent, eventually, http, skip, together, tools};

#[test]
fn requests_are_counted_in_the_histogram() {
    let _held = together();
    let rig = Rig::start();
    rig.on();
    rig.ask(700);
    let labels = [("service", "demo"), ("http_request_method", "GET"), ("http_response_status_code", "200")];
    let count = || rig.agent.metric("http_server_request_duration_seconds_count", &labels);
    eventually(SOON, "700 requests are counted", || count() == Some(700.0));
    let events = rig.agent.metric("tracebyte_trace_events_total", &[("service", "demo"), ("category", "node.http")]);
    assert_eq!(events, Some(1_400.0));
    rig.off();
    rig.ask(100);
    assert_eq!(count(), Some(700.0));
    let sum = rig.agent.metric("http_server_request_duration_seconds_sum", &labels).unwrap();
    assert!(sum > 0.0 && sum < 60.0, "{sum} s");
}

#[test]
fn an_unknown_method_is_other() {
    let _held = together();
    let rig = Rig::start();
    rig.on();
    let mut connection = Connection::open(rig.server.address).unwrap();
    connection.send(b"BREW / HTTP/1.1\r\nhost: pot\r\n\r\n").unwrap();
    let _ = connection.answer();
    let other = [("http_request_method", "_OTHER")];
    let count = || rig.agent.metric("http_server_request_duration_seconds_count", &other);
    eventually(SOON, "the method is `_OTHER`", || count() == Some(1.0));
    assert!(!rig.agent.metrics().contains("BREW"));
}

#[test]
fn gauges_follow_the_bytes() {
    let _held = together();
    let rig = Rig::start();
    let enabled = || {
        let labels = [("service", "demo"), ("category", "node.http")];
        rig.agent.metric("tracebyte_trace_enabled", &labels)
    };
    assert_eq!(rig.agent.metric("tracebyte_targets", &[("kind", "runtime-core")]), Some(1.0));
    assert_eq!(rig.agent.metric("tracebyte_build_info", &[]), Some(1.0));
    assert_eq!(enabled().unwrap_or(0.0), 0.0);
    rig.on();
    assert_eq!(enabled(), Some(1.0));
    rig.off();
    assert_eq!(enabled().unwrap_or(0.0), 0.0);
}

#[test]
fn no_series_has_a_pid() {
    let _held = together();
    let rig = Rig::start();
    rig.on();
    rig.ask(10);
    let metrics = rig.agent.metrics();
    assert!(!metrics.contains("pid=\""), "{metrics}");
    assert!(metrics.contains("process_resident_memory_bytes"), "{metrics}");
}

#[test]
fn promtool_finds_nothing_to_say() {
    let _held = together();
    let Some(promtool) = tools::find("promtool") else { skip!("promtool is not installed") };
    let rig = Rig::start();
    rig.on();
    rig.ask(100);
    let mut check = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    check.stdin.take().unwrap().write_all(rig.agent.metrics().as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
}

#[test]
fn a_real_prometheus_scrapes_and_answers() {
    let _held = together();
    let Some(prometheus) = tools::find("prometheus") else { skip!("prometheus is not installed") };
    let rig = Rig::start();
    rig.on();
    rig.ask(250);
    let config = rig.sandbox.path("prometheus.yml");
    let text = format!(
        "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\nscrape_configs:\n- job_name: tracebyte\n  static_configs:\n  - targets: ['{}']\n",
        rig.agent.http
    );
    std::fs::write(&config, text).unwrap();
    let address = agent::free_address();
    let mut command = Command::new(prometheus);
    command.arg(format!("--config.file={}", config.display()));
    command.arg(format!("--storage.tsdb.path={}", rig.sandbox.path("tsdb").display()));
    command.arg(format!("--web.listen-address={address}"));
    let server = Running::spawn(&mut command).unwrap();
    let query = |expression: &str| -> Option<f64> {
        let answer = http::get(address, &format!("/api/v1/query?query={expression}")).ok()?;
        let answer: Value = serde_json::from_slice(&answer.body).ok()?;
        answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    };
    let limit = Duration::from_secs(30);
    let requests = "sum(http_server_request_duration_seconds_count%7Bservice=%22demo%22%7D)";
    eventually(limit, &format!("250 requests are found; {}", server.stderr()), || query(requests) == Some(250.0));
    assert_eq!(query("up"), Some(1.0));
    let quantile = "histogram_quantile(0.99,sum%20by(le)(http_server_request_duration_seconds_bucket))";
    assert!(query(quantile).is_some_and(|seconds| seconds > 0.0 && seconds < 10.0), "{:?}", query(quantile));
    server.signal(libc::SIGTERM);
    server.wait(Duration::from_secs(20));
}
