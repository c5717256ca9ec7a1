//! Chains are imported whole, from every format.

use std::sync::Arc;

use alloy_eips::BlockNumHash;
use sapwood_evm::{
    CheckedBlock,
    read::{Fault, Import, ImportError, Origin, ReceiptsFile},
};
use sapwood_testing::data;

use crate::{chains, synthetic};

/// Imports files of the synthetic chain on top of a block of it.
pub(crate) fn import(
    stored: Option<&CheckedBlock>,
    files: Vec<Origin>,
    receipts: Option<&[u8]>,
) -> (Vec<CheckedBlock>, u64, Option<ImportError>) {
    let stored = stored.map(|block| BlockNumHash { number: block.number, hash: block.hash });
    let receipts =
        receipts.map(|bytes| ReceiptsFile::open(&Origin::memory("receipts", bytes.to_vec())).unwrap());
    let mut import = Import::new(synthetic::chain().0, stored, files, receipts);
    let (mut blocks, mut error) = (Vec::new(), None);
    for next in &mut import {
        assert_eq!(error, None, "an import ends with its first error");
        match next {
            Ok(block) => blocks.push(block),
            Err(failure) => error = Some(failure),
        }
    }
    (blocks, import.skipped(), error)
}

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
fn every_format_gives_the_same_blocks() {
    let (_, blocks) = synthetic::chain();
    let (chain, receipts) = synthetic::rlp_files(&blocks);
    let era = synthetic::era1(&blocks[1..]);
    let packed = |bytes: &[u8]| zstd::encode_all(bytes, 3).unwrap();
    let memory = |bytes: Vec<u8>| vec![Origin::memory("file", bytes)];
    let expected = (blocks[1..].to_vec(), 0, None);
    assert_eq!(import(Some(&blocks[0]), memory(chain.clone()), Some(&receipts)), expected);
    assert_eq!(import(Some(&blocks[0]), memory(packed(&chain)), Some(&packed(&receipts))), expected);
    assert_eq!(import(Some(&blocks[0]), memory(era.clone()), None), expected);
    assert_eq!(import(Some(&blocks[0]), memory(packed(&era)), None), expected);

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("name-without-a-meaning");
    std::fs::write(&path, packed(&era)).unwrap();
    assert_eq!(import(Some(&blocks[0]), vec![Origin::file(path)], None), expected);
}

#[test]
fn files_of_several_formats_follow_each_other() {
    let (_, blocks) = synthetic::chain();
    let (chain, receipts) = synthetic::rlp_files(&blocks[3..]);
    let files = vec![Origin::memory("era", synthetic::era1(&blocks[1..3])), Origin::memory("rlp", chain)];
    // The receipts file begins with block 1, whatever the file of blocks begins with.
    let all = [synthetic::rlp_files(&blocks[..3]).1, receipts].concat();
    assert_eq!(import(Some(&blocks[0]), files, Some(&all)), (blocks[1..].to_vec(), 0, None));
}

#[test]
fn blocks_that_are_stored_are_passed_over() {
    let (_, blocks) = synthetic::chain();
    let mut chain = blocks[0].block.to_vec();
    chain.extend(synthetic::rlp_files(&blocks).0);
    let receipts = synthetic::rlp_files(&blocks).1;
    for stored in 0..blocks.len() {
        let files = vec![Origin::memory("chain", chain.clone())];
        let expected = (blocks[stored + 1..].to_vec(), stored as u64 + 1, None);
        assert_eq!(import(Some(&blocks[stored]), files, Some(&receipts)), expected, "{stored} stored");
    }
}

#[test]
fn stored_block_with_another_hash_is_another_chain() {
    let (_, blocks) = synthetic::chain();
    let (chain, _) = synthetic::rlp_files(&blocks);
    let mut stored = blocks[1].clone();
    stored.hash.0[0] ^= 1;
    let (imported, _, error) = import(Some(&stored), vec![Origin::memory("chain", chain)], None);
    let fault = Fault::OtherBlock { number: 1, expected: stored.hash, found: blocks[1].hash };
    assert_eq!((imported, error), (vec![], Some(ImportError { path: "chain".into(), offset: 0, fault })));
}

#[test]
fn blocks_without_receipts_are_imported_without() {
    let (_, blocks) = synthetic::chain();
    let (chain, _) = synthetic::rlp_files(&blocks);
    let (imported, _, error) = import(Some(&blocks[0]), vec![Origin::memory("chain", chain)], None);
    assert_eq!((imported.len(), error), (6, None));
    // A block without transactions is known to have no receipts.
    assert!(imported.iter().any(|block| block.tx_index.entries.is_empty()));
    assert!(imported.iter().all(|block| block.receipts.is_some() == block.tx_index.entries.is_empty()));
}

#[test]
fn import_without_a_stored_block_begins_anywhere() {
    let (spec, blocks) = synthetic::chain();
    let (chain, _) = synthetic::rlp_files(&blocks[3..]);
    let import = Import::new(Arc::clone(&spec), None, vec![Origin::memory("chain", chain)], None);
    let numbers: Vec<u64> = import.map(|block| block.unwrap().number).collect();
    assert_eq!(numbers, [3, 4, 5, 6]);
}

#[test]
fn senders_are_recovered() {
    let (_, blocks) = synthetic::chain();
    let entries = blocks.iter().flat_map(|block| &block.tx_index.entries);
    assert_eq!(entries.clone().count(), 9);
    assert!(entries.into_iter().all(|entry| entry.sender == synthetic::sender()));
}
