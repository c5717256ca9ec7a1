//! What is told: every block, every rollback, how far it is.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use sapwood_chain::{Event, FollowOptions, Follower, Stop, Subscription, Told};
use sapwood_conformance::fixtures::{coin, coinbase};
use sapwood_ledger::{ApplyOptions, RollbackMode};
use sapwood_types::{Block, BlockHash, Height};

use crate::follow::{
    data::{Node, policy},
    scripted::{Scripted, bad, longer, on},
};

/// What was told so far.
fn told(subscriber: &mut Subscription) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(told) = futures_now(subscriber.next()) {
        match told {
            Some(Told::Event(event)) => events.push(Event::clone(&event)),
            other => panic!("{other:?}"),
        }
    }
    events
}

/// The result, if it is there already.
fn futures_now<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}

fn row(blocks: &[Arc<Block>]) -> Vec<(Arc<Block>, ApplyOptions)> {
    blocks.iter().map(|block| (Arc::clone(block), ApplyOptions::default())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_block_of_a_run_is_told_as_applied_and_then_as_mined() {
    let node = Node::new(RollbackMode::Node);
    let mut subscriber = node.events.subscribe();
    let blocks = longer(&[], "block", 7);
    node.chain.apply_run(row(&blocks)).await.unwrap();
    let kinds: Vec<(bool, BlockHash)> = told(&mut subscriber)
        .iter()
        .map(|event| match event {
            Event::BlockApplied(applied) => (false, applied.block.hash),
            Event::MinedSet(block) => (true, block.hash),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected: Vec<_> =
        blocks.iter().flat_map(|block| [(false, block.hash), (true, block.hash)]).collect();
    assert_eq!(kinds, expected);
}

/// A listener that keeps a chain of its own from nothing but the events has the applied one at every quiet moment, through branches
/// that are adopted and branches that turn out bad. In both modes, and while catching up in rows.
#[tokio::test(flavor = "multi_thread")]
async fn a_chain_kept_from_the_events_alone_is_the_applied_one() {
    let node = Node::new(RollbackMode::Follower);
    let source = Scripted::new(true);
    let mut subscriber = node.events.subscribe();
    let mut kept: Vec<BlockHash> = Vec::new();
    let follower = node.follow_shared(source.clone());
    let trunk = longer(&[], "trunk", 12);
    let mut worse = longer(&trunk[..8], "worse", 6);
    worse.push(bad(&worse, "bad"));
    let steps = [
        trunk.clone(),
        longer(&trunk[..9], "one", 5),
        worse,
        longer(&trunk[..4], "two", 20),
        trunk[..6].to_vec(),
        longer(&trunk[..6], "three", 1),
    ];
    let mut rollbacks = 0;
    for branch in steps {
        source.prefer(&branch);
        follower.catch_up().await.unwrap();
        for event in told(&mut subscriber) {
            match event {
                Event::BlockApplied(applied) => {
                    assert_eq!(applied.block.height.0 as usize, kept.len(), "a rollback was not told");
                    kept.push(applied.block.hash);
                }
                Event::RolledBack(back) => {
                    assert_eq!(kept.last(), Some(&back.from.hash));
                    kept.truncate(back.to.map_or(0, |to| to.height.0 as usize + 1));
                    assert_eq!(kept.last().copied(), back.to.map(|to| to.hash));
                    rollbacks += 1;
                }
                _ => {}
            }
        }
        let last = node.store.last_applied().await.unwrap().unwrap();
        assert_eq!((kept.len() as u32 - 1, kept.last()), (last.height.0, Some(&last.hash)));
    }
    assert!(rollbacks >= 5, "{rollbacks}");
    node.sound().await;
}

/// The old branch after a bad one is not only the last block: it grows on, and ends as if the bad one had never been there.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_branch_that_was_restored_grows_on_as_if_nothing_had_been() {
    for mode in [RollbackMode::Node, RollbackMode::Follower] {
        let node = Node::new(mode);
        let source = Scripted::new(true);
        let old = longer(&longer(&[], "trunk", 4), "old", 5);
        source.prefer(&old);
        let follower = node.follow_shared(source.clone());
        follower.catch_up().await.unwrap();
        for depth in [1, 3, 5] {
            let label = format!("bad {depth}");
            let fork = &old[..9 - depth];
            let mut worse = longer(fork, &label, depth);
            worse.push(bad(&worse, &label));
            source.prefer(&worse);
            follower.catch_up().await.unwrap();
            for (height, block) in old.iter().enumerate().skip(fork.len()) {
                let applied = node.chain.hash_at(Height(height as u32)).await.unwrap();
                assert_eq!(applied, Some(block.hash), "block {height} of the old branch");
            }
        }
        let on = longer(&old, "old", 4);
        source.prefer(&on);
        follower.catch_up().await.unwrap();
        let straight =
            Node::with(sapwood_chain::ChainOptions { rollback: mode, ..Default::default() }, policy());
        let only = Scripted::new(true);
        only.prefer(&on);
        straight.follow_shared(only).catch_up().await.unwrap();
        let (went, direct) = (node.counted().await, straight.counted().await);
        assert_eq!((went.coins, went.amount, went.digest()), (direct.coins, direct.amount, direct.digest()));
        node.sound().await;
    }
}

/// A good block at the same height as a bad one that was queued before it: it was queued in the belief that the bad one would be
/// applied, so it is not.
#[tokio::test]
async fn a_block_queued_behind_a_bad_one_is_dropped_although_it_would_fit() {
    let mode = sapwood_chain::ApplyMode::Async { queue: 16 };
    let node = Node::with(sapwood_chain::ChainOptions { mode, rollback: RollbackMode::Node }, policy());
    let good = longer(&[], "block", 3);
    let sibling = longer(&good, "sibling", 1).pop().unwrap();
    for block in good.iter().cloned().chain([bad(&good, "bad"), Arc::clone(&sibling)]) {
        node.chain.apply(block, ApplyOptions::default()).await.unwrap();
    }
    assert!(node.chain.drain().await.is_err());
    assert_eq!(node.store.last_applied().await.unwrap().unwrap().hash, good[2].hash);
    // In a row the same.
    let row = row(&[bad(&good, "bad"), Arc::clone(&sibling)]);
    let sync = Node::new(RollbackMode::Node);
    for block in &good {
        sync.chain.apply(Arc::clone(block), ApplyOptions::default()).await.unwrap();
    }
    sync.chain.apply_run(row).await.unwrap_err();
    assert_eq!(sync.store.last_applied().await.unwrap().unwrap().hash, good[2].hash);
    // It was not refused for itself.
    node.chain.apply(sibling, ApplyOptions::default()).await.unwrap();
    node.chain.drain().await.unwrap();
    node.sound().await;
}

/// Two blocks of mainnet have a coinbase that was there before (BIP30 lets 91842 and 91880).
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_lets_a_block_overwrite_where_its_source_does() {
    let first = on(&[], "first", vec![coin("same", 2)]);
    let second = on(std::slice::from_ref(&first), "second", vec![]);
    let again = Block { txs: vec![coinbase("coinbase first 0", 1)], ..Block::clone(&second) };
    let blocks = [first, Arc::new(again)];
    for allowed in [false, true] {
        let node = Node::new(RollbackMode::Follower);
        let source = Scripted::new(true);
        source.prefer(&blocks[..1]);
        source.prefer(&blocks);
        if allowed {
            source.let_overwrite(blocks[1].hash);
        }
        let follower = node.follow_shared(source);
        follower.catch_up().await.unwrap();
        let last = node.store.last_applied().await.unwrap().unwrap();
        assert_eq!((last.height == Height(1), follower.rejected().len()), (allowed, usize::from(!allowed)));
        node.sound().await;
    }
}

/// Text that was logged.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn catching_up_logs_how_far_it_is() {
    let logged = Logged::default();
    let writer = logged.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let node = Node::new(RollbackMode::Follower);
            let source = Scripted::new(true);
            source.prefer(&longer(&[], "trunk", 40));
            let options = FollowOptions { log_every: Duration::ZERO, ..FollowOptions::default() };
            let follower = Follower::new(node.chain.clone(), source, options, Stop::default());
            follower.catch_up().await.unwrap();
        });
    });
    let text = String::from_utf8(logged.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("block 39 of 39"), "{text}");
    assert!(text.lines().filter(|line| line.contains(" of 39")).count() >= 5, "{text}");
}
