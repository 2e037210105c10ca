//! A line of the control socket: what is read as a request is written and read as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tracebyte::control::protocol::Request;

fuzz_target!(|line: &[u8]| {
    if let Ok(request) = serde_json::from_slice::<Request>(line) {
        let written = serde_json::to_vec(&request).expect("a request can be written");
        assert_eq!(serde_json::from_slice::<Request>(&written).expect("and read again"), request);
    }
});
