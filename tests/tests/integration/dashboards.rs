//! What the dashboards ask for is there.

use crate::rig::{Rig, SOON};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use tracebyte_tests::{bins, eventually, is_root, skip, together, tools};

/// Series that appear only once the agent has profiled.
const OF_PROFILES: &str = "tracebyte_profile_";

fn dashboards() -> PathBuf {
    bins::workspace().join("dashboards")
}

fn text(file: &str) -> String {
    std::fs::read_to_string(dashboards().join(file)).unwrap()
}

/// Every metric that an expression of dashboard or alerts names.
fn named() -> BTreeSet<String> {
    let mut expressions = vec![text("alerts.yml")];
    collect(&serde_json::from_str(&text("grafana.json")).unwrap(), &mut expressions);
    let names = expressions.iter().flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let ours = |name: &&str| ["tracebyte_", "http_server_", "process_"].iter().any(|prefix| name.starts_with(prefix));
    names.filter(ours).map(str::to_owned).collect()
}

fn collect(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if key == "expr" || key == "query" => into.push(text.clone()),
                    _ => collect(value, into),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, into)),
        _ => {}
    }
}

#[test]
fn every_metric_named_is_exported() {
    let _held = together();
    let rig = Rig::start();
    rig.on();
    rig.ask(50);
    if is_root() {
        let pid = rig.pid();
        rig.agent.tracebyte(&["profile", "--pid", &pid, "--duration", "200ms", "-o", "-", "--format", "folded"]).ok();
    }
    let named = named();
    assert!(named.len() > 8, "{named:?}");
    let missing = || -> Vec<String> {
        let metrics = rig.agent.metrics();
        let exported = |name: &str| {
            metrics.lines().any(|line| line.starts_with(&format!("{name}{{")) || line.starts_with(&format!("{name} ")))
        };
        let wanted = named.iter().filter(|name| is_root() || !name.starts_with(OF_PROFILES));
        wanted.filter(|name| !exported(name)).cloned().collect()
    };
    eventually(SOON, "requests are counted", || {
        !missing().contains(&"http_server_request_duration_seconds_count".into())
    });
    assert_eq!(missing(), Vec::<String>::new(), "named and not exported");
}

#[test]
fn the_dashboard_is_portable() {
    let dashboard: Value = serde_json::from_str(&text("grafana.json")).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    assert!(variables.iter().any(|variable| variable["type"] == "datasource" && variable["name"] == "datasource"));
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.iter().all(|panel| panel["datasource"]["uid"] == "${datasource}"));
    let mut expressions = Vec::new();
    collect(&dashboard["panels"], &mut expressions);
    for expression in expressions.iter().filter(|text| text.contains("rate(") || text.contains("increase(")) {
        assert!(expression.contains("[$__rate_interval]"), "{expression}");
    }
}

#[test]
fn promtool_takes_configuration_and_rules() {
    let Some(promtool) = tools::find("promtool") else { skip!("promtool is not installed") };
    for args in [["check", "config", "prometheus.yml"], ["check", "rules", "alerts.yml"]] {
        let output = Command::new(&promtool).args(args).current_dir(dashboards()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
    }
}
