//! One event as JSON: an object of Chrome's trace format, as the agent streams it and a
//! process records it.
//!
//! The process can have written anything, so text is made UTF-8 and escaped, and what
//! claims to be JSON is checked. Every object is valid JSON without a newline inside.

#![warn(missing_docs)]

use runtime_core_abi::record::{Arg, Record, Value};
use std::io::Write;

/// Appends the event of a process; times are in microseconds. The route is named in the
/// event that ends a request.
pub fn write(out: &mut Vec<u8>, record: &Record<'_>, category: &str, route: Option<&str>, pid: u32) {
    let head = &record.head;
    out.extend(br#"{"ph":"#);
    string(out, &[head.phase]);
    out.extend(br#","cat":"#);
    string(out, category.as_bytes());
    out.extend(br#","name":"#);
    string(out, record.name);
    // Writing to a `Vec` cannot fail, here and below.
    let _ = match head.phase {
        // Of this phase the id is the duration.
        b'X' => write!(out, r#","dur":{}"#, Micros(head.id)),
        b'b' | b'n' | b'e' => write!(out, r#","id":"{:#x}""#, head.id),
        // Of the thread, not of the whole process.
        b'i' => write!(out, r#","s":"t""#),
        _ => Ok(()),
    };
    let _ = write!(out, r#","ts":{},"pid":{pid},"tid":{},"args":{{"#, Micros(head.ts_ns), head.tid);
    let mut comma = "";
    for arg in record.args().flatten() {
        out.extend(comma.as_bytes());
        write_arg(out, &arg);
        comma = ",";
    }
    if let Some(route) = route.filter(|_| head.phase == b'e') {
        out.extend(comma.as_bytes());
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

fn write_arg(out: &mut Vec<u8>, arg: &Arg<'_>) {
    string(out, arg.key);
    out.push(b':');
    // Writing to a `Vec` cannot fail.
    let _ = match arg.value {
        Value::Int(value) => write!(out, "{value}"),
        Value::Uint(value) => write!(out, "{value}"),
        Value::Float(value) if value.is_finite() => write!(out, "{value:?}"),
        Value::Float(_) => write!(out, "null"),
        Value::Bool(value) => write!(out, "{value}"),
        Value::Str(value) => {
            string(out, value);
            Ok(())
        }
        Value::Json(value) => {
            json(out, value);
            Ok(())
        }
    };
    if arg.truncated {
        let mut key = arg.key.to_vec();
        key.extend(b".truncated");
        out.push(b',');
        string(out, &key);
        out.extend(b":true");
    }
}

/// Appends text as a JSON string.
pub fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    // Text can always be written as JSON, and to a `Vec`.
    let _ = serde_json::to_writer(out, text.as_ref());
}

/// JSON as the process wrote it, on one line; what is not JSON becomes a string.
fn json(out: &mut Vec<u8>, bytes: &[u8]) {
    // Read as a value, not only skipped: half a surrogate and a number beyond all bounds pass
    // the grammar, and then most readers refuse the whole line.
    let valid = serde_json::from_slice::<serde_json::Value>(bytes).is_ok();
    if valid {
        // In valid JSON these stand between tokens only.
        out.extend(bytes.iter().map(|&byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
    } else {
        string(out, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use runtime_core_abi::record::{self, Head, STRING_BYTES_MAX};

    fn line(head: &Head, name: &[u8], args: &[(&str, Value<'_>)], route: Option<&str>) -> String {
        let mut bytes = vec![0; 16 * 1024];
        let size = record::encode(head, name, args, &mut bytes).unwrap();
        let record = record::decode(&bytes[..size]).unwrap().0.unwrap();
        let mut out = Vec::new();
        write(&mut out, &record, "node.http", route, 7);
        String::from_utf8(out).unwrap()
    }

    const HEAD: Head = Head { phase: b'e', category: 0, route: 1, tid: 8, ts_ns: 1_234_005, id: 255 };

    #[test]
    fn an_end_event_is_this_line() {
        let args = [("statusCode", Value::Uint(200)), ("url", Value::Str(b"/\"\xff"))];
        let expected = "{\"ph\":\"e\",\"cat\":\"node.http\",\"name\":\"http.server.request\",\"id\":\"0xff\",\"ts\":1234.005,\
                        \"pid\":7,\"tid\":8,\"args\":{\"statusCode\":200,\"url\":\"/\\\"\u{fffd}\",\"route\":\"/u/:id\"}}";
        assert_eq!(line(&HEAD, b"http.server.request", &args, Some("/u/:id")), expected);
    }

    #[test]
    fn odd_values_are_still_json() {
        let long = [b'x'; STRING_BYTES_MAX + 1];
        let args = [
            ("nan", Value::Float(f64::NAN)),
            ("big", Value::Float(1e300)),
            ("json", Value::Json(b"{\"a\":\n[1]}")),
            ("not", Value::Json(b"{]")),
            ("bad", Value::Json(b"\"\xff\"")),
            ("half", Value::Json(b"\"\\ud800\"")),
            ("vast", Value::Json(b"1e999")),
            ("long", Value::Str(&long)),
        ];
        let line = line(&HEAD, b"n", &args, None);
        assert!(!line.contains('\n'));
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        let args = &value["args"];
        assert_eq!((&args["nan"], &args["big"]), (&serde_json::Value::Null, &serde_json::json!(1e300)));
        assert_eq!((&args["json"]["a"][0], &args["not"]), (&serde_json::json!(1), &serde_json::json!("{]")));
        assert_eq!((args["long"].as_str().unwrap().len(), &args["long.truncated"]), (STRING_BYTES_MAX, &true.into()));
    }

    #[test]
    fn each_phase_has_the_fields_that_it_needs() {
        let fields = |phase| {
            let head = Head { phase, id: 2500, ..HEAD };
            let event: serde_json::Value = serde_json::from_str(&line(&head, b"n", &[], None)).unwrap();
            ["id", "dur", "s"].map(|key| event[key].clone())
        };
        let none = serde_json::Value::Null;
        assert_eq!(fields(b'X'), [none.clone(), 2.5.into(), none.clone()]);
        assert_eq!(fields(b'n'), ["0x9c4".into(), none.clone(), none.clone()]);
        assert_eq!(fields(b'i'), [none.clone(), none.clone(), "t".into()]);
        assert_eq!(fields(b'C'), [none.clone(), none.clone(), none]);
    }

    proptest! {
        #[test]
        fn every_line_is_json(
            name in proptest::collection::vec(any::<u8>(), 0..40),
            key in ".{0,20}",
            text in proptest::collection::vec(any::<u8>(), 0..60),
            json in any::<bool>(), ts_ns in any::<u64>(), id in any::<u64>(),
        ) {
            let value = if json { Value::Json(&text) } else { Value::Str(&text) };
            let line = line(&Head { ts_ns, id, ..HEAD }, &name, &[(&key, value)], None);
            prop_assert_eq!(line.find("{\"ph\":\""), Some(0));
            prop_assert!(!line.contains('\n'));
            prop_assert!(serde_json::from_str::<serde_json::Value>(&line).is_ok(), "{}", line);
        }
    }
}
