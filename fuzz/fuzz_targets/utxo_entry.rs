//! The figures of the UTXO set, as the embedded store keeps them.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

// The file and not its crate, which would bring RocksDB along.
#[path = "../../crates/store-embedded/src/utxo_entry.rs"]
mod utxo_entry;

fuzz_target!(|data: &[u8]| {
    if let Ok(set) = utxo_entry::decode(Bytes::copy_from_slice(data)) {
        assert_eq!(utxo_entry::encode(&set).as_deref(), Some(data));
    }
});
