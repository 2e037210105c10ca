//! Chunks that wait to be written, in their order: few bytes copied one behind the other, many
//! bytes by a handle.
//!
//! Where copying ends to be worth it is measured, by `cargo bench --bench cork -- --threshold`:
//! CPU time of a chunk in ns, all chunks passed as slices against all copied together, over
//! loopback TCP, per high-water mark. The longest that is copied is where the two marks disagree.
//!
//! | bytes | slices, 16 KiB | copied, 16 KiB | slices, 64 KiB | copied, 64 KiB |
//! |------:|------:|------:|------:|------:|
//! |   128 |    87 |    52 |    64 |    38 |
//! |   256 |   167 |   128 |    94 |    70 |
//! |   512 |   293 |   275 |   146 |   136 |
//! |  1024 |   552 |   519 |   282 |   294 |
//! |  2048 |  1045 |  1007 |   550 |   545 |
//! |  4096 |  2032 |  2019 |  1080 |  1130 |
//! |  8192 |  4067 |  4116 |  2098 |  2298 |

use super::chunk::Chunk;
use super::counters;
use super::io::{Io, SLICES_MAX};
use super::store::Store;
use crate::buffer::Buffer;
use crate::trace::{Phase, lane};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};

/// The longest chunk that is copied, in bytes. See the table above.
pub(super) const COPY_BYTES_MAX: usize = 1024;

/// A queue of more parts than this gives their memory back once it is empty.
const PARTS_KEPT_MAX: usize = 64;

thread_local! {
    /// An array of slices without slices, kept for its memory.
    static SLICES: Cell<Vec<IoSlice<'static>>> = const { Cell::new(Vec::new()) };
}

/// Chunks that wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    store: Store,
    /// All but the copied bytes at the queue's end.
    parts: VecDeque<Part>,
    /// Bytes of the store that are in parts.
    in_parts: usize,
    /// Bytes kept by handles.
    kept: usize,
    /// Chunks copied, for the counters.
    copied: u64,
}

#[derive(Debug)]
enum Part {
    /// The store's next bytes.
    Copied(usize),
    /// Never empty.
    Kept(Buffer),
}

impl Queue {
    /// Bytes that wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.store.len() + self.kept
    }

    /// Lets chunks in by [`try_copy`](Self::try_copy), fewer than `len` bytes of them.
    #[inline]
    pub fn open(&mut self, len: usize) {
        self.store.open(len);
    }

    /// Lets none in any more.
    #[inline]
    pub fn close(&mut self) {
        self.store.close();
    }

    /// Copies a chunk if it is short and may come in so: the common case, and all of it.
    #[inline(always)]
    pub fn try_copy(&mut self, bytes: &[u8]) -> bool {
        let copied = bytes.len() <= COPY_BYTES_MAX && self.store.try_put(bytes);
        self.copied += u64::from(copied);
        copied
    }

    /// Adds a chunk; returns its length in bytes.
    pub fn push(&mut self, chunk: Chunk<'_>) -> usize {
        let len = match (&chunk, chunk.bytes()) {
            (_, Some(bytes)) if bytes.len() <= COPY_BYTES_MAX => self.store.put_with(bytes.len(), |room| {
                room.copy_from_slice(bytes);
                bytes.len()
            }),
            (Chunk::Text(text, encoding), None) if encoding.byte_len_max(text) <= COPY_BYTES_MAX => {
                self.store.put_with(encoding.byte_len_max(text), |room| encoding.encode_into(text, room))
            }
            _ => return self.keep(chunk.into_buffer(0)),
        };
        self.copied += 1;
        len
    }

    /// Adds bytes by a handle; returns how many.
    fn keep(&mut self, buffer: Buffer) -> usize {
        // What waits has grown past what was asked for: the next short one asks again.
        self.store.close();
        let len = buffer.len();
        if len > 0 {
            self.kept += len;
            let run = self.store.len() - self.in_parts;
            if run > 0 {
                self.parts.push_back(Part::Copied(run));
                self.in_parts += run;
            }
            self.parts.push_back(Part::Kept(buffer));
            counters::add(|counters| &counters.chunks_kept, 1);
        }
        len
    }

    /// Writes from the first `len` bytes, once; returns how many were taken.
    pub fn write_to(&self, io: &mut impl Io, len: usize) -> io::Result<usize> {
        // All in the store, as it is with small chunks.
        if self.parts.is_empty() {
            return write(io, &[IoSlice::new(&self.store.bytes(0)[..len])]);
        }
        let mut slices = recycle(SLICES.take());
        self.gather(len, &mut slices);
        let result = write(io, &slices);
        SLICES.set(recycle(slices));
        result
    }

    fn gather<'a>(&'a self, len: usize, slices: &mut Vec<IoSlice<'a>>) {
        let (mut left, mut at) = (len, 0);
        for part in &self.parts {
            if left == 0 || slices.len() == SLICES_MAX {
                return;
            }
            let bytes = match part {
                Part::Copied(len) => {
                    at += len;
                    &self.store.bytes(at - len)[..*len]
                }
                Part::Kept(buffer) => buffer,
            };
            let taken = left.min(bytes.len());
            slices.push(IoSlice::new(&bytes[..taken]));
            left -= taken;
        }
        if left > 0 && slices.len() < SLICES_MAX {
            slices.push(IoSlice::new(&self.store.bytes(at)[..left]));
        }
    }

    /// Takes written bytes off the front.
    pub fn advance(&mut self, mut len: usize) {
        while let Some(part) = self.parts.front_mut() {
            let taken = match part {
                Part::Copied(left) => {
                    let taken = len.min(*left);
                    *left -= taken;
                    self.in_parts -= taken;
                    self.store.take(taken);
                    if *left > 0 {
                        return;
                    }
                    taken
                }
                Part::Kept(buffer) => {
                    let taken = len.min(buffer.len());
                    self.kept -= taken;
                    if taken < buffer.len() {
                        buffer.narrow(taken..);
                        return;
                    }
                    taken
                }
            };
            len -= taken;
            self.parts.pop_front();
        }
        self.store.take(len);
    }

    /// Drops all chunks, and where there are none gives back memory that others can use.
    pub fn clear(&mut self) {
        self.parts.clear();
        if self.parts.capacity() > PARTS_KEPT_MAX {
            self.parts = VecDeque::new();
        }
        (self.in_parts, self.kept) = (0, 0);
        self.store.take(self.store.len());
        self.store.release();
    }

    /// Adds to the thread's counters what has been copied.
    pub fn publish(&mut self) {
        counters::add(|counters| &counters.chunks_copied, std::mem::take(&mut self.copied));
    }
}

/// An empty array of slices in the memory of another.
fn recycle<'to>(mut slices: Vec<IoSlice<'_>>) -> Vec<IoSlice<'to>> {
    slices.clear();
    // Collected in place: the same memory, of which nothing is read.
    slices.into_iter().map(|_| IoSlice::new(&[])).collect()
}

/// Every write goes through here.
#[inline]
pub(super) fn write(io: &mut impl Io, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    lane::in_phase(Phase::Writev, || io.write(slices))
}
