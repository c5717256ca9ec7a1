//! The state row of an archive.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_archive::formats::state;

fuzz_target!(|data: &[u8]| {
    if let Ok(written) = state(data) {
        assert_eq!(written, data);
    }
});
