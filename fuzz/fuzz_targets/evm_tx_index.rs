//! The transaction index of an EVM block.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sapwood_evm::TxIndex;

fuzz_target!(|data: &[u8]| {
    if let Ok(index) = TxIndex::decode(&Bytes::copy_from_slice(data)) {
        assert_eq!(index.encode(), data);
    }
});
