//! A write set.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sapwood_ledger::engine::WriteSet;

fuzz_target!(|data: &[u8]| {
    if let Ok(set) = WriteSet::decode(Bytes::copy_from_slice(data)) {
        assert_eq!(set.encode(), data);
        assert_eq!(set.iter().count() as u64, set.len());
    }
});
