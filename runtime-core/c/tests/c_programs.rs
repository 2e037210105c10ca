//! Programs in C, compiled against the header and both libraries, and run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use tracebyte_tests::{Sandbox, bins, skip};

/// Where both libraries are, built if they are not up to date.
fn libraries() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        build.args(["build", "--quiet", "--package", "runtime-core-c"]).current_dir(bins::workspace());
        run(build.env("CARGO_TARGET_DIR", bins::target_dir()));
        bins::target_dir().join("debug")
    })
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{stderr}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn has_compiler() -> bool {
    Command::new("cc").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Compiles a program of this folder and returns where it is.
fn compile(sandbox: &Sandbox, source: &str, link: &[&str]) -> PathBuf {
    let root = bins::workspace().join("runtime-core");
    let program = sandbox.path(source.trim_end_matches(".c"));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-I"]).arg(root.join("include"));
    run(cc.arg(root.join("c/tests").join(source)).arg("-o").arg(&program).args(link));
    program
}

fn check_embed(sandbox: &Sandbox, program: &Path) {
    let file = sandbox.path("trace.json");
    let printed = run(Command::new(program).arg(&file).env("TRACEBYTE_RUN_DIR", sandbox.run_dir()));
    assert_eq!(printed, "ok\n");
    let file: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let begin = &file["traceEvents"][1];
    assert_eq!((&begin["ph"], &begin["cat"], &begin["name"]), (&"b".into(), &"c.jobs".into(), &"job".into()));
    let expected = serde_json::json!({"int": -1, "uint": u64::MAX, "float": 0.5, "bool": true,
        "text": "a \"b\"", "json": [1, {}]});
    assert_eq!(begin["args"], expected);
    assert_eq!(file["traceEvents"][2]["id"], begin["id"]);
}

#[test]
fn a_program_with_the_static_library() {
    if !has_compiler() {
        skip!("there is no C compiler `cc`");
    }
    let sandbox = Sandbox::new();
    let library = libraries().join("libruntime_core_c.a");
    let program = compile(&sandbox, "embed.c", &[library.to_str().unwrap(), "-lpthread", "-ldl", "-lm"]);
    check_embed(&sandbox, &program);
}

#[test]
fn a_program_with_the_shared_library_and_one_that_closes_it() {
    if !has_compiler() {
        skip!("there is no C compiler `cc`");
    }
    let sandbox = Sandbox::new();
    let folder = libraries().to_str().unwrap();
    let path = format!("-Wl,-rpath,{folder}");
    let program = compile(&sandbox, "embed.c", &["-L", folder, "-lruntime_core_c", &path]);
    check_embed(&sandbox, &program);
    let unload = compile(&sandbox, "unload.c", &["-ldl"]);
    assert_eq!(run(Command::new(unload).arg(libraries().join("libruntime_core_c.so"))), "ok\n");
}
