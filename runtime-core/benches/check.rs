//! What the check costs, beside an empty loop, a relaxed load, `tracing::enabled!` and a
//! look-up in a hash map.

use runtime_core::check::enabled;
use runtime_core_abi::page::NODE_HTTP;
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};
use tracebyte_tests::rounds::{Limit, Row, interleave, pin, time_ns};

const CALLS: u64 = 50_000_000;
const ROUNDS: usize = 9;

static FLAG: AtomicU32 = AtomicU32::new(0);

fn main() -> anyhow::Result<()> {
    pin(0)?;
    let map: HashMap<&str, bool> = HashMap::from([("node.http", false), ("node.async_hooks", false)]);
    // A reachable store in every loop, so that none can be folded away; the empty loop
    // has it too.
    let figures = interleave(
        ROUNDS,
        &mut [
            ("empty loop", &mut || count(|| false)),
            ("check", &mut || count(enabled::<NODE_HTTP>)),
            ("relaxed load", &mut || count(|| FLAG.load(Ordering::Relaxed) != 0)),
            ("tracing::enabled!", &mut || count(|| tracing::enabled!(tracing::Level::TRACE))),
            ("hash map", &mut || count(|| map.get(black_box("node.http")).copied().unwrap_or_default())),
        ],
    );
    let [empty, check, load, tracing, map] = &figures[..] else { unreachable!("five variants") };
    let mut rows = vec![
        Row::new("check", empty, "ns"),
        Row::new("check", check, "ns").against("empty loop, ns over it", check.over(empty)).limit(Limit::AtMost(0.35)),
        Row::new("check", check, "ns").against("relaxed load", check.ratio_to(load)).limit(Limit::AtMost(1.1)),
    ];
    rows.extend([load, tracing, map].map(|peer| Row::new("check", peer, "ns").against("check", peer.ratio_to(check))));
    for row in rows {
        println!("{}", row.json());
    }
    Ok(())
}

/// Nanoseconds a turn of a loop with `check` in it.
#[inline(always)]
fn count(check: impl Fn() -> bool) -> f64 {
    let mut on = 0_u64;
    time_ns(CALLS, |call| {
        if check() {
            on = black_box(on + 1);
        }
        black_box(call);
    })
}
