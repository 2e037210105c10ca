//! The client's side of the control socket: blocking, for the command line.
//!
//! One connection carries one request. The lines of the answer are read one by one; an
//! event line is handed on as it came, so that nobody parses what is only written to a
//! file.

use super::protocol::{CONTROL_SOCKET, Reply, Request, VERSION, Verb};
use crate::error::Failure;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

/// A request that was sent, and the lines of its answer.
#[derive(Debug)]
pub struct Session {
    reader: BufReader<UnixStream>,
    stopper: Stopper,
    line: Vec<u8>,
}

/// One line of an answer.
#[derive(Debug)]
pub enum Line<'a> {
    /// A trace event: a JSON object, without its newline.
    Event(&'a str),
    /// Anything else. [`Reply::Error`] never comes here: it is the `Err` of
    /// [`Session::next_line`].
    Reply(Reply),
}

/// Ends a stream from another thread, such as one that waits for Ctrl-C.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<UnixStream>);

/// Connects to the agent of a run directory and sends one request.
pub fn send(run_dir: &Path, verb: Verb) -> Result<Session, Failure> {
    super::check_run_dir(run_dir)?;
    let path = run_dir.join(CONTROL_SOCKET);
    let (reader, writer) = UnixStream::connect(&path)
        .and_then(|stream| Ok((stream.try_clone()?, stream)))
        .map_err(|error| no_connection(&path, &error))?;
    send_line(&writer, verb)?;
    let reader = BufReader::with_capacity(64 * 1024, reader);
    Ok(Session { reader, stopper: Stopper(Arc::new(writer)), line: Vec::new() })
}

/// Connects, sends one request, and returns its one answer.
pub fn ask(run_dir: &Path, verb: Verb) -> Result<Reply, Failure> {
    match send(run_dir, verb)?.next_line()? {
        Some(Line::Reply(reply)) => Ok(reply),
        Some(Line::Event(_)) => Err(Failure::new("the agent answered with an event where none was asked for")),
        None => Err(Failure::new("the agent closed the connection without an answer").remedy("see the agent's log")),
    }
}

impl Session {
    /// Whether the next line is still to come from the agent, so that what was made of the
    /// lines before should be shown now.
    pub fn must_wait(&self) -> bool {
        !self.reader.buffer().contains(&b'\n')
    }

    /// The next line; `None` where the agent has closed the connection.
    pub fn next_line(&mut self) -> Result<Option<Line<'_>>, Failure> {
        self.line.clear();
        match self.reader.read_until(b'\n', &mut self.line) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(Failure::new(format!("cannot read the agent's answer: {error}"))),
        }
        if self.line.last() != Some(&b'\n') {
            return Err(Failure::new("the agent stopped in the middle of a line"));
        }
        let garbled = |what: &dyn std::fmt::Display| {
            Failure::new(format!("the agent's answer cannot be understood: {what}"))
                .remedy("the agent and this command may be of different versions: compare `tracebyte --version`")
        };
        let line = std::str::from_utf8(self.line.trim_ascii_end()).map_err(|error| garbled(&error))?;
        if line.starts_with(r#"{"ph":"#) {
            return Ok(Some(Line::Event(line)));
        }
        match serde_json::from_str(line).map_err(|error| garbled(&error))? {
            Reply::Error(failure) => Err(failure),
            reply => Ok(Some(Line::Reply(reply))),
        }
    }

    /// A handle that ends the stream; the rest of it and the closing line still come.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }
}

impl Stopper {
    /// Asks the agent to close the window.
    pub fn stop(&self) -> Result<(), Failure> {
        send_line(&self.0, Verb::Stop)
    }
}

fn send_line(mut stream: &UnixStream, verb: Verb) -> Result<(), Failure> {
    let mut line = serde_json::to_vec(&Request { v: VERSION, verb })
        .map_err(|error| Failure::new(format!("cannot write the request: {error}")))?;
    line.push(b'\n');
    match stream.write_all(&line) {
        // The agent may refuse before it reads; its reason is still there to be read.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("cannot send the request to the agent: {error}")))
        }
        _ => Ok(()),
    }
}

fn no_connection(path: &Path, error: &std::io::Error) -> Failure {
    let at = path.display();
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => Failure::new(format!("no agent is running at {at}"))
            .remedy("start one with `sudo tracebyte agent`, or name its folder with --run-dir"),
        ErrorKind::PermissionDenied => {
            Failure::new(format!("permission denied: only root{} may use {at}", members_of_its_group(path)))
                .remedy("use sudo, or let root allow your user or group in the agent's configuration")
        }
        _ => Failure::new(format!("cannot connect to {at}: {error}")),
    }
}

/// Who else may use the socket, in words, as far as its mode and group tell.
fn members_of_its_group(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let Ok(socket) = path.metadata() else { return String::new() };
    if socket.gid() == 0 || socket.mode() & 0o020 == 0 {
        return String::new();
    }
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let name = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(socket.gid())).then(|| name.to_owned())
    });
    format!(" and members of group {}", name.unwrap_or_else(|| socket.gid().to_string()))
}
