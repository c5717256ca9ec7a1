//! The state row of an older schema.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sapwood_ledger::formats::older_state;

fuzz_target!(|data: &[u8]| {
    if let Ok(written) = older_state(Bytes::copy_from_slice(data)) {
        assert_eq!(written, data);
    }
});
