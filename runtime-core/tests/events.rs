//! `node.http` events, exact: a begin and an end for each request, whatever becomes of it.

mod common;

use common::{Event, FakeAgent, Member, TempDir, get, read_answer, wait_for};
use runtime_core::http::{Limits, Request, Response, Running, Server};
use runtime_core::trace::Route;
use runtime_core::{Lease, Options, join};
use runtime_core_abi::page::Names;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

static LONG: [u8; 4 << 20] = [b'x'; 4 << 20];

/// A server that has joined an agent of the test's.
struct Stage {
    _turn: MutexGuard<'static, ()>,
    _dir: TempDir,
    agent: FakeAgent,
    lease: Option<Lease>,
    member: Member,
    server: Option<Running>,
    events: Vec<Event>,
    lost: u64,
}

impl Stage {
    fn set(threads: usize) -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = TempDir::new();
        let agent = FakeAgent::listen(dir.path());
        let lease = join(Options::new("events").run_dir(dir.path())).unwrap();
        let member = agent.admit();
        let route = Route::named("/short");
        let limits = Limits { body_bytes_max: 1000, ..Limits::default() };
        let server = Server::bind(([127, 0, 0, 1], 0).into()).unwrap().threads(threads).limits(limits);
        let server = server
            .start(move |request: &Request<'_>, response: &mut Response| match request.path() {
                "/long" => {
                    response.write_static(&LONG);
                }
                "/missing" => {
                    response.status(404).write(b"nothing");
                }
                "/panic" => panic!("on purpose"),
                _ => {
                    response.route(route).chunked().write(b"ab").write(b"cd");
                }
            })
            .unwrap();
        Self {
            _turn: turn,
            _dir: dir,
            agent,
            lease: Some(lease),
            member,
            server: Some(server),
            events: Vec::new(),
            lost: 0,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.as_ref().unwrap().address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }

    fn drain(&mut self) {
        let (events, lost) = self.member.drain();
        self.events.extend(events);
        self.lost += lost;
    }

    /// Waits for so many ends, and for what might come after them.
    fn wait_for_ends(&mut self, count: usize) {
        wait_for("the ends", Duration::from_secs(10), || {
            self.drain();
            self.events.iter().filter(|event| event.phase == 'e').count() >= count
        });
        std::thread::sleep(Duration::from_millis(30));
        self.drain();
    }

    /// Every begin has one end of the same id after it, on the same thread; returns the ends
    /// with their begins.
    fn pairs(&self) -> Vec<(&Event, &Event)> {
        let mut begins: HashMap<u64, &Event> = HashMap::new();
        let mut pairs = Vec::new();
        for event in &self.events {
            assert_eq!(event.name, "http.server.request");
            match event.phase {
                'b' => assert!(begins.insert(event.id, event).is_none(), "an id given twice"),
                'e' => pairs.push((begins.remove(&event.id).expect("an end without a begin"), event)),
                other => panic!("a phase {other}"),
            }
        }
        assert!(begins.is_empty(), "begins without an end: {begins:?}");
        for (begin, end) in &pairs {
            assert!(begin.ts_ns <= end.ts_ns && begin.tid == end.tid);
        }
        pairs
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.server = None;
        self.lease = None;
    }
}

/// Reads the answer of `/short`.
fn short(stream: &mut TcpStream) {
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n0\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
}

const SHORT: &[u8] = b"GET /short?q=1 HTTP/1.1\r\nHost: test\r\n\r\n";

#[test]
fn each_request_is_a_begin_and_an_end() {
    let mut stage = Stage::set(2);
    stage.member.switch(true);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut stream = stage.connect();
            scope.spawn(move || {
                for _ in 0..100 {
                    stream.write_all(SHORT).unwrap();
                    short(&mut stream);
                }
                // Pipelined.
                stream.write_all(&SHORT.repeat(50)).unwrap();
                (0..50).for_each(|_| short(&mut stream));
            });
        }
    });
    stage.wait_for_ends(600);
    let pairs = stage.pairs();
    assert_eq!((pairs.len(), stage.lost), (600, 0));
    for (begin, end) in pairs {
        assert_eq!((begin.arg("method"), begin.arg("url")), (Some("GET"), Some("/short?q=1")));
        assert_eq!((end.arg("statusCode"), end.arg("bytes")), (Some("200"), Some("4")));
        assert_eq!(stage.member.name(Names::Routes, end.route.into()).unwrap(), "/short");
    }
}

