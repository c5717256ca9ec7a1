//! The row of a consumer of the export.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_archive::formats::consumer;

fuzz_target!(|data: &[u8]| {
    if let Ok(written) = consumer(data) {
        assert_eq!(written, data);
    }
});
