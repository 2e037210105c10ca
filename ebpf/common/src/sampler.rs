//! The sampler's side of the agreement: one record a sample, and counters for what no
//! record tells.

/// Name of the program in the object.
pub const PROGRAM: &str = "sampler";
/// Name of the ring buffer that carries records.
pub const RING: &str = "SAMPLES";
/// Name of the set of processes to sample, looked at when [`CONFIG_FILTER`] is set.
pub const PIDS: &str = "PIDS";
/// Name of the counters, one [`Counters`] a CPU.
pub const COUNTERS: &str = "COUNTERS";
/// Name of the global that holds the `CONFIG_*` bits.
pub const CONFIG: &str = "CONFIG";

/// Sample only processes that are in [`PIDS`].
pub const CONFIG_FILTER: u32 = 1 << 0;
/// Take kernel stacks.
pub const CONFIG_KERNEL: u32 = 1 << 1;
/// Take user stacks.
pub const CONFIG_USER: u32 = 1 << 2;

/// The most frames of either stack: the kernel's own default limit
/// (`kernel.perf_event_max_stack`). A stack of this length has probably lost its root.
pub const FRAMES_MAX: usize = 127;
/// The most bytes of either stack.
pub const STACK_BYTES_MAX: usize = FRAMES_MAX * 8;
/// The longest record in bytes.
pub const RECORD_BYTES_MAX: usize = size_of::<Header>() + 2 * STACK_BYTES_MAX;
/// Bytes of a thread's name.
pub const COMM_BYTES: usize = 16;

/// The CPU was in kernel mode when the sample was taken.
pub const IN_KERNEL: u32 = 1 << 0;

/// What a record begins with; `kernel_frames` and then `user_frames` addresses of 8 bytes
/// follow, innermost first. A record ends with its last frame.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Process id (the kernel's tgid), in the initial namespace.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// [`IN_KERNEL`].
    pub flags: u32,
    /// CPU it was taken on.
    pub cpu: u32,
    /// Frames of the kernel stack.
    pub kernel_frames: u32,
    /// Frames of the user stack.
    pub user_frames: u32,
    /// Name of the thread, ended by the first zero.
    pub comm: [u8; COMM_BYTES],
}

/// What the sampler counts on each CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records that reached the ring.
    pub samples: u64,
    /// Samples wanted that found the ring full or busy.
    pub lost: u64,
    /// Samples of the idle task, left out.
    pub idle: u64,
}

// Both sides read these bytes; the program masks lengths with `STACK_BYTES_MAX`, which works
// because it is all ones above the size of a frame.
const _: () = {
    assert!(size_of::<Header>() == 40 && align_of::<Header>() <= 8);
    assert!(size_of::<Counters>() == 24);
    assert!(STACK_BYTES_MAX == 0x3f8);
    assert!(RECORD_BYTES_MAX == 2072);
};

impl Header {
    /// Reads a header and the two stacks (kernel, user) from a record; `None` where the
    /// record is not exactly as long as it says.
    pub fn parse(record: &[u8]) -> Option<(Self, Frames<'_>, Frames<'_>)> {
        let (head, frames) = record.split_at_checked(size_of::<Self>())?;
        let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let mut comm = [0; COMM_BYTES];
        comm.copy_from_slice(&head[24..]);
        let header = Self {
            pid: word(0),
            tid: word(4),
            flags: word(8),
            cpu: word(12),
            kernel_frames: word(16),
            user_frames: word(20),
            comm,
        };
        let (kernel, user) = (header.kernel_frames as usize, header.user_frames as usize);
        if kernel > FRAMES_MAX || user > FRAMES_MAX || frames.len() != (kernel + user) * 8 {
            return None;
        }
        let (kernel, user) = frames.split_at(kernel * 8);
        Some((header, Frames(kernel), Frames(user)))
    }
}

/// Addresses of a stack, innermost first, still in the record's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'a>(&'a [u8]);

impl<'a> Frames<'a> {
    /// The addresses as bytes, 8 each.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The addresses.
    pub fn iter(self) -> impl Iterator<Item = u64> + 'a {
        let (words, _) = self.0.as_chunks::<8>();
        words.iter().map(|word| u64::from_ne_bytes(*word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_gives_back_its_stacks() {
        let mut record = [0u8; 40 + 24];
        record[..4].copy_from_slice(&7u32.to_ne_bytes());
        record[16..20].copy_from_slice(&1u32.to_ne_bytes());
        record[20..24].copy_from_slice(&2u32.to_ne_bytes());
        record[24..26].copy_from_slice(b"ab");
        for (frame, at) in [(11u64, 40), (22, 48), (33, 56)] {
            record[at..at + 8].copy_from_slice(&frame.to_ne_bytes());
        }
        let (header, kernel, user) = Header::parse(&record).unwrap();
        assert_eq!((header.pid, &header.comm[..3]), (7, &b"ab\0"[..]));
        assert!(kernel.iter().eq([11]));
        assert!(user.iter().eq([22, 33]));
    }

    #[test]
    fn a_record_of_another_length_is_refused() {
        let mut record = [0u8; 48];
        assert!(Header::parse(&record[..39]).is_none());
        assert!(Header::parse(&record[..40]).is_some());
        assert!(Header::parse(&record).is_none());
        record[16..20].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert!(Header::parse(&record).is_none());
    }
}
