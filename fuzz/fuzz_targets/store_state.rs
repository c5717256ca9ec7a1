//! The state of the embedded store.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

// The file and not its crate, which would bring RocksDB along.
#[allow(dead_code, reason = "the store needs more of it than its format")]
#[path = "../../crates/store-embedded/src/state.rs"]
mod state;

fuzz_target!(|data: &[u8]| {
    if let Ok(state) = state::State::decode(Bytes::copy_from_slice(data)) {
        assert_eq!(state.encode(), data);
    }
});
