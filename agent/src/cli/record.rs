//! `tracebyte trace record`: the events of a window, into a file.

use super::eventfile::{Closing, EventFile, Format};
use super::interrupt::Interrupt;
use super::output::{self, Target};
use super::progress::Progress;
use super::select::Selection;
use super::{duration, ps};
use crate::control::client::{self, Line};
use crate::control::protocol::{Reply, Select, Verb};
use crate::error::Failure;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Record the events of a window into a file
///
/// Switches nothing on: `trace on` does. The file holds exactly the events stamped inside
/// the window. Ctrl-C closes the window early and keeps what was taken.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tracebyte trace record --duration 5s -o trace.json      open it in ui.perfetto.dev
  tracebyte trace record --duration 1m --format ndjson -o - | wc -l")]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Length of the window, such as 500ms, 5s, 2m
    #[arg(long, value_parser = duration::parse)]
    duration: Duration,
    /// File to write; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Format of the file
    #[arg(long, value_enum, default_value_t = Format::Chrome)]
    format: Format,
}

impl Args {
    pub(super) fn run(self, run_dir: &Path) -> Result<(), Failure> {
        let target = Target::open(&self.output)?;
        let select = self.selection.select();
        let interrupt = Interrupt::catch()?;
        let verb = Verb::Record { select: select.clone(), duration_ms: duration::as_ms(self.duration) };
        let mut session = client::send(run_dir, verb)?;
        interrupt.stop(session.stopper());
        let hinted = match session.next_line()? {
            Some(Line::Reply(Reply::Started { notes })) => {
                output::note(&notes);
                !notes.is_empty()
            }
            Some(Line::Reply(other)) => return Err(ps::unexpected(&other)),
            Some(Line::Event(_)) | None => return Err(Failure::new("the agent ended before the recording began")),
        };
        let mut file = EventFile::begin(target, self.format)?;
        let mut closing = Closing { services: services(run_dir, &select), ..Closing::default() };
        let ended = take(&mut session, &mut file, &mut closing, self.duration);
        // Processes that joined since; those that left are known from the beginning.
        closing.services.extend(services(run_dir, &select));
        closing.complete = ended.is_ok();
        file.close(&closing)?;
        output::note(&closing.notes);
        for (reason, count) in &closing.lost {
            output::say(&format!("lost: {count} events ({reason})"));
        }
        ended.map_err(|failure| match file.is_regular() {
            true => {
                let message = format!("{}; {} holds {} complete events", failure.message, file.name(), file.events());
                Failure { message, ..failure }
            }
            false => failure,
        })?;
        if file.events() == 0 && !hinted {
            output::say("note: no events; see what is on with `tracebyte trace status`");
        }
        output::say(&format!("{} events in {}", file.events(), file.name()));
        Ok(())
    }
}

/// Takes events until the closing line. An error means that the stream broke, or that the
/// agent counted another number of events than came.
fn take(
    session: &mut client::Session,
    file: &mut EventFile,
    closing: &mut Closing,
    duration: Duration,
) -> Result<(), Failure> {
    let progress = Progress::begin("recording", duration, true);
    loop {
        match session.next_line()? {
            Some(Line::Event(event)) => {
                file.push(event)?;
                progress.events.store(file.events(), Relaxed);
            }
            Some(Line::Reply(Reply::End { events, lost, notes })) => {
                (closing.lost, closing.notes) = (lost, notes);
                return if events == file.events() {
                    Ok(())
                } else {
                    Err(Failure::new(format!("the agent sent {events} events and {} came", file.events())))
                };
            }
            Some(Line::Reply(other)) => return Err(ps::unexpected(&other)),
            None => {
                return Err(Failure::new("the agent ended in the middle of the recording")
                    .remedy("start it again; what was switched on is off now"));
            }
        }
    }
}

/// The service of each selected process. It only helps to read the file, so an agent that
/// does not answer is no failure.
fn services(run_dir: &Path, select: &Select) -> BTreeMap<u32, String> {
    let selected = |target: &crate::control::protocol::TargetInfo| match select {
        Select::All => true,
        Select::Service(service) => target.service == *service,
        Select::Pid(pid) => target.pid == *pid,
    };
    let targets = ps::targets(run_dir).unwrap_or_default();
    targets.into_iter().filter(selected).map(|target| (target.pid, target.service)).collect()
}
