//! A snapshot as bytes: a head with magic, version, length and checksum, then the names of
//! the categories in the order of the table, then the resources, each with its name.
//!
//! All numbers are little-endian. Reading checks every length before it follows it, and takes
//! only what it would have written itself.

use super::SnapshotError;
use runtime_core_abi::page::{CATEGORIES_MAX, NAME_BYTES_MAX};

const MAGIC: [u8; 8] = *b"rtc-snap";
/// The version of this layout. A reader refuses every other.
pub const VERSION: u32 = 1;
/// Magic, version, length of the body, checksum of the body.
const HEAD_BYTES: usize = 8 + 4 + 8 + 8;

/// What a snapshot holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents<'a> {
    /// Category names, in the order of the table.
    pub categories: Vec<&'a str>,
    /// Resources: name and state.
    pub resources: Vec<(&'a str, &'a [u8])>,
}

/// Writes a snapshot. Names are within their bounds by the registries they come from.
pub fn encode(contents: &Contents<'_>) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend((contents.categories.len() as u32).to_le_bytes());
    for name in &contents.categories {
        put(&mut body, name.as_bytes());
    }
    body.extend((contents.resources.len() as u32).to_le_bytes());
    for (name, state) in &contents.resources {
        put(&mut body, name.as_bytes());
        put(&mut body, state);
    }
    let mut out = MAGIC.to_vec();
    out.extend(VERSION.to_le_bytes());
    out.extend((body.len() as u64).to_le_bytes());
    out.extend(checksum(&body).to_le_bytes());
    out.extend(body);
    out
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

/// Reads what [`encode`] wrote.
pub fn decode(bytes: &[u8]) -> Result<Contents<'_>, SnapshotError> {
    let mut head = Reader(bytes);
    if head.take(MAGIC.len() as u64) != Some(&MAGIC) {
        return Err(SnapshotError::Magic);
    }
    let malformed = |what| move || SnapshotError::Malformed(what);
    let version = head.u32().ok_or_else(malformed("its head is cut"))?;
    if version != VERSION {
        return Err(SnapshotError::Version(version));
    }
    let body_bytes = head.u64().ok_or_else(malformed("its head is cut"))?;
    let sum = head.u64().ok_or_else(malformed("its head is cut"))?;
    let body = head.0;
    if body.len() as u64 != body_bytes {
        return Err(SnapshotError::Length { found: bytes.len() as u64, expected: body_bytes + HEAD_BYTES as u64 });
    }
    if checksum(body) != sum {
        return Err(SnapshotError::Checksum);
    }
    let mut reader = Reader(body);
    let mut contents = Contents::default();
    let categories = reader.u32().ok_or_else(malformed("it has no categories"))?;
    if categories as usize > CATEGORIES_MAX {
        return Err(SnapshotError::Malformed("it has more categories than a table holds"));
    }
    for _ in 0..categories {
        let name = reader.name().ok_or_else(malformed("a category's name is not one"))?;
        if contents.categories.contains(&name) {
            return Err(SnapshotError::Malformed("a category is in it twice"));
        }
        contents.categories.push(name);
    }
    let resources = reader.u32().ok_or_else(malformed("it has no resources"))?;
    for _ in 0..resources {
        let name = reader.name().ok_or_else(malformed("a resource's name is not one"))?;
        let state = reader.bytes().ok_or_else(malformed("a resource's state is cut"))?;
        // In order, so that a name is there once and no long list is searched for it.
        if contents.resources.last().is_some_and(|(last, _)| *last >= name) {
            return Err(SnapshotError::Malformed("its resources are not in order"));
        }
        contents.resources.push((name, state));
    }
    if reader.0.is_empty() { Ok(contents) } else { Err(SnapshotError::Malformed("more follows its end")) }
}

/// FNV-1a: against accidents, not against malice.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The bytes still to be read; `None` where there are too few.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(bytes).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.u64()?;
        self.take(len)
    }

    fn name(&mut self) -> Option<&'a str> {
        let name = self.bytes()?;
        let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
        std::str::from_utf8(name).ok().filter(|_| fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_fault_has_its_name() {
        let good = encode(&Contents { categories: vec!["a", "b"], resources: vec![("r", b"state")] });
        assert!(decode(&good).is_ok());
        assert!(matches!(decode(b""), Err(SnapshotError::Magic)));
        assert!(matches!(decode(&good[..good.len() - 1]), Err(SnapshotError::Length { .. })));
        let changed = |at: usize| {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            bytes
        };
        assert!(matches!(decode(&changed(0)), Err(SnapshotError::Magic)));
        assert!(matches!(decode(&changed(8)), Err(SnapshotError::Version(0))));
        assert!(matches!(decode(&changed(12)), Err(SnapshotError::Length { .. })));
        for at in 20..good.len() {
            assert!(matches!(decode(&changed(at)), Err(SnapshotError::Checksum)), "{at}");
        }
        let twice = encode(&Contents { categories: vec!["a", "a"], resources: vec![] });
        assert!(matches!(decode(&twice), Err(SnapshotError::Malformed("a category is in it twice"))));
        let disorder = encode(&Contents { categories: vec![], resources: vec![("r", b""), ("r", b"")] });
        assert!(matches!(decode(&disorder), Err(SnapshotError::Malformed("its resources are not in order"))));
    }

    /// A head that is right for whatever body.
    fn with_head(body: &[u8]) -> Vec<u8> {
        let mut out = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        out.extend((body.len() as u64).to_le_bytes());
        out.extend(checksum(body).to_le_bytes());
        out.extend(body);
        out
    }

    proptest! {
        #[test]
        fn what_is_written_comes_back(
            categories in proptest::collection::hash_set("[a-z.]{1,12}", 0..20),
            resources in proptest::collection::btree_map("[a-z]{1,8}", proptest::collection::vec(any::<u8>(), 0..50), 0..8),
        ) {
            let contents = Contents {
                categories: categories.iter().map(String::as_str).collect(),
                resources: resources.iter().map(|(name, state)| (name.as_str(), &state[..])).collect(),
            };
            let bytes = encode(&contents);
            prop_assert_eq!(decode(&bytes).unwrap(), contents);
        }

        #[test]
        fn any_bytes_are_refused_or_are_what_would_be_written(
            body in proptest::collection::vec(prop_oneof![3 => Just(0_u8), 1 => 1_u8..4, 1 => any::<u8>()], 0..120)
        ) {
            prop_assert!(decode(&body).is_err());
            let bytes = with_head(&body);
            if let Ok(contents) = decode(&bytes) {
                prop_assert_eq!(encode(&contents), bytes);
            }
        }
    }
}
