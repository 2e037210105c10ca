//! One connection: read, serve every request that is there, send, again.
//!
//! Reading stops while too much waits to be sent, so that a client that asks and never reads
//! costs a bounded amount of memory.

use super::body::{Chunked, Progress};
use super::date::Date;
use super::head::{self, Framing, HEAD_BYTES_MAX, Head};
use super::input::Input;
use super::output::{End, Output};
use super::response::{Form, Response};
use super::{Handler, Limits, Request};
use crate::sys::direct::Direct;
use crate::trace::{Category, Phase, Route, Span, Value, lane};
use mio::event::Event;
use mio::net::TcpStream;
use std::io::{self, Read};
use std::net::Shutdown;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// No further request is served while more than this waits to be sent, in bytes.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// Times that one connection may read in a turn before it is the others' turn.
const ROUNDS_MAX: usize = 8;
/// What a closing connection reads and throws away at most, in bytes, so that its last
/// answer is not lost to a reset.
const LINGER_BYTES_MAX: usize = 1024 * 1024;
/// How long it does so, in milliseconds.
const LINGER_MS_MAX: u64 = 2_000;

/// What a loop's connections share.
pub(super) struct Context {
    pub handler: Arc<Handler>,
    pub limits: Limits,
    pub response: Response,
    pub date: Date,
    /// A buffer that no connection needs just now.
    pub spare: Input,
    pub now_ms: u64,
}

/// What becomes of a connection after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It waits for an event.
    Wait,
    /// It has more to do at once.
    Again,
    /// It is over.
    Close,
}

#[derive(Debug)]
pub(super) struct Connection {
    socket: TcpStream,
    input: Input,
    output: Output,
    stage: Stage,
    /// Whether a read may bring something.
    readable: bool,
    /// Whether the client has said that it sends no more.
    read_closed: bool,
    /// When what it waits for began.
    since_ms: u64,
}

#[derive(Debug)]
enum Stage {
    /// Waiting for a head.
    Head,
    /// Waiting for the rest of a body.
    Body(Waiting),
    /// The last answer is on its way.
    Closing {
        /// Whether bytes of the client may still come that nobody has asked for.
        linger: bool,
    },
    /// The last answer is out; what comes is thrown away.
    Lingering(usize),
}

/// A request whose head has been read.
#[derive(Debug)]
struct Waiting {
    id: u64,
    span: Span,
    body: Body,
}

#[derive(Clone, Copy, Debug)]
enum Body {
    /// Ends at the first position, and the request with it.
    Length(usize),
    Chunked(Chunked),
}

/// What came of looking at the input.
#[derive(PartialEq, Eq)]
enum Step {
    Answered,
    Starved,
}

impl Connection {
    pub(super) fn new(socket: TcpStream, now_ms: u64) -> Self {
        Self {
            socket,
            input: Input::default(),
            output: Output::default(),
            stage: Stage::Head,
            readable: false,
            read_closed: false,
            since_ms: now_ms,
        }
    }

    pub(super) fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    /// Notes what an event says.
    pub(super) fn note(&mut self, event: &Event) {
        self.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.read_closed |= event.is_read_closed();
    }

    /// Does what can be done without waiting.
    pub(super) fn advance(&mut self, context: &mut Context) -> Fate {
        let fate = self.try_advance(context).unwrap_or(Fate::Close);
        // An idle connection keeps no buffer.
        if self.input.is_empty() {
            context.spare.keep_larger(std::mem::take(&mut self.input));
        }
        lane::set_request(0);
        fate
    }

    fn try_advance(&mut self, context: &mut Context) -> io::Result<Fate> {
        for _ in 0..ROUNDS_MAX {
            let starved = self.serve(context);
            if self.output.pending() > 0 {
                lane::set_phase(Phase::Writev);
                if self.output.send(&mut Direct(&self.socket))? {
                    self.since_ms = context.now_ms;
                }
                lane::set_phase(Phase::Other);
                if self.output.pending() > 0 {
                    return Ok(Fate::Wait);
                }
            }
            match self.stage {
                Stage::Closing { linger: false } => return Ok(Fate::Close),
                Stage::Closing { linger: true } => {
                    self.socket.shutdown(Shutdown::Write)?;
                    self.since_ms = context.now_ms;
                    self.stage = Stage::Lingering(LINGER_BYTES_MAX);
                }
                _ if !starved => continue,
                _ => {}
            }
            if !self.readable {
                return Ok(Fate::Wait);
            }
            if !self.read(context)? {
                return Ok(Fate::Close);
            }
        }
        Ok(Fate::Again)
    }

