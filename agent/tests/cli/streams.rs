//! `record`, `watch` and `profile`: what they write, however they end.

use crate::fake::{Fake, event};
use crate::outcomes::is_root;
use crate::{TempDir, run, stderr, stdout, tracebyte};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).expect("the file is JSON")
}

fn events(value: &Value) -> &Vec<Value> {
    value["traceEvents"].as_array().unwrap()
}

/// Sends a signal by its name.
fn signal(child: &Child, name: &str) {
    let status = Command::new("sh").arg("-c").arg(format!("kill -{name} {}", child.id())).status().unwrap();
    assert!(status.success());
}

fn count(number: u64) -> impl Fn(crate::fake::Call) + Send + Sync {
    move |mut call| {
        call.say(&json!({"type": "started"}));
        for i in 0..number {
            call.event(i);
        }
        call.end(number);
    }
}

#[test]
fn a_chrome_file_holds_the_events_and_what_is_known_of_them() {
    let fake = Fake::new(|mut call| {
        assert_eq!(call.request, json!({"v": 1, "verb": "record", "select": {"pid": 7}, "duration_ms": 50}));
        call.say(&json!({"type": "started", "notes": ["nothing is on"]}));
        call.event(1);
        call.event(2);
        call.say(&json!({"type": "end", "events": 2, "lost": {"ring_full": 3}, "notes": ["a note"]}));
    });
    let dir = TempDir::make();
    let file = dir.join("trace.json");
    std::fs::write(&file, "old".repeat(10_000)).unwrap();
    let output = run(fake.dir(), &format!("trace record --pid 7 --duration 50ms -o {}", file.display()));
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), ""));
    let value = read(&file);
    let expected: Vec<Value> = [1, 2].map(|i| serde_json::from_str(&event(i)).unwrap()).into();
    assert_eq!(*events(&value), expected);
    let other = &value["otherData"];
    assert_eq!((&other["complete"], &other["lost"]), (&json!(true), &json!({"ring_full": 3})));
    assert_eq!((&other["services"], &other["notes"]), (&json!({"7": "shop"}), &json!(["a note"])));
    for said in ["note: nothing is on\n", "note: a note\n", "lost: 3 events (ring_full)\n", "2 events in "] {
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
    }
}

#[test]
fn an_empty_recording_is_valid_and_hints() {
    let fake = Fake::new(count(0));
    let dir = TempDir::make();
    let file = dir.join("trace.json");
    let output = run(fake.dir(), &format!("trace record --duration 0ms -o {}", file.display()));
    assert_eq!(output.status.code(), Some(0));
    assert!(events(&read(&file)).is_empty());
    assert!(stderr(&output).contains("note: no events"), "{}", stderr(&output));
}

#[test]
fn both_formats_to_standard_output() {
    let fake = Fake::new(count(3));
    let output = run(fake.dir(), "trace record --duration 1s -o - --format ndjson");
    assert_eq!(stdout(&output), [0, 1, 2].map(|i| event(i) + "\n").concat());
    let output = run(fake.dir(), "trace record --duration 1s -o -");
    assert_eq!(events(&serde_json::from_slice(&output.stdout).unwrap()).len(), 3);
}

#[test]
fn interrupted_by_any_of_its_signals_a_recording_keeps_what_was_taken() {
    for name in ["INT", "TERM", "HUP"] {
        let fake = Fake::new(|mut call| {
            call.say(&json!({"type": "started", "notes": ["begun"]}));
            call.event(1);
            call.wait_for_stop();
            call.event(2);
            call.end(2);
        });
        let dir = TempDir::make();
        let file = dir.join("trace.json");
        let mut command = tracebyte(["trace", "record", "--duration", "1h", "-o"]);
        let mut child = command.arg(&file).env("TRACEBYTE_RUN_DIR", fake.dir()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "note: begun\n");
        signal(&child, name);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{name}");
        assert_eq!(events(&read(&file)).len(), 2, "{name}");
    }
}

