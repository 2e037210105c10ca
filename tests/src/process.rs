//! A program that runs until its handle is dropped.

use crate::{sys, wait_for};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a program printed and how it ended.
#[derive(Debug)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// All of standard output.
    pub stdout: Vec<u8>,
    /// All of standard error, as text.
    pub stderr: String,
}

impl Output {
    /// The exit code; -1 for an end by a signal.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard output as JSON; panics with all that was printed where it is not.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        match serde_json::from_slice(&self.stdout) {
            Ok(value) => value,
            Err(error) => panic!("not JSON: {error}\nstdout: {}\nstderr: {}", self.text(), self.stderr),
        }
    }

    /// Panics unless the program ended with 0.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.ends_with(0)
    }

    /// Panics unless the program ended with `code`.
    #[track_caller]
    pub fn ends_with(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "{}\nstdout: {}\nstderr: {}", self.status, self.text(), self.stderr);
        self
    }
}

/// A running program: killed, and waited for, with the value.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdout: Pipe,
    stderr: Pipe,
}

impl Running {
    /// Starts a program in a process group of its own, so that Ctrl-C at the terminal
    /// reaches only the one who started it.
    pub fn spawn(command: &mut Command) -> std::io::Result<Self> {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn()?;
        let stdout = Pipe::collect(child.stdout.take().expect("piped above"));
        let stderr = Pipe::collect(child.stderr.take().expect("piped above"));
        Ok(Self { child, stdout, stderr })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What was printed on standard output so far.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// What was printed on standard error so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Whether the program still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal, such as `libc::SIGTERM`.
    pub fn signal(&self, signal: i32) {
        sys::signal(self.pid(), signal);
    }

    /// Kills the program and reaps it.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The first line of standard output for which `find` gives something.
    pub fn line<T>(&mut self, limit: Duration, mut find: impl FnMut(&str) -> Option<T>) -> Option<T> {
        wait_for(limit, || {
            let ended = !self.is_running();
            let found = self.stdout().lines().find_map(&mut find);
            if found.is_some() { Some(found) } else { ended.then_some(None) }
        })
        .flatten()
    }

    /// Waits for the end; kills the program and panics when `limit` passes.
    #[track_caller]
    pub fn wait(mut self, limit: Duration) -> Output {
        let status = wait_for(limit, || self.child.try_wait().ok().flatten());
        let Some(status) = status else {
            self.kill();
            panic!("still running after {limit:?}\nstdout: {}\nstderr: {}", self.stdout(), self.stderr());
        };
        // A grandchild can hold the pipe open; what is there by then is all we wait for.
        wait_for(Duration::from_secs(5), || (self.stdout.ended() && self.stderr.ended()).then_some(()));
        Output { status, stdout: self.stdout.bytes(), stderr: self.stderr() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

#[derive(Debug)]
struct Pipe {
    bytes: Arc<Mutex<Vec<u8>>>,
    ended: Arc<AtomicBool>,
}

impl Pipe {
    fn collect(mut from: impl Read + Send + 'static) -> Self {
        let pipe = Self { bytes: Arc::default(), ended: Arc::default() };
        let (bytes, ended) = (pipe.bytes.clone(), pipe.ended.clone());
        std::thread::spawn(move || {
            let mut part = [0; 16 * 1024];
            while let Ok(n @ 1..) = from.read(&mut part) {
                bytes.lock().expect("no holder panics").extend_from_slice(&part[..n]);
            }
            ended.store(true, Ordering::Release);
        });
        pipe
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().expect("no holder panics").clone()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn output_and_code_are_kept() {
        let mut sh = Command::new("sh");
        let output = Running::spawn(sh.args(["-c", "echo one; echo two >&2; exit 3"])).unwrap().wait(LIMIT);
        assert_eq!((output.code(), output.text().as_str(), output.stderr.as_str()), (3, "one\n", "two\n"));
    }

    #[test]
    fn a_dropped_program_is_gone() {
        let running = Running::spawn(Command::new("sleep").arg("60")).unwrap();
        let proc = format!("/proc/{}", running.pid());
        drop(running);
        assert!(!std::path::Path::new(&proc).exists());
    }

    #[test]
    fn a_line_is_found_or_the_end_noticed() {
        let mut sh = Command::new("sh");
        let mut running = Running::spawn(sh.args(["-c", "echo port 7; sleep 60"])).unwrap();
        assert_eq!(running.line(LIMIT, |line| line.strip_prefix("port ").map(str::to_owned)), Some("7".into()));
        let mut ended = Running::spawn(&mut Command::new("true")).unwrap();
        assert_eq!(ended.line(LIMIT, |_| Some(())), None);
    }
}
