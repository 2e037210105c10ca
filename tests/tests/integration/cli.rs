//! The command line: usage, refusals, and what is said in them.

use crate::rig::Rig;
use tracebyte_tests::agent::tracebyte;
use tracebyte_tests::{Sandbox, together};

const VERBS: [&[&str]; 10] = [
    &["agent"],
    &["doctor"],
    &["ps"],
    &["trace"],
    &["trace", "on"],
    &["trace", "off"],
    &["trace", "status"],
    &["trace", "watch"],
    &["trace", "record"],
    &["profile"],
];

#[test]
fn every_help_has_an_example() {
    let _held = together();
    let sandbox = Sandbox::new();
    for verb in VERBS {
        let args: Vec<&str> = verb.iter().copied().chain(["--help"]).collect();
        let help = tracebyte(&sandbox, &args).ok().text();
        assert!(help.contains("Example"), "{verb:?}: {help}");
        assert!(help.contains(&format!("tracebyte {}", verb.join(" "))), "{verb:?}: {help}");
    }
}

#[test]
fn the_version_is_told() {
    let _held = together();
    let version = tracebyte(&Sandbox::new(), &["--version"]).ok().text();
    assert_eq!(version.trim(), concat!("tracebyte ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_ends_with_two() {
    let _held = together();
    let sandbox = Sandbox::new();
    for args in [
        &["explode"][..],
        &["trace", "on"],
        &["trace", "on", "node.http"],
        &["trace", "on", "node.http", "--pid", "x"],
        &["trace", "on", "node.http", "--pid", "1", "--all"],
        &["trace", "on", "node.http", "--all", "--for", "soon"],
        &["trace", "on", "node.http", "--all", "--for", "-1s"],
        &["trace", "record", "--duration", "5"],
        &["profile", "--all", "--duration", "1s"],
        &["profile", "--all", "--duration", "1s", "-o", "-", "--format", "gif"],
        &["profile", "--all", "--duration", "1s", "-o", "-", "--kernel-only", "--user-only"],
        &["ps", "--nope"],
    ] {
        let output = tracebyte(&sandbox, args).ends_with(2);
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn no_agent_is_said_with_the_remedy() {
    let _held = together();
    let sandbox = Sandbox::new();
    for args in [
        &["ps"][..],
        &["trace", "on", "node.http", "--all"],
        &["trace", "off", "--all"],
        &["trace", "status"],
        &["trace", "watch"],
        &["trace", "record", "--duration", "1s", "-o", "-"],
        &["profile", "--all", "--duration", "1s", "-o", "-"],
    ] {
        let output = tracebyte(&sandbox, args).ends_with(1);
        let said = &output.stderr;
        assert!(said.contains("tracebyte agent"), "{args:?}: {said}");
        assert!(said.contains(&sandbox.run_dir().display().to_string()), "{args:?}: {said}");
    }
}

#[test]
fn a_failed_command_leaves_an_existing_file_alone() {
    let _held = together();
    let sandbox = Sandbox::new();
    let file = sandbox.path("precious.svg");
    std::fs::write(&file, "precious").unwrap();
    tracebyte(&sandbox, &["profile", "--all", "--duration", "1s", "-o", &file.to_string_lossy()]).ends_with(1);
    tracebyte(&sandbox, &["trace", "record", "--duration", "1s", "-o", &file.to_string_lossy()]).ends_with(1);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
}

#[test]
fn what_is_unknown_is_named() {
    let _held = together();
    let rig = Rig::start();
    let pid = rig.pid();
    for (args, named) in [
        (&["trace", "on", "node.http", "--pid", "4194300"][..], "4194300"),
        (&["trace", "on", "node.http", "--service", "nobody-knows"], "nobody-knows"),
        (&["trace", "on", "no.such", "--pid", &pid], "no.such"),
        (&["trace", "off", "no.such", "--pid", &pid], "no.such"),
        (&["trace", "record", "--duration", "1s", "-o", "-", "--pid", "4194300"], "4194300"),
        (&["trace", "record", "--duration", "1s", "-o", "/no/such/folder/x.json"], "/no/such/folder"),
    ] {
        let output = rig.agent.tracebyte(args).ends_with(1);
        assert!(output.stderr.contains(named), "{args:?}: {}", output.stderr);
    }
}

#[test]
fn a_pipe_is_quiet() {
    let _held = together();
    let rig = Rig::start();
    rig.on();
    let output = rig.agent.tracebyte(&["trace", "record", "--duration", "300ms", "--format", "ndjson", "-o", "-"]).ok();
    assert!(!output.stderr.contains('\r') && !output.stderr.contains('\u{1b}'), "{:?}", output.stderr);
}

#[test]
fn doctor_has_a_row_a_feature() {
    let _held = together();
    let rig = Rig::start();
    let rows = rig.agent.tracebyte(&["doctor", "--json"]).json();
    let rows = rows.as_array().unwrap();
    assert!(rows.len() >= 4, "{rows:?}");
    for row in rows {
        assert!(row["feature"].as_str().is_some_and(|feature| !feature.is_empty()), "{row}");
        assert!(matches!(row["state"].as_str(), Some("ok" | "degraded" | "missing")), "{row}");
        assert!(row.get("why").is_some() && row.get("remedy").is_some(), "{row}");
    }
}

#[test]
fn ps_of_nothing_is_an_empty_list() {
    let _held = together();
    let sandbox = Sandbox::new();
    let agent = tracebyte_tests::Agent::start(&sandbox, &tracebyte_tests::AgentOptions::default());
    assert_eq!(agent.tracebyte(&["ps", "--json"]).ok().json(), serde_json::json!([]));
    assert_eq!(agent.tracebyte(&["trace", "status", "--json"]).ok().json(), serde_json::json!([]));
}
