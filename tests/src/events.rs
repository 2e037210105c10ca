//! Counting events in what `record` and `watch` write.

use serde_json::Value;

/// Begins and ends of requests among some events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// `b` events.
    pub begins: u64,
    /// `e` events.
    pub ends: u64,
}

impl Requests {
    /// Counts the events of `http.server.request`.
    pub fn count<'a>(events: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut requests = Self::default();
        for event in events.into_iter().filter(|event| event["name"] == "http.server.request") {
            match event["ph"].as_str() {
                Some("b") => requests.begins += 1,
                Some("e") => requests.ends += 1,
                _ => {}
            }
        }
        requests
    }

    /// As many begins and as many ends.
    pub fn whole(requests: u64) -> Self {
        Self { begins: requests, ends: requests }
    }
}

/// The events of a Chrome trace; an error where it is none.
pub fn chrome(bytes: &[u8]) -> Result<Vec<Value>, String> {
    let mut trace: Value = serde_json::from_slice(bytes).map_err(|error| format!("not JSON: {error}"))?;
    match trace["traceEvents"].take() {
        Value::Array(events) => Ok(events),
        other => Err(format!("`traceEvents` is {other}")),
    }
}

/// The events of lines of JSON; an error where a line is none.
pub fn lines(text: &str) -> Result<Vec<Value>, String> {
    text.lines().map(|line| serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))).collect()
}
