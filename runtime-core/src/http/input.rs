//! Bytes read from a connection and not yet used up.

/// Room made for one read, in bytes.
const READ_BYTES: usize = 16 * 1024;
/// A larger buffer is not kept once it is empty, in bytes.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// A buffer whose used part moves to its start when room is needed.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// Initialised all along, so that a read needs no fill before it.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// Room for a read, behind the bytes.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
        if self.buffer.len() - self.end < READ_BYTES {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.buffer.len() - self.end < READ_BYTES {
                // Doubled, so that a long body is not copied at each read.
                self.buffer.resize((self.end + READ_BYTES).max(2 * self.end), 0);
            }
        }
        &mut self.buffer[self.end..]
    }

    /// A read has put so many bytes into the room.
    pub(super) fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.buffer.len());
    }

    /// So many bytes from the start have been used up.
    pub(super) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    /// Takes bytes out of the middle, positions counted from the first byte.
    pub(super) fn remove(&mut self, gap: std::ops::Range<usize>) {
        let from = (self.start + gap.end).min(self.end);
        let to = (self.start + gap.start).min(from);
        self.buffer.copy_within(from..self.end, to);
        self.end -= from - to;
    }

    /// Takes the memory of `other`, an empty one, where that is of more use than its own.
    pub(super) fn keep_larger(&mut self, other: Self) {
        if self.is_empty() && other.buffer.len() > self.buffer.len() && other.buffer.len() <= KEPT_BYTES_MAX {
            *self = Self { buffer: other.buffer, start: 0, end: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(input: &mut Input, bytes: &[u8]) {
        input.room()[..bytes.len()].copy_from_slice(bytes);
        input.filled(bytes.len());
    }

    #[test]
    fn bytes_move_and_stay() {
        let mut input = Input::default();
        put(&mut input, b"abcdef");
        input.consume(2);
        input.remove(1..3);
        assert_eq!(input.bytes(), b"cf");
        for _ in 0..10_000 {
            put(&mut input, b"0123456789");
            input.consume(10);
        }
        assert_eq!(input.bytes(), b"89");
        assert!(input.buffer.len() <= 2 * READ_BYTES);
        input.consume(100);
        assert!(input.is_empty());
    }

    #[test]
    fn memory_is_passed_on_but_not_a_long_body_s() {
        let (mut spare, mut input) = (Input::default(), Input::default());
        put(&mut input, b"a");
        input.consume(1);
        spare.keep_larger(std::mem::take(&mut input));
        assert_eq!(spare.buffer.len(), READ_BYTES);
        let mut long = Input::default();
        for _ in 0..10 {
            put(&mut long, &[0; READ_BYTES]);
        }
        long.consume(usize::MAX / 2);
        spare.keep_larger(long);
        assert_eq!(spare.buffer.len(), READ_BYTES);
    }
}
