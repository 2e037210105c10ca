//! What a connection still has to send: heads and small bodies in one buffer, long constant
//! bodies by reference, and between them the ends of the answers. An end that is owed an event
//! emits it when all before it has been handed to the kernel.

use crate::trace::{Route, Span, Value};
use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

/// A buffer larger than this is given back once it is empty, in bytes.
const KEPT_BYTES_MAX: usize = 64 * 1024;
/// Slices in one call: few for the common answer, many for one in many pieces.
const SLICES_FEW: usize = 8;
const SLICES_MANY: usize = 512;

#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    /// How much of `bytes` has been sent.
    sent: usize,
    parts: VecDeque<Part>,
    /// Bytes still to be sent, of all parts.
    pending: usize,
    /// Body bytes sent of the answer that is being sent.
    body_sent: u64,
}

#[derive(Debug)]
enum Part {
    /// The next bytes of the buffer.
    Own { len: usize, body: bool },
    /// Body bytes that live elsewhere for ever.
    Static(&'static [u8]),
    /// The end of an answer.
    End(End),
}

/// What the end event of a request will say.
#[derive(Debug)]
pub(super) struct End {
    pub span: Span,
    pub status: u16,
    pub route: Route,
}

impl End {
    /// Emits it.
    pub(super) fn emit(self, bytes: u64) {
        let args = [("statusCode", Value::Uint(self.status.into())), ("bytes", Value::Uint(bytes))];
        self.span.end(self.route, &args);
    }
}

impl Output {
    /// Bytes still to be sent.
    pub(super) fn pending(&self) -> usize {
        self.pending
    }

    /// Adds what `write` appends to the buffer.
    pub(super) fn own(&mut self, body: bool, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.bytes.len();
        write(&mut self.bytes);
        let added = self.bytes.len() - before;
        self.pending += added;
        match self.parts.back_mut() {
            Some(Part::Own { len, body: last }) if *last == body => *len += added,
            _ => self.parts.push_back(Part::Own { len: added, body }),
        }
    }

    /// Adds body bytes by reference.
    pub(super) fn shared(&mut self, bytes: &'static [u8]) {
        self.pending += bytes.len();
        self.parts.push_back(Part::Static(bytes));
    }

    /// Marks the end of an answer.
    pub(super) fn end(&mut self, end: End) {
        self.parts.push_back(Part::End(end));
    }

    /// Sends as much as the socket takes. `true`: something was sent.
    pub(super) fn send(&mut self, socket: &mut impl Write) -> io::Result<bool> {
        let mut progress = false;
        while self.pending > 0 {
            let sent = match self.send_once(socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => sent,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            progress = true;
            self.take(sent);
        }
        if self.pending == 0 {
            self.take(0);
        }
        Ok(progress)
    }

    fn send_once(&self, socket: &mut impl Write) -> io::Result<usize> {
        // The usual answer is all in the buffer.
        let own = self.own_run(0).0;
        if own == self.pending {
            return socket.write(&self.bytes[self.sent..]);
        }
        if self.parts.len() <= SLICES_FEW {
            self.send_gathered::<SLICES_FEW>(socket)
        } else {
            self.send_gathered::<SLICES_MANY>(socket)
        }
    }

    /// Bytes of the buffer that can go together from a part on, and the part behind them.
    fn own_run(&self, mut part: usize) -> (usize, usize) {
        let mut run = 0;
        loop {
            match self.parts.get(part) {
                Some(Part::Own { len, .. }) => run += len,
                Some(Part::End(_)) => {}
                Some(Part::Static(_)) | None => return (run, part),
            }
            part += 1;
        }
    }

    fn send_gathered<const N: usize>(&self, socket: &mut impl Write) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); N];
        let (mut count, mut part, mut at) = (0, 0, self.sent);
        while count < N && part < self.parts.len() {
            let (run, behind) = self.own_run(part);
            if run > 0 {
                slices[count] = IoSlice::new(&self.bytes[at..at + run]);
                at += run;
                part = behind;
            } else if let Some(Part::Static(bytes)) = self.parts.get(behind) {
                slices[count] = IoSlice::new(bytes);
                part = behind + 1;
            } else {
                break;
            }
            count += 1;
        }
        socket.write_vectored(&slices[..count])
    }

    /// Takes sent bytes off the front, and emits the ends that this reaches.
    fn take(&mut self, mut sent: usize) {
        self.pending -= sent;
        loop {
            match self.parts.front_mut() {
                Some(Part::Own { len, body }) => {
                    let taken = sent.min(*len);
                    *len -= taken;
                    sent -= taken;
                    self.sent += taken;
                    self.body_sent += if *body { taken as u64 } else { 0 };
                    if *len > 0 {
                        break;
                    }
                }
                Some(Part::Static(bytes)) => {
                    let taken = sent.min(bytes.len());
                    *bytes = &bytes[taken..];
                    sent -= taken;
                    self.body_sent += taken as u64;
                    if !bytes.is_empty() {
                        break;
                    }
                }
                Some(Part::End(_)) | None => {}
            }
            match self.parts.pop_front() {
                Some(Part::End(end)) => end.emit(std::mem::take(&mut self.body_sent)),
                Some(_) => {}
                None => break,
            }
        }
        self.tidy();
    }

    fn tidy(&mut self) {
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
            if self.bytes.capacity() > KEPT_BYTES_MAX {
                self.bytes = Vec::new();
            }
        } else if self.sent > KEPT_BYTES_MAX {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// The connection is gone: emits the ends that are owed, with the bytes that got out.
    pub(super) fn abandon(&mut self) {
        for part in self.parts.drain(..) {
            if let Part::End(end) = part {
                end.emit(std::mem::take(&mut self.body_sent));
            }
        }
    }
}
