//! What a sample costs the program that is sampled, beside an empty program on the same
//! event. The busy thread has CPU 1; whoever reads the samples has CPU 0.

use std::hint::black_box;
use std::time::{Duration, Instant};
use tracebyte::profile::Spec;
use tracebyte::profile::session::{Stop, run};
use tracebyte_tests::rounds::{Figures, Limit, Row, interleave, pin};
use tracebyte_tests::sampler::EmptySampler;

const FREQ_HZ: u32 = 9_999;
const ROUNDS: usize = 9;
/// A round is the best of so many loops: a noisy neighbour slows one more than a sample costs.
const LOOPS: usize = 7;
/// Turns of the busy loop that take about a tenth of a second.
const TURNS: u64 = 200_000_000;
const BUSY_CPU: usize = 1;
const READER_CPU: usize = 0;
/// Calls between the thread's start and the loop, so that a user stack has a usual depth.
const DEPTH: u32 = 15;

fn main() -> anyhow::Result<()> {
    if !tracebyte_tests::is_root() {
        eprintln!("only root may sample; nothing was measured");
        return Ok(());
    }
    pin(BUSY_CPU)?;
    let figures = interleave(
        ROUNDS,
        &mut [
            ("unsampled", &mut || best_seconds()),
            ("empty program", &mut || {
                // On both, as a session is: an idle neighbour changes what a timer costs in a
                // virtual machine.
                let _samplers = [BUSY_CPU, READER_CPU]
                    .map(|cpu| EmptySampler::start(cpu, FREQ_HZ.into()).expect("an empty program samples"));
                best_seconds()
            }),
            ("kernel and user stacks", &mut || sampled(true, true)),
            ("kernel stacks", &mut || sampled(true, false)),
        ],
    );
    let [none, empty, both, kernel] = &figures[..] else { unreachable!("four variants") };
    let cost = |figures: &Figures| Figures {
        variant: figures.variant.clone(),
        // The samples come by the clock, so a round's cost is spread over its own length.
        rounds: figures
            .rounds
            .iter()
            .zip(&none.rounds)
            .map(|(on, off)| (on - off) / (on * f64::from(FREQ_HZ)) * 1e6)
            .collect(),
    };
    let empty_cost = cost(empty);
    println!("{}", Row::new("sample, 9999 Hz", &empty_cost, "us").json());
    for figures in [kernel, both] {
        let cost = cost(figures);
        println!(
            "{}",
            Row::new("sample, 9999 Hz", &cost, "us").against("empty program", cost.ratio_to(&empty_cost)).json()
        );
        let share =
            Figures { variant: cost.variant, rounds: cost.rounds.iter().map(|us| us * 99.0 / 1e6 * 100.0).collect() };
        println!("{}", Row::new("sampling at 99 Hz", &share, "% of a core").limit(Limit::AtMost(0.3)).json());
    }
    Ok(())
}

/// Seconds that the loop takes while a session samples the whole machine.
fn sampled(kernel: bool, user: bool) -> f64 {
    let spec = Spec { pids: None, duration: Duration::from_secs(60), freq_hz: FREQ_HZ, kernel, user };
    let (stop, (started, running)) = (Stop::new(), std::sync::mpsc::channel());
    let stopper = stop.clone();
    let session = std::thread::spawn(move || {
        pin(READER_CPU).expect("the reader's CPU is there");
        run(&spec, || started.send(()).expect("the bench waits"), &stop)
    });
    running.recv().expect("the session begins");
    let seconds = best_seconds();
    stopper.stop();
    let profile = session.join().expect("the session does not panic").expect("the session samples");
    assert!(profile.samples > 0, "no sample was taken");
    seconds
}

/// The best of a round's loops.
fn best_seconds() -> f64 {
    (0..LOOPS).map(|_| seconds(DEPTH)).fold(f64::INFINITY, f64::min)
}

/// Seconds that the busy loop takes, `depth` calls deep.
#[inline(never)]
fn seconds(depth: u32) -> f64 {
    if depth > 0 {
        return black_box(seconds(depth - 1)) + 0.0;
    }
    let start = Instant::now();
    let mut turns = 0;
    for turn in 0..TURNS {
        turns = black_box(turns + (turn & 1));
    }
    black_box(turns);
    start.elapsed().as_secs_f64()
}
