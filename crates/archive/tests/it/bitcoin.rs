//! Full Bitcoin blocks through the archive, on disk.

use std::sync::Arc;

use bytes::Bytes;
use sapwood_archive::{
    Archive, ArchiveOptions, Continuity, Durability, Lookup, NewBlock, Policy, Segment, Tick, Trigger,
};
use sapwood_engine_memory::MemoryEngine;
use sapwood_testing::data;
use sapwood_types::{BlockHash, Height, TxId};

use crate::world::assert_has;

/// Payloads of real blocks: about 1 to 2 MB, the first ones of mainnet, and stale ones.
fn payloads() -> Option<Vec<Bytes>> {
    let directory = data::bitcoin()?;
    let mut payloads = Vec::new();
    for height in 367_238..=367_240 {
        let path = directory.join(format!("mainnet-367238-367240/block-{height}.json.zst"));
        let text = data::json(&path);
        payloads.push(data::hex(text.as_str().unwrap()).into());
    }
    for height in [928_848, 928_849] {
        payloads.push(data::read(&directory.join(format!("blocks-with-undo/block{height}.raw"))).into());
    }
    payloads.extend(data::first_blocks(20)?.into_iter().map(Bytes::from));
    for entry in std::fs::read_dir(directory.join("stale-blocks")).unwrap() {
        payloads.push(data::read(&entry.unwrap().path()).into());
    }
    Some(payloads)
}

fn block(height: u32, payload: &Bytes, parent: BlockHash) -> NewBlock {
    let mut hash = [3; 32];
    hash[..4].copy_from_slice(&height.to_be_bytes());
    // As many transactions as such a block has, with ids that say where they belong.
    let txs = (0..payload.len() as u32 / 400).map(|index| {
        let mut id = [4; 32];
        id[..4].copy_from_slice(&height.to_be_bytes());
        id[4..8].copy_from_slice(&index.to_be_bytes());
        TxId(id)
    });
    let index: Bytes =
        (0..payload.len() as u32 / 400).flat_map(|index| (index * 400).to_be_bytes()).collect();
    NewBlock {
        height: Height(height),
        hash: BlockHash(hash),
        parent,
        time: u64::from(height) * 600,
        txs: txs.collect(),
        segments: [payload.clone(), Bytes::new(), index],
    }
}

#[test]
fn full_bitcoin_blocks_come_back_byte_for_byte_within_the_budget() {
    let Some(payloads) = payloads() else { return };
    let directory = tempfile::tempdir().unwrap();
    let policy = Policy { target_bytes: Some(40 << 20), tick_blocks: 10, ..Policy::default() };
    let options = ArchiveOptions {
        policy,
        reorg_window: 6,
        tombstones: 50_000,
        durability: Durability::ProcessCrash,
        ..ArchiveOptions::default()
    };
    let engine = Arc::new(MemoryEngine::new());
    let archive = Archive::open_in(directory.path(), Arc::clone(&engine) as _, options.clone()).unwrap();
    let water = policy.water().unwrap();
    let mut blocks: Vec<NewBlock> = Vec::new();
    for height in 0..150_u32 {
        let parent = blocks.last().map(|block| block.hash).unwrap_or_default();
        let block = block(height, &payloads[height as usize % payloads.len()], parent);
        archive.append(std::slice::from_ref(&block), Continuity::Strict).unwrap();
        blocks.push(block);
        if let Tick::Pruned(pruned) = archive.tick(Trigger::Block, 0, &[]).unwrap() {
            assert!(pruned.blocks > 0);
        }
        let kept = archive.arena().unwrap().bytes.estimated_kept();
        assert!(kept <= water.target, "{kept} bytes at block {height}");
    }
    let earliest = archive.view().unwrap().earliest().unwrap();
    assert!(earliest.0 > 20, "{earliest}");
    blocks[earliest.0 as usize..].iter().for_each(|block| assert_has(&archive, block));
    for block in &blocks[..earliest.0 as usize] {
        assert!(matches!(archive.block(block.height).unwrap(), Lookup::Pruned(_)));
        for txid in block.txs.iter().take(3) {
            let tx = archive.tx(txid).unwrap();
            assert!(matches!(tx, Lookup::Pruned(_) | Lookup::PossiblyPruned(_)), "{tx:?}");
        }
    }
    let report = archive.verify(true, |_| ()).unwrap();
    assert!(report.is_clean(), "{report}");
    drop(archive);
    let archive = Archive::open_in(directory.path(), Arc::new(engine.reopen()), options).unwrap();
    let last = blocks.last().unwrap();
    let raw = archive.segment(last.height, Segment::Block).unwrap();
    assert_eq!(raw, Lookup::Found(last.segments[0].clone()));
}
