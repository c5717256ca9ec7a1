//! The part of a transaction that never changes.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sapwood_types::TxBody;

fuzz_target!(|data: &[u8]| {
    if let Ok(body) = TxBody::decode(Bytes::copy_from_slice(data)) {
        assert_eq!(body.encode(), data);
    }
});
