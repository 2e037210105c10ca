//! What is installed beside the binary: the unit, the example configuration, man pages and
//! completions.

use crate::{TempDir, stderr, stdout, tracebyte};
use std::path::{Path, PathBuf};
use std::process::Command;

fn dist(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("dist").join(name)
}

#[test]
fn the_example_configuration_is_good_as_it_stands_and_with_every_key() {
    let text = std::fs::read_to_string(dist("tracebyte.toml")).unwrap();
    let dir = TempDir::make();
    // A comment has a blank after its #, a key has none.
    let uncommented = text.lines().map(|line| match line.strip_prefix('#') {
        Some(key) if key.starts_with(|c: char| c.is_ascii_lowercase()) => format!("{key}\n"),
        _ => format!("{line}\n"),
    });
    let complete = dir.join("complete.toml");
    std::fs::write(&complete, uncommented.collect::<String>().replace("www-data", "root")).unwrap();
    for file in [dist("tracebyte.toml"), complete] {
        let output = tracebyte(["agent", "--check-config", "--config"]).arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}: {}", file.display(), stderr(&output));
    }
}

#[test]
fn a_wrong_configuration_names_its_line() {
    let dir = TempDir::make();
    let file = dir.join("wrong.toml");
    std::fs::write(&file, "[agent]\nlisten = 5\n").unwrap();
    let output = tracebyte(["agent", "--check-config", "--config"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("line 2"), "{}", stderr(&output));
}

#[test]
fn systemd_accepts_the_unit() {
    let unit = std::fs::read_to_string(dist("tracebyte.service")).unwrap();
    assert!(unit.contains("/usr/local/bin/tracebyte"));
    let dir = TempDir::make();
    let file = dir.join("tracebyte.service");
    std::fs::write(&file, unit.replace("/usr/local/bin/tracebyte", env!("CARGO_BIN_EXE_tracebyte"))).unwrap();
    let Ok(output) = Command::new("systemd-analyze").arg("verify").arg(&file).output() else {
        tracebyte_tests::skip!("there is no systemd-analyze");
    };
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
}

#[test]
fn every_verb_has_a_man_page_and_every_shell_its_completions() {
    let dir = TempDir::make();
    let output = tracebyte(["man"]).arg(&dir.0).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    for page in ["tracebyte.1", "tracebyte-agent.1", "tracebyte-trace-record.1", "tracebyte-profile.1"] {
        let text = std::fs::read_to_string(dir.join(page)).unwrap();
        assert!(text.starts_with(".ie") || text.contains(".TH"), "{page}");
    }
    assert!(!dir.join("tracebyte-man.1").exists(), "a hidden verb has none");
    for shell in ["bash", "zsh", "fish"] {
        let output = tracebyte(["completions", shell]).output().unwrap();
        assert!(output.status.success() && stdout(&output).contains("profile"), "{shell}");
    }
}
