//! `runtime-core-http` as a program: its command line, its one line of output, its end.

mod common;

use common::{FakeAgent, TempDir, get, wait_for};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_runtime-core-http");

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().unwrap()
}

struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").expect("the line").to_owned();
        Self { child, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }

    /// Ends it by a signal; returns its exit code and how long it took.
    fn end(mut self, signal: i32) -> (Option<i32>, Duration) {
        let start = Instant::now();
        // SAFETY: a child of ours that has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
        (self.child.wait().unwrap().code(), start.elapsed())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program(dir: &TempDir) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["--listen", "127.0.0.1:0"]).env("TRACEBYTE_RUN_DIR", dir.path());
    command
}

#[test]
fn wrong_usage_is_2_and_says_what_is_wrong() {
    for (arguments, named) in
        [(&["--nope"][..], "--nope"), (&["--listen", "x"], "--listen x"), (&["--threads"], "--threads")]
    {
        let output = run(arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(named) && output.stdout.is_empty(), "{errors}");
    }
    let help = run(&["--help"]);
    assert!(help.status.success() && String::from_utf8(help.stdout).unwrap().contains("Example: "));
    let version = String::from_utf8(run(&["--version"]).stdout).unwrap();
    assert_eq!(version, format!("runtime-core-http {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_port_in_use_is_1_and_says_so() {
    let dir = TempDir::new();
    let first = Served::start(&mut program(&dir));
    let second = run(&["--listen", &first.address]);
    let errors = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1), "{errors}");
    assert!(errors.contains(&first.address) && errors.contains("in use") && errors.contains("remedy"), "{errors}");
}

#[test]
fn it_serves_the_benchmark_s_paths_and_ends_when_told() {
    let dir = TempDir::new();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let served = Served::start(program(&dir).args(["--threads", "2"]));
        let mut stream = served.connect();
        assert_eq!(get(&mut stream, "/").0, 200);
        assert_eq!(get(&mut stream, "/bytes/4"), (200, b"CCCC".to_vec()));
        assert_eq!(get(&mut stream, "/buffer/102400/4/0").1.len(), 102_400);
        assert_eq!(get(&mut stream, "/bytes/67108865/1/0").0, 400);
        assert_eq!(get(&mut stream, "/else").0, 404);
        let (code, time) = served.end(signal);
        assert_eq!(code, Some(0));
        assert!(time < Duration::from_secs(1), "{time:?}");
    }
}

#[test]
fn it_joins_the_agent_of_its_run_directory() {
    let dir = TempDir::new();
    let agent = FakeAgent::listen(dir.path());
    let served = Served::start(program(&dir).args(["--service", "shop"]));
    let mut member = agent.admit();
    assert_eq!(member.service, "shop");
    member.switch(true);
    let mut stream = served.connect();
    (0..100).for_each(|_| assert_eq!(get(&mut stream, "/bytes/4/1/0").0, 200));
    let mut events = Vec::new();
    wait_for("the events", Duration::from_secs(5), || {
        events.extend(member.drain().0);
        events.len() >= 200
    });
    assert_eq!(events.iter().filter(|event| event.phase == 'b').count(), 100);
    let route = usize::from(events.last().unwrap().route);
    let name = member.name(runtime_core_abi::page::Names::Routes, route);
    assert_eq!(name.as_deref(), Some("/{type}/{len}/{chunks}/{chunkedEnc}"));
    assert_eq!(served.end(libc::SIGTERM).0, Some(0));
}

#[test]
fn it_can_be_told_not_to_look_for_an_agent() {
    let dir = TempDir::new();
    let _agent = FakeAgent::listen(dir.path());
    let served = Served::start(program(&dir).env("RUNTIME_CORE_AGENT", "off"));
    let tasks = std::fs::read_dir(format!("/proc/{}/task", served.child.id())).unwrap().flatten();
    let names: Vec<String> = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok()).collect();
    assert!(names.iter().all(|name| name.trim() != "tracebyte-lease"), "{names:?}");
    assert_eq!(get(&mut served.connect(), "/").0, 200);
}

fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn out_of_descriptors_it_waits_instead_of_spinning() {
    let dir = TempDir::new();
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 24; exec \"$0\" --listen 127.0.0.1:0", PROGRAM])
        .env("TRACEBYTE_RUN_DIR", dir.path());
    let served = Served::start(&mut command);
    let mut streams: Vec<TcpStream> = (0..40).map(|_| served.connect()).collect();
    std::thread::sleep(Duration::from_millis(200));
    let before = cpu_ticks(served.child.id());
    std::thread::sleep(Duration::from_secs(1));
    let ticks = cpu_ticks(served.child.id()) - before;
    assert!(ticks <= 5, "{ticks} ticks of 10 ms in a second");
    assert_eq!(get(&mut streams[0], "/").0, 200);
    // Once some have gone, those that waited are served.
    let mut last = streams.pop().unwrap();
    drop(streams);
    assert_eq!(get(&mut last, "/").0, 200);
}

#[test]
fn a_run_directory_too_long_for_sockets_is_refused() {
    let long = "d".repeat(94);
    let output = run(&["--listen", "127.0.0.1:0", "--run-dir", &long]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&long) && said.contains("at most 93 bytes"), "{said}");
}
