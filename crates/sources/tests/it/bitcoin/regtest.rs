//! Chains that Bitcoin Core's own tests made, and a dense one.

use std::{collections::HashMap, sync::Arc};

use sapwood_sources::{BlockSource, ChainPoint, ReadAhead, bitcoin::Network};
use sapwood_types::{BlockHash, Height};
use serde_json::Value;

use crate::bitcoin::{data, utxo::UtxoSet};

fn hash(value: &Value) -> BlockHash {
    value.as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn all_196_blocks_of_the_block_test_convert_in_file_order() {
    let Some(dir) = data::bitcoin() else { return };
    let files = data::Files::of(&data::read(&dir.join("regtest-core/core-feature_block.blk.dat.zst")));
    let expected = data::json(&dir.join("regtest-core/core-feature_block.expected.json"));
    let events = expected["events"].as_array().unwrap();
    let blocks = files.in_order(Network::Regtest);
    assert_eq!((blocks.len(), events.len()), (196, 196));

    let mut heights = HashMap::from([(BlockHash::default(), None)]);
    for (raw, event) in blocks.iter().zip(events) {
        assert_eq!((raw.hash(), raw.parent()), (hash(&event["hash"]), hash(&event["prev"])));
        let height = match heights.get(&raw.parent()) {
            Some(before) => before.map_or(Height(0), Height::next),
            None => Height(1_000_000),
        };
        // None of the 40 invalid ones is invalid by its form: their faults are scripts, amounts and double spends.
        let block = raw.convert(height).unwrap_or_else(|error| panic!("{}: {error}", event["i"]));
        assert_eq!((block.hash, block.parent, block.height), (raw.hash(), raw.parent(), height));
        if event["submit"] != "prev-blk-not-found" {
            heights.insert(raw.hash(), Some(height));
        }
    }
}

/// What is on offer is the chain with the most work; which blocks are bad is told by whoever applies them. With that told, the
/// best chain after each block is the one Bitcoin Core chose.
#[tokio::test]
async fn best_chain_is_the_one_of_bitcoin_core_after_every_block_once_bad_ones_are_rejected() {
    let Some(dir) = data::bitcoin() else { return };
    let bytes = data::read(&dir.join("regtest-core/core-feature_block.blk.dat.zst"));
    let all = data::Files::of(&bytes).in_order(Network::Regtest);
    let expected = data::json(&dir.join("regtest-core/core-feature_block.expected.json"));

    let files = data::Files::new();
    files.write(0, &[]);
    let source = files.open(Network::Regtest);
    let mut reorganisations = 0;
    for ((number, raw), event) in (0..).zip(&all).zip(expected["events"].as_array().unwrap()) {
        let before = source.tip().await.unwrap().unwrap();
        files.write(number, &data::record(Network::Regtest, &raw.bytes));
        let submit = event["submit"].as_str().unwrap();
        source.refresh(|_| std::ops::ControlFlow::Continue(())).unwrap();
        if submit.starts_with("bad-") || submit.starts_with("block-script") {
            assert!(source.reject(&raw.hash()).await.unwrap());
        }
        // A side branch is judged only when it has more work, and it is then the branch's own block that was bad.
        if submit == "inconclusive" && source.tip().await.unwrap().unwrap().hash == raw.hash() {
            assert!(source.reject(&raw.parent()).await.unwrap());
        }
        let tip = source.tip().await.unwrap().unwrap();
        let height = Height(event["height"].as_u64().unwrap() as u32);
        assert_eq!(tip, ChainPoint::new(height, hash(&event["tip"])), "after block {number}");
        let header = source.header(&tip.hash).await.unwrap().unwrap();
        reorganisations += usize::from(tip != before && header.parent != before.hash && number > 0);
    }
    assert_eq!(reorganisations, 12);
    let report = source.report();
    assert_eq!(report.unconnected, 3);
    assert!(!report.orphans.is_empty());
    assert_eq!(source.block(&report.orphans[0].hash).await.unwrap(), None);
}

#[tokio::test]
async fn set_hash_chain_has_the_hash_of_bitcoin_core_after_every_block() {
    let Some(dir) = data::bitcoin() else { return };
    let source = data::open(Network::Regtest, [dir.join("regtest-core/core-feature_utxo_set_hash.blk.dat")]);
    let expected = data::json(&dir.join("regtest-core/core-feature_utxo_set_hash.expected.json"));
    let events = expected["events"].as_array().unwrap();
    let mut set = UtxoSet::default();
    for event in events {
        let height = Height(event["height"].as_u64().unwrap() as u32);
        let block = source.block_at(height).await.unwrap().unwrap().utxo.unwrap();
        set.apply(&block);
        assert_eq!(block.hash, hash(&event["tip"]));
        assert_eq!(event["txouts"], set.count(), "at {height}");
        assert_eq!(event["muhash"], set.muhash(), "at {height}");
    }
    assert_eq!(set.muhash(), "8739b878f23030ef39a5547edc7b57f88d50fdaaf47314ff0524608deb13067e");
}

#[tokio::test(flavor = "multi_thread")]
async fn dense_chain_has_the_hash_of_bitcoin_core_at_every_listed_height() {
    let Some(dir) = data::bitcoin() else { return };
    let files = data::Files::of(&data::read(&dir.join("regtest-dense-0-360/blocks.blk.dat.zst")));
    let source = files.open(Network::Regtest);
    assert_eq!(source.report().blocks, 361);
    let expected = data::json(&dir.join("regtest-dense-0-360/expected.json"));
    let mut expected = expected.as_array().unwrap().iter().peekable();
    let mut reader = ReadAhead::new(Arc::new(source), None, Height(0), Height(360), 4);
    let mut set = UtxoSet::default();
    let mut txs = 0;
    while let Some(block) = reader.next().await.unwrap() {
        let block = block.utxo.unwrap();
        set.apply(&block);
        txs += block.txs.len();
        if let Some(row) = expected.next_if(|row| row["height"] == block.height.0) {
            assert_eq!(row["bestblock"], block.hash.to_string());
            assert_eq!(row["txouts"], set.count(), "at {}", block.height);
            assert_eq!(row["muhash"], set.muhash(), "at {}", block.height);
        }
    }
    assert!(expected.next().is_none());
    // The figure of the data's description does not count the first block's.
    assert_eq!((txs - 1, set.count()), (127_732, 99_865));
}
