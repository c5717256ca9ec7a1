//! Real chains are imported whole.

use sapwood_evm::read::{Import, Origin};
use sapwood_testing::data;

use crate::chains;

#[test]
fn ethtest_is_imported_whole() {
    let Some((spec, blocks)) = chains::ethtest_blocks() else { return };
    let head = data::json(&chains::ethtest("headblock.json").unwrap());
    let last = blocks.last().unwrap();
    assert_eq!(blocks.len(), 601);
    assert_eq!(format!("{:#x}", last.hash), head["hash"].as_str().unwrap());
    assert_eq!(format!("{:#x}", last.number), head["number"].as_str().unwrap());
    assert_eq!(spec.chain_id, 3_503_995_874_084_926);
    assert!(blocks.iter().all(|block| block.receipts.is_some()));
    // Every block knows its parent: the genesis block that was computed is the parent of block 1.
    assert!(blocks.windows(2).all(|pair| pair[1].parent_hash == pair[0].hash));
}

#[test]
fn sepolia_era_is_imported_whole() {
    let Some((_, blocks)) = chains::sepolia_blocks() else { return };
    let numbers: Vec<u64> = blocks.iter().map(|block| block.number).collect();
    assert_eq!(numbers, (172_032..=180_223).collect::<Vec<_>>());
    assert_eq!(blocks.iter().map(|block| block.tx_index.entries.len()).sum::<usize>(), 93);
}

#[test]
fn blocks_without_receipts_are_imported_without() {
    let Some(genesis) = chains::ethtest_genesis() else { return };
    let files = vec![Origin::file(chains::ethtest("chain.rlp").unwrap())];
    let import = Import::new(genesis.spec.into(), None, files, None);
    let blocks: Vec<_> = import.map(Result::unwrap).collect();
    assert_eq!(blocks.len(), 600);
    // A block without transactions is known to have no receipts.
    assert!(blocks.iter().all(|block| block.receipts.is_some() == block.tx_index.entries.is_empty()));
}
