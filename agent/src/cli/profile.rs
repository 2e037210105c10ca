//! `tracebyte profile`: where the time goes, down to the kernel.

use super::interrupt::Interrupt;
use super::output::{self, Target};
use super::progress::Progress;
use super::select::{self, Selection};
use super::{duration, ps};
use crate::control::client::{self, Line};
use crate::control::protocol::{Reply, Verb};
use crate::error::Failure;
use crate::profile::{Profile, folded, pprof, svg};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Sample stacks and draw a flame graph
///
/// With --all the whole machine is sampled. Ctrl-C ends it early and keeps what was taken.
#[derive(Debug, clap::Args)]
#[command(
    mut_group("selection", select::required),
    after_help = "\
Examples:
  tracebyte profile --pid 4711 --duration 10s -o flame.svg
  tracebyte profile --all --duration 30s --kernel-only -o - --format folded
  tracebyte profile --service shop --duration 10s -o shop.pb.gz && go tool pprof -top shop.pb.gz"
)]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
    /// How long to sample, such as 500ms, 10s, 2m
    #[arg(long, value_parser = duration::parse)]
    duration: Duration,
    /// Samples a second and CPU; at most 10000
    #[arg(long, value_name = "HZ", default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..))]
    freq: u32,
    /// File to write; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Format of the file [default: by the file's name: .svg, .folded or .txt, .pb.gz; else svg]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Take kernel stacks only
    #[arg(long, conflicts_with = "user_only")]
    kernel_only: bool,
    /// Take user stacks only
    #[arg(long)]
    user_only: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A flame graph for a browser
    Svg,
    /// Lines of `frames count`
    Folded,
    /// A gzipped profile for pprof
    Pprof,
}

impl Format {
    fn of(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match name.rsplit_once('.') {
            Some((_, "folded" | "txt")) => Self::Folded,
            Some((_, "pb" | "pprof")) => Self::Pprof,
            Some((stem, "gz")) if stem.ends_with(".pb") => Self::Pprof,
            _ => Self::Svg,
        }
    }

    fn render(self, profile: &Profile, out: &mut Vec<u8>) -> std::io::Result<()> {
        match self {
            Self::Svg => svg::write(profile, out),
            Self::Folded => folded::write(profile, out),
            Self::Pprof => pprof::write(profile, out),
        }
    }
}

impl Args {
    pub(super) fn run(self, run_dir: &Path) -> Result<(), Failure> {
        let format = self.format.unwrap_or_else(|| Format::of(&self.output));
        let mut target = Target::open(&self.output)?;
        let interrupt = Interrupt::catch()?;
        let verb = Verb::Profile {
            select: self.selection.select(),
            duration_ms: duration::as_ms(self.duration),
            freq_hz: self.freq,
            kernel: !self.user_only,
            user: !self.kernel_only,
        };
        let mut session = client::send(run_dir, verb)?;
        interrupt.stop(session.stopper());
        let profile = take(&mut session, self.duration)?;
        let mut bytes = Vec::new();
        format
            .render(&profile, &mut bytes)
            .map_err(|error| Failure::new(format!("cannot render the profile: {error}")))?;
        target.begin()?;
        target.file.write_all(&bytes).map_err(|error| output::cannot_write(&target.name, &error))?;
        output::note(&profile.notes);
        output::say(&format!("{} in {}", summary(&profile), target.name));
        Ok(())
    }
}

fn take(session: &mut client::Session, duration: Duration) -> Result<Profile, Failure> {
    let _progress = Progress::begin("sampling", duration, false);
    loop {
        match session.next_line()? {
            Some(Line::Reply(Reply::Started { notes })) => output::note(&notes),
            Some(Line::Reply(Reply::Profile(profile))) => return Ok(*profile),
            Some(Line::Reply(other)) => return Err(ps::unexpected(&other)),
            Some(Line::Event(_)) => return Err(Failure::new("the agent sent an event where a profile was asked for")),
            None => return Err(Failure::new("the agent ended in the middle of the profile: there is none")),
        }
    }
}

/// What was measured, and what was not, in a line.
fn summary(profile: &Profile) -> String {
    let share = match profile.samples {
        0 => String::new(),
        samples => format!(" ({:.0}% in the kernel)", 100.0 * profile.samples_kernel as f64 / samples as f64),
    };
    format!(
        "{} samples{share} in {:.1} s at {} Hz of {}, {} lost, {} idle left out,",
        profile.samples,
        profile.duration_ns as f64 / 1e9,
        profile.freq_hz,
        profile.event,
        profile.lost,
        profile.idle,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_tells_the_format() {
        for (name, format) in [
            ("flame.svg", Format::Svg),
            ("a.folded", Format::Folded),
            ("a.txt", Format::Folded),
            ("a.pb.gz", Format::Pprof),
            ("a.gz", Format::Svg),
            ("-", Format::Svg),
            ("/tmp/x.txt/flame", Format::Svg),
        ] {
            assert_eq!(Format::of(Path::new(name)), format, "{name}");
        }
    }

    #[test]
    fn a_profile_without_samples_claims_no_share() {
        assert!(summary(&Profile::default()).starts_with("0 samples in 0.0 s"));
    }
}
