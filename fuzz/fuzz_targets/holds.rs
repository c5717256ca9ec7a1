//! What holds the pruner back, as it is kept in a note of the store.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

// The file and not its crate: the format is nobody else's, and the crate would bring a client of S3 along.
#[path = "../../crates/pruner/src/holds/bytes.rs"]
mod holds;

fuzz_target!(|data: &[u8]| {
    if let Ok(holds) = holds::decode(Bytes::copy_from_slice(data)) {
        assert_eq!(holds::encode(&holds), data);
        assert!(holds.iter().all(|(name, hold)| *name == hold.name));
    }
});
