//! A chunked request body, decoded in place: the bytes of the chunks are moved down to
//! follow the head, so that a body needs no buffer of its own.

/// The longest chunk-size line, and the longest trailer, in bytes.
const SIZE_LINE_BYTES_MAX: usize = 256;
const TRAILER_BYTES_MAX: usize = 8 * 1024;
const TRAILERS_MAX: usize = 32;

/// How far a chunked body has been read. Positions count from the start of the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunked {
    /// Where the body begins.
    start: usize,
    /// Where the decoded part ends.
    end: usize,
    /// Where the part not yet looked at begins.
    at: usize,
    next: Next,
}

#[derive(Clone, Copy, Debug)]
enum Next {
    Size,
    Data(u64),
    DataEnd,
    Trailers,
}

/// What came of reading on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More bytes are needed.
    More,
    /// All there: the body ends at the first position, the request at the second.
    Done(usize, usize),
    /// Refused with that status.
    Refused(u16),
}

impl Chunked {
    /// A body that begins at `start`.
    pub(super) fn new(start: usize) -> Self {
        Self { start, end: start, at: start, next: Next::Size }
    }

    /// Reads on in `bytes`, the request as far as it is there.
    pub(super) fn read(&mut self, bytes: &mut [u8], body_bytes_max: usize) -> Progress {
        loop {
            let rest = &bytes[self.at..];
            match self.next {
                Next::Size => match httparse::parse_chunk_size(rest) {
                    Ok(httparse::Status::Complete((used, size))) => {
                        self.at += used;
                        self.next = if size == 0 { Next::Trailers } else { Next::Data(size) };
                    }
                    Ok(httparse::Status::Partial) if rest.len() <= SIZE_LINE_BYTES_MAX => return Progress::More,
                    _ => return Progress::Refused(400),
                },
                Next::Data(left) => {
                    if left > (body_bytes_max - (self.end - self.start)) as u64 {
                        return Progress::Refused(413);
                    }
                    let take = (left as usize).min(rest.len());
                    bytes.copy_within(self.at..self.at + take, self.end);
                    self.end += take;
                    self.at += take;
                    if take < left as usize {
                        self.next = Next::Data(left - take as u64);
                        return Progress::More;
                    }
                    self.next = Next::DataEnd;
                }
                Next::DataEnd => match rest {
                    [b'\r', b'\n', ..] => {
                        self.at += 2;
                        self.next = Next::Size;
                    }
                    [] | [b'\r'] => return Progress::More,
                    _ => return Progress::Refused(400),
                },
                Next::Trailers => {
                    let mut room = [httparse::EMPTY_HEADER; TRAILERS_MAX];
                    return match httparse::parse_headers(rest, &mut room) {
                        Ok(httparse::Status::Complete((used, _))) => Progress::Done(self.end, self.at + used),
                        Ok(httparse::Status::Partial) if rest.len() <= TRAILER_BYTES_MAX => Progress::More,
                        _ => Progress::Refused(400),
                    };
                }
            }
        }
    }

    /// The gap between what is decoded and what is still to be read, which the caller may
    /// close once it has called [`Chunked::close_gap`].
    pub(super) fn gap(&self) -> std::ops::Range<usize> {
        self.end..self.at
    }

    /// The caller removes the gap's bytes.
    pub(super) fn close_gap(&mut self) {
        self.at = self.end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_all(text: &[u8]) -> (Progress, Vec<u8>) {
        let mut bytes = text.to_vec();
        let progress = Chunked::new(0).read(&mut bytes, 100);
        let body = if let Progress::Done(end, _) = progress { bytes[..end].to_vec() } else { Vec::new() };
        (progress, body)
    }

    #[test]
    fn bodies() {
        assert_eq!(read_all(b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\nrest"), (Progress::Done(5, 24), b"abcde".to_vec()));
        assert_eq!(read_all(b"0\r\nTrailer: x\r\n\r\n"), (Progress::Done(0, 17), Vec::new()));
        assert_eq!(read_all(b"3\r\nab").0, Progress::More);
        assert_eq!(read_all(b"3\r\nabcd\r\n").0, Progress::Refused(400));
        assert_eq!(read_all(b"x\r\n").0, Progress::Refused(400));
        assert_eq!(read_all(b"65\r\n").0, Progress::Refused(413));
        assert_eq!(read_all(b"ffffffffffffffff\r\n").0, Progress::Refused(413));
        assert_eq!(read_all(&[b'1'; 1000]).0, Progress::Refused(400));
    }

    proptest! {
        #[test]
        fn the_pieces_do_not_matter(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..6), step in 1usize..9) {
            let mut wire = Vec::new();
            for chunk in &chunks {
                wire.extend(format!("{:x}\r\n", chunk.len()).bytes());
                wire.extend(chunk);
                wire.extend(b"\r\n");
            }
            wire.extend(b"0\r\n\r\n");
            let (mut chunked, mut seen) = (Chunked::new(0), Vec::new());
            for piece in wire.chunks(step) {
                seen.extend(piece);
                match chunked.read(&mut seen, 1000) {
                    Progress::More => {
                        seen.drain(chunked.gap());
                        chunked.close_gap();
                    }
                    Progress::Done(end, used) => {
                        prop_assert_eq!(used, seen.len());
                        seen.truncate(end);
                    }
                    Progress::Refused(status) => prop_assert!(false, "refused with {}", status),
                }
            }
            prop_assert_eq!(seen, chunks.concat());
        }

        #[test]
        fn garbage_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            Chunked::new(0).read(&mut bytes, 50);
        }
    }
}
