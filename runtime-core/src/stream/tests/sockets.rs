//! On real descriptors: what only an operating system does.

use super::fake::{Told, turn};
use crate::event_loop::{Driver, EventLoop};
use crate::stream::{Descriptor, Error, Event, Options, Stream, Streams};
use mio::{Registry, Token};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Both ends of a connection over loopback.
fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours, listener.accept().unwrap().0)
}

/// Drives streams until `done` or for ten seconds.
struct Until<D> {
    streams: Streams,
    done: D,
    stopper: crate::event_loop::Stopper,
    deadline: Instant,
}

impl<D: FnMut() -> bool> Driver for Until<D> {
    fn ready(&mut self, event: &mio::event::Event, _: &Registry, _: u64) {
        assert!(self.streams.ready(event));
    }

    fn finish_turn(&mut self, _: &Registry, _: u64) -> Option<Duration> {
        let wait = self.streams.finish_turn();
        assert!(Instant::now() < self.deadline, "the streams did not come to their end");
        if (self.done)() {
            self.stopper.stop();
        }
        Some(wait.unwrap_or(Duration::from_millis(20)))
    }
}

/// Runs a stream on a loop: `begin` begins, and it ends with the stream.
pub(super) fn run(fd: impl Into<OwnedFd>, options: Options, begin: impl FnOnce(&Stream, &Told)) -> Vec<String> {
    let event_loop = EventLoop::new().unwrap();
    let mut streams = Streams::new(Token(10));
    let stream = streams.add(Descriptor::new(fd).unwrap(), options, event_loop.registry()).unwrap();
    assert_eq!(streams.len(), 1);
    let told = Told::default();
    told.listen(&stream);
    begin(&stream, &told);
    crate::callback::run_loop_turn();
    let (weak, closed) = (stream.downgrade(), told.clone());
    drop(stream);
    let done = || closed.count("close") > 0;
    let stopper = event_loop.stopper();
    let deadline = Instant::now() + Duration::from_secs(10);
    event_loop.run(&mut Until { streams, done, stopper, deadline }).unwrap();
    assert!(weak.upgrade().is_none(), "nothing keeps a stream that is closed");
    told.all()
}

/// Reads in small pieces until the end.
fn slowly(mut from: impl Read + Send + 'static, piece: usize) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(30));
        let (mut all, mut room) = (Vec::new(), vec![0; piece]);
        while let Ok(count @ 1..) = from.read(&mut room) {
            all.extend_from_slice(&room[..count]);
        }
        all
    })
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

/// Writes a lot in chunks of all sizes, corked and not, then ends; `piece` is what the reader reads at once.
fn transfer(ours: impl Into<OwnedFd>, theirs: impl Read + Send + 'static, piece: usize, total: usize) {
    let reader = slowly(theirs, piece);
    let expected = bytes(total);
    let told = run(ours, Options { allow_half_open: true, ..Options::default() }, |stream, told| {
        let (mut rest, mut size) = (&expected[..], 1);
        while !rest.is_empty() {
            let len = size.min(rest.len());
            size = size * 3 % 7919 + 1;
            if size % 5 == 0 {
                stream.cork();
            }
            stream.write(&rest[..len]);
            if size % 3 == 0 {
                stream.uncork();
            }
            rest = &rest[len..];
        }
        let told = told.clone();
        stream.end_then(move |_, result| told.note(format!("ended {}", result.is_ok())));
        stream.resume();
    });
    assert_eq!(reader.join().unwrap(), expected);
    let told: Vec<_> = told.iter().filter(|told| *told != "end").collect();
    assert_eq!(told, ["ended true", "finish", "close"]);
}

#[test]
fn tcp_to_a_reader_of_any_pace() {
    for (piece, total) in [(1, 50_000), (4096, 8 << 20)] {
        let (ours, theirs) = tcp();
        transfer(ours, theirs, piece, total);
    }
}

#[test]
fn unix_sockets_to_a_reader_of_any_pace() {
    for (piece, total) in [(1, 50_000), (4096, 4 << 20)] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        transfer(ours, theirs, piece, total);
    }
}

