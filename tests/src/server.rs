//! A `runtime-core-http` on a loopback port.

use crate::memory::Process;
use crate::{Running, Sandbox, bins};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

const READY_LIMIT: Duration = Duration::from_secs(10);

/// How a server is started.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Its service name.
    pub service: String,
    /// Event-loop threads.
    pub threads: u32,
    /// As which user; as ourselves where absent.
    pub uid: Option<u32>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self { service: "demo".into(), threads: 1, uid: None }
    }
}

impl ServerOptions {
    /// A server of this name.
    pub fn named(service: &str) -> Self {
        Self { service: service.into(), ..Self::default() }
    }
}

/// A running server, killed with the value.
#[derive(Debug)]
pub struct Server {
    /// The process.
    pub process: Running,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Server {
    /// Starts a server and waits until it listens.
    #[track_caller]
    pub fn start(sandbox: &Sandbox, options: &ServerOptions) -> Self {
        let mut command = Command::new(bins::runtime_core_http());
        if let Some(uid) = options.uid {
            command = Command::new(sandbox.copy_of(&bins::runtime_core_http()));
            command.uid(uid).gid(uid);
        }
        command.args(["--listen", "127.0.0.1:0", "--service", &options.service]);
        command.args(["--threads", &options.threads.to_string()]);
        command.env("TRACEBYTE_RUN_DIR", sandbox.run_dir()).current_dir(sandbox.dir());
        let mut process = Running::spawn(&mut command).expect("the server starts");
        let address = process.line(READY_LIMIT, |line| {
            line.split_once("listening on ")?.1.trim().trim_start_matches("http://").trim_end_matches('/').parse().ok()
        });
        match address {
            Some(address) => Self { process, address },
            None => panic!("the server does not listen: {}{}", process.stdout(), process.stderr()),
        }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The process's memory, to see the page as it does.
    pub fn memory(&self) -> Process {
        Process::new(self.pid())
    }
}
