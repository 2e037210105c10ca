//! A chunked request body, decoded in place: the bytes of the chunks are moved down to
//! follow the head, so that a body needs no buffer of its own.
//!
//! Size lines are read strictly, and by hand: httparse takes one without a digit for the last
//! chunk, and a line feed inside of an extension for a part of it. A proxy ahead that reads
//! either another way would see other requests than we do.

use super::head::has_bare_newline;

/// The longest chunk-size line, and the longest trailer, in bytes, however they arrive.
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
                Next::Size => match size_line(rest) {
                    SizeLine::Whole { used, size } => {
                        self.at += used;
                        self.next = if size == 0 { Next::Trailers } else { Next::Data(size) };
                    }
                    SizeLine::Partial => return Progress::More,
                    SizeLine::Bad => return Progress::Refused(400),
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
                        Ok(httparse::Status::Complete((used, _)))
                            if used <= TRAILER_BYTES_MAX && !has_bare_newline(&rest[..used]) =>
                        {
                            Progress::Done(self.end, self.at + used)
                        }
                        Ok(httparse::Status::Partial) if rest.len() < TRAILER_BYTES_MAX => Progress::More,
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

#[derive(Debug, PartialEq, Eq)]
enum SizeLine {
    /// It takes so many bytes, and announces so many.
    Whole {
        used: usize,
        size: u64,
    },
    Partial,
    Bad,
}

/// Reads the line ahead of a chunk: hexadecimal digits, and perhaps an extension, which says
/// nothing to us.
fn size_line(bytes: &[u8]) -> SizeLine {
    let seen = &bytes[..bytes.len().min(SIZE_LINE_BYTES_MAX)];
    let Some(end) = seen.iter().position(|byte| *byte == b'\n') else {
        return if seen.len() < SIZE_LINE_BYTES_MAX { SizeLine::Partial } else { SizeLine::Bad };
    };
    let Some(line) = seen[..end].strip_suffix(b"\r") else { return SizeLine::Bad };
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let extension = line[digits..].trim_ascii_start();
    // Sixteen digits fill a u64.
    if !(1..=16).contains(&digits)
        || !(extension.is_empty() || extension.starts_with(b";"))
        || line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t')
    {
        return SizeLine::Bad;
    }
    let value = |digit: u8| u64::from((digit as char).to_digit(16).unwrap_or(0));
    let size = line[..digits].iter().fold(0, |size, digit| size << 4 | value(*digit));
    SizeLine::Whole { used: end + 1, size }
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

    #[test]
    fn size_lines_that_others_may_read_another_way_are_refused() {
        let long = format!("3;{}\r\n", "x".repeat(SIZE_LINE_BYTES_MAX));
        for line in [
            "\r\n",
            ";x\r\n",
            " \r\n",
            " 3\r\n",
            "3\n",
            "3;a\nb\r\n",
            "3;a\rb\r\n",
            "3 x\r\n",
            "+3\r\n",
            "0x3\r\n",
            "00000000000000003\r\n",
            &long,
        ] {
            assert_eq!(size_line(line.as_bytes()), SizeLine::Bad, "{line:?}");
        }
        assert_eq!(size_line(b"fF \t;x=\"y\"\r\nz"), SizeLine::Whole { used: 12, size: 255 });
        assert_eq!(size_line(b"3;x"), SizeLine::Partial);
        assert_eq!(read_all(b"0\r\n\n").0, Progress::Refused(400));
        assert_eq!(read_all(b"0\r\nA: b\n\r\n").0, Progress::Refused(400));
        let trailer = format!("0\r\nA: {}\r\n\r\n", "x".repeat(TRAILER_BYTES_MAX));
        assert_eq!(read_all(trailer.as_bytes()).0, Progress::Refused(400));
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
