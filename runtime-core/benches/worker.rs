//! What a message costs: on one thread, and there and back between two.
//!
//! One thread: a batch is posted and then delivered, by each peer in the way it is meant to
//! be used; the figure is per message, and the handler adds the text's length to memory that
//! is read in the end. Two threads: a number goes there and back; both on one core, where
//! every turn is a sleep and a wake-up, and on two.

use anyhow::{Context, Result};
use runtime_core::worker::{BoundPort, Event, MessagePort, Value, Wake, channel, current_thread, to_value};
use std::cell::Cell;
use std::collections::VecDeque;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tracebyte_tests::rounds::{Figures, Limit, Row, Variant, interleave, pin};

const BATCH: u64 = 256;
const TURNS_ONE_CORE: u64 = 1000;
const TURNS_TWO_CORES: u64 = 3000;
/// Looks before a sleep where the ends have a core each: about as long as a sleep and a
/// wake-up would take.
const SPINS: u32 = 20_000;
const LONG: Duration = Duration::from_secs(10);

#[derive(serde::Serialize)]
struct Payload {
    action: &'static str,
    payload: u32,
    valid: bool,
}

const OBJECT: Payload = Payload { action: "pewpewpew", payload: 9999, valid: true };

/// The loop is in the bench's own hands.
struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

fn main() -> Result<()> {
    let json = std::env::args().any(|arg| arg == "--json");
    let quick = std::env::args().any(|arg| arg == "--quick");
    // Before this thread is pinned: then only one core is left to count.
    let last = thread::available_parallelism()?.get() - 1;
    let mut rows = one_thread(last, if quick { 101 } else { 401 })?;
    rows.extend(round_trips(last, if quick { 7 } else { 21 })?);
    for row in rows {
        if json {
            println!("{}", row.json());
        } else {
            println!(
                "{:<16} {:<34} {:>9.1} {:>9.1} {:>8.3?} {:?}",
                row.workload,
                row.variant,
                row.median,
                row.min,
                row.ratio,
                row.met()
            );
        }
    }
    Ok(())
}

/// Nanoseconds a message: `work` posts and delivers a batch.
fn per_message(mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / BATCH as f64
}

fn one_thread(core: usize, rounds: usize) -> Result<Vec<Row>> {
    pin(core)?;
    let seen = Rc::new(Cell::new(0usize));
    let count = |value: &Value| {
        seen.set(seen.get() + value.as_str().map_or(1, str::len));
    };
    let port = |bind: &dyn Fn(&BoundPort)| {
        let (a, b) = channel();
        let (a, b) = (a.bind(Arc::new(NoWake)), b.bind(Arc::new(NoWake)));
        bind(&b);
        (a, b)
    };
    let handler = |b: &BoundPort| {
        let seen = seen.clone();
        b.on_message(move |value| seen.set(seen.get() + value.as_str().map_or(1, str::len)));
    };
    let target = |b: &BoundPort| {
        let seen = seen.clone();
        b.target().add(move |event| {
            if let Event::Message(value) = event {
                seen.set(seen.get() + value.as_str().map_or(1, str::len));
            }
        });
    };
    let text = || Value::from(black_box("hello world!"));
    let object = || to_value(black_box(&OBJECT)).unwrap_or_default();
    let ports = [port(&handler), port(&target), port(&handler), port(&target)];
    let run = |(a, b): &(BoundPort, BoundPort), value: &dyn Fn() -> Value| {
        per_message(|| {
            for _ in 0..BATCH {
                let _ = a.post(value());
            }
            assert_eq!(b.deliver() as u64, BATCH);
        })
    };
    let mut deque: VecDeque<Value> = VecDeque::new();
    let mut plain = || {
        per_message(|| {
            (0..BATCH).for_each(|_| deque.push_back(text()));
            while let Some(value) = deque.pop_front() {
                count(&value);
            }
        })
    };
    let (flume_in, flume_out) = flume::unbounded();
    let mut flume = || {
        per_message(|| {
            (0..BATCH).for_each(|_| drop(flume_in.send(text())));
            flume_out.try_iter().for_each(|value| count(&value));
        })
    };
    let (cross_in, cross_out) = crossbeam_channel::unbounded();
    let mut crossbeam = || {
        per_message(|| {
            (0..BATCH).for_each(|_| drop(cross_in.send(text())));
            cross_out.try_iter().for_each(|value| count(&value));
        })
    };
    let (tokio_in, mut tokio_out) = tokio::sync::mpsc::unbounded_channel();
    let mut tokio = || {
        per_message(|| {
            (0..BATCH).for_each(|_| drop(tokio_in.send(text())));
            while let Ok(value) = tokio_out.try_recv() {
                count(&value);
            }
        })
    };
    let [handler_text, target_text, handler_object, target_object] = &ports;
    let mut variants: [Variant<'_>; 8] = [
        ("handler, string", &mut || run(handler_text, &text)),
        ("event target, string", &mut || run(target_text, &text)),
        ("handler, object", &mut || run(handler_object, &object)),
        ("event target, object", &mut || run(target_object, &object)),
        ("VecDeque, string", &mut plain),
        ("flume, string", &mut flume),
        ("crossbeam-channel, string", &mut crossbeam),
        ("tokio mpsc, string", &mut tokio),
    ];
    let figures = interleave(rounds, &mut variants);
    eprintln!("counted {}", seen.get());
    let row = |figures: &Figures| {
        let row = Row::new("messageport", figures, "ns");
        if ["handler, string", "event target, string"].contains(&figures.variant.as_str()) {
            row.limit(Limit::AtMost(30.0))
        } else {
            row
        }
    };
    Ok(figures.iter().map(row).collect())
}