#[test]
fn a_second_interrupt_ends_the_command() {
    let fake = Fake::new(|mut call| {
        call.say(&json!({"type": "started", "notes": ["begun"]}));
        call.wait_for_stop();
        std::thread::sleep(Duration::from_secs(60));
    });
    let mut command = tracebyte(["trace", "record", "--duration", "1h", "-o", "/dev/null"]);
    let mut child = command.env("TRACEBYTE_RUN_DIR", fake.dir()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let began = Instant::now();
    // A signal that arrives before the first was taken is one with it, so ask until it ends.
    let code = loop {
        signal(&child, "INT");
        std::thread::sleep(Duration::from_millis(50));
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        assert!(began.elapsed() < Duration::from_secs(10));
    };
    assert_eq!(code, Some(130));
}

#[test]
fn an_agent_that_dies_leaves_a_valid_file_and_a_failure() {
    for half in ["", r#"{"ph":"b","cat":"node"#] {
        let fake = Fake::new(move |mut call| {
            call.say(&json!({"type": "started"}));
            call.event(1);
            call.event(2);
            call.raw(half);
        });
        let dir = TempDir::make();
        let file = dir.join("trace.json");
        let output = run(fake.dir(), &format!("trace record --duration 5s -o {}", file.display()));
        assert_eq!(output.status.code(), Some(1));
        let value = read(&file);
        assert_eq!((events(&value).len(), &value["otherData"]["complete"]), (2, &json!(false)));
        assert!(stderr(&output).contains("holds 2 complete events"), "{}", stderr(&output));
        let watched = run(fake.dir(), "trace watch --json");
        assert_eq!(
            (watched.status.code(), stdout(&watched)),
            (Some(1), [1, 2].map(|i| event(i) + "\n").concat().as_str())
        );
    }
}

#[test]
fn a_count_that_differs_is_a_failure() {
    let fake = Fake::new(|mut call| {
        call.say(&json!({"type": "started"}));
        call.event(1);
        call.end(2);
    });
    let output = run(fake.dir(), "trace record --duration 5s -o -");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("sent 2 events and 1 came"), "{}", stderr(&output));
}

#[test]
fn a_bad_path_fails_before_the_session_begins() {
    let fake = Fake::new(|call| panic!("nothing may be asked, but {} was", call.request));
    for line in ["trace record --duration 1h -o /nonexistent/x", "profile --all --duration 1h -o /nonexistent/x"] {
        let output = run(fake.dir(), line);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("cannot open /nonexistent/x for writing"), "{}", stderr(&output));
    }
}

#[test]
fn a_session_that_never_begins_leaves_files_as_they_were() {
    let dir = TempDir::make();
    let (old, fresh) = (dir.join("old"), dir.join("fresh"));
    std::fs::write(&old, "old").unwrap();
    for file in [&old, &fresh] {
        for verb in ["trace record", "profile --all"] {
            let output = run(&dir.0, &format!("{verb} --duration 1s -o {}", file.display()));
            assert_eq!(output.status.code(), Some(1));
        }
    }
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "old");
    assert!(!fresh.exists());
}

#[test]
fn a_full_device_is_named() {
    let fake = Fake::new(count(10));
    let output = run(fake.dir(), "trace record --duration 1s -o /dev/full");
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains("cannot write /dev/full") && said.contains("No space left") && said.contains("remedy"),
        "{said}"
    );
}

/// A small filesystem that is mounted while the handle lives.
struct Tmpfs(TempDir);

impl Tmpfs {
    fn mount() -> Option<Self> {
        let dir = TempDir::make();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(&dir.0).output().ok()?;
        mount.status.success().then(|| Self(dir))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0.0).status();
    }
}

