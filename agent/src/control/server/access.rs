//! Who may use the control socket: root, the agent's own user, and the users and the group
//! of the configuration.

use crate::config::Control;
use crate::error::Failure;
use crate::sys::peer::{self, Peer};
use crate::sys::users;
use std::os::fd::AsFd;
use tokio::net::UnixStream;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    uids: Vec<u32>,
    gid: Option<u32>,
    /// The same for people.
    who: String,
}

impl Access {
    /// Looks up the names of the configuration.
    pub fn new(config: &Control) -> Result<Self, Failure> {
        let mut access = Self { uids: vec![0, peer::own_uid()], gid: None, who: "root".into() };
        for user in &config.users {
            access.uids.push(look_up("user", user, users::uid_of)?);
            access.who += &format!(", user {user}");
        }
        if let Some(group) = &config.group {
            access.gid = Some(look_up("group", group, users::gid_of)?);
            access.who += &format!(", members of group {group}");
        }
        Ok(access)
    }

    /// The group that the socket belongs to.
    pub fn gid(&self) -> Option<u32> {
        self.gid
    }

    /// Who connected, if they may.
    pub fn check(&self, stream: &UnixStream) -> Result<Peer, Failure> {
        let socket = stream.as_fd();
        let peer = peer::peer(socket)
            .map_err(|error| Failure::new(format!("permission denied: who is asking is not known: {error}")))?;
        let in_group = || {
            let gid = self.gid?;
            let member = peer.gid == gid || peer::groups(socket).is_ok_and(|groups| groups.contains(&gid));
            Some(member)
        };
        if self.uids.contains(&peer.uid) || in_group() == Some(true) {
            return Ok(peer);
        }
        tracing::warn!(uid = peer.uid, pid = peer.pid, "control request denied");
        Err(Failure::new(format!(
            "permission denied: user {} may not control this agent; only {} may",
            peer.uid, self.who
        ))
        .remedy("use sudo, or have `control.group` or `control.users` set in the agent's configuration"))
    }
}

/// The ids of the names in a list of the configuration.
pub fn look_up(what: &str, name: &str, call: fn(&str) -> std::io::Result<Option<u32>>) -> Result<u32, Failure> {
    match call(name) {
        Ok(Some(id)) => Ok(id),
        Ok(None) => Err(Failure::new(format!("the configuration names {what} `{name}`, which does not exist here"))),
        Err(error) => Err(Failure::new(format!("cannot look up {what} `{name}`: {error}"))),
    }
}
