//! Files that grow between starts: a start on each prefix ends where one start on the same prefix does.

use std::{ops::ControlFlow, path::Path};

use sapwood_ledger::RollbackMode;
use sapwood_sources::{BlockSource as _, bitcoin::Network};
use sapwood_types::BlockHash;
use serde_json::Value;

use crate::follow::{
    core_chains::is_out_of_scope,
    data::{self, Files, Node},
};

/// A process that is started on these files, told beforehand which blocks break rules that are not those of the UTXO set.
async fn start(node: &Node, files: &Files, out_of_scope: &[BlockHash]) {
    let source = files.open(Network::Regtest);
    for hash in out_of_scope {
        source.reject(hash).await.unwrap();
    }
    let follower = node.follow(source);
    follower.reconcile().await.unwrap();
    follower.catch_up().await.unwrap();
}

/// The last block, coins and hash, as Bitcoin Core has them after the same blocks.
async fn compare(node: &Node, event: &Value, what: &str) {
    let set = node.rolling().await;
    let found = (set.last.unwrap().hash.to_string(), set.coins, set.digest().unwrap());
    let text = |name: &str| event[name].as_str().unwrap().to_owned();
    assert_eq!(found, (text("tip"), event["txouts"].as_u64().unwrap(), text("muhash")), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn c2_every_prefix_of_the_block_test_ends_where_bitcoin_core_does_however_often_it_is_started() {
    let Some(dir) = data::bitcoin() else { return };
    every_prefix(&dir).await;
}

async fn every_prefix(dir: &Path) {
    let bytes = data::read(&dir.join("regtest-core/core-feature_block.blk.dat.zst"));
    let all = Files::of(&bytes).in_order(Network::Regtest);
    let expected = data::json(&dir.join("regtest-core/core-feature_block.expected.json"));
    let events = expected["events"].as_array().unwrap();
    let files = Files::new();
    let grown = Node::new(RollbackMode::Follower);
    let mut file = Vec::new();
    let mut out_of_scope = Vec::new();
    for ((number, raw), event) in (1..).zip(&all).zip(events) {
        file.extend(data::record(Network::Regtest, &raw.bytes));
        files.write(0, &file);
        if is_out_of_scope(event["submit"].as_str().unwrap()) {
            out_of_scope.push(raw.hash());
        }
        // Every start is a new one: nothing is remembered of what was refused before.
        start(&grown, &files, &out_of_scope).await;
        compare(&grown, event, &format!("grown to {number} blocks")).await;
        // All at once; where it matters, at the ends of branches, and at some others.
        if number % 16 == 9 || matches!(number, 130 | 137 | 196) {
            let straight = Node::new(RollbackMode::Follower);
            start(&straight, &files, &out_of_scope).await;
            compare(&straight, event, &format!("{number} blocks at once")).await;
        }
    }
    grown.sound().await;
}

/// In steps of other sizes, from the middle of a branch to the middle of another.
#[tokio::test(flavor = "multi_thread")]
async fn c2_steps_of_any_size_end_where_one_start_does() {
    let Some(dir) = data::bitcoin() else { return };
    let bytes = data::read(&dir.join("regtest-core/core-feature_block.blk.dat.zst"));
    let all = Files::of(&bytes).in_order(Network::Regtest);
    let expected = data::json(&dir.join("regtest-core/core-feature_block.expected.json"));
    let events = expected["events"].as_array().unwrap();
    let scope = |upto: usize| -> Vec<BlockHash> {
        let bad = all.iter().zip(events).take(upto);
        let bad = bad.filter(|(_, event)| is_out_of_scope(event["submit"].as_str().unwrap()));
        bad.map(|(raw, _)| raw.hash()).collect()
    };
    for step in [7, 23, 61] {
        let node = Node::new(RollbackMode::Node);
        let files = Files::new();
        for upto in (step..all.len()).step_by(step).chain([all.len()]) {
            let part = all[..upto].iter().flat_map(|raw| data::record(Network::Regtest, &raw.bytes));
            files.write(0, &part.collect::<Vec<u8>>());
            start(&node, &files, &scope(upto)).await;
            compare(&node, &events[upto - 1], &format!("{upto} blocks in steps of {step}")).await;
        }
        assert!(node.store.last_applied().await.unwrap().is_some());
        node.sound().await;
    }
}

/// A source that is refreshed and one that is opened again know the same.
#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_read_on_and_files_that_are_read_again_have_the_same_tip() {
    let Some(dir) = data::bitcoin() else { return };
    let bytes = data::read(&dir.join("regtest-core/core-feature_block.blk.dat.zst"));
    let files = Files::of(&bytes[..bytes.len() / 3]);
    let source = files.open(Network::Regtest);
    for part in [bytes.len() / 2, bytes.len() * 2 / 3, bytes.len()] {
        files.write(0, &bytes[..part]);
        source.refresh(|_| ControlFlow::Continue(())).unwrap();
        assert_eq!(source.survey().await.unwrap(), files.open(Network::Regtest).survey().await.unwrap());
    }
}
