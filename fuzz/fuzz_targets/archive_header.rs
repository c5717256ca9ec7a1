//! The beginning of an arena.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_archive::formats::arena_header;

fuzz_target!(|data: &[u8]| {
    if let Ok(written) = arena_header(data) {
        // The rest of the page is not looked at.
        assert!(data.starts_with(&written));
    }
});
