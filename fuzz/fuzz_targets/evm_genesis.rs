//! A genesis file from anywhere.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sapwood_evm::{BlockParts, ChainSpec, Genesis};

fuzz_target!(|data: &[u8]| {
    let Ok(genesis) = Genesis::parse(data) else { return };
    assert_eq!(ChainSpec::decode(&genesis.spec.encode()).as_ref(), Ok(&genesis.spec));
    let parts = BlockParts::split(&genesis.block.block).expect("block 0 is a block");
    assert_eq!((parts.hash, parts.header.number), (genesis.spec.genesis_hash, 0));
    // No header makes fees panic.
    genesis.spec.next_base_fee(&parts.header);
    genesis.spec.blob_fee(&parts.header);
    genesis.spec.next_blob_fee(&parts.header);
});
