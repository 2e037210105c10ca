//! What is said on the registration socket, a Unix stream socket.
//!
//! The process sends a [`Hello`]; the agent answers with a [`Welcome`], two descriptors
//! beside it (the page, then the rings) where it accepts; the process maps both and sends
//! [`JOINED`]. From then on the connection carries nothing: it **is** the lease, and ends
//! with either side. Who the process is the agent asks the kernel, never the message.

use crate::{page, ring};

/// "TBrc", little-endian.
pub const MAGIC: u32 = u32::from_le_bytes(*b"TBrc");
/// The byte a process sends once it has mapped the page.
pub const JOINED: u8 = b'J';
/// The longest service name, in bytes.
pub const SERVICE_BYTES_MAX: usize = 64;
/// Size of an encoded [`Hello`].
pub const HELLO_BYTES: usize = 16 + SERVICE_BYTES_MAX;
/// The longest reason in a [`Welcome`], in bytes.
pub const REASON_BYTES_MAX: usize = 192;
/// Size of an encoded [`Welcome`].
pub const WELCOME_BYTES: usize = 32 + REASON_BYTES_MAX;
/// The name of the registration socket in the run directory.
pub const REGISTER_SOCKET: &str = "register.sock";
/// The longest path of a run directory, in bytes: with the longer socket's name behind it, it
/// must fit into an address (108 bytes, the last a zero).
pub const RUN_DIR_BYTES_MAX: usize = 107 - 1 - REGISTER_SOCKET.len();
/// The run directory where no other is named.
pub const RUN_DIR: &str = "/run/tracebyte";
/// The environment variable that names another run directory.
pub const RUN_DIR_ENV: &str = "TRACEBYTE_RUN_DIR";

/// A process asks to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The page layout it was built with.
    pub version: u32,
    service: Text<SERVICE_BYTES_MAX>,
}

impl Hello {
    /// A request to join as `service`, cut to [`SERVICE_BYTES_MAX`].
    pub fn new(service: &str) -> Self {
        Self { version: page::VERSION, service: Text::cut(service) }
    }

    /// The service's name as sent: any bytes.
    pub fn service(&self) -> &[u8] {
        self.service.bytes()
    }

    /// As bytes for the socket.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut out = [0; HELLO_BYTES];
        put_words(&mut out, [MAGIC, self.version, page::PAGE_BYTES as u32, self.service.len]);
        out[16..].copy_from_slice(&self.service.bytes);
        out
    }

    /// Reads what [`Hello::encode`] wrote. A hello of another version is still read, so
    /// that it can be refused by name.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Self, Malformed> {
        let [magic, version, _page_bytes, len] = words(bytes);
        if magic != MAGIC {
            return Err(Malformed);
        }
        Ok(Self { version, service: Text::from_wire(&bytes[16..], len)? })
    }
}

/// What backs a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Backing {
    /// A BPF array: programs in the kernel see it too.
    BpfArray = 1,
    /// A sealed memfd: no kernel labels.
    Memfd = 2,
}

/// The agent's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Welcome {
    /// Accepted; two descriptors come with it.
    Accepted {
        /// What backs the page.
        backing: Backing,
        /// Rings in the second descriptor's memory.
        lanes: u32,
        /// Bytes of data in each.
        ring_data_bytes: u32,
    },
    /// Not accepted.
    Refused(Reason),
}

/// Why a process was refused, for its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason(Text<REASON_BYTES_MAX>);

impl Reason {
    /// A reason, cut to [`REASON_BYTES_MAX`].
    pub fn new(text: &str) -> Self {
        Self(Text::cut(text))
    }

    /// The reason as sent: any bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl Welcome {
    /// As bytes for the socket.
    pub fn encode(&self) -> [u8; WELCOME_BYTES] {
        let mut out = [0; WELCOME_BYTES];
        match self {
            Self::Accepted { backing, lanes, ring_data_bytes } => {
                put_words(&mut out, [MAGIC, page::VERSION, *backing as u32, *lanes, *ring_data_bytes, 0]);
            }
            Self::Refused(reason) => {
                put_words(&mut out, [MAGIC, page::VERSION, 0, 0, 0, reason.0.len]);
                out[32..].copy_from_slice(&reason.0.bytes);
            }
        }
        out
    }

    /// Reads what [`Welcome::encode`] wrote.
    pub fn decode(bytes: &[u8; WELCOME_BYTES]) -> Result<Self, Malformed> {
        let [magic, _version, backing, lanes, ring_data_bytes, len] = words(bytes);
        let backing = match (magic, backing) {
            (MAGIC, 0) => return Ok(Self::Refused(Reason(Text::from_wire(&bytes[32..], len)?))),
            (MAGIC, 1) => Backing::BpfArray,
            (MAGIC, 2) => Backing::Memfd,
            _ => return Err(Malformed),
        };
        let fits = (1..=page::LANES_MAX as u32).contains(&lanes) && ring::data_bytes_valid(ring_data_bytes as usize);
        if fits { Ok(Self::Accepted { backing, lanes, ring_data_bytes }) } else { Err(Malformed) }
    }
}

/// The message is not one of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("not a message of the tracebyte registration protocol")
    }
}

impl core::error::Error for Malformed {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Text<const N: usize> {
    len: u32,
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    fn cut(text: &str) -> Self {
        let end = text.floor_char_boundary(N);
        let mut bytes = [0; N];
        bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
        Self { len: end as u32, bytes }
    }

    fn from_wire(from: &[u8], len: u32) -> Result<Self, Malformed> {
        let bytes: [u8; N] = from.try_into().map_err(|_| Malformed)?;
        if len as usize <= N { Ok(Self { len, bytes }) } else { Err(Malformed) }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }
}

fn put_words<const N: usize>(out: &mut [u8], words: [u32; N]) {
    for (to, word) in out.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
}

fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    core::array::from_fn(|i| u32::from_le_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_come_back() {
        let hello = Hello::new("api");
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        assert_eq!(hello.service(), b"api");
        let accepted = Welcome::Accepted { backing: Backing::Memfd, lanes: 64, ring_data_bytes: 1 << 20 };
        assert_eq!(Welcome::decode(&accepted.encode()), Ok(accepted));
        let refused = Welcome::Refused(Reason::new("already joined"));
        assert_eq!(Welcome::decode(&refused.encode()), Ok(refused));
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let hello = Hello::new(&"é".repeat(100));
        assert_eq!(hello.service().len(), SERVICE_BYTES_MAX);
        let odd = std::format!("x{}", "é".repeat(100));
        assert_eq!(Hello::new(&odd).service().len(), SERVICE_BYTES_MAX - 1);
    }

    #[test]
    fn a_ring_of_a_wrong_size_is_refused() {
        for (lanes, ring_data_bytes) in [(0, 1 << 20), (65, 1 << 20), (1, 0), (1, 1 << 30), (1, 100_000)] {
            let bytes = Welcome::Accepted { backing: Backing::BpfArray, lanes, ring_data_bytes }.encode();
            assert_eq!(Welcome::decode(&bytes), Err(Malformed));
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(hello in any::<[u8; HELLO_BYTES]>(), welcome in proptest::collection::vec(any::<u8>(), WELCOME_BYTES)) {
            let _ = Hello::decode(&hello);
            let mut bytes: [u8; WELCOME_BYTES] = welcome.try_into().unwrap();
            let _ = Welcome::decode(&bytes);
            bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
            if let Ok(Welcome::Refused(reason)) = Welcome::decode(&bytes) {
                prop_assert!(reason.bytes().len() <= REASON_BYTES_MAX);
            }
        }
    }
}
