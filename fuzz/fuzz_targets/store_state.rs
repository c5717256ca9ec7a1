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
        let written = state.encode();
        // An older version is written again as the newest one.
        if data.first() == written.first() {
            assert_eq!(written, data);
        } else {
            let again = state::State::decode(Bytes::from(written.clone())).map(|state| state.encode());
            assert_eq!(again, Ok(written));
        }
    }
});
