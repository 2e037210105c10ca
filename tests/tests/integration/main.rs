//! The integration tests: one program, so that ordinary tests share the machine and those
//! that measure have it alone.

mod cli;
mod dashboards;
mod faults_agent;
mod faults_process;
mod faults_sockets;
mod hygiene;
mod metrics;
mod profile;
mod record;
mod reduced;
mod rig;
mod toggle;
