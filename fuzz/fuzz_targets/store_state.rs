//! The state row of a ledger.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sapwood_ledger::formats::state;

fuzz_target!(|data: &[u8]| {
    if let Ok(written) = state(Bytes::copy_from_slice(data)) {
        assert_eq!(written, data);
    }
});
