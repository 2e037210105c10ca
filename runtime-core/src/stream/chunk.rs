//! What can be written: bytes, buffers, and text in an encoding.

use crate::buffer::{Buffer, Encoding};

/// One chunk. Made by `into` from what [`Stream::write`](super::Stream::write) is given.
///
/// Few bytes are copied whatever they come in. Many are shared where a [`Buffer`] has them, and
/// copied once where they are only borrowed.
#[derive(Debug)]
pub enum Chunk<'a> {
    /// Borrowed bytes.
    Bytes(&'a [u8]),
    /// A buffer of which the caller keeps a handle.
    Shared(&'a Buffer),
    /// A buffer that is given away.
    Given(Buffer),
    /// Text that becomes bytes by an encoding.
    Text(&'a str, Encoding),
}

impl<'a> Chunk<'a> {
    /// The bytes, where no encoding has to make them first.
    #[inline(always)]
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Shared(buffer) => Some(buffer),
            Self::Given(buffer) => Some(buffer),
            Self::Text(text, Encoding::Utf8) => Some(text.as_bytes()),
            Self::Text(..) => None,
        }
    }

    /// A buffer with the bytes from `sent` on.
    pub(super) fn into_buffer(self, sent: usize) -> Buffer {
        match self {
            Self::Bytes(bytes) => Buffer::from(&bytes[sent..]),
            Self::Shared(buffer) => buffer.slice(sent..),
            Self::Given(mut buffer) => {
                buffer.narrow(sent..);
                buffer
            }
            Self::Text(text, Encoding::Utf8) => Buffer::from(&text.as_bytes()[sent..]),
            Self::Text(text, encoding) => Chunk::Given(Buffer::from_text(text, encoding)).into_buffer(sent),
        }
    }
}

impl<'a> From<&'a [u8]> for Chunk<'a> {
    #[inline(always)]
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Chunk<'a> {
    #[inline(always)]
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a> From<&'a Buffer> for Chunk<'a> {
    #[inline(always)]
    fn from(buffer: &'a Buffer) -> Self {
        Self::Shared(buffer)
    }
}

impl From<Buffer> for Chunk<'_> {
    #[inline(always)]
    fn from(buffer: Buffer) -> Self {
        Self::Given(buffer)
    }
}

impl From<Vec<u8>> for Chunk<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Given(bytes.into())
    }
}

impl From<String> for Chunk<'_> {
    fn from(text: String) -> Self {
        Self::Given(text.into())
    }
}

impl<'a> From<&'a str> for Chunk<'a> {
    #[inline(always)]
    fn from(text: &'a str) -> Self {
        Self::Text(text, Encoding::Utf8)
    }
}

impl<'a> From<(&'a str, Encoding)> for Chunk<'a> {
    #[inline(always)]
    fn from((text, encoding): (&'a str, Encoding)) -> Self {
        Self::Text(text, encoding)
    }
}
