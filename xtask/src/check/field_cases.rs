//! `tests/field_cases.md` names a test for each fault that users of such tools reported; a
//! test that is gone must not stay named.

use crate::run;
use anyhow::{Context, Result, bail};

const TABLE: &str = "tests/field_cases.md";

/// Fails where the table names a test that no source file has.
pub fn check() -> Result<()> {
    let table = std::fs::read_to_string(run::root().join(TABLE)).with_context(|| format!("cannot read `{TABLE}`"))?;
    let named = named(&table);
    if named.is_empty() {
        bail!("`{TABLE}` names no test");
    }
    let mut sources = String::new();
    for file in super::tracked()?.iter().filter(|file| file.ends_with(".rs")) {
        sources += &std::fs::read_to_string(run::root().join(file)).unwrap_or_default();
    }
    let missing: Vec<&str> = named.into_iter().filter(|test| !has(&sources, test)).collect();
    if !missing.is_empty() {
        bail!("`{TABLE}` names tests that do not exist: {}", missing.join(", "));
    }
    Ok(())
}

/// The names in backticks in the last column of the table's rows.
fn named(table: &str) -> Vec<&str> {
    let rows = table.lines().filter(|line| line.starts_with('|') && !line.starts_with("|---"));
    rows.skip(1).filter_map(|row| row.trim_end_matches('|').rsplit('|').next()).flat_map(quoted).collect()
}

fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn has(sources: &str, test: &str) -> bool {
    let name = test.rsplit("::").next().unwrap_or(test);
    sources.contains(&format!("fn {name}("))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_column_names_tests() {
        let table = "| report | test |\n|---|---|\n| a#1 `x` | `m::one`, `two` |\n| b#2 | none yet |\n";
        assert_eq!(named(table), ["m::one", "two"]);
        assert!(has("#[test]\nfn two() {}", "m::two") && !has("fn two_more()", "two"));
    }
}