#[test]
fn nothing_is_written_while_it_is_off() {
    let mut stage = Stage::set(1);
    let mut stream = stage.connect();
    for _ in 0..50 {
        stream.write_all(SHORT).unwrap();
        short(&mut stream);
    }
    runtime_core::trace::Category::NODE_HTTP.set_enabled(true);
    stream.write_all(SHORT).unwrap();
    short(&mut stream);
    runtime_core::trace::Category::NODE_HTTP.set_enabled(false);
    std::thread::sleep(Duration::from_millis(20));
    stage.drain();
    assert_eq!(stage.events, [], "the process's own byte alone has no reader");
}

#[test]
fn bad_requests_are_no_requests_and_refused_ones_are() {
    let mut stage = Stage::set(1);
    stage.member.switch(true);
    for bytes in ["nonsense\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "GET /half HTTP/1.1\r\nHo"] {
        let mut stream = stage.connect();
        stream.write_all(bytes.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let mut stream = stage.connect();
    stream.write_all(b"POST /big HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n").unwrap();
    assert_eq!(read_answer(&mut stream).unwrap().0, 413);
    let mut stream = stage.connect();
    stream.write_all(b"POST /big HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n").unwrap();
    assert_eq!(read_answer(&mut stream).unwrap().0, 413);
    assert_eq!(get(&mut stage.connect(), "/missing").0, 404);
    assert_eq!(get(&mut stage.connect(), "/panic").0, 500);
    let mut stream = stage.connect();
    stream.write_all(b"HEAD /missing HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    stage.wait_for_ends(5);
    let seen: Vec<_> = stage.pairs().iter().map(|(b, e)| (b.arg("url"), e.arg("statusCode"), e.arg("bytes"))).collect();
    let expected = [
        (Some("/big"), Some("413"), Some("0")),
        (Some("/big"), Some("413"), Some("0")),
        (Some("/missing"), Some("404"), Some("7")),
        (Some("/panic"), Some("500"), Some("0")),
        (Some("/missing"), Some("404"), Some("0")),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_reset_connection_still_brings_the_end() {
    let mut stage = Stage::set(1);
    stage.member.switch(true);
    // In the middle of an answer, with two more behind it.
    let mut stream = stage.connect();
    stream.write_all(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    stream.write_all(SHORT).unwrap();
    stream.read_exact(&mut [0; 100_000]).unwrap();
    drop(stream);
    // In the middle of a body.
    let mut stream = stage.connect();
    stream.write_all(b"POST /half HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    drop(stream);
    stage.wait_for_ends(2);
    let pairs = stage.pairs();
    let long = pairs.iter().find(|(begin, _)| begin.arg("url") == Some("/long")).unwrap().1;
    let sent: usize = long.arg("bytes").unwrap().parse().unwrap();
    assert!(sent >= 99_000 && sent < LONG.len(), "{sent}");
    let half = pairs.iter().find(|(begin, _)| begin.arg("url") == Some("/half")).unwrap().1;
    assert_eq!((half.arg("statusCode"), half.arg("bytes")), (Some("400"), Some("0")));
}

#[test]
fn switching_in_the_middle_leaves_no_half_pairs() {
    let mut stage = Stage::set(1);
    let mut stream = stage.connect();
    // Begun off, ended on: nothing.
    stream.write_all(b"POST /short HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    stage.member.switch(true);
    stream.write_all(b"ab").unwrap();
    short(&mut stream);
    // Begun on, ended off: both.
    stream.write_all(b"POST /short HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    stage.member.switch(false);
    stream.write_all(b"ab").unwrap();
    short(&mut stream);
    stage.wait_for_ends(1);
    assert_eq!(stage.pairs().len(), 1);
}

#[test]
fn a_new_agent_sees_no_ends_of_the_old_one_s_begins() {
    let mut stage = Stage::set(1);
    stage.member.switch(true);
    let mut stream = stage.connect();
    stream.write_all(b"POST /short HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    stage.member.stream.shutdown(Shutdown::Both).unwrap();
    stage.member = stage.agent.admit();
    stage.member.switch(true);
    stream.write_all(b"ab").unwrap();
    short(&mut stream);
    stream.write_all(SHORT).unwrap();
    short(&mut stream);
    stage.wait_for_ends(1);
    assert_eq!(stage.pairs().len(), 1);
}

#[test]
fn what_the_ring_cannot_take_is_counted_in_pairs() {
    let mut stage = Stage::set(1);
    stage.member.switch(true);
    let mut stream = stage.connect();
    let batches = 400;
    for _ in 0..batches {
        stream.write_all(&SHORT.repeat(50)).unwrap();
        (0..50).for_each(|_| short(&mut stream));
    }
    stage.wait_for_ends(1);
    let kept = stage.events.len() as u64;
    assert!(stage.lost > 0, "the ring was to overflow");
    assert_eq!(kept + stage.lost, 2 * 50 * batches);
    let begins = stage.events.iter().filter(|event| event.phase == 'b').count() as u64;
    assert!(kept - begins <= begins, "no end without its begin");
}
