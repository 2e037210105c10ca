//! `--pid`, `--service`, `--all`: which processes a verb is about.

use crate::control::protocol::Select;

/// At most one of these; a verb that needs one makes the group required.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "selection", multiple = false)]
pub struct Selection {
    /// One process
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// Every process of a service
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// Every process
    #[arg(long)]
    all: bool,
}

/// For `#[command(mut_group("selection", select::required))]`.
pub fn required(group: clap::ArgGroup) -> clap::ArgGroup {
    group.required(true)
}

impl Selection {
    /// What was selected; everything where nothing was said.
    pub fn select(&self) -> Select {
        match (self.pid, &self.service) {
            (Some(pid), _) => Select::Pid(pid),
            (None, Some(service)) => Select::Service(service.clone()),
            (None, None) => Select::All,
        }
    }
}
