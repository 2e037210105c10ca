//! Event records as a process may leave them in its ring: any bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use runtime_core_abi::record;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok((found, size)) = record::decode(rest) {
        assert!(size > 0 && size <= rest.len(), "a record of {size} bytes in {}", rest.len());
        if let Some(found) = found {
            for arg in found.args() {
                let _ = arg;
            }
        }
        rest = &rest[size..];
    }
});
