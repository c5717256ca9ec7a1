//! The identities of an archived block.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_archive::formats::identities;

fuzz_target!(|data: &[u8]| {
    if let Ok(written) = identities(data) {
        assert_eq!(written, data);
    }
});
