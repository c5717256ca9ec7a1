//! What the pruner has done so far, as it is kept in a note of the store.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

// The file and not its crate, which would bring a client of S3 along.
#[path = "../../crates/pruner/src/totals.rs"]
mod totals;

fuzz_target!(|data: &[u8]| {
    if let Ok((counts, retained)) = totals::decode(Bytes::copy_from_slice(data)) {
        assert_eq!(totals::encode(counts, &retained), data);
    }
});
