//! An agent that speaks the control protocol and does nothing else.

use crate::TempDir;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// A run directory with a control socket that a script answers.
pub struct Fake {
    dir: TempDir,
}

/// One request and the way to answer it.
pub struct Call {
    pub request: Value,
    reader: BufReader<UnixStream>,
}

impl Fake {
    /// Answers every connection with `script`. `ps` is answered here: one process, 7 of
    /// `shop`.
    pub fn new(script: impl Fn(Call) + Send + Sync + 'static) -> Self {
        let dir = TempDir::make();
        let listener = UnixListener::bind(dir.join("control.sock")).expect("a socket");
        let script = std::sync::Arc::new(script);
        // The thread ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let script = script.clone();
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream);
                    let mut line = String::new();
                    reader.read_line(&mut line).expect("a request");
                    let request: Value = serde_json::from_str(&line).expect("the request is JSON");
                    assert_eq!(request["v"], 1);
                    let mut call = Call { request, reader };
                    if call.request["verb"] == "ps" {
                        call.say(&json!({"type": "targets", "targets": [target()]}));
                    } else {
                        script(call);
                    }
                });
            }
        });
        Self { dir }
    }

    pub fn dir(&self) -> &Path {
        &self.dir.0
    }
}

impl Call {
    /// Sends a line; says whether somebody took it.
    pub fn say(&mut self, value: &Value) -> bool {
        writeln!(self.reader.get_mut(), "{value}").is_ok()
    }

    /// Sends an event with a number of its own.
    pub fn event(&mut self, number: u64) -> bool {
        writeln!(self.reader.get_mut(), "{}", event(number)).is_ok()
    }

    /// Sends bytes as they are.
    pub fn raw(&mut self, text: &str) {
        let _ = self.reader.get_mut().write_all(text.as_bytes());
    }

    /// Ends a stream of events that lost none.
    pub fn end(&mut self, events: u64) {
        self.say(&json!({"type": "end", "events": events, "lost": {}}));
    }

    /// Waits until the client asks for the end.
    pub fn wait_for_stop(&mut self) {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("the stop line");
        assert_eq!(line, "{\"v\":1,\"verb\":\"stop\"}\n");
    }
}

/// An event line. The phase comes first: that is how lines of events are known.
pub fn event(number: u64) -> String {
    format!(
        r#"{{"ph":"b","cat":"node.http","name":"http.server.request","id":"0x{number:x}","ts":{number}.5,"pid":7,"tid":8,"args":{{"method":"GET","url":"/{number}"}}}}"#
    )
}

/// What `ps` answers.
pub fn target() -> Value {
    json!({
        "pid": 7, "start_time": 4711, "kind": "runtime-core", "service": "shop", "page": "memfd",
        "categories": [
            {"name": "node.http", "enabled": true, "by": ["operator"]},
            {"name": "node", "enabled": false, "by": []},
        ],
    })
}
