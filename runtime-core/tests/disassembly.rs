//! The enable check as machine code: one compare with memory and one branch, nothing else.

use std::path::Path;
use std::process::Command;

/// The instructions of a function, without addresses; `None` where there is no objdump.
fn disassemble(library: &Path, function: &str) -> Option<Vec<String>> {
    let output = Command::new("objdump")
        .args(["-d", "--no-show-raw-insn", "-M", "intel"])
        .arg(format!("--disassemble={function}"))
        .arg(library)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let body = text.split(&format!("<{function}>:")).nth(1).unwrap_or_else(|| panic!("no {function} in {text}"));
    let body = body.split("\n\n").next().unwrap_or(body);
    Some(body.lines().filter_map(|line| line.split_once(":\t")).map(|(_, code)| code.trim().to_owned()).collect())
}

fn count(code: &[String], what: impl Fn(&str) -> bool) -> usize {
    code.iter().filter(|line| what(line)).count()
}

#[test]
fn the_check_is_one_compare_and_one_branch() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("..");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--package", "runtime-core", "--lib", "--target-dir"])
        .arg(&target)
        .status();
    assert!(built.is_ok_and(|status| status.success()), "the library could not be built");
    let library = target.join("release/libruntime_core.rlib");
    let Some(fixed) = disassemble(&library, "runtime_core_node_http_enabled") else {
        eprintln!("skipped: objdump (of binutils) is not installed");
        return;
    };
    let indexed = disassemble(&library, "runtime_core_category_enabled").unwrap();
    let compares = |line: &str| line.starts_with("cmp") && line.contains("DWORD PTR");
    assert_eq!(count(&fixed, |line| line.starts_with("cmp    DWORD PTR [rip+")), 1, "{fixed:#?}");
    let loads = |line: &str| line.starts_with("mov") && line.contains('[');
    assert_eq!(count(&fixed, loads), 0, "no pointer is loaded: {fixed:#?}");
    for code in [fixed, indexed] {
        assert_eq!(count(&code, compares), 1, "{code:#?}");
        assert_eq!(count(&code, |line| line.starts_with('j')), 1, "{code:#?}");
        assert_eq!(count(&code, |line| line.starts_with("call") || line.starts_with("lock")), 0, "{code:#?}");
    }
}
