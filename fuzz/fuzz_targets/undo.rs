//! What is needed to take a block back.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sapwood_types::Undo;

fuzz_target!(|data: &[u8]| {
    if let Ok(undo) = Undo::decode(Bytes::copy_from_slice(data)) {
        assert_eq!(undo.encode(), data);
    }
});
