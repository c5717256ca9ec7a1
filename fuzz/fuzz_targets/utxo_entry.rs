//! The row of the UTXO set.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sapwood_ledger::formats::utxo_set;

fuzz_target!(|data: &[u8]| {
    if let Ok(written) = utxo_set(Bytes::copy_from_slice(data)) {
        assert_eq!(written, data);
    }
});
