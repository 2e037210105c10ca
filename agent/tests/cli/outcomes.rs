//! Exit codes and messages.

use crate::fake::{Fake, target};
use crate::{TempDir, run, stderr, stdout, tracebyte};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

/// A line of each verb that needs an agent.
const NEED_AN_AGENT: [&str; 7] = [
    "ps",
    "trace on node.http --all",
    "trace off --all",
    "trace status --json",
    "trace watch",
    "trace record --duration 1s -o -",
    "profile --all --duration 1s -o -",
];

#[test]
fn no_agent_is_a_failure_that_says_how_to_start_one() {
    let dir = TempDir::make();
    for line in NEED_AN_AGENT {
        let output = run(&dir.0, line);
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert_eq!(stdout(&output), "", "{line}");
        let said = stderr(&output);
        assert!(said.starts_with("error: ") && said.contains("\n  remedy: "), "{line}: {said}");
        assert!(said.contains("sudo tracebyte agent") && said.contains("control.sock"), "{line}: {said}");
    }
}

#[test]
fn wrong_usage_is_2() {
    let dir = TempDir::make();
    for line in [
        "",
        "nonsense",
        "trace",
        "trace on node.http",
        "trace on node.http --pid x",
        "trace on node.http --pid 1 --all",
        "trace on node.http --all --for soon",
        "trace off",
        "trace record --duration 5 -o x",
        "trace record --duration 5s -o x --format xml",
        "profile --all --duration 5s",
        "profile --all --duration 5s -o x --kernel-only --user-only",
        "completions tcsh",
        "agent --listen nowhere",
    ] {
        let output = run(&dir.0, line);
        assert_eq!(output.status.code(), Some(2), "`{line}`: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "`{line}`");
    }
}

#[test]
fn a_run_directory_too_long_for_sockets_is_named_with_its_bound() {
    let long = std::path::PathBuf::from("d".repeat(94));
    for line in ["ps", "doctor", "trace watch", "agent --listen 127.0.0.1:0"] {
        let output = run(&long, line);
        assert_eq!(output.status.code(), Some(2), "`{line}`: {}", stderr(&output));
        assert!(stderr(&output).contains("at most 93 bytes"), "`{line}`: {}", stderr(&output));
    }
    let output = run(std::path::Path::new(""), "agent --check-config --config /nonexistent");
    assert!(!stderr(&output).contains("--run-dir"), "an empty variable is none: {}", stderr(&output));
}

#[test]
fn the_agents_refusal_decides_the_code_and_is_told() {
    for (kind, code) in [("failed", 1), ("usage", 2)] {
        let fake = Fake::new(move |mut call| {
            call.say(&json!({"type": "error", "kind": kind, "message": "no category `x` in process 7", "remedy": "try node.http"}));
        });
        for line in ["trace on x --pid 7", "trace watch --pid 7", "trace record --duration 1s -o - --pid 7"] {
            let output = run(fake.dir(), line);
            assert_eq!(output.status.code(), Some(code), "{line}");
            assert_eq!(stderr(&output), "error: no category `x` in process 7\n  remedy: try node.http\n", "{line}");
        }
    }
}

#[test]
fn permission_denied_says_who_may() {
    if !is_root() {
        tracebyte_tests::skip!("only root can become another user");
    }
    let fake = Fake::new(|_| {});
    let socket = fake.dir().join("control.sock");
    std::os::unix::fs::chown(&socket, Some(0), Some(4)).unwrap();
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o660)).unwrap();
    // Where the binary lies other users may not come.
    let binary = fake.dir().join("tracebyte");
    std::fs::copy(env!("CARGO_BIN_EXE_tracebyte"), &binary).unwrap();
    let output = std::process::Command::new(&binary)
        .arg("ps")
        .env("TRACEBYTE_RUN_DIR", fake.dir())
        .uid(65534)
        .gid(65534)
        .output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("permission denied: only root and members of group adm may use"), "{said}");
}

#[test]
fn switching_asks_for_what_was_said() {
    let fake = Fake::new(|mut call| {
        let request = call.request.clone();
        call.say(&json!({"type": "switched", "pids": [7, 9], "notes": [request.to_string()]}));
    });
    for (line, expected, said) in [
        (
            "trace on node.http --service shop --for 1m",
            json!({"v": 1, "verb": "trace_on", "category": "node.http", "select": {"service": "shop"}, "for_ms": 60_000}),
            "node.http is on in 2 processes: 7 9\n",
        ),
        (
            "trace off --all",
            json!({"v": 1, "verb": "trace_off", "select": "all"}),
            "everything is off in 2 processes: 7 9\n",
        ),
        (
            "trace off node.http --pid 7",
            json!({"v": 1, "verb": "trace_off", "category": "node.http", "select": {"pid": 7}}),
            "node.http is off in 2 processes: 7 9\n",
        ),
    ] {
        let output = run(fake.dir(), line);
        assert_eq!((output.status.code(), stdout(&output)), (Some(0), said), "{line}");
        let asked: Value = serde_json::from_str(stderr(&output).strip_prefix("note: ").unwrap()).unwrap();
        assert_eq!(asked, expected, "{line}");
    }
}

#[test]
fn ps_and_status_have_one_json_and_each_its_table() {
    let fake = Fake::new(|_| {});
    for line in ["ps --json", "trace status --json"] {
        let output = run(fake.dir(), line);
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(value, json!([target()]), "{line}");
    }
    assert_eq!(
        stdout(&run(fake.dir(), "ps")),
        "PID  SERVICE  KIND          PAGE   CATEGORIES  ON\n7    shop     runtime-core  memfd  2           node.http\n"
    );
    assert_eq!(
        stdout(&run(fake.dir(), "trace status")),
        "PID  SERVICE  CATEGORY   STATE  BY\n7    shop     node.http  on     operator\n7    shop     node       off\n"
    );
}

#[test]
fn doctor_needs_no_agent_and_has_one_row_a_feature() {
    let dir = TempDir::make();
    let output = run(&dir.0, "doctor --json");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(rows.len() > 10);
    for row in &rows {
        let keys: Vec<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["feature", "remedy", "state", "why"], "{row}");
        assert!(["ok", "degraded", "missing"].contains(&row["state"].as_str().unwrap()), "{row}");
        assert!(
            !row["why"].as_str().unwrap().is_empty() && (row["state"] == "ok" || row["remedy"].is_string()),
            "{row}"
        );
    }
    let agent = rows.iter().find(|row| row["feature"] == "agent").unwrap();
    assert_eq!(agent["state"], "missing");
    let table = run(&dir.0, "doctor");
    assert!(!stdout(&table).contains('\x1b'), "no colour in a pipe");
    assert_eq!(stdout(&table).lines().filter(|line| !line.starts_with(' ')).count(), rows.len());
}

#[test]
fn version_is_told() {
    let output = tracebyte(["--version"]).output().unwrap();
    assert_eq!(stdout(&output), concat!("tracebyte ", env!("CARGO_PKG_VERSION"), "\n"));
}

pub fn is_root() -> bool {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0
}