/// One side of a round trip, made on the thread that uses it.
struct End {
    send: Box<dyn FnMut(u64)>,
    /// Returns when one more message has come.
    wait: Box<dyn FnMut()>,
}

type Open = Box<dyn FnOnce() -> End + Send>;

/// Nanoseconds there and back.
fn trip((here, there): (Open, Open), turns: u64, cores: [usize; 2]) -> Result<f64> {
    const WARM_UP: u64 = 20;
    let other = thread::spawn(move || {
        pin(cores[1])?;
        let mut end = there();
        for turn in 0..turns + WARM_UP {
            (end.wait)();
            (end.send)(turn);
        }
        anyhow::Ok(())
    });
    let this = thread::spawn(move || {
        pin(cores[0])?;
        let mut end = here();
        let mut start = Instant::now();
        for turn in 0..turns + WARM_UP {
            if turn == WARM_UP {
                start = Instant::now();
            }
            (end.send)(turn);
            (end.wait)();
        }
        anyhow::Ok(start.elapsed().as_nanos() as f64 / turns as f64)
    });
    let took = this.join().ok().context("a thread of a round trip died")??;
    other.join().ok().context("a thread of a round trip died")??;
    Ok(took)
}

fn port_end(port: MessagePort, spins: u32) -> End {
    let port = Rc::new(port.bind(current_thread()));
    let (got, mut seen) = (Rc::new(Cell::new(0)), 0);
    let count = got.clone();
    port.on_message(move |value| {
        black_box(value);
        count.set(count.get() + 1);
    });
    let sender = port.clone();
    End {
        send: Box::new(move |turn| drop(sender.post(turn))),
        wait: Box::new(move || {
            while got.get() == seen && port.wait(spins, LONG) {
                port.deliver();
            }
            seen += 1;
        }),
    }
}

/// The limit: a kernel counter each way, and nothing else.
fn eventfd_ends() -> (Open, Open) {
    let fd = || Arc::new(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an eventfd"));
    let (a, b) = (fd(), fd());
    let end = |out: Arc<rustix::fd::OwnedFd>, own: Arc<rustix::fd::OwnedFd>| -> Open {
        Box::new(move || End {
            send: Box::new(move |_| {
                let _ = rustix::io::write(&out, &1u64.to_ne_bytes());
            }),
            wait: Box::new(move || {
                let _ = black_box(rustix::io::read(&own, &mut [0; 8]));
            }),
        })
    };
    (end(a.clone(), b.clone()), end(b, a))
}

fn crossbeam_ends() -> (Open, Open) {
    let (a, b) = (crossbeam_channel::unbounded(), crossbeam_channel::unbounded());
    let end = |out: crossbeam_channel::Sender<Value>, own: crossbeam_channel::Receiver<Value>| -> Open {
        Box::new(move || End {
            send: Box::new(move |turn| drop(out.send(turn.into()))),
            wait: Box::new(move || drop(black_box(own.recv()))),
        })
    };
    (end(a.0, b.1), end(b.0, a.1))
}

fn flume_ends() -> (Open, Open) {
    let (a, b) = (flume::unbounded(), flume::unbounded());
    let end = |out: flume::Sender<Value>, own: flume::Receiver<Value>| -> Open {
        Box::new(move || End {
            send: Box::new(move |turn| drop(out.send(turn.into()))),
            wait: Box::new(move || drop(black_box(own.recv()))),
        })
    };
    (end(a.0, b.1), end(b.0, a.1))
}

fn port_ends(spins: u32) -> (Open, Open) {
    let (a, b) = channel();
    (Box::new(move || port_end(a, spins)), Box::new(move || port_end(b, spins)))
}

fn round_trips(last: usize, rounds: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (workload, cores, turns, spins) in [
        ("round-trip-1core", [last, last], TURNS_ONE_CORE, 0),
        ("round-trip-2cores", [0, last], TURNS_TWO_CORES, SPINS),
    ] {
        if cores[0] == cores[1] && workload.ends_with("2cores") {
            eprintln!("skipped: {workload}: there is one core");
            continue;
        }
        let time = |ends| trip(ends, turns, cores).unwrap_or(f64::NAN);
        let figures = interleave(
            rounds,
            &mut [
                ("ports", &mut || time(port_ends(spins))),
                ("eventfd", &mut || time(eventfd_ends())),
                ("crossbeam-channel", &mut || time(crossbeam_ends())),
                ("flume", &mut || time(flume_ends())),
            ],
        );
        let (peer, limit) = if spins == 0 { (&figures[1], 1.05) } else { (&figures[2], 1.0) };
        let ratio = figures[0].ratio_to(peer);
        rows.push(Row::new(workload, &figures[0], "ns").against(&peer.variant, ratio).limit(Limit::AtMost(limit)));
        rows.extend(figures[1..].iter().map(|figures| Row::new(workload, figures, "ns")));
    }
    Ok(rows)
}
