//! The rings' memory, one ring a lane.
//!
//! It stays mapped for as long as a thread may write to it: each thread that writes holds a
//! share of it, and lets go when it sees that the page has changed.

use crate::sys::memory::{self, Mapping, Unstable};
use runtime_core_abi::ring::{self, Producer, Ring};
use std::io;
use std::os::fd::BorrowedFd;

/// The mapped rings.
#[derive(Debug)]
pub(crate) struct Rings {
    mapping: Mapping,
    lanes: usize,
    data_bytes: usize,
}

/// Why the agent's rings were not taken.
#[derive(Debug, thiserror::Error)]
pub enum RingsRefused {
    /// Their memory could go away.
    #[error("the agent's event rings are not safe to map: {0}")]
    Unstable(#[source] Unstable),
    /// They cannot be mapped.
    #[error("cannot map the agent's event rings: {0}")]
    Map(#[source] io::Error),
}

impl Rings {
    /// Maps `lanes` rings of `data_bytes` each, both checked when the welcome was decoded.
    pub(crate) fn map(fd: BorrowedFd<'_>, lanes: usize, data_bytes: usize) -> Result<Self, RingsRefused> {
        let bytes = ring::memory_bytes(lanes, data_bytes);
        memory::check_stable(fd, bytes).map_err(RingsRefused::Unstable)?;
        let mapping = Mapping::shared(fd, bytes).map_err(RingsRefused::Map)?;
        Ok(Self { mapping, lanes, data_bytes })
    }

    /// The writing side of a lane's ring, for the thread that has the lane; `None` where the
    /// agent gave fewer rings than there are lanes.
    pub(crate) fn producer(&self, lane: usize) -> Option<Producer> {
        if lane >= self.lanes {
            return None;
        }
        // SAFETY: in bounds of the mapping, which outlives the producer: whoever holds one holds a
        // share of these rings beside it. A lane has one thread, so a ring has one producer.
        let ring =
            unsafe { Ring::at(self.mapping.base().add(ring::lane_offset(lane, self.data_bytes)), self.data_bytes) };
        Some(Producer::new(ring))
    }

    /// Gives the memory back once nobody reads it any more. A thread that is just writing
    /// harms nobody: its bytes go where none looks.
    pub(crate) fn give_back(&self) {
        // Where it fails the memory goes with the mapping, a little later.
        let _ = self.mapping.punch();
    }

    /// Takes the memory from the child of a `fork`, where no thread writes to it.
    pub(super) fn unmap_in_child(&self) {
        self.mapping.unmap_in_child();
    }
}
