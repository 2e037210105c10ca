//! What the switch costs and how fast it acts: the check, the byte, the first event, HTTP
//! under each state of tracing, a sample, the idle agent.
//!
//! The server has CPU 0 for itself; the agent, the load and this program share CPU 1.

mod http;
mod idle;
mod latency;
mod syscalls;

use super::{Effort, program};
use anyhow::Result;
use serde_json::Value;
use tracebyte_tests::rounds::pin;
use tracebyte_tests::{Agent, AgentOptions, Sandbox, Server, ServerOptions};

/// The server's CPU, and everybody else's.
const SERVER_CPU: usize = 0;
const OTHERS_CPU: usize = 1;

/// Measures.
pub fn run(effort: Effort) -> Result<Vec<Value>> {
    let mut rows = program("runtime-core", "check", &[])?;
    rows.extend(latency::run(effort)?);
    rows.extend(http::run(effort)?);
    rows.extend(syscalls::run()?);
    rows.extend(program("tracebyte", "sampler", &[])?);
    rows.extend(idle::run(effort)?);
    Ok(rows)
}

/// Starts a server on its own CPU.
fn server(sandbox: &Sandbox) -> Result<Server> {
    pin(SERVER_CPU)?;
    let server = Server::start(sandbox, &ServerOptions::default());
    pin(OTHERS_CPU)?;
    Ok(server)
}

/// Starts an agent and waits until the server has joined it.
fn agent(sandbox: &Sandbox, server: &Server) -> Agent {
    let agent = Agent::start(sandbox, &AgentOptions::default());
    agent.wait_for_target(server.pid());
    agent
}

/// Stops an agent and waits until the server has noticed.
fn stop(agent: Agent, server: &Server) {
    agent.stop(libc::SIGTERM, std::time::Duration::from_secs(5));
    tracebyte_tests::eventually(std::time::Duration::from_secs(5), "the server leaves", || {
        !server.memory().has_shared_page()
    });
}
