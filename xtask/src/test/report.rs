//! Counting what the tests printed.

use serde::Deserialize;
use std::collections::BTreeMap;

/// What became of the tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Tests that ran and held.
    pub passed: usize,
    /// Tests that failed, and what else must count as one.
    pub failed: usize,
    /// Skipped tests with their reasons.
    skipped: BTreeMap<String, String>,
    failures: Vec<String>,
}

/// `tests/skips.toml`: what may be skipped in CI.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    /// By the test's name.
    #[serde(default)]
    pub skips: BTreeMap<String, String>,
}

impl Report {
    /// Takes in a line of libtest's.
    pub fn line(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            let count = |what: &str| {
                let part = counts.split([';', '.']).map(str::trim).find_map(|part| part.strip_suffix(what));
                part.and_then(|number| number.trim().parse::<usize>().ok()).unwrap_or(0)
            };
            self.passed += count("passed");
            self.failed += count("failed");
        } else if let Some((test, outcome)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
            && let Some(reason) = outcome.strip_prefix("ignored")
        {
            let reason = reason.trim_start_matches(", ");
            self.skipped.insert(test.into(), if reason.is_empty() { "ignored".into() } else { reason.into() });
        }
    }

    /// Takes in the skip file: these tests returned early, and libtest counted them as passed.
    pub fn skips(&mut self, file: &str) {
        for (test, reason) in file.lines().filter_map(|line| line.split_once('\t')) {
            if self.skipped.insert(test.into(), reason.into()).is_none() {
                self.passed = self.passed.saturating_sub(1);
            }
        }
    }

    /// Counts the comparison of the machine before and after as one test.
    pub fn left_over(&mut self, left_over: &[String]) {
        match left_over {
            [] => self.passed += 1,
            _ => self.fail("nothing is left behind", &left_over.join(", ")),
        }
    }

    /// Counts one more failure.
    pub fn fail(&mut self, test: &str, why: &str) {
        self.failed += 1;
        self.failures.push(format!("failed: {test}: {why}"));
    }

    /// In CI a skip that nobody listed is a failure.
    pub fn unlisted_skips_fail(&mut self, listed: &Listed) {
        let unlisted: Vec<_> = self.skipped.keys().filter(|test| !listed.skips.contains_key(*test)).cloned().collect();
        for test in unlisted {
            self.fail(&test, "skipped, and not listed in tests/skips.toml");
        }
    }

    /// Prints the skips with their reasons, the failures, and last the counts.
    pub fn print(&self) {
        println!();
        for (test, reason) in &self.skipped {
            println!("skipped: {test}: {reason}");
        }
        for failure in &self.failures {
            println!("{failure}");
        }
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_summed_and_skips_taken_off() {
        let mut report = Report::default();
        report.line("test a::b ... ok");
        report.line("test c ... ignored, needs Go");
        report.line("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.02s");
        report.line("test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s");
        report.skips("a::b\tno prometheus\n");
        report.left_over(&[]);
        assert_eq!((report.passed, report.failed, report.skipped.len()), (5, 1, 2));
        assert_eq!(report.skipped["c"], "needs Go");
    }

    #[test]
    fn what_is_left_over_fails_and_is_named() {
        let mut report = Report::default();
        report.left_over(&["bpf map 7".into()]);
        assert_eq!((report.passed, report.failed), (0, 1));
        assert!(report.failures[0].contains("bpf map 7"));
    }

    #[test]
    fn an_unlisted_skip_fails() {
        let mut report = Report::default();
        report.skips("a\tx\nb\ty\n");
        report.unlisted_skips_fail(&toml::from_str("[skips]\na = \"why\"").unwrap());
        assert_eq!(report.failed, 1);
    }
}
