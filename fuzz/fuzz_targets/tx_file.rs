//! A whole transaction in a file of its own.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sapwood_types::tx_file;

fuzz_target!(|data: &[u8]| {
    if let Ok(tx) = tx_file::decode(Bytes::copy_from_slice(data)) {
        assert_eq!(tx_file::encode(&tx), data);
    }
});
