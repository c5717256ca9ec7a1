//! A block row of an archive.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_archive::formats::block;

fuzz_target!(|data: &[u8]| {
    if let Ok(written) = block(data) {
        assert_eq!(written, data);
    }
});
