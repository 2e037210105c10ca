//! The server at its edges: requests in pieces, limits, slow clients, too many of them.

mod common;

use common::{get, read_answer, wait_for};
use proptest::prelude::*;
use runtime_core::http::{Limits, Request, Response, Running, Server};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

static LONG: [u8; 1 << 20] = [b'x'; 1 << 20];

fn serve(limits: Limits) -> Running {
    let server = Server::bind(([127, 0, 0, 1], 0).into()).unwrap().limits(limits);
    server
        .start(|request: &Request<'_>, response: &mut Response| match request.path() {
            "/long" => {
                response.write_static(&LONG);
            }
            "/chunks" => {
                response.chunked().write(b"abc").write(b"de");
            }
            _ => {
                response.write(request.method().as_bytes()).write(b" ").write(request.target().as_bytes());
                response.write(b" ").write(request.body());
            }
        })
        .unwrap()
}

fn connect(server: &Running) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

/// Sends bytes, ends the sending side, and reads all that comes.
fn talk(server: &Running, bytes: &[u8]) -> String {
    let mut stream = connect(server);
    stream.write_all(bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

#[test]
fn connections_are_kept_or_closed_as_asked() {
    let server = serve(Limits::default());
    let mut stream = connect(&server);
    for path in ["/a", "/b?c=d"] {
        assert_eq!(get(&mut stream, path), (200, format!("GET {path} ").into_bytes()));
    }
    let closing =
        talk(&server, b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /y HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(closing.contains("Connection: close") && closing.ends_with("GET /x "), "{closing}");
    let old = talk(&server, b"GET /old HTTP/1.0\r\n\r\nGET /no HTTP/1.0\r\n\r\n");
    assert!(old.starts_with("HTTP/1.1 200") && old.ends_with("GET /old "), "{old}");
    let kept = talk(&server, b"GET /1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /chunks HTTP/1.0\r\n\r\n");
    assert!(kept.contains("Connection: keep-alive") && kept.contains("Content-Length: 5\r\n\r\nabcde"), "{kept}");
    server.stop().unwrap();
}

#[test]
fn answers_have_the_form_that_was_asked_for() {
    let server = serve(Limits::default());
    let chunks = talk(&server, b"GET /chunks HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(chunks.ends_with("Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"), "{chunks}");
    let head = talk(&server, b"HEAD /long HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(head.ends_with("Content-Length: 1048576\r\n\r\n"), "{head}");
    assert!(head.contains("\r\nDate: "));
    assert_eq!(talk(&server, b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n").matches('x').count(), LONG.len());
}

#[test]
fn request_bodies_are_read_either_way() {
    let server = serve(Limits { body_bytes_max: 2000, ..Limits::default() });
    let fixed =
        talk(&server, b"POST /f HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /g HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(fixed.contains("POST /f abc") && fixed.ends_with("GET /g "), "{fixed}");
    let chunked = talk(
        &server,
        b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\nGET /g HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    assert!(chunked.contains("POST /c abc") && chunked.ends_with("GET /g "), "{chunked}");
    let mut stream = connect(&server);
    stream.write_all(b"PUT /e HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n").unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"ok").unwrap();
    assert_eq!(read_answer(&mut stream).unwrap(), (200, b"PUT /e ok".to_vec()));
}

#[test]
fn bad_requests_are_answered_and_closed() {
    let server = serve(Limits { body_bytes_max: 1000, ..Limits::default() });
    let long = "x".repeat(20_000);
    for (status, request) in [
        (400, "GARBAGE\r\n\r\n".to_owned()),
        (400, "GET / HTTP/1.1\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n".into()),
        (400, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".into()),
        (413, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n".into()),
        (413, format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n{long}")),
        (431, format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n")),
        (431, format!("GET /{long}")),
        (501, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: br\r\n\r\n".into()),
    ] {
        let mut stream = connect(&server);
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
        assert!(answer.contains("Connection: close"));
    }
    assert_eq!(get(&mut connect(&server), "/still").0, 200);
}

#[test]
fn slow_clients_are_shown_out() {
    let limits = Limits { head_ms_max: 300, body_ms_max: 300, idle_ms_max: 300, send_ms_max: 300, ..Limits::default() };
    let server = serve(limits);
    let clients: [&[u8]; 4] = [
        b"",
        b"GET / HTTP/1.1\r\nHos",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ];
    let mut streams = clients.map(|bytes| {
        let mut stream = connect(&server);
        stream.write_all(bytes).unwrap();
        stream
    });
    for (index, stream) in streams.iter_mut().enumerate() {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer.starts_with("HTTP/1.1 408 "), index > 0, "{answer}");
    }
    let mut deaf = connect(&server);
    deaf.write_all(&b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100)).unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    let mut rest = Vec::new();
    // A reset is as good an end.
    let _ = deaf.read_to_end(&mut rest);
    assert!(rest.len() < 100 * LONG.len());
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn a_client_that_asks_and_never_reads_costs_little() {
    let server = serve(Limits::default());
    let mut stream = connect(&server);
    let before = resident_bytes();
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let many = b"GET /chunks HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000);
    let mut asked = 0;
    while asked < 64 << 20 && stream.write_all(&many).is_ok() {
        asked += many.len();
    }
    assert!(asked < 64 << 20, "the server reads no more");
    // Other tests of this process run beside this one.
    assert!(resident_bytes() < before + (48 << 20), "{} MiB more", (resident_bytes() - before) >> 20);
    assert_eq!(get(&mut connect(&server), "/other").0, 200);
}

#[test]
fn more_connections_than_allowed_wait_their_turn() {
    let server = serve(Limits { connections_max: 2, ..Limits::default() });
    let mut first = connect(&server);
    let mut second = connect(&server);
    assert_eq!(get(&mut first, "/1").0, 200);
    assert_eq!(get(&mut second, "/2").0, 200);
    let mut third = connect(&server);
    third.write_all(b"GET /3 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    third.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(third.read(&mut [0]).is_err(), "not served yet");
    drop(first);
    third.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert_eq!(read_answer(&mut third).unwrap().0, 200);
}

#[test]
fn stopping_takes_no_time() {
    let server = serve(Limits::default());
    let mut stream = connect(&server);
    assert_eq!(get(&mut stream, "/").0, 200);
    let (address, start) = (server.address(), Instant::now());
    server.stop().unwrap();
    assert!(start.elapsed() < Duration::from_millis(500));
    wait_for("the port is free", Duration::from_secs(1), || TcpStream::connect(address).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_pieces_of_requests_do_not_matter(cuts in proptest::collection::vec(1usize..40, 1..30), spare in 0usize..3) {
        let mut wire = Vec::new();
        for _ in 0..=spare {
            wire.extend(b"POST /f HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\nabcdefg");
            wire.extend(b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=1\r\nabc\r\n4\r\ndefg\r\n0\r\nA: b\r\n\r\n");
            wire.extend(b"\r\nGET /g HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        let server = serve(Limits::default());
        let mut stream = connect(&server);
        stream.set_nodelay(true).unwrap();
        let mut rest = &wire[..];
        for cut in cuts {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            stream.write_all(piece).unwrap();
            rest = after;
            std::thread::sleep(Duration::from_micros(100));
        }
        stream.write_all(rest).unwrap();
        for _ in 0..=spare {
            for expected in ["POST /f abcdefg", "POST /c abcdefg", "GET /g "] {
                let (status, body) = read_answer(&mut stream).unwrap();
                prop_assert_eq!((status, String::from_utf8(body).unwrap()), (200, expected.to_owned()));
            }
        }
    }

    #[test]
    fn garbage_gets_an_answer_or_silence_and_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let server = serve(Limits::default());
        let mut stream = connect(&server);
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
        prop_assert_eq!(get(&mut connect(&server), "/").0, 200);
    }
}
