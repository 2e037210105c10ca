//! Folded stacks: lines of `frames count`, the form every flame graph tool reads.
//!
//! Root first, the process's name before the frames, joined by `;`. Nothing else is in the
//! output: what there is to say beside the samples goes elsewhere.

use super::Profile;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes a profile, one line a distinct stack, sorted.
pub fn write(profile: &Profile, to: &mut impl Write) -> io::Result<()> {
    // Processes of one name share their lines.
    let mut lines = BTreeMap::<String, u64>::new();
    for row in profile.rows() {
        let mut line = clean(row.process).into_owned();
        for frame in row.frames {
            line.push(';');
            line.push_str(&clean(&frame.name));
        }
        *lines.entry(line).or_default() += row.count;
    }
    for (line, count) in lines {
        writeln!(to, "{line} {count}")?;
    }
    Ok(())
}

/// A name as it can stand in a line: without what separates frames, ends lines, begins a
/// comment, or looks like a count at the end.
pub(super) fn clean(name: &str) -> Cow<'_, str> {
    let odd = |c: char| c == ';' || c.is_control() || is_unfit_for_xml(c);
    let name = name.trim();
    if name.is_empty() {
        return "[unknown]".into();
    }
    let numbered = name.rsplit_once(char::is_whitespace).filter(|(_, last)| is_number(last));
    if numbered.is_none() && !is_number(name) && !name.starts_with('#') && !name.contains(odd) {
        return name.into();
    }
    let mut cleaned: String = name.chars().map(|c| if odd(c) { '_' } else { c }).collect();
    if let Some((before, _)) = cleaned.rsplit_once(char::is_whitespace).filter(|(_, last)| is_number(last)) {
        let gap = before.len();
        let width = cleaned[gap..].chars().next().map_or(1, char::len_utf8);
        cleaned.replace_range(gap..gap + width, "_");
    }
    if cleaned.starts_with('#') || is_number(&cleaned) {
        cleaned.insert(0, '_');
    }
    cleaned.into()
}

fn is_number(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// Characters that XML cannot hold, not even escaped, and that no name needs.
fn is_unfit_for_xml(c: char) -> bool {
    matches!(c, '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::super::tests::{hostile_profile, profile};
    use super::*;
    use proptest::prelude::*;

    fn folded(profile: &Profile) -> String {
        let mut out = Vec::new();
        write(profile, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_are_frames_and_a_count() {
        assert_eq!(folded(&profile()), "[missed stack] 3\nserver;main;work 4\nserver;main;work;sys_read 2\n");
    }

    #[test]
    fn names_are_cleaned() {
        assert_eq!(clean("a;b\nc"), "a_b_c");
        assert_eq!(clean("worker 1"), "worker_1");
        assert_eq!(clean("# note"), "_# note");
        assert_eq!(clean("12"), "_12");
        assert_eq!(clean(" \t"), "[unknown]");
        assert_eq!(clean("<T as Into<U>>::into"), "<T as Into<U>>::into");
    }

    proptest! {
        #[test]
        fn every_line_parses_and_the_counts_add_up(profile in hostile_profile()) {
            let text = folded(&profile);
            let mut total = 0;
            for line in text.lines() {
                let (frames, count) = line.rsplit_once(' ').unwrap();
                prop_assert!(frames.split(';').all(|frame| !frame.trim().is_empty()));
                prop_assert!(!line.contains(char::is_control));
                total += count.parse::<u64>().unwrap();
            }
            prop_assert_eq!(total, profile.samples + profile.lost);
        }
    }
}
