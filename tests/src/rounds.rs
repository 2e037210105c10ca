//! Figures that hold on a shared, noisy machine: variants measured in turn, round after
//! round, in one run; medians and minima; ratios between variants of the same run.

pub use crate::sys::pin;
use serde_json::{Value, json};
use std::time::Instant;

/// What came of one variant.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Its name.
    pub variant: String,
    /// One figure a round.
    pub rounds: Vec<f64>,
}

impl Figures {
    /// The median of the rounds.
    pub fn median(&self) -> f64 {
        median(&self.rounds)
    }

    /// The smallest of the rounds.
    pub fn min(&self) -> f64 {
        self.rounds.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The median of the ratios to `other`, round by round: what drifts with the machine's
    /// speed drops out.
    pub fn ratio_to(&self, other: &Self) -> f64 {
        median(&self.rounds.iter().zip(&other.rounds).map(|(a, b)| a / b).collect::<Vec<_>>())
    }

    /// The median of the differences to `other`, round by round.
    pub fn over(&self, other: &Self) -> f64 {
        median(&self.rounds.iter().zip(&other.rounds).map(|(a, b)| a - b).collect::<Vec<_>>())
    }
}

/// The median; NaN of nothing.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// A variant: its name, and what measures it once.
pub type Variant<'a> = (&'a str, &'a mut dyn FnMut() -> f64);

/// Measures every variant once a round, in turn, every other round backwards. The first
/// round warms up and is thrown away.
pub fn interleave(rounds: usize, variants: &mut [Variant<'_>]) -> Vec<Figures> {
    let mut figures: Vec<_> =
        variants.iter().map(|(name, _)| Figures { variant: (*name).to_owned(), rounds: Vec::new() }).collect();
    for round in 0..=rounds {
        let mut order: Vec<usize> = (0..variants.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let figure = variants[at].1();
            if round > 0 {
                figures[at].rounds.push(figure);
            }
        }
    }
    figures
}

/// Nanoseconds a call of `work`, over `calls` calls.
#[inline(always)]
pub fn time_ns(calls: u64, mut work: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    for call in 0..calls {
        work(call);
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}

/// A row of a bench's table.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was measured.
    pub workload: String,
    /// In which form.
    pub variant: String,
    /// What it is compared with; empty for nothing.
    pub peer: String,
    /// Unit of `median` and `min`.
    pub unit: String,
    /// Median of the rounds.
    pub median: f64,
    /// Minimum of the rounds.
    pub min: f64,
    /// How many rounds.
    pub rounds: usize,
    /// The figure that the limit is about, where it is a ratio or a difference to the peer.
    pub ratio: Option<f64>,
    /// What must be reached, in words: `<= 1.01`.
    pub limit: Option<Limit>,
}

/// What a figure must reach.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// At most so much.
    AtMost(f64),
    /// At least so much.
    AtLeast(f64),
}

impl Row {
    /// A row from figures, with no peer and no limit.
    pub fn new(workload: &str, figures: &Figures, unit: &str) -> Self {
        Self {
            workload: workload.to_owned(),
            variant: figures.variant.clone(),
            peer: String::new(),
            unit: unit.to_owned(),
            median: figures.median(),
            min: figures.min(),
            rounds: figures.rounds.len(),
            ratio: None,
            limit: None,
        }
    }

    /// Sets the ratio (or difference) to a peer.
    #[must_use]
    pub fn against(mut self, peer: &str, ratio: f64) -> Self {
        self.peer = peer.to_owned();
        self.ratio = Some(ratio);
        self
    }

    /// Sets what must be reached, by the ratio where there is one, else by the median.
    #[must_use]
    pub fn limit(mut self, limit: Limit) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Whether the limit is met; `None` where there is no limit.
    pub fn met(&self) -> Option<bool> {
        let figure = self.ratio.unwrap_or(self.median);
        self.limit.map(|limit| match limit {
            Limit::AtMost(most) => figure <= most,
            Limit::AtLeast(least) => figure >= least,
        })
    }

    /// As a JSON object. A limit is a string such as `<= 1.01`.
    pub fn json(&self) -> Value {
        let limit = self.limit.map(|limit| match limit {
            Limit::AtMost(most) => format!("<= {most}"),
            Limit::AtLeast(least) => format!(">= {least}"),
        });
        json!({
            "workload": self.workload, "variant": self.variant, "peer": self.peer, "unit": self.unit,
            "median": self.median, "min": self.min, "rounds": self.rounds,
            "ratio": self.ratio, "limit": limit, "met": self.met(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ratios_go_round_by_round() {
        let a = Figures { variant: "a".into(), rounds: vec![2.0, 20.0, 200.0] };
        let b = Figures { variant: "b".into(), rounds: vec![1.0, 10.0, 100.0] };
        assert_eq!((a.median(), a.min(), a.ratio_to(&b), a.over(&b)), (20.0, 2.0, 2.0, 10.0));
        assert_eq!(median(&[1.0, 2.0]), 1.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_first_round_is_thrown_away_and_order_turns() {
        let seen = std::cell::RefCell::new(String::new());
        let (mut a, mut b) = (
            || {
                seen.borrow_mut().push('a');
                1.0
            },
            || {
                seen.borrow_mut().push('b');
                2.0
            },
        );
        let figures = interleave(2, &mut [("a", &mut a), ("b", &mut b)]);
        assert_eq!(*seen.borrow(), "abbaab");
        assert_eq!(figures[1].rounds, [2.0, 2.0]);
    }

    #[test]
    fn a_limit_is_judged_by_the_ratio() {
        let figures = Figures { variant: "a".into(), rounds: vec![5.0] };
        let row = Row::new("w", &figures, "ns").against("b", 1.02).limit(Limit::AtMost(1.01));
        assert_eq!(row.met(), Some(false));
        assert_eq!(row.json()["limit"], "<= 1.01");
    }
}
