//! Snapshots as somebody may hand them in: any bytes, and any contents behind a right head.

#![no_main]

use libfuzzer_sys::fuzz_target;
use runtime_core::snapshot;

fuzz_target!(|bytes: &[u8]| {
    let _ = snapshot::restore(bytes);
    let mut whole = b"rtc-snap".to_vec();
    whole.extend(snapshot::VERSION.to_le_bytes());
    whole.extend((bytes.len() as u64).to_le_bytes());
    whole.extend(checksum(bytes).to_le_bytes());
    whole.extend(bytes);
    if let Ok(restored) = snapshot::restore(&whole) {
        assert!(restored.categories().len() <= 200);
    }
});

/// FNV-1a, as a snapshot's head has it.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
