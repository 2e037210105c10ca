//! What an entry costs over a plain call of a boxed closure.
//!
//! Every variant runs the same closure, which counts in memory that the bench reads in
//! the end, so that no loop can be folded away; the empty loop is a row too.

use anyhow::{Result, bail};
use runtime_core::callback::{AsyncHook, AsyncResource, Hooks, make_callback, next_tick};
use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;
use tracebyte_tests::rounds::{Figures, Limit, Row, Variant, interleave, pin, time_ns};

const CALLS: u64 = 20_000;

type Work = Box<dyn FnMut(u64)>;

/// A closure that the compiler cannot see through.
#[inline(never)]
fn boxed(count: &Rc<Cell<u64>>) -> Work {
    let count = count.clone();
    black_box(Box::new(move |call| count.set(count.get().wrapping_add(call | 1))))
}

/// Hooks of the kind that a call meets, counting. Each in memory of its own, so that the
/// bench does not measure three additions that wait for each other.
fn hooks() -> AsyncHook {
    let (before, after) = (Cell::new(0), Cell::new(0));
    Hooks::new()
        .before(move |id| before.set(before.get() ^ id.get()))
        .after(move |_| after.set(after.get() + 1))
        .enable()
}

fn main() -> Result<()> {
    let json = std::env::args().any(|arg| arg == "--json");
    let quick = std::env::args().any(|arg| arg == "--quick");
    let rounds = if quick { 101 } else { 401 };
    pin(std::thread::available_parallelism()?.get() - 1)?;
    let count = Rc::new(Cell::new(0));
    for row in rows(rounds, &count)? {
        if json {
            println!("{}", row.json());
        } else {
            println!("{:<30} {:>8.2} {:>8.2} {:>8.2?} {:?}", row.variant, row.median, row.min, row.ratio, row.met());
        }
    }
    // The reachable store.
    eprintln!("counted {}", count.get());
    Ok(())
}

fn rows(rounds: usize, count: &Rc<Cell<u64>>) -> Result<Vec<Row>> {
    let resource = AsyncResource::new("BENCH");
    let off = tracing::info_span!(parent: None, "callback");
    let registry = tracing::Dispatch::new(tracing_subscriber::registry());
    let on = tracing::dispatcher::with_default(&registry, || tracing::info_span!("callback"));
    let mut work = [(); 6].map(|()| boxed(count));
    let [plain, entered, hooked, ticked, span_off, span_on] = &mut work;
    let mut empty = || {
        time_ns(CALLS, |call| {
            black_box(call);
        })
    };
    let mut plain = || time_ns(CALLS, |call| black_box(&mut *plain)(call));
    let mut entered = || time_ns(CALLS, |call| make_callback(&resource, || black_box(&mut *entered)(call)).unwrap());
    let mut hooked = || {
        let _hooks = hooks();
        time_ns(CALLS, |call| make_callback(&resource, || black_box(&mut *hooked)(call)).unwrap())
    };
    let mut ticked = || {
        time_ns(CALLS / 10, |call| {
            make_callback(&resource, || {
                black_box(&mut *ticked)(call);
                next_tick(|| {});
            })
            .unwrap();
        })
    };
    let mut span_off = || time_ns(CALLS, |call| off.in_scope(|| black_box(&mut *span_off)(call)));
    let mut span_on = || {
        tracing::dispatcher::with_default(&registry, || {
            time_ns(CALLS, |call| on.in_scope(|| black_box(&mut *span_on)(call)))
        })
    };
    let mut variants: [Variant<'_>; 7] = [
        ("empty loop", &mut empty),
        ("Box<dyn FnMut>", &mut plain),
        ("hooks off", &mut entered),
        ("hooks on", &mut hooked),
        ("with a tick", &mut ticked),
        ("tracing span, no subscriber", &mut span_off),
        ("tracing span, registry", &mut span_on),
    ];
    let figures = interleave(rounds, &mut variants);
    let [_, plain, entered, hooked, ..] = &figures[..] else { bail!("variants and figures differ") };
    let row = |figures: &Figures| Row::new("make-callback", figures, "ns");
    Ok(figures
        .iter()
        .map(|figures| match figures.variant.as_str() {
            "hooks off" => row(figures).against("over Box<dyn FnMut>", entered.over(plain)).limit(Limit::AtMost(1.2)),
            "hooks on" => row(figures).against("over hooks off", hooked.over(entered)).limit(Limit::AtMost(5.0)),
            _ => row(figures),
        })
        .collect())
}
