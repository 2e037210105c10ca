//! The `Date` header, written once a second.

use crate::sys::process::coarse_unix_seconds;

/// Length of a date, in bytes.
const DATE_BYTES: usize = 29;

/// The present date as text.
#[derive(Debug)]
pub(super) struct Date {
    seconds: u64,
    text: [u8; DATE_BYTES],
}

impl Date {
    pub(super) fn now() -> Self {
        let seconds = coarse_unix_seconds();
        Self { seconds, text: format(seconds) }
    }

    /// Writes it anew where the second has changed.
    pub(super) fn refresh(&mut self) {
        let seconds = coarse_unix_seconds();
        if seconds != self.seconds {
            *self = Self { seconds, text: format(seconds) };
        }
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }
}

fn format(seconds: u64) -> [u8; DATE_BYTES] {
    const DAYS: &[u8; 21] = b"ThuFriSatSunMonTueWed";
    const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    let weekday = (days % 7) as usize;
    text[..3].copy_from_slice(&DAYS[3 * weekday..3 * weekday + 3]);
    text[8..11].copy_from_slice(&MONTHS[3 * month..3 * month + 3]);
    for (at, number) in [(5, day), (12, year / 100), (14, year % 100)] {
        put_two(&mut text, at, number);
    }
    for (at, number) in [(17, second / 3600), (20, second / 60 % 60), (23, second % 60)] {
        put_two(&mut text, at, number);
    }
    text
}

fn put_two(text: &mut [u8; DATE_BYTES], at: usize, number: u64) {
    text[at] = b'0' + (number / 10 % 10) as u8;
    text[at + 1] = b'0' + (number % 10) as u8;
}

/// Year, month from 0, and day from 1, of a day counted from 1970-01-01. Counts in years
/// that begin in March, so that the leap day is a year's last.
fn civil(days: u64) -> (u64, usize, u64) {
    let since_0000_03 = days + 719_468;
    let (era, day_of_era) = (since_0000_03 / 146_097, since_0000_03 % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12;
    (400 * era + year_of_era + u64::from(month < 2), month as usize, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        for (seconds, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_735_689_599, "Tue, 31 Dec 2024 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(std::str::from_utf8(&format(seconds)).unwrap(), text);
        }
    }
}
