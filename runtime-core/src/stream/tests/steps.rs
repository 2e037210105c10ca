//! Scenarios that this library and Node can both play: what a program does to a socket, step
//! by step, and what it then sees.

use super::fake::Told;
use super::sockets::run;
use crate::buffer::Encoding;
use crate::callback::{AsyncResource, make_callback, next_tick};
use crate::stream::{Error, Event, Options, Stream};
use serde::Serialize;
use std::cell::Cell;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

/// What the peer does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Peer {
    /// Reads all, at once.
    Reads,
    /// Reads all, after a while, so that a large write waits.
    ReadsLate,
    /// Reads nothing, and closes at the end.
    Waits,
    /// Resets the connection after a while.
    Resets,
}

/// One thing that the program does.
#[derive(Clone, Debug, Serialize)]
pub enum Step {
    /// Writes so many bytes; the callback notes the name, then does the steps.
    Write(&'static str, usize, Vec<Step>),
    /// Writes text in an encoding.
    Text(&'static str, &'static str, &'static str),
    /// Writes without a callback.
    Quiet(usize),
    Cork,
    Uncork,
    End(&'static str, Vec<Step>),
    Destroy,
    DestroyWith,
    Tick(&'static str, Vec<Step>),
    /// Notes the number of bytes written.
    Written,
}

/// A scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Scenario {
    pub name: &'static str,
    pub peer: Peer,
    pub steps: Vec<Step>,
    /// What is done at the first `drain`.
    pub on_drain: Vec<Step>,
    /// What is done a while later, at the stream's leisure.
    pub later: Vec<Step>,
    /// Whether a write is under way when the stream is destroyed: Node then reports success.
    pub in_flight: bool,
}

impl Scenario {
    pub fn new(name: &'static str, peer: Peer, steps: Vec<Step>) -> Self {
        Self { name, peer, steps, on_drain: Vec::new(), later: Vec::new(), in_flight: false }
    }

    /// What this library makes of it.
    pub fn play(&self) -> Vec<String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let theirs = listener.accept().unwrap().0;
        let peer = self.peer;
        if peer == Peer::Resets {
            // Bytes that are not read turn a close into a reset.
            std::io::Write::write_all(&mut &ours, b"unread").unwrap();
        }
        let peer = thread::spawn(move || play_peer(peer, theirs));
        let told = run(ours, Options::default(), |stream, told| {
            let (told, on_drain) = (told.clone(), Rc::new(Cell::new(self.on_drain.clone())));
            let program = Program { told };
            let listening = program.clone();
            stream.listen(move |stream, event| match event {
                Event::Drain => {
                    listening.told.note("drain");
                    listening.play(stream, on_drain.take());
                }
                Event::Finish => listening.told.note("finish"),
                Event::Error(error) => listening.told.note(format!("error {}", code(&error))),
                Event::Close => listening.told.note("close"),
                Event::End | Event::Data(_) => {}
            });
            if self.peer != Peer::Waits {
                stream.resume();
            }
            let resource = AsyncResource::new("Timeout");
            make_callback(&resource, || program.play(stream, self.steps.clone())).unwrap();
            if !self.later.is_empty() {
                crate::stream::end_turn();
                make_callback(&resource, || program.play(stream, self.later.clone())).unwrap();
            }
        });
        peer.join().unwrap();
        told
    }
}

fn play_peer(peer: Peer, mut socket: TcpStream) {
    match peer {
        Peer::Reads => {}
        Peer::ReadsLate => thread::sleep(Duration::from_millis(100)),
        Peer::Waits => return thread::sleep(Duration::from_millis(300)),
        Peer::Resets => return thread::sleep(Duration::from_millis(100)),
    }
    let _ = socket.read_to_end(&mut Vec::new());
}

/// What Node calls it.
fn code(error: &Error) -> &str {
    match error {
        Error::WriteAfterEnd => "ERR_STREAM_WRITE_AFTER_END",
        Error::Destroyed(_) => "ERR_STREAM_DESTROYED",
        Error::AlreadyFinished => "ERR_STREAM_ALREADY_FINISHED",
        // Which of the two it is depends on whether a read or a write comes first.
        Error::Io { .. } => "EIO",
        Error::Other(_) => "own",
    }
}

#[derive(Clone)]
struct Program {
    told: Told,
}

impl Program {
    fn play(&self, stream: &Stream, steps: Vec<Step>) {
        for step in steps {
            self.step(stream, step);
        }
    }

    fn callback(&self, name: &'static str, then: Vec<Step>) -> impl FnOnce(&Stream, Result<(), Error>) + use<> {
        let program = self.clone();
        move |stream, result| {
            let outcome = result.as_ref().err().map_or("ok", code);
            program.told.note(format!("{name} {outcome}"));
            program.play(stream, then);
        }
    }

    fn step(&self, stream: &Stream, step: Step) {
        match step {
            Step::Write(name, len, then) => {
                let more = stream.write_then(vec![b'x'; len], self.callback(name, then));
                self.told.note(format!("write {more}"));
            }
            Step::Text(name, text, encoding) => {
                let encoding: Encoding = encoding.parse().unwrap();
                let more = stream.write_then((text, encoding), self.callback(name, Vec::new()));
                self.told.note(format!("write {more}"));
            }
            Step::Quiet(len) => {
                let more = stream.write(vec![b'x'; len]);
                self.told.note(format!("write {more}"));
            }
            Step::Cork => stream.cork(),
            Step::Uncork => stream.uncork(),
            Step::End(name, then) => stream.end_then(self.callback(name, then)),
            Step::Destroy => stream.destroy(),
            Step::DestroyWith => stream.destroy_with(Error::other(std::io::Error::other("own"))),
            Step::Tick(name, then) => {
                let (program, stream) = (self.clone(), stream.clone());
                next_tick(move || {
                    program.told.note(name);
                    program.play(&stream, then);
                });
            }
            Step::Written => self.told.note(format!("written {} pending {}", stream.bytes_written(), stream.pending())),
        }
    }
}
