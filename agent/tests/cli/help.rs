//! The help of every verb, as it is printed. `UPDATE_EXPECT=1` writes it anew.

use crate::{stdout, tracebyte};
use std::path::{Path, PathBuf};

#[test]
fn every_help_is_as_reviewed() {
    let mut stale = Vec::new();
    visit(&tracebyte::cli::command(), &mut Vec::new(), &mut stale);
    assert!(stale.is_empty(), "the help of these differs from agent/tests/help (UPDATE_EXPECT=1 renews): {stale:?}");
}

fn visit(command: &clap::Command, path: &mut Vec<String>, stale: &mut Vec<PathBuf>) {
    let output = tracebyte(path.iter().map(String::as_str).chain(["--help"])).output().unwrap();
    assert!(output.status.success(), "{path:?}");
    let name = [&["tracebyte".to_owned()], path.as_slice()].concat().join("-");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/help/{name}.txt"));
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&file, stdout(&output)).unwrap();
    } else if std::fs::read_to_string(&file).unwrap_or_default() != stdout(&output) {
        stale.push(file);
    }
    for verb in command.get_subcommands() {
        path.push(verb.get_name().to_owned());
        visit(verb, path, stale);
        path.pop();
    }
}
