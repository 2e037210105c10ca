//! Durations as people write them: `0ms`, `50ms`, `5s`, `2m`, `1h`.

use std::time::Duration;

/// Longest duration taken, in seconds: a year, so that no sum of times overflows.
const SECONDS_MAX: u64 = 366 * 24 * 3600;

/// Reads a duration: a whole number and a unit.
pub fn parse(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let hint = "write a whole number and a unit, such as 50ms, 5s, 2m or 1h";
    if digits.is_empty() {
        return Err(format!("no number; {hint}"));
    }
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "" => return Err(format!("no unit; {hint}")),
        _ => return Err(format!("unknown unit `{unit}`; {hint}")),
    };
    let ms = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(unit_ms));
    match ms.map(Duration::from_millis) {
        Some(duration) if duration.as_secs() <= SECONDS_MAX => Ok(duration),
        _ => Err("longer than a year".to_owned()),
    }
}

/// In milliseconds, as the control socket carries it.
pub fn as_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, ms) in [("0ms", 0), ("50ms", 50), ("5s", 5_000), ("2m", 120_000), ("1h", 3_600_000), ("007s", 7_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, says) in [
            ("", "no number"),
            ("5", "no unit"),
            ("s", "no number"),
            ("-5s", "no number"),
            ("1.5s", "unknown unit `.5s`"),
            ("5 s", "unknown unit ` s`"),
            ("5sec", "unknown unit `sec`"),
            ("5S", "unknown unit `S`"),
            ("99999999999999999999s", "longer than a year"),
            ("18446744073709551615h", "longer than a year"),
            ("9000h", "longer than a year"),
            ("5µs", "unknown unit `µs`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(says), "{text}: {error}");
        }
    }
}
