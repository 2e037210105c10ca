//! The run directory: the lock that one agent holds, and the sockets it binds there.

use crate::control::check_run_dir;
use crate::control::protocol::CONTROL_SOCKET;
use crate::error::Failure;
use crate::sys::{fd, peer};
use runtime_core_abi::handshake::REGISTER_SOCKET;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

const LOCK: &str = "agent.lock";
/// Whoever may open a file may lock it, and so keep the agent from starting.
const LOCK_MODE: u32 = 0o600;

/// A run directory that is ours for as long as this value lives.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    _lock: File,
}

impl RunDir {
    /// Makes the folder where it is missing, and takes its lock.
    pub fn take(path: &Path, fd_floor: i32) -> Result<Self, Failure> {
        check_run_dir(path)?;
        let cannot = |what: &str, error: &io::Error| {
            let failure = Failure::new(format!("cannot {what} {}: {error}", path.display()));
            match error.kind() {
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                    failure.remedy("run the agent as root, or name a folder of yours with --run-dir")
                }
                _ => failure,
            }
        };
        if !path.exists() {
            make(path).map_err(|error| cannot("make the run directory", &error))?;
        }
        let mut lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(LOCK_MODE)
            .open(path.join(LOCK))
            .and_then(|lock| lock.set_permissions(Permissions::from_mode(LOCK_MODE)).map(|()| lock))
            .map_err(|error| cannot("take the lock in the run directory", &error))?;
        match fd::try_lock(&lock) {
            Ok(true) => {}
            Ok(false) => return Err(taken(path, &mut lock)),
            Err(error) => return Err(cannot("take the lock in the run directory", &error)),
        }
        lock.set_len(0)
            .and_then(|()| writeln!(lock, "{}", std::process::id()))
            .map_err(|error| cannot("write to the run directory", &error))?;
        Ok(Self { path: path.to_owned(), _lock: fd::move_above(lock, fd_floor) })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Binds a socket with these permissions, in place of one that an agent left behind.
    pub fn bind(&self, name: &str, mode: u32, gid: Option<u32>) -> Result<UnixListener, Failure> {
        let path = self.path.join(name);
        let cannot = |error: io::Error| Failure::new(format!("cannot bind {}: {error}", path.display()));
        match UnixStream::connect(&path) {
            Ok(_) => {
                return Err(Failure::new(format!("somebody already listens on {}", path.display()))
                    .remedy("end that program, or name another folder with --run-dir"));
            }
            // Nobody listens there, and the lock says that no agent is about to.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                std::fs::remove_file(&path).map_err(cannot)?;
            }
            Err(_) => {}
        }
        // From its first moment on the socket is open to nobody that it is not meant for.
        let mask = fd::umask(0o777 & !mode);
        let bound = UnixListener::bind(&path);
        fd::umask(mask);
        let listener = bound.map_err(cannot)?;
        if let Some(gid) = gid {
            std::os::unix::fs::chown(&path, None, Some(gid)).map_err(|error| {
                let remedy = format!("user {} cannot give it to group {gid}: run the agent as root", peer::own_uid());
                cannot(error).remedy(remedy)
            })?;
        }
        Ok(listener)
    }

    /// Removes the sockets.
    pub fn remove_sockets(&self) {
        for name in [CONTROL_SOCKET, REGISTER_SOCKET] {
            if let Err(error) = std::fs::remove_file(self.path.join(name)) {
                tracing::warn!(%error, name, "cannot remove a socket");
            }
        }
    }
}

fn make(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(path)?;
    // Whatever the mask of permissions is that we were started with.
    std::fs::set_permissions(path, Permissions::from_mode(0o755))
}

fn taken(path: &Path, lock: &mut File) -> Failure {
    let mut pid = String::new();
    let by = match lock.read_to_string(&mut pid) {
        Ok(_) if !pid.trim().is_empty() => format!(" (pid {})", pid.trim()),
        _ => String::new(),
    };
    Failure::new(format!("another agent already serves {}{by}", path.display()))
        .remedy("stop it first, or name another folder with --run-dir")
}
