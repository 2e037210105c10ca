//! What most tests begin with: an agent and a server that has joined it.

use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;
use tracebyte_tests::events::{self, Requests};
use tracebyte_tests::{Agent, AgentOptions, Counts, Load, LoadSpec, Running, Sandbox, Server, ServerOptions};

/// A limit for what should take no time at all, on a busy machine.
pub const SOON: Duration = Duration::from_secs(5);

/// An agent and a server; dropped in this order.
pub struct Rig {
    pub server: Server,
    pub agent: Agent,
    pub sandbox: Sandbox,
}

impl Rig {
    #[track_caller]
    pub fn start() -> Self {
        Self::with(&AgentOptions::default(), &ServerOptions::default())
    }

    #[track_caller]
    pub fn with(agent: &AgentOptions, server: &ServerOptions) -> Self {
        let sandbox = Sandbox::new();
        let agent = Agent::start(&sandbox, agent);
        let server = Server::start(&sandbox, server);
        agent.wait_for_target(server.pid());
        Self { server, agent, sandbox }
    }

    pub fn pid(&self) -> String {
        self.server.pid().to_string()
    }

    #[track_caller]
    pub fn on(&self) {
        self.agent.tracebyte(&["trace", "on", "node.http", "--pid", &self.pid()]).ok();
    }

    #[track_caller]
    pub fn off(&self) {
        self.agent.tracebyte(&["trace", "off", "node.http", "--pid", &self.pid()]).ok();
    }

    #[track_caller]
    pub fn ask(&self, requests: u64) -> Counts {
        Load::run(&LoadSpec::requests(self.server.address, requests)).unharmed()
    }

    pub fn load(&self) -> Load {
        Load::start(&LoadSpec::endless(self.server.address))
    }

    /// Starts a recording and waits until its window is open.
    pub fn record(&self, name: &str, format: &str) -> Recording {
        let file = self.sandbox.path(name);
        let path = file.to_string_lossy();
        let args = ["trace", "record", "--duration", "60s", "--format", format, "-o", &path];
        let process = self.agent.spawn(&args);
        std::thread::sleep(Duration::from_millis(500));
        Recording { process, file, format: format.to_owned() }
    }

    /// The entry of `ps --json` about the server.
    #[track_caller]
    pub fn listed(&self) -> Value {
        let list = self.agent.tracebyte(&["ps", "--json"]).ok().json();
        let list = list.as_array().expect("an array").clone();
        list.into_iter().find(|target| target["pid"] == self.server.pid()).expect("the server is listed")
    }
}

/// A recording under way.
pub struct Recording {
    process: Running,
    file: PathBuf,
    format: String,
}

impl Recording {
    /// Closes the window by Ctrl-C; the events in the file.
    #[track_caller]
    pub fn finish(self) -> Vec<Value> {
        self.process.signal(libc::SIGINT);
        self.process.wait(SOON).ok();
        let bytes = std::fs::read(&self.file).expect("the recording is there");
        match self.format.as_str() {
            "chrome" => events::chrome(&bytes),
            _ => events::lines(&String::from_utf8_lossy(&bytes)),
        }
        .expect("the recording is valid")
    }

    /// As `finish`, counted.
    #[track_caller]
    pub fn requests(self) -> Requests {
        Requests::count(&self.finish())
    }
}
