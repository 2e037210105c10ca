//! An agent on a private run directory, and the command line that talks to it.

use crate::{Output, Running, Sandbox, bins, http, wait_for};
use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A user without privileges, for the reduced mode.
pub const NOBODY: u32 = 65534;
/// How long an agent may take to be ready.
const READY_LIMIT: Duration = Duration::from_secs(15);
/// How long a verb may take that has no duration of its own.
const VERB_LIMIT: Duration = Duration::from_secs(60);

/// How an agent is started.
#[derive(Clone, Debug, Default)]
pub struct AgentOptions {
    /// As which user; as ourselves where absent.
    pub uid: Option<u32>,
    /// Further arguments.
    pub args: Vec<String>,
}

impl AgentOptions {
    /// As the user [`NOBODY`], hence without eBPF.
    pub fn unprivileged() -> Self {
        Self { uid: Some(NOBODY), ..Self::default() }
    }

    /// With further arguments.
    pub fn with(args: &[&str]) -> Self {
        Self { args: args.iter().map(|&arg| arg.to_owned()).collect(), ..Self::default() }
    }
}

/// A running agent, killed with the value.
#[derive(Debug)]
pub struct Agent {
    /// The daemon itself.
    pub process: Running,
    /// Where it serves `/metrics`.
    pub http: SocketAddr,
    run_dir: PathBuf,
}

impl Agent {
    /// Starts an agent and waits until it is ready; panics with its words where it fails.
    #[track_caller]
    pub fn start(sandbox: &Sandbox, options: &AgentOptions) -> Self {
        match Self::try_start(sandbox, options) {
            Ok(agent) => agent,
            Err(output) => panic!("the agent did not start:\n{output}"),
        }
    }

    /// Starts an agent and waits until it is ready; what it printed where it fails.
    pub fn try_start(sandbox: &Sandbox, options: &AgentOptions) -> Result<Self, String> {
        let http = free_address();
        let mut process = spawn(sandbox, options, http).map_err(|error| error.to_string())?;
        let run_dir = sandbox.run_dir();
        let ready = wait_for(READY_LIMIT, || {
            if !process.is_running() {
                return Some(false);
            }
            (answers(&run_dir, "control.sock") && answers(&run_dir, "register.sock") && serves(http)).then_some(true)
        });
        if ready == Some(true) {
            Ok(Self { process, http, run_dir })
        } else {
            Err(process.stderr() + &process.stdout())
        }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// All of `/metrics`.
    #[track_caller]
    pub fn metrics(&self) -> String {
        let answer = http::get(self.http, "/metrics").expect("the agent answers");
        assert_eq!(answer.status, 200);
        String::from_utf8(answer.body).expect("metrics are text")
    }

    /// The sum of a metric's series whose labels contain `labels`; `None` without series.
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        sum(&self.metrics(), name, labels)
    }

    /// Sends a signal and waits for the end.
    #[track_caller]
    pub fn stop(self, signal: i32, limit: Duration) -> Output {
        self.process.signal(signal);
        self.process.wait(limit)
    }

    /// Runs `tracebyte` against this agent.
    #[track_caller]
    pub fn tracebyte(&self, args: &[&str]) -> Output {
        tracebyte_at(&self.run_dir, args)
    }

    /// Starts `tracebyte` against this agent and leaves it running.
    pub fn spawn(&self, args: &[&str]) -> Running {
        Running::spawn(command(&self.run_dir).args(args)).expect("tracebyte starts")
    }

    /// Waits until `pid` is listed by `ps`.
    #[track_caller]
    pub fn wait_for_target(&self, pid: u32) {
        let found = wait_for(Duration::from_secs(10), || {
            let list = self.tracebyte(&["ps", "--json"]);
            let list = if list.code() == 0 { list.json() } else { return None };
            list.as_array()?.iter().any(|target| target["pid"] == pid).then_some(())
        });
        assert!(found.is_some(), "process {pid} did not join; agent: {}", self.process.stderr());
    }
}

/// Starts the daemon without waiting for it.
pub fn spawn(sandbox: &Sandbox, options: &AgentOptions, http: SocketAddr) -> std::io::Result<Running> {
    let mut command = Command::new(bins::tracebyte());
    if let Some(uid) = options.uid {
        // The build's folder may be closed to others; the sandbox is not.
        sandbox.give_to(uid);
        command = Command::new(sandbox.copy_of(&bins::tracebyte()));
        command.uid(uid).gid(uid);
    }
    command.env("TRACEBYTE_RUN_DIR", sandbox.run_dir()).current_dir(sandbox.dir());
    command.args(["agent", "--listen", &http.to_string()]).args(&options.args);
    Running::spawn(&mut command)
}

/// A loopback address nobody listens on.
pub fn free_address() -> SocketAddr {
    let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
    probe.local_addr().expect("it is bound")
}

/// Runs `tracebyte` on a sandbox's run directory, whether or not an agent is there.
#[track_caller]
pub fn tracebyte(sandbox: &Sandbox, args: &[&str]) -> Output {
    tracebyte_at(&sandbox.run_dir(), args)
}

/// Runs `tracebyte` as another user.
#[track_caller]
pub fn tracebyte_as(uid: u32, sandbox: &Sandbox, args: &[&str]) -> Output {
    let mut command = Command::new(sandbox.copy_of(&bins::tracebyte()));
    command.env("TRACEBYTE_RUN_DIR", sandbox.run_dir()).args(args).uid(uid).gid(uid);
    Running::spawn(&mut command).expect("tracebyte starts").wait(VERB_LIMIT)
}

#[track_caller]
fn tracebyte_at(run_dir: &std::path::Path, args: &[impl AsRef<OsStr>]) -> Output {
    Running::spawn(command(run_dir).args(args)).expect("tracebyte starts").wait(VERB_LIMIT)
}

fn command(run_dir: &std::path::Path) -> Command {
    let mut command = Command::new(bins::tracebyte());
    command.env("TRACEBYTE_RUN_DIR", run_dir);
    command
}

fn answers(run_dir: &std::path::Path, socket: &str) -> bool {
    UnixStream::connect(run_dir.join(socket)).is_ok()
}

fn serves(http: SocketAddr) -> bool {
    TcpStream::connect(http).is_ok() && http::get(http, "/healthz").is_ok_and(|answer| answer.status == 200)
}

/// The sum of the series of `name` in a text of metrics whose labels contain `labels`.
pub fn sum(metrics: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let wanted: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
    let values = metrics.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (found, rest) = series.split_once('{').unwrap_or((series, ""));
        let labelled = wanted.iter().all(|label| rest.contains(label));
        if found == name && labelled { value.parse::<f64>().ok() } else { None }
    });
    values.reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_summed_by_label() {
        let text = "# TYPE a counter\na{x=\"1\",y=\"2\"} 3\na{x=\"2\"} 4\nab 9\nb 1\n";
        assert_eq!(sum(text, "a", &[]), Some(7.0));
        assert_eq!(sum(text, "a", &[("x", "1")]), Some(3.0));
        assert_eq!(sum(text, "b", &[]), Some(1.0));
        assert_eq!(sum(text, "c", &[]), None);
    }
}