    /// Reads once. `false`: the client has sent its last.
    fn read(&mut self, context: &mut Context) -> io::Result<bool> {
        lane::set_phase(Phase::Read);
        if self.input.is_empty() {
            self.since_ms = if matches!(self.stage, Stage::Head) { context.now_ms } else { self.since_ms };
            self.input.keep_larger(std::mem::take(&mut context.spare));
        }
        let room = self.input.room();
        let (wanted, got) = (room.len(), Direct(&self.socket).read(room));
        lane::set_phase(Phase::Other);
        match got {
            Ok(0) => return Ok(false),
            Ok(count) => {
                self.input.filled(count);
                // Less than there was room for: the socket is empty, save for an end it told of.
                self.readable = count == wanted || self.read_closed;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable = false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if let Stage::Lingering(left) = &mut self.stage {
            let count = self.input.bytes().len();
            self.input.consume(count);
            match left.checked_sub(count) {
                Some(rest) => *left = rest,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Answers what is there. `true`: only more input brings more answers.
    fn serve(&mut self, context: &mut Context) -> bool {
        while self.output.pending() <= OUTPUT_BYTES_MAX {
            let step = match self.stage {
                Stage::Head => self.begin(context),
                Stage::Body(_) => self.read_body(context),
                Stage::Closing { .. } | Stage::Lingering(_) => return true,
            };
            if step == Step::Starved {
                return true;
            }
        }
        false
    }

    /// Reads a head and, where all of the request is there, answers.
    fn begin(&mut self, context: &mut Context) -> Step {
        if self.input.bytes().is_empty() {
            return Step::Starved;
        }
        lane::set_phase(Phase::Parse);
        let mut room = head::headers();
        let head = match head::parse(self.input.bytes(), &mut room) {
            Ok(Some(head)) => head,
            Ok(None) => return Step::Starved,
            Err(refusal) => return self.refuse(refusal.0, None, context),
        };
        let id = lane::next_id();
        lane::set_request(id);
        let args = [("method", Value::Str(head.method.as_bytes())), ("url", Value::Str(head.target.as_bytes()))];
        let span = Span::begin(Category::NODE_HTTP, "http.server.request", id, &args);
        let there = self.input.bytes().len();
        let body = match head.framing {
            Framing::Length(length) if length > context.limits.body_bytes_max as u64 => {
                return self.refuse(413, Some(span), context);
            }
            Framing::Length(length) => {
                let end = head.bytes + length as usize;
                if end <= there {
                    let form = answer(&head, &self.input.bytes()[head.bytes..end], context);
                    return self.finish(form, span, end, context);
                }
                Body::Length(end)
            }
            Framing::Chunked => Body::Chunked(Chunked::new(head.bytes)),
        };
        if head.expects_continue && there == head.bytes {
            self.output.own(false, |out| out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n"));
        }
        self.since_ms = context.now_ms;
        self.stage = Stage::Body(Waiting { id, span, body });
        self.read_body(context)
    }

    /// Reads on in a body and, where it is complete, answers.
    fn read_body(&mut self, context: &mut Context) -> Step {
        let Stage::Body(waiting) = &mut self.stage else { return Step::Starved };
        lane::set_request(waiting.id);
        lane::set_phase(Phase::Parse);
        let (body_end, end) = match &mut waiting.body {
            Body::Length(end) if *end <= self.input.bytes().len() => (*end, *end),
            Body::Length(_) => return Step::Starved,
            Body::Chunked(chunked) => match chunked.read(self.input.bytes_mut(), context.limits.body_bytes_max) {
                Progress::Done(body_end, end) => (body_end, end),
                Progress::More => {
                    self.input.remove(chunked.gap());
                    chunked.close_gap();
                    return Step::Starved;
                }
                Progress::Refused(status) => {
                    let span = waiting.span;
                    return self.refuse(status, Some(span), context);
                }
            },
        };
        let span = waiting.span;
        // The head was read before, and its bytes have not changed since.
        let mut room = head::headers();
        let Ok(Some(head)) = head::parse(self.input.bytes(), &mut room) else {
            return self.refuse(400, Some(span), context);
        };
        let form = answer(&head, &self.input.bytes()[head.bytes..body_end], context);
        self.finish(form, span, end, context)
    }

    /// Queues the answer that is in the context, and takes the request off the input.
    fn finish(&mut self, form: Form, span: Span, request_bytes: usize, context: &mut Context) -> Step {
        lane::set_phase(Phase::Buffer);
        context.response.write_to(&mut self.output, form, &context.date);
        let (status, route) = context.response.labels();
        self.output.end(End { span, status, route });
        self.input.consume(request_bytes);
        self.since_ms = context.now_ms;
        self.stage = if form.keep_alive { Stage::Head } else { Stage::Closing { linger: !self.input.is_empty() } };
        lane::set_phase(Phase::Other);
        Step::Answered
    }

    /// Answers with an error and closes. What came of the request is of no more use.
    fn refuse(&mut self, status: u16, span: Option<Span>, context: &mut Context) -> Step {
        context.response.reset();
        context.response.status(status);
        let form = Form { head_only: false, old: false, keep_alive: false };
        context.response.write_to(&mut self.output, form, &context.date);
        if let Some(span) = span {
            self.output.end(End { span, status, route: Route::NONE });
        }
        let there = self.input.bytes().len();
        self.input.consume(there);
        self.stage = Stage::Closing { linger: true };
        Step::Answered
    }

    /// Whether it has waited too long; a request that was begun is answered by 408.
    pub(super) fn check_time(&mut self, context: &mut Context) -> Fate {
        let waited = context.now_ms.saturating_sub(self.since_ms);
        let limits = &context.limits;
        let limit = match self.stage {
            _ if self.output.pending() > 0 => limits.send_ms_max,
            Stage::Head if self.input.is_empty() => limits.idle_ms_max,
            Stage::Head => limits.head_ms_max,
            Stage::Body(_) => limits.body_ms_max,
            Stage::Closing { .. } | Stage::Lingering(_) => LINGER_MS_MAX,
        };
        if waited <= limit {
            return Fate::Wait;
        }
        let span = match &self.stage {
            _ if self.output.pending() > 0 => return Fate::Close,
            Stage::Body(waiting) => Some(waiting.span),
            Stage::Head if !self.input.is_empty() => None,
            _ => return Fate::Close,
        };
        self.since_ms = context.now_ms;
        self.refuse(408, span, context);
        self.advance(context)
    }
}

impl Drop for Connection {
    /// Emits the ends that are owed: of answers that did not get out whole, and of a request
    /// whose body never came, which would have been a bad one.
    fn drop(&mut self) {
        self.output.abandon();
        if let Stage::Body(waiting) = &self.stage {
            End { span: waiting.span, status: 400, route: Route::NONE }.emit(0);
        }
    }
}

/// Has the handler answer, into the context's response.
fn answer(head: &Head<'_, '_>, body: &[u8], context: &mut Context) -> Form {
    let request = Request { method: head.method, target: head.target, headers: head.headers, body };
    let (handler, response) = (&context.handler, &mut context.response);
    response.reset();
    lane::set_phase(Phase::User);
    // A handler that panics costs its own request, not the loop's other connections.
    if catch_unwind(AssertUnwindSafe(|| handler(&request, response))).is_err() {
        response.reset();
        response.status(500).close();
    }
    let keep_alive = head.keep_alive && !response.closes();
    Form { head_only: head.method == "HEAD", old: head.old, keep_alive }
}

const _: () = assert!(HEAD_BYTES_MAX <= OUTPUT_BYTES_MAX);