#[test]
fn on_a_full_disk_the_file_stays_valid() {
    let Some(disk) = is_root().then(Tmpfs::mount).flatten() else {
        tracebyte_tests::skip!("a small tmpfs cannot be mounted here");
    };
    for format in ["chrome", "ndjson"] {
        let fake = Fake::new(count(100_000));
        let file = disk.0.join(format);
        let output = run(fake.dir(), &format!("trace record --duration 1s --format {format} -o {}", file.display()));
        assert_eq!(output.status.code(), Some(1), "{format}");
        let kept = match format {
            "chrome" => {
                let value = read(&file);
                for (i, kept) in events(&value).iter().enumerate() {
                    assert_eq!(*kept, serde_json::from_str::<Value>(&event(i as u64)).unwrap());
                }
                events(&value).len()
            }
            _ => {
                let text = std::fs::read_to_string(&file).unwrap();
                assert!(text.ends_with('\n'));
                text.lines().inspect(|line| drop(serde_json::from_str::<Value>(line).unwrap())).count()
            }
        };
        assert!(kept > 1_000, "{format}: {kept}");
        let said = stderr(&output);
        assert!(said.contains("No space left") && said.contains(&format!("holds {kept} complete events")), "{said}");
        assert!(said.contains(&file.display().to_string()));
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn a_reader_that_has_had_enough_ends_it_quietly() {
    for line in ["trace record --duration 1h --format ndjson -o -", "trace watch --json", "trace watch"] {
        let fake = Fake::new(|mut call| {
            call.say(&json!({"type": "started"}));
            let mut number = 0;
            while call.event(number) {
                number += 1;
            }
        });
        let mut command = tracebyte(line.split(' '));
        command.env("TRACEBYTE_RUN_DIR", fake.dir()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        reader.read_line(&mut first).unwrap();
        assert!(!first.is_empty());
        drop(reader);
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""), "{line}");
    }
}

#[test]
fn watch_shows_an_event_when_it_comes() {
    let fake = Fake::new(|mut call| {
        assert_eq!(call.request, json!({"v": 1, "verb": "watch", "select": "all"}));
        call.say(&json!({"type": "started"}));
        call.event(1);
        call.wait_for_stop();
        call.say(&json!({"type": "end", "events": 1, "lost": {"slow_reader": 5}}));
    });
    let mut command = tracebyte(["trace", "watch"]);
    command.env("TRACEBYTE_RUN_DIR", fake.dir()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "0.000002       7 begin http.server.request 0x1 method=GET url=/1\n");
    signal(&child, "INT");
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), "lost: 5 events (slow_reader)\n"));
}

fn profile() -> Value {
    json!({
        "type": "profile", "event": "cpu-clock", "freq_hz_asked": 99, "freq_hz": 99, "start_unix_ns": 1, "duration_ns": 1_000_000_000,
        "samples": 3, "samples_kernel": 1, "lost": 0, "idle": 4, "notes": ["a note"],
        "frames": [
            {"name": "main", "module": "/bin/shop", "kernel": false},
            {"name": "tcp_sendmsg", "module": "[kernel]", "kernel": true},
        ],
        "stacks": [
            {"pid": 7, "process": "shop", "frames": [0], "count": 2},
            {"pid": 7, "process": "shop", "frames": [0, 1], "count": 1},
        ],
    })
}

#[test]
fn a_profile_in_each_format() {
    let fake = Fake::new(|mut call| {
        assert_eq!(call.request["select"], json!({"service": "shop"}));
        assert_eq!(
            (&call.request["freq_hz"], &call.request["kernel"], &call.request["user"]),
            (&json!(99), &json!(true), &json!(true))
        );
        call.say(&json!({"type": "started"}));
        call.say(&profile());
    });
    let dir = TempDir::make();
    for (name, begins) in [("x.svg", &b"<?xml"[..]), ("x.folded", b"shop"), ("x.pb.gz", b"\x1f\x8b")] {
        let file = dir.join(name);
        let output = run(fake.dir(), &format!("profile --service shop --duration 1s -o {}", file.display()));
        assert_eq!((output.status.code(), stdout(&output)), (Some(0), ""), "{}", stderr(&output));
        assert!(std::fs::read(&file).unwrap().starts_with(begins), "{name}");
        let said = stderr(&output);
        assert!(said.contains("note: a note\n") && said.contains("3 samples (33% in the kernel)"), "{said}");
    }
    let output = run(fake.dir(), "profile --service shop --duration 1s --format folded -o -");
    for line in stdout(&output).lines() {
        let (frames, count) = line.rsplit_once(' ').unwrap();
        assert!(!frames.is_empty() && count.parse::<u64>().is_ok(), "{line}");
    }
}

#[test]
fn an_interrupted_profile_is_written() {
    let fake = Fake::new(|mut call| {
        assert_eq!((&call.request["kernel"], &call.request["user"]), (&json!(true), &json!(false)));
        call.say(&json!({"type": "started", "notes": ["begun"]}));
        call.wait_for_stop();
        call.say(&profile());
    });
    let mut command =
        tracebyte(["profile", "--all", "--duration", "1h", "--kernel-only", "--format", "folded", "-o", "-"]);
    command.env("TRACEBYTE_RUN_DIR", fake.dir()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    said.read_line(&mut line).unwrap();
    signal(&child, "INT");
    let mut written = String::new();
    child.stdout.take().unwrap().read_to_string(&mut written).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(written.contains("tcp_sendmsg"), "{written}");
}
