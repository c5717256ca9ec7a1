//! A block far larger than any so far.

use std::{fs, sync::Arc};

use sapwood_conformance::fixtures::{child, coin};
use sapwood_ledger::{ApplyOptions, RollbackMode};
use sapwood_types::Height;

use crate::follow::{
    data::Node,
    scripted::{longer, on},
};

/// The most memory the process has had, in bytes, where the system tells.
fn peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Teranode fell over a block of 2.6 million transactions. Here memory grows with the block and not by more; 20,000 transactions unless
/// `SAPWOOD_BIG_BLOCK` says how many (`make big`).
#[tokio::test(flavor = "multi_thread")]
async fn teranode_1187_a_block_of_two_million_transactions() {
    let count = std::env::var("SAPWOOD_BIG_BLOCK").map_or(20_000, |count| count.parse().unwrap());
    let node = Node::new(RollbackMode::Follower);
    let before = longer(&[], "before", 2);
    for block in &before {
        node.chain.apply(Arc::clone(block), ApplyOptions::default()).await.unwrap();
    }
    // Half of them spend from the other half, as in a real block.
    let coins: Vec<_> = (0..count / 2).map(|number| coin(&format!("coin {number}"), 2)).collect();
    let children: Vec<_> = coins
        .iter()
        .enumerate()
        .map(|(number, coin)| child(&format!("child {number}"), &[(coin, 0)], 1))
        .collect();
    let block = on(&before, "big", [coins, children].concat());
    let with_block = peak();
    let applied = node.chain.apply(Arc::clone(&block), ApplyOptions::default()).await.unwrap().unwrap();
    assert_eq!(applied.block.height, Height(2));
    if let (Some(before), Some(after)) = (with_block, peak()) {
        let (grown, most) = (after - before, (256 << 20) + count * 6 * 1024);
        assert!(grown < most, "{grown} bytes for {count} transactions, {most} at most");
    }
    let set = node.rolling().await;
    assert_eq!(set.last.unwrap().hash, block.hash);
    node.chain.roll_back(Some(sapwood_sources::ChainPoint::new(Height(1), before[1].hash))).await.unwrap();
    assert_eq!(node.store.last_applied().await.unwrap().unwrap().hash, before[1].hash);
    node.sound().await;
}
