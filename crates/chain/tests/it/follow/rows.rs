//! Blocks in a row.

use std::sync::Arc;

use sapwood_chain::{Event, Told};
use sapwood_ledger::{ApplyOptions, RollbackMode};
use sapwood_types::{Block, BlockHash};

use crate::follow::{
    data::Node,
    scripted::{bad, longer},
};

fn row(blocks: &[Arc<Block>]) -> Vec<(Arc<Block>, ApplyOptions)> {
    blocks.iter().map(|block| (Arc::clone(block), ApplyOptions::default())).collect()
}

/// Every block is told of, in order; what comes after a bad one is not applied, and the error is that of the bad one.
#[tokio::test(flavor = "multi_thread")]
async fn every_block_of_a_row_is_told_up_to_the_bad_one() {
    let node = Node::new(RollbackMode::Node);
    let mut subscriber = node.events.subscribe();
    let good = longer(&[], "block", 5);
    node.chain.apply_run(row(&good[..2])).await.unwrap();
    let mut blocks = good[2..].to_vec();
    blocks.push(bad(&good, "bad"));
    let all = longer(&[&good[..], &blocks[3..]].concat(), "after", 2);
    blocks.extend(all[6..].iter().cloned());
    let error = node.chain.apply_run(row(&blocks)).await.unwrap_err();
    assert_eq!(error.bad_block(), Some(blocks[3].hash), "{error}");
    assert_eq!(node.store.last_applied().await.unwrap().unwrap().hash, good[4].hash);
    let mut told: Vec<BlockHash> = Vec::new();
    while told.len() < 5 {
        let Some(Told::Event(event)) = subscriber.next().await else { panic!("no more is told") };
        if let Event::BlockApplied(applied) = event.as_ref() {
            told.push(applied.block.hash);
        }
    }
    assert_eq!(told, good.iter().map(|block| block.hash).collect::<Vec<_>>());
    assert_eq!(node.chain.figures().apply.count, 5);
    node.sound().await;
}

/// A block that has a transaction twice ends a row, and what comes before it is applied.
#[tokio::test(flavor = "multi_thread")]
async fn a_block_with_a_transaction_twice_ends_a_row() {
    let node = Node::new(RollbackMode::Node);
    let blocks = longer(&[], "block", 3);
    let mut twice = Block::clone(&blocks[2]);
    twice.txs.extend(blocks[2].txs.clone());
    let error =
        node.chain.apply_run(row(&[Arc::clone(&blocks[0]), Arc::clone(&blocks[1]), Arc::new(twice)])).await;
    assert_eq!(error.unwrap_err().bad_block(), Some(blocks[2].hash));
    assert_eq!(node.store.last_applied().await.unwrap().unwrap().hash, blocks[1].hash);
    node.chain.apply_run(row(&blocks[2..])).await.unwrap();
    node.sound().await;
}
