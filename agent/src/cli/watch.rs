//! `tracebyte trace watch`: events live, one line each.

use super::interrupt::Interrupt;
use super::select::Selection;
use super::{output, ps};
use crate::control::client::{self, Line};
use crate::control::protocol::{Reply, Verb};
use crate::error::Failure;
use serde_json::Value;
use std::io::{BufWriter, StdoutLock, Write};
use std::path::Path;

/// Show events live, one line each, until Ctrl-C
///
/// Switches nothing on: `trace on` does.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tracebyte trace watch --service shop
  tracebyte trace watch --json | jq .args.url")]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Print lines of JSON, with the fields of a Chrome trace file; `ts` in microseconds
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) fn run(self, run_dir: &Path) -> Result<(), Failure> {
        let interrupt = Interrupt::catch()?;
        let mut session = client::send(run_dir, Verb::Watch { select: self.selection.select() })?;
        interrupt.stop(session.stopper());
        let mut out = BufWriter::with_capacity(64 * 1024, std::io::stdout().lock());
        let cannot = |error| output::cannot_write("standard output", &error);
        loop {
            // Lines that wait are printed together; nothing is held back while we wait.
            if session.must_wait() {
                out.flush().map_err(cannot)?;
            }
            match session.next_line()? {
                Some(Line::Event(event)) if self.json => writeln!(out, "{event}").map_err(cannot)?,
                Some(Line::Event(event)) => print_event(&mut out, event).map_err(cannot)?,
                Some(Line::Reply(Reply::Started { notes })) => output::note(&notes),
                Some(Line::Reply(Reply::End { lost, notes, .. })) => {
                    out.flush().map_err(cannot)?;
                    output::note(&notes);
                    for (reason, count) in lost {
                        output::say(&format!("lost: {count} events ({reason})"));
                    }
                    return Ok(());
                }
                Some(Line::Reply(other)) => return Err(ps::unexpected(&other)),
                None => {
                    out.flush().map_err(cannot)?;
                    return Err(Failure::new("the agent ended while it was watched: no more events")
                        .remedy("start it again; what was switched on is off now"));
                }
            }
        }
    }
}

fn print_event(out: &mut BufWriter<StdoutLock<'_>>, event: &str) -> std::io::Result<()> {
    match serde_json::from_str(event) {
        Ok(event) => writeln!(out, "{}", for_people(&event)),
        Err(_) => writeln!(out, "{}", ps::printable(event)),
    }
}

/// An event as a line: seconds on the monotonic clock, process, phase, name, arguments.
fn for_people(event: &Value) -> String {
    let text = |key: &str| event[key].as_str().unwrap_or("?");
    let seconds = event["ts"].as_f64().unwrap_or(0.0) / 1e6;
    let phase = match text("ph") {
        "b" | "B" => "begin",
        "e" | "E" => "end",
        "X" => "whole",
        "n" | "i" => "point",
        "C" => "count",
        other => other,
    };
    let (pid, id) = (event["pid"].to_string(), event["id"].as_str().unwrap_or(""));
    let mut line = format!("{seconds:.6} {pid:>7} {phase:<5} {} {id}", text("name"));
    for (key, value) in event["args"].as_object().into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        line += &format!(" {key}={value}");
    }
    ps::printable(line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_it_all_and_cannot_steer_the_terminal() {
        let event = serde_json::json!({"ph": "b", "cat": "node.http", "name": "http.server.request", "id": "0x1f",
            "ts": 1_234_567.891, "pid": 7, "tid": 8, "args": {"method": "GET", "url": "/\u{1b}[2J", "bytes": 4}});
        let line = for_people(&event);
        assert_eq!(line, "1.234568       7 begin http.server.request 0x1f bytes=4 method=GET url=/\u{fffd}[2J");
    }
}
