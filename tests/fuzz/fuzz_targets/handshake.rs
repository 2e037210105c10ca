//! Hello and welcome as anybody may send them: any bytes of the right length.

#![no_main]

use libfuzzer_sys::fuzz_target;
use runtime_core_abi::handshake::{HELLO_BYTES, Hello, REASON_BYTES_MAX, SERVICE_BYTES_MAX, WELCOME_BYTES, Welcome};

fuzz_target!(|bytes: &[u8]| {
    if let Some(hello) = bytes.first_chunk::<HELLO_BYTES>()
        && let Ok(hello) = Hello::decode(hello)
    {
        assert!(hello.service().len() <= SERVICE_BYTES_MAX);
        assert_eq!(Hello::decode(&hello.encode()).map(|again| again.version), Ok(hello.version));
    }
    if let Some(welcome) = bytes.first_chunk::<WELCOME_BYTES>()
        && let Ok(welcome) = Welcome::decode(welcome)
    {
        match welcome {
            Welcome::Refused(reason) => assert!(reason.bytes().len() <= REASON_BYTES_MAX),
            accepted => assert_eq!(Welcome::decode(&accepted.encode()), Ok(accepted)),
        }
    }
});
