//! An entry of the allocation table of an arena.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_archive::formats::region;

fuzz_target!(|data: &[u8]| {
    if let Ok(written) = region(data) {
        assert_eq!(written, data);
    }
});
