//! Standard output and error, and files that are opened before the work begins.

use crate::error::Failure;
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Prints text to standard output.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(|error| cannot_write("standard output", &error))
}

/// Prints a value to standard output as JSON.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Failure::new(format!("cannot write JSON: {error}")))?;
    print(&(text + "\n"))
}

/// Says what failed, on standard error.
pub fn complain(failure: &Failure) {
    say(&format!("error: {failure}"));
}

/// Tells notes on standard error.
pub fn note(notes: &[String]) {
    for note in notes {
        say(&format!("note: {note}"));
    }
}

/// Prints a line to standard error. Where that is closed nobody listens, and that is fine.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Whether a person watches standard error.
pub fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Turns an error of writing into a failure. A pipe whose reader has gone is none: the
/// reader has had enough (`| head`), and the command ends there, quietly.
pub fn cannot_write(name: &str, error: &io::Error) -> Failure {
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    let failure = Failure::new(format!("cannot write {name}: {error}"));
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => failure.remedy("make room, or write to another disk"),
        _ => failure,
    }
}

/// A place to write to, opened before the work begins so that a bad path fails at once.
#[derive(Debug)]
pub struct Target {
    /// Where to write. What it held is still there until [`Target::begin`].
    pub file: File,
    /// What to call it in messages.
    pub name: String,
    /// Whether it is a regular file, which can be cut and written at any place.
    pub regular: bool,
    /// Set where opening made the file: then it goes again if nothing begins.
    made: Option<PathBuf>,
}

impl Target {
    /// Opens a path; `-` is standard output.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let name = if path == Path::new("-") { "standard output".to_owned() } else { path.display().to_string() };
        let cannot = |error: io::Error| {
            Failure::new(format!("cannot open {name} for writing: {error}")).remedy("name another file with -o")
        };
        let mut made = None;
        let file = if path == Path::new("-") {
            File::from(std::os::fd::AsFd::as_fd(&io::stdout()).try_clone_to_owned().map_err(cannot)?)
        } else {
            // Not truncated yet: a session that never begins must not cost the old file.
            match File::options().write(true).create_new(true).open(path) {
                Ok(file) => {
                    made = Some(path.to_owned());
                    file
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    File::options().write(true).create(true).truncate(false).open(path).map_err(cannot)?
                }
                Err(error) => return Err(cannot(error)),
            }
        };
        // Standard output may be a file that a shell appends to, so it is never cut.
        let regular = path != Path::new("-") && file.metadata().map_err(cannot)?.is_file();
        Ok(Self { file, name, regular, made })
    }

    /// Empties it: from here on it holds what this command writes.
    pub fn begin(&mut self) -> Result<(), Failure> {
        self.made = None;
        if self.regular {
            self.file.set_len(0).map_err(|error| cannot_write(&self.name, &error))?;
        }
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(path) = self.made.take() {
            let _ = std::fs::remove_file(path);
        }
    }
}
