//! One event as an object of Chrome's trace format.
//!
//! The program can have passed anything for text, and anything for JSON: text is made UTF-8
//! and escaped, JSON is checked, so that the file stays valid whatever is in it.

use crate::page;
use runtime_core_abi::record::{Arg, Record, Value};
use std::io::Write;

/// How deep JSON may nest before it is written as a string.
const DEPTH_MAX: usize = 64;

/// Appends the event of a process. Times are in microseconds.
pub fn event(out: &mut Vec<u8>, record: &Record<'_>, pid: u32) {
    let head = &record.head;
    // Writing to a `Vec` cannot fail, here and below.
    let _ = write!(out, r#"{{"pid":{pid},"tid":{},"ts":{}"#, head.tid, Micros(head.ts_ns));
    let _ = write!(out, r#","ph":"{}","cat":"#, char::from(head.phase).escape_default());
    string(out, page::category_name(head.category.into()).unwrap_or_default().as_bytes());
    out.extend(br#","name":"#);
    string(out, record.name);
    let _ = match head.phase {
        b'X' => write!(out, r#","dur":{}"#, Micros(head.id)),
        b'b' | b'n' | b'e' => write!(out, r#","id":"{:#x}""#, head.id),
        // Of the thread, not of the whole process.
        b'i' => write!(out, r#","s":"t""#),
        _ => Ok(()),
    };
    out.extend(br#","args":{"#);
    let mut comma: &[u8] = b"";
    for arg in record.args().flatten() {
        out.extend(comma);
        argument(out, &arg);
        comma = b",";
    }
    if let Some(route) = page::route_name(head.route) {
        out.extend(comma);
        out.extend(br#""route":"#);
        string(out, route.as_bytes());
    }
    out.extend(b"}}");
}

/// Nanoseconds, shown as microseconds.
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

fn argument(out: &mut Vec<u8>, arg: &Arg<'_>) {
    string(out, arg.key);
    out.push(b':');
    let _ = match arg.value {
        Value::Int(value) => write!(out, "{value}"),
        Value::Uint(value) => write!(out, "{value}"),
        Value::Float(value) if value.is_finite() => write!(out, "{value:?}"),
        Value::Float(_) => write!(out, "null"),
        Value::Bool(value) => write!(out, "{value}"),
        Value::Json(value) if valid(value) => {
            // In valid JSON these stand between tokens only: an event keeps to its line.
            out.extend(value.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }));
            Ok(())
        }
        Value::Json(value) | Value::Str(value) => {
            string(out, value);
            Ok(())
        }
    };
    if arg.truncated {
        out.push(b',');
        string(out, &[arg.key, b".truncated"].concat());
        out.extend(b":true");
    }
}

/// Appends text as a JSON string.
pub fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for character in String::from_utf8_lossy(bytes).chars() {
        let _ = match character {
            '"' => write!(out, "\\\""),
            '\\' => write!(out, "\\\\"),
            '\n' => write!(out, "\\n"),
            '\r' => write!(out, "\\r"),
            '\t' => write!(out, "\\t"),
            control if control.is_control() => write!(out, "\\u{:04x}", u32::from(control)),
            other => write!(out, "{other}"),
        };
    }
    out.push(b'"');
}

/// Whether the bytes are one JSON value.
pub fn valid(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let mut rest = Rest(text.as_bytes());
    rest.value(0).is_some() && {
        rest.skip_space();
        rest.0.is_empty()
    }
}

/// What is still to be read. Every step is `None` where the bytes are not JSON.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn value(&mut self, depth: usize) -> Option<()> {
        self.skip_space();
        match self.0.first()? {
            b'{' => self.items(depth, b'}', |rest| {
                rest.skip_space();
                rest.text()?;
                rest.skip_space();
                rest.take(b":")
            }),
            b'[' => self.items(depth, b']', |_| Some(())),
            b'"' => self.text(),
            b't' => self.take(b"true"),
            b'f' => self.take(b"false"),
            b'n' => self.take(b"null"),
            _ => self.number(),
        }
    }

    fn items(&mut self, depth: usize, end: u8, key: fn(&mut Self) -> Option<()>) -> Option<()> {
        if depth == DEPTH_MAX {
            return None;
        }
        self.0 = &self.0[1..];
        self.skip_space();
        if self.take(&[end]).is_some() {
            return Some(());
        }
        loop {
            key(self)?;
            self.value(depth + 1)?;
            self.skip_space();
            if self.take(b",").is_none() {
                return self.take(&[end]);
            }
        }
    }

    fn text(&mut self) -> Option<()> {
        self.take(b"\"")?;
        loop {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            match byte {
                b'"' => return Some(()),
                0..0x20 => return None,
                b'\\' => {
                    let (escape, rest) = self.0.split_first()?;
                    self.0 = rest;
                    match escape {
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                        b'u' => {
                            let digits = self.0.get(..4)?.iter().all(u8::is_ascii_hexdigit);
                            self.0 = &self.0[4..];
                            digits.then_some(())?;
                        }
                        _ => return None,
                    }
                }
                _ => {}
            }
        }
    }

    fn number(&mut self) -> Option<()> {
        let _ = self.take(b"-");
        if self.take(b"0").is_none() {
            self.digits()?;
        }
        if self.take(b".").is_some() {
            self.digits()?;
        }
        if self.take(b"e").or_else(|| self.take(b"E")).is_some() {
            let _ = self.take(b"+").or_else(|| self.take(b"-"));
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let count = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.0 = &self.0[count..];
        (count > 0).then_some(())
    }

    fn take(&mut self, wanted: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(wanted)?;
        Some(())
    }

    fn skip_space(&mut self) {
        self.0 = self.0.trim_ascii_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use runtime_core_abi::record::{Head, decode, encode};

    fn written(head: Head, name: &[u8], args: &[(&str, Value<'_>)]) -> serde_json::Value {
        let mut bytes = [0; 8192];
        encode(&head, name, args, &mut bytes).unwrap();
        let mut out = Vec::new();
        event(&mut out, &decode(&bytes).unwrap().0.unwrap(), 42);
        assert!(!out.contains(&b'\n'));
        serde_json::from_slice(&out).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&out)))
    }

    #[test]
    fn every_kind_of_argument() {
        let args = [
            ("int", Value::Int(-5)),
            ("uint", Value::Uint(u64::MAX)),
            ("float", Value::Float(1e300)),
            ("nan", Value::Float(f64::NAN)),
            ("bool", Value::Bool(true)),
            ("text", Value::Str(b"a\"\\\x00\xff\n")),
            ("json", Value::Json(b"{\"a\":\n[1]}")),
            ("no json", Value::Json(b"{a")),
        ];
        let head = Head { phase: b'b', tid: 7, ts_ns: 1_234_005, id: 255, ..Head::default() };
        let event = written(head, b"n", &args);
        assert_eq!(
            event["args"],
            serde_json::json!({"int": -5, "uint": u64::MAX, "float": 1e300, "nan": null, "bool": true,
                "text": "a\"\\\0\u{fffd}\n", "json": {"a": [1]}, "no json": "{a"})
        );
        assert_eq!((&event["ts"], &event["id"]), (&serde_json::json!(1234.005), &serde_json::json!("0xff")));
        assert_eq!((&event["pid"], &event["tid"], &event["ph"]), (&42.into(), &7.into(), &"b".into()));
    }

    #[test]
    fn phases_have_what_a_viewer_needs_of_them() {
        let head = |phase, id| Head { phase, id, ..Head::default() };
        assert_eq!(written(head(b'X', 2500), b"n", &[])["dur"], 2.5);
        assert_eq!(written(head(b'i', 0), b"n", &[])["s"], "t");
        assert_eq!(written(head(b'B', 0), b"n", &[]).get("id"), None);
        assert_eq!(written(head(b'"', 0), b"n", &[])["ph"], "\"");
    }

    #[test]
    fn json_nested_too_deep_is_not_taken() {
        assert!(valid(
            "[".repeat(DEPTH_MAX)
                .as_bytes()
                .iter()
                .chain("]".repeat(DEPTH_MAX).as_bytes())
                .copied()
                .collect::<Vec<_>>()
                .as_slice()
        ));
        assert!(!valid(&[b'['; 100_000]));
    }

    proptest! {
        #[test]
        fn what_is_taken_is_what_a_parser_takes(text in r#"[\[\]{}:,"\\u0-9a-eE+\-. tfn]{0,12}|true|null|"[a-z\\"]*"|-?[0-9.eE+]{1,8}"#) {
            prop_assert_eq!(valid(text.as_bytes()), serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok(), "{}", text);
        }

        #[test]
        fn any_text_stays_valid(name in proptest::collection::vec(any::<u8>(), 0..40), value in any::<String>()) {
            let args = [("a", Value::Str(value.as_bytes())), ("b", Value::Json(&name))];
            prop_assert_eq!(&written(Head { phase: b'i', ..Head::default() }, &name, &args)["args"]["a"], &value);
        }
    }
}
