//! How long things are kept, as it is kept in a note of the store.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

// The file and not its crate, which would bring a client of S3 along.
#[path = "../../crates/pruner/src/policy/note.rs"]
mod policy;

fuzz_target!(|data: &[u8]| {
    if let Ok(numbers) = policy::decode(Bytes::copy_from_slice(data)) {
        assert_eq!(policy::encode(&numbers), data);
    }
});
