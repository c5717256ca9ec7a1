//! Blocks through a queue.

use std::sync::Arc;

use sapwood_chain::{ApplyMode, Chain, ChainError, ChainOptions, Events};
use sapwood_ledger::{ApplyOptions, RollbackMode};
use sapwood_types::Height;

use crate::follow::{
    data::{Node, policy},
    scripted::{Scripted, bad, longer},
};

fn queued(queue: usize) -> Node {
    let options = ChainOptions { mode: ApplyMode::Async { queue }, rollback: RollbackMode::Node };
    Node::with(options, policy())
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_are_applied_in_order_and_drained_on_close() {
    let node = queued(4);
    let blocks = longer(&[], "block", 50);
    for block in &blocks {
        assert_eq!(node.chain.apply(Arc::clone(block), ApplyOptions::default()).await, Ok(None));
        // As many may be under way in a row as may wait.
        assert!(node.chain.queued() <= 4 + 4, "the queue is bounded");
    }
    node.chain.close().await.unwrap();
    assert_eq!(node.chain.queued(), 0);
    assert_eq!(node.store.last_applied().await.unwrap().unwrap().height, Height(49));
    let more = longer(&blocks, "more", 1).pop().unwrap();
    assert_eq!(node.chain.apply(more, ApplyOptions::default()).await, Err(ChainError::Closed));
    node.sound().await;
}

/// One thread, so that nothing is applied before this test waits for something.
#[tokio::test]
async fn a_failure_is_told_to_the_next_caller_and_what_was_queued_behind_it_is_not_applied() {
    let node = queued(16);
    let good = longer(&[], "block", 3);
    let mut blocks = good.clone();
    blocks.push(bad(&good, "bad"));
    blocks = longer(&blocks, "behind", 3);
    for block in &blocks {
        node.chain.apply(Arc::clone(block), ApplyOptions::default()).await.unwrap();
    }
    let error = node.chain.drain().await.unwrap_err();
    assert_eq!(error.bad_block(), Some(blocks[3].hash));
    assert_eq!(node.store.last_applied().await.unwrap().unwrap().hash, good[2].hash);
    // It is told once, and then the right block goes through.
    node.chain.drain().await.unwrap();
    let next = longer(&good, "next", 1).pop().unwrap();
    node.chain.apply(Arc::clone(&next), ApplyOptions::default()).await.unwrap();
    node.chain.apply(bad(&longer(&good, "next", 1), "bad"), ApplyOptions::default()).await.unwrap();
    while node.chain.queued() > 0 {
        tokio::task::yield_now().await;
    }
    let another = longer(&longer(&good, "next", 1), "another", 1).pop().unwrap();
    let told = node.chain.apply(Arc::clone(&another), ApplyOptions::default()).await.unwrap_err();
    assert!(matches!(told, ChainError::Earlier { height: Height(4), .. }), "{told}");
    node.chain.apply(another, ApplyOptions::default()).await.unwrap();
    node.chain.close().await.unwrap();
    assert_eq!(node.store.last_applied().await.unwrap().unwrap().height, Height(4));
    node.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn following_through_a_queue_gives_the_same_chain_with_bad_blocks_and_branches_too() {
    let node = queued(8);
    let source = Scripted::new(true);
    let trunk = longer(&[], "trunk", 20);
    let mut broken = trunk.clone();
    broken.push(bad(&trunk, "bad"));
    broken = longer(&broken, "broken", 10);
    source.prefer(&trunk);
    source.prefer(&broken);
    let follower = node.follow_shared(source.clone());
    follower.catch_up().await.unwrap();
    assert_eq!(node.store.last_applied().await.unwrap().unwrap().hash, trunk[19].hash);
    let branch = longer(&trunk[..15], "branch", 30);
    source.prefer(&branch);
    follower.catch_up().await.unwrap();
    assert_eq!(node.store.last_applied().await.unwrap().unwrap().hash, branch[44].hash);
    node.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_dropped_leaves_no_block_half_told() {
    let node = Node::new(RollbackMode::Node);
    let events = Events::default();
    let chain = Chain::new(node.store.clone(), events.clone(), ChainOptions::default());
    let mut subscriber = events.subscribe();
    for block in longer(&[], "block", 20) {
        // Dropped at once, most likely before the write: the block is applied and told all the same.
        let apply = chain.apply(Arc::clone(&block), ApplyOptions::default());
        let _ = tokio::time::timeout(std::time::Duration::ZERO, apply).await;
        while let Some(told) = subscriber.next().await {
            if let sapwood_chain::Told::Event(event) = told
                && let sapwood_chain::Event::MinedSet(mark) = event.as_ref()
            {
                assert_eq!(mark.hash, block.hash);
                break;
            }
        }
    }
    assert_eq!(node.store.last_applied().await.unwrap().unwrap().height, Height(19));
    node.sound().await;
}
