//! What a callback or the listener of a stream is told when something went wrong.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

/// Why a write, an end or the stream itself failed. Cheap to clone: one failure is told to
/// every callback that waited.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A chunk came after [`end`](super::Stream::end).
    #[error("write after end")]
    WriteAfterEnd,
    /// The stream was destroyed before this could be done.
    #[error("cannot {0}: the stream was destroyed")]
    Destroyed(&'static str),
    /// It has ended, and all has been handed over.
    #[error("cannot end: the stream has already finished")]
    AlreadyFinished,
    /// The operating system refused.
    #[error("cannot {call}")]
    Io {
        /// What was tried: `write`, `read` or `shutdown`.
        call: &'static str,
        /// What it answered.
        #[source]
        source: Arc<io::Error>,
    },
    /// What the program gave to [`destroy_with`](super::Stream::destroy_with).
    #[error(transparent)]
    Other(Arc<dyn StdError + Send + Sync>),
}

impl Error {
    /// An error of the program's own.
    pub fn other(error: impl StdError + Send + Sync + 'static) -> Self {
        Self::Other(Arc::new(error))
    }

    pub(super) fn io(call: &'static str, source: io::Error) -> Self {
        Self::Io { call, source: Arc::new(source) }
    }

    /// The operating system's error, if it was one.
    pub fn as_io(&self) -> Option<&io::Error> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
