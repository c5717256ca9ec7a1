//! How far a migration got.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sapwood_ledger::formats::migration;

fuzz_target!(|data: &[u8]| {
    if let Ok(written) = migration(Bytes::copy_from_slice(data)) {
        assert_eq!(written, data);
    }
});
