//! A journal entry of an archive.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_archive::formats::journal;

fuzz_target!(|data: &[u8]| {
    if let Ok(written) = journal(data) {
        assert_eq!(written, data);
    }
});