#[test]
fn pipes_to_a_reader_of_any_pace() {
    for (piece, total) in [(1, 200_000), (4096, 4 << 20)] {
        let (theirs, ours) = std::io::pipe().unwrap();
        transfer(ours, theirs, piece, total);
    }
}

#[test]
fn a_peer_that_is_gone_fails_each_write_once() {
    let (theirs, pipe) = std::io::pipe().unwrap();
    let (unix, unix_theirs) = UnixStream::pair().unwrap();
    let (tcp, tcp_theirs) = tcp();
    drop((theirs, unix_theirs));
    // Closed with bytes unread: a reset.
    (&tcp).write_all(b"unread").unwrap();
    thread::sleep(Duration::from_millis(50));
    drop(tcp_theirs);
    thread::sleep(Duration::from_millis(50));
    for (name, fd) in [("pipe", OwnedFd::from(pipe)), ("unix", unix.into()), ("tcp", tcp.into())] {
        let told = run(fd, Options::default(), |stream, told| {
            for number in 1..=2 {
                let told = told.clone();
                stream.write_then(b"chunk", move |_, result| {
                    let error = result.expect_err("nobody reads");
                    let kind = error.as_io().map(std::io::Error::kind);
                    let expected = [Some(ErrorKind::BrokenPipe), Some(ErrorKind::ConnectionReset)];
                    assert!(expected.contains(&kind), "{error:?}");
                    told.note(format!("failed {number}"));
                });
            }
        });
        assert_eq!(told, ["failed 1", "failed 2", "error: cannot write", "close"], "{name}");
    }
}

#[test]
fn a_reset_while_a_write_waits_is_told_once() {
    let (ours, theirs) = tcp();
    (&ours).write_all(b"unread").unwrap();
    let told = run(ours, Options::default(), |stream, told| {
        let note = told.clone();
        stream.write_then(vec![0; 16 << 20], move |_, result| note.note(format!("{}", result.is_ok())));
        let note = told.clone();
        stream.write_then("more", move |_, result| note.note(format!("{}", result.is_ok())));
        assert!(stream.pending() > 0);
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            drop(theirs);
        });
    });
    assert_eq!(told, ["false", "false", "error: cannot write", "close"]);
}

#[test]
fn echo_both_ways_and_both_ends_end() {
    let (ours, mut theirs) = tcp();
    let peer = thread::spawn(move || {
        theirs.write_all(&bytes(300_000)).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let mut all = Vec::new();
        theirs.read_to_end(&mut all).unwrap();
        all
    });
    let told = run(ours, Options::default(), |stream, told| {
        let told = told.clone();
        stream.listen(move |stream, event| match event {
            Event::Data(bytes) => {
                stream.write(bytes);
            }
            Event::End => told.note("end"),
            Event::Finish => told.note("finish"),
            Event::Close => told.note("close"),
            _ => {}
        });
        stream.resume();
    });
    assert_eq!(peer.join().unwrap(), bytes(300_000));
    assert_eq!(told, ["end", "finish", "close"], "it ends because its peer has");
}

#[test]
fn many_streams_share_a_loop_and_its_tokens() {
    let event_loop = EventLoop::new().unwrap();
    let mut streams = Streams::new(Token(1));
    let told = Told::default();
    let mut readers = Vec::new();
    for round in 0..3 {
        for _ in 0..20 {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let stream =
                streams.add(Descriptor::new(ours).unwrap(), Options::default(), event_loop.registry()).unwrap();
            let note = told.clone();
            stream.listen(move |_, event| {
                if matches!(event, Event::Close) {
                    note.note("close");
                }
            });
            readers.push(slowly(theirs, 4096));
            stream.write("text");
            stream.destroy();
        }
        turn();
        streams.finish_turn();
        assert_eq!((told.count("close"), streams.len()), (20 * (round + 1), 0));
    }
    assert!(readers.into_iter().all(|reader| reader.join().unwrap() == b"text"));
}

#[test]
fn errors_say_what_failed() {
    let error = Error::io("write", std::io::Error::from_raw_os_error(libc::EPIPE));
    assert_eq!(error.to_string(), "cannot write");
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("Broken pipe"));
}
