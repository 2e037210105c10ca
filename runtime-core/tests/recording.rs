//! A server that records its requests because the environment says so, with no agent; and
//! what becomes of it where the file cannot be written.

use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tracebyte_tests::http::Connection;
use tracebyte_tests::{Output, Running, Sandbox, eventually, skip};

const LIMIT: Duration = Duration::from_secs(20);

struct Server {
    process: Running,
    address: SocketAddr,
}

impl Server {
    fn start(sandbox: &Sandbox, patterns: &str, file: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_runtime-core-http"));
        command.args(["--listen", "127.0.0.1:0"]).current_dir(sandbox.dir());
        command.env("RUNTIME_CORE_AGENT", "off").env("RUNTIME_CORE_TRACE", patterns);
        if !file.is_empty() {
            command.env("RUNTIME_CORE_TRACE_FILE", file);
        }
        let mut process = Running::spawn(&mut command).unwrap();
        let address = process.line(LIMIT, |line| line.strip_prefix("listening on http://")?.parse().ok());
        Self { process, address: address.expect("it listens") }
    }

    fn ask(&self, path: &str, times: usize) {
        let mut connection = Connection::open(self.address).unwrap();
        for _ in 0..times {
            connection.send(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).unwrap();
            assert_eq!(connection.answer().unwrap().status, 200);
        }
    }

    fn stop(self) -> Output {
        self.process.signal(libc::SIGTERM);
        self.process.wait(LIMIT).ok()
    }
}

fn read(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The events of a category, without the metadata.
fn events(file: &Value) -> Vec<Value> {
    let all = file["traceEvents"].as_array().unwrap().iter();
    all.filter(|event| event["ph"] != "M").cloned().collect()
}

/// The phases of each event in the file's order.
fn phases(events: &[Value]) -> String {
    events.iter().map(|event| event["ph"].as_str().unwrap()).collect()
}

#[test]
fn requests_are_in_the_file_once_the_process_ends() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, "node.http", "");
    server.ask("/bytes/4/1/0", 50);
    let output = server.stop();
    assert_eq!(output.stderr, "");
    let file = read(&sandbox.path("node_trace.1.log"));
    let events = events(&file);
    assert_eq!(phases(&events), "be".repeat(50));
    assert_eq!(file["metadata"]["events_lost"], 0);
    for pair in events.chunks(2) {
        assert_eq!(pair[0]["id"], pair[1]["id"]);
        assert_eq!((&pair[0]["cat"], &pair[0]["name"]), (&"node.http".into(), &"http.server.request".into()));
        assert_eq!((&pair[0]["args"]["method"], &pair[0]["args"]["url"]), (&"GET".into(), &"/bytes/4/1/0".into()));
        assert_eq!(pair[1]["args"]["statusCode"], 200);
        assert!(pair[0]["ts"].as_f64().unwrap() <= pair[1]["ts"].as_f64().unwrap());
    }
}

#[test]
fn a_server_that_is_killed_leaves_a_valid_file() {
    let sandbox = Sandbox::new();
    let mut server = Server::start(&sandbox, "node.*", "t.${pid}.json");
    server.ask("/", 10);
    let path = sandbox.path(&format!("t.{}.json", server.process.pid()));
    eventually(LIMIT, "the events are in the file", || events(&read(&path)).len() == 20);
    server.process.kill();
    assert_eq!(phases(&events(&read(&path))), "be".repeat(10));
}

#[test]
fn nothing_is_written_where_nothing_matches() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, "node.*,-node.http", "t.json");
    server.ask("/", 10);
    server.stop();
    assert_eq!(events(&read(&sandbox.path("t.json"))).len(), 0);
}

#[test]
fn what_is_wrong_is_said_once_and_the_server_serves() {
    let sandbox = Sandbox::new();
    let cases = [
        ("node.http", "no/such/folder/t.json", "cannot record to `no/such/folder/t.json`: No such file or directory"),
        ("node.http,", "t.json", "`RUNTIME_CORE_TRACE`: empty pattern in `node.http,`"),
    ];
    for (patterns, file, expected) in cases {
        let server = Server::start(&sandbox, patterns, file);
        server.ask("/", 10);
        let stderr = server.stop().stderr;
        assert!(stderr.starts_with(&format!("runtime-core: {expected}")) && stderr.lines().count() == 1, "{stderr}");
    }
}

/// A small file system of its own, unmounted with the value.
struct Small<'a>(&'a Path);

impl Drop for Small<'_> {
    fn drop(&mut self) {
        Command::new("umount").arg(self.0).status().unwrap();
    }
}

#[test]
fn a_full_disk_ends_the_recording_and_nothing_else() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("small");
    std::fs::create_dir(&folder).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&folder).output();
    if !mount.as_ref().is_ok_and(|output| output.status.success()) {
        skip!("no file system can be mounted here: {mount:?}");
    }
    let _small = Small(&folder);
    let file = folder.join("t.${rotation}");
    let server = Server::start(&sandbox, "node.http", file.to_str().unwrap());
    server.ask("/", 1000);
    let stderr = server.stop().stderr;
    let expected = format!("runtime-core: recording to `{}` ended: No space left", folder.join("t.1").display());
    assert!(stderr.starts_with(&expected) && stderr.lines().count() == 1, "{stderr}");
    let kept = events(&read(&folder.join("t.1")));
    assert!(!kept.is_empty() && kept.len() < 2000, "{}", kept.len());
}

#[test]
fn node_writes_events_of_the_same_shape_in_the_same_order() {
    let sandbox = Sandbox::new();
    let script = "const http = require('http');
        let left = 5;
        const server = http.createServer((request, response) => response.end('hi')).listen(0, '127.0.0.1', ask);
        function ask() {
            if (left-- === 0) return server.close();
            http.get({ host: '127.0.0.1', port: server.address().port, path: '/', agent: false },
                     response => response.resume().on('end', ask));
        }";
    let mut node = Command::new("node");
    node.args(["--trace-event-categories", "node.http", "-e", script]).current_dir(sandbox.dir());
    let Ok(node) = Running::spawn(&mut node) else { skip!("node is not installed") };
    node.wait(LIMIT).ok();
    let of_server = |events: Vec<Value>| -> Vec<Value> {
        events.into_iter().filter(|event| event["name"] == "http.server.request").collect()
    };
    let theirs = of_server(events(&read(&sandbox.path("node_trace.1.log"))));
    let server = Server::start(&sandbox, "node.http", "ours.json");
    for _ in 0..5 {
        server.ask("/", 1);
    }
    server.stop();
    let ours = of_server(events(&read(&sandbox.path("ours.json"))));
    assert_eq!(phases(&ours), phases(&theirs));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        for key in ["pid", "tid", "ts", "ph", "cat", "name", "id", "args"] {
            let kinds = [ours, theirs].map(|event| std::mem::discriminant(&event[key]));
            assert_eq!(kinds[0], kinds[1], "{key}: {ours} and {theirs}");
        }
        let parts = theirs["cat"].as_str().unwrap();
        assert!(parts.split(',').any(|part| ours["cat"] == part), "{parts}");
    }
    // A begin and its end share an id, as Node's do, and no two operations do.
    let ids = |events: &[Value]| -> Vec<usize> {
        let all: Vec<_> = events.iter().map(|event| event["id"].clone()).collect();
        all.iter().map(|id| all.iter().position(|other| other == id).unwrap()).collect()
    };
    assert_eq!(ids(&ours), ids(&theirs));
}
