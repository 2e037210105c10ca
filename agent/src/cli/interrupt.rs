//! Ctrl-C, SIGTERM and SIGHUP end a stream well; the second one ends the command.

use super::output;
use crate::control::client::Stopper;
use crate::error::Failure;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals, caught from [`Interrupt::catch`] on.
pub struct Interrupt {
    runtime: tokio::runtime::Runtime,
    signals: [Signal; 3],
}

impl Interrupt {
    /// Catches the signals, before the session begins, so that none is lost.
    pub fn catch() -> Result<Self, Failure> {
        let cannot = |error| Failure::new(format!("cannot catch signals: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(cannot)?;
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let caught: Result<Vec<Signal>, _> = {
            let _inside = runtime.enter();
            kinds.into_iter().map(signal).collect()
        };
        let signals = caught.map_err(cannot)?.try_into().unwrap_or_else(|_| unreachable!("three kinds, three signals"));
        Ok(Self { runtime, signals })
    }

    /// Closes the stream's window at the first signal and ends the command at the second.
    pub fn stop(self, stopper: Stopper) {
        std::thread::spawn(move || self.wait_and_stop(&stopper));
    }

    fn wait_and_stop(self, stopper: &Stopper) {
        let Self { runtime, mut signals } = self;
        let mut next = || {
            runtime.block_on(async {
                let [interrupt, terminate, hangup] = &mut signals;
                tokio::select! {
                    _ = interrupt.recv() => 2,
                    _ = terminate.recv() => 15,
                    _ = hangup.recv() => 1,
                }
            })
        };
        next();
        if output::is_watched() {
            output::say("\nending; once more to give up");
        }
        if let Err(failure) = stopper.stop() {
            output::complain(&failure);
        }
        std::process::exit(128 + next());
    }
}
