//! Which categories somebody wants, as a list of patterns.
//!
//! The words are those of Chrome's and V8's trace configuration: `node.*,-node.fs` is all of
//! `node.` but `node.fs`. Categories whose names begin with `disabled-by-default-` are costly
//! and are taken only by a pattern that spells this prefix out.

use runtime_core_abi::page::NAME_BYTES_MAX;
use std::fmt;
use std::str::FromStr;

/// The prefix of categories that only a pattern which spells it out takes.
pub const DISABLED_BY_DEFAULT: &str = "disabled-by-default-";

/// A list of patterns, parsed from text: separated by commas, a `-` before those that are
/// excluded, `*` for any run of characters. A list that only excludes takes all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    include: Vec<String>,
    exclude: Vec<String>,
}

/// The text is no list of patterns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFilter {
    /// Nothing in it, or nothing between two commas or after a `-`.
    #[error("empty pattern in `{0}`: name categories, such as `node.http` or `node.*,-node.fs`")]
    Empty(String),
    /// A pattern longer than any name.
    #[error("pattern `{0}` is longer than {NAME_BYTES_MAX} bytes, which no category's name is")]
    Long(String),
}

impl FromStr for Filter {
    type Err = BadFilter;

    fn from_str(text: &str) -> Result<Self, BadFilter> {
        let (mut include, mut exclude) = (Vec::new(), Vec::new());
        for item in text.split(',').map(str::trim) {
            let (list, pattern) = match item.strip_prefix('-') {
                Some(rest) => (&mut exclude, rest),
                None => (&mut include, item),
            };
            match pattern.len() {
                0 => return Err(BadFilter::Empty(text.into())),
                1..=NAME_BYTES_MAX => list.push(pattern.to_owned()),
                _ => return Err(BadFilter::Long(pattern.into())),
            }
        }
        if include.is_empty() {
            include.push("*".to_owned());
        }
        Ok(Self { include, exclude })
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.include.join(","))?;
        self.exclude.iter().try_for_each(|pattern| write!(f, ",-{pattern}"))
    }
}

impl Filter {
    /// Whether it takes a category. A name that is a list (`node,node.http`) is taken when any
    /// of its parts is.
    pub fn matches(&self, name: &str) -> bool {
        name.split(',').any(|part| self.matches_part(part))
    }

    fn matches_part(&self, part: &str) -> bool {
        let takes = |pattern: &String| {
            glob(pattern.as_bytes(), part.as_bytes())
                && (!part.starts_with(DISABLED_BY_DEFAULT) || pattern.starts_with(DISABLED_BY_DEFAULT))
        };
        let drops = |pattern: &String| glob(pattern.as_bytes(), part.as_bytes());
        self.include.iter().any(takes) && !self.exclude.iter().any(drops)
    }
}

/// Whether `pattern`, in which `*` stands for any run of bytes, is all of `text`. Goes back
/// only to the last star, so that its time is bounded by the product of the lengths.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                star = Some((p, t));
            }
            Some(byte) if *byte == text[t] => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((after, from)) => {
                    (p, t) = (after, from + 1);
                    star = Some((after, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn takes(filter: &str, name: &str) -> bool {
        filter.parse::<Filter>().unwrap().matches(name)
    }

    #[test]
    fn names_patterns_and_exclusions() {
        assert!(takes("node.http", "node.http") && !takes("node.http", "node.http2") && !takes("node.http", "node"));
        assert!(takes("v8, node.*", "node.fs.sync") && !takes("node.*", "node"));
        assert!(!takes("node.*,-node.fs*", "node.fs.async") && takes("node.*,-node.fs*", "node.http"));
        assert!(takes("-v8.*", "anything") && !takes("-v8.*", "v8.gc"));
        assert!(takes("*.sync", "node.fs.sync") && takes("n*e.*h*p", "node.http") && !takes("n*x", "node"));
    }

    #[test]
    fn a_list_is_taken_with_any_part() {
        assert!(takes("node.http", "node,node.http") && takes("node", "node,node.http"));
        assert!(!takes("v8", "node,node.http"));
        assert!(takes("node*,-node.http", "node,node.http"), "the other part is still there");
        assert!(!takes("node.*,-node.http", "node,node.http"));
    }

    #[test]
    fn costly_categories_are_taken_only_by_name() {
        let costly = "disabled-by-default-v8.cpu_profiler";
        assert!(!takes("*", costly) && !takes("-v8", costly) && !takes("*v8*", costly));
        assert!(takes(costly, costly) && takes("disabled-by-default-*", costly));
        assert!(!takes("disabled-by-default-*,-*v8*", costly));
        assert!(takes("*", &format!("{costly},node")));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["", ",", "node.http,", "-", "a,,b", " "] {
            assert!(matches!(text.parse::<Filter>(), Err(BadFilter::Empty(_))), "{text:?}");
        }
        assert!(matches!("x".repeat(129).parse::<Filter>(), Err(BadFilter::Long(_))));
        assert_eq!("a, b,-c".parse::<Filter>().unwrap().to_string(), "a,b,-c");
    }

    fn slow_glob(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), _) => (0..=text.len()).any(|skip| slow_glob(rest, &text[skip..])),
            (Some((p, pattern)), Some((t, text))) => p == t && slow_glob(pattern, text),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn glob_is_what_a_plain_search_says(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), slow_glob(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
