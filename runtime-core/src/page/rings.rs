//! The rings' memory, one ring a lane.
//!
//! It stays mapped for as long as a thread may write to it: each thread that writes holds a
//! share of it, and lets go when it sees that the page has changed.

use crate::sys::memory::{self, Mapping, Unstable};
use runtime_core_abi::ring::{self, Consumer, Producer, Ring};
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

    /// Rings in memory of the process's own, for its own recording. What is never written to
    /// takes none.
    pub(crate) fn private(lanes: usize, data_bytes: usize) -> io::Result<Self> {
        let mapping = Mapping::private(ring::memory_bytes(lanes, data_bytes))?;
        Ok(Self { mapping, lanes, data_bytes })
    }

    /// The writing side of a lane's ring, for the thread that has the lane; `None` where the
    /// agent gave fewer rings than there are lanes.
    pub(crate) fn producer(&self, lane: usize) -> Option<Producer> {
        // A lane has one thread, so a ring has one producer.
        (lane < self.lanes).then(|| Producer::new(self.ring(lane)))
    }

    /// The reading side of every ring, for the one thread that reads private rings.
    pub(crate) fn consumers(&self) -> Vec<Consumer> {
        (0..self.lanes).map(|lane| Consumer::new(self.ring(lane))).collect()
    }

    fn ring(&self, lane: usize) -> Ring {
        assert!(lane < self.lanes);
        // SAFETY: in bounds of the mapping, which outlives both sides: whoever holds one holds a
        // share of these rings beside it.
        unsafe { Ring::at(self.mapping.base().add(ring::lane_offset(lane, self.data_bytes)), self.data_bytes) }
    }

    /// Gives the data's memory back once nobody reads it any more; threads that sleep may keep
    /// it mapped for long. The positions stay, for an agent that is still there and gives the
    /// same rings again. A thread that is just writing harms nobody.
    pub(crate) fn give_back(&self) {
        for lane in 0..self.lanes {
            let data = ring::lane_offset(lane, self.data_bytes) + ring::HEADER_BYTES;
            // Where it fails the memory goes with the mapping, a little later.
            let _ = self.mapping.punch(data, self.data_bytes);
        }
    }

    /// Takes the memory from the child of a `fork`, where no thread writes to it.
    pub(super) fn unmap_in_child(&self) {
        self.mapping.unmap_in_child();
    }
}
