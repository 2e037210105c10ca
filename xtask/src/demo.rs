//! The main job, shown on a real server under load: tracing switched on and off, counted
//! exactly, and a kernel profile. Needs nothing but cargo.

mod steps;

use crate::run;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use steps::{Demo, Profiled, Traced};
use tracebyte_tests::{bins, sys};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Keep everything up for looking around, until Ctrl-C.
    #[arg(long)]
    serve: bool,
}

/// Runs the demonstration; fails where begins, ends and requests disagree.
pub fn run(args: &Args) -> Result<()> {
    if std::env::var_os(bins::BIN_DIR_ENV).is_none() {
        run::run(run::cargo().args(["build", "--quiet", "--release", "--bins"]))?;
    }
    // Everything started below ends with its handle: Ctrl-C must let us get there.
    let interrupted = sys::catch_interrupts();
    let out = out_dir()?;
    let demo = Demo::start(out.clone())?;
    println!("agent up on {}, {} mode", demo.run_dir().display(), demo.mode());
    println!("server {} up on http://{}", demo.server_pid(), demo.server_address());

    let traced = step(interrupted, || demo.trace())?;
    println!("node.http on, {} requests: {} begins, {} ends", traced.requests, traced.begins, traced.ends);
    println!("node.http off, {} requests: {} events", traced.requests_off, traced.events_off);
    let profiled = step(interrupted, || demo.profile())?;
    demo.write_metrics()?;
    for line in demo.missing() {
        println!("{line}");
    }
    println!("written: {}", demo.written().join(", "));
    println!("{}", summary(demo.mode(), &traced, profiled.as_ref()));
    if args.serve {
        let _load = demo.invite();
        while !interrupted.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    if !traced.agrees() {
        bail!("begins, ends and requests traced do not agree: {traced:?}");
    }
    Ok(())
}

fn step<T>(interrupted: &AtomicBool, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let done = work();
    if interrupted.load(Ordering::Acquire) {
        bail!("interrupted");
    }
    done
}

fn out_dir() -> Result<PathBuf> {
    let dir = bins::target_dir().join("demo");
    // What an earlier run left must not pass for this one's.
    if dir.exists() {
        std::fs::remove_dir_all(&dir).with_context(|| format!("cannot empty `{}`", dir.display()))?;
    }
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make `{}`", dir.display()))?;
    Ok(dir)
}

fn summary(mode: &str, traced: &Traced, profiled: Option<&Profiled>) -> String {
    let Traced { requests, begins, ends, lost, .. } = traced;
    let profile = match profiled {
        Some(Profiled { samples, kernel: Some(share) }) => format!("samples {samples}, in the kernel {share}%"),
        Some(Profiled { samples, kernel: None }) => format!("samples {samples}, share in the kernel unknown"),
        None => "no profile".into(),
    };
    format!("mode {mode}, requests {requests}, begins {begins}, ends {ends}, lost {lost}, {profile}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_not_shown_as_zero() {
        let traced = Traced { requests: 5, begins: 5, ends: 5, ..Traced::default() };
        let line = summary("reduced", &traced, None);
        assert_eq!(line, "mode reduced, requests 5, begins 5, ends 5, lost 0, no profile");
        let line = summary("full", &traced, Some(&Profiled { samples: 9, kernel: None }));
        assert!(line.ends_with("samples 9, share in the kernel unknown"));
    }
}
