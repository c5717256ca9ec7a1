//! The policy row of an archive.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_archive::formats::policy;

fuzz_target!(|data: &[u8]| {
    if let Ok(written) = policy(data) {
        assert_eq!(written, data);
    }
});
