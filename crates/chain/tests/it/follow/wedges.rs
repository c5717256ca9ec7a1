//! Whatever is in the files, a start ends on the best chain that can be applied, and never in a loop.

use std::{sync::Arc, time::Duration};

use bitcoin::{Block, consensus::encode::serialize};
use sapwood_chain::{ApplyMode, ChainOptions};
use sapwood_ledger::RollbackMode;
use sapwood_sources::{BlockSource as _, ChainPoint, bitcoin::Network};
use sapwood_testing::regtest::{coinbase, file, hash, longer, mine, spoilt, taking, with};
use sapwood_types::Height;

use crate::follow::{
    coins,
    data::{self, Files, Node},
};

const REGTEST: Network = Network::Regtest;

fn both_modes() -> [ChainOptions; 2] {
    [ApplyMode::Sync, ApplyMode::Async { queue: 4 }]
        .map(|mode| ChainOptions { mode, rollback: RollbackMode::Follower })
}

/// Starts on the files, as a process does that is started on them, and returns the last applied block.
async fn start(node: &Node, files: &Files) -> String {
    let follower = node.follow(files.open(REGTEST));
    let started = async {
        follower.reconcile().await.unwrap();
        follower.catch_up().await.unwrap();
    };
    tokio::time::timeout(Duration::from_secs(120), started).await.expect("it comes to an end");
    node.store.last_applied().await.unwrap().unwrap().hash.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn c2_longer_bad_branch_at_start_is_left_for_the_old_one() {
    for options in both_modes() {
        let node = Node::with(options, data::policy());
        let trunk = longer(&[], "trunk", 9);
        let old = longer(&trunk, "old", 2);
        let files = Files::of(&file(&old));
        assert_eq!(start(&node, &files).await, hash(&old[10]));
        let before = node.counted().await;
        let worse = longer(&spoilt(&trunk, "bad"), "bad", 2);
        files.write(1, &file(&worse[9..]));
        for _ in 0..3 {
            assert_eq!(start(&node, &files).await, hash(&old[10]));
        }
        let after = node.counted().await;
        assert_eq!(
            (after.coins, after.amount, after.digest()),
            (before.coins, before.amount, before.digest())
        );
        node.sound().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c2_longer_bad_branch_at_start_is_left_for_the_best_good_one() {
    for options in both_modes() {
        let node = Node::with(options, data::policy());
        let trunk = longer(&[], "trunk", 9);
        let old = longer(&trunk, "old", 2);
        let files = Files::of(&file(&old));
        start(&node, &files).await;
        // The bad block is the first of its branch, or the last, and a good branch of the same length comes after it.
        let bad_first = longer(&spoilt(&trunk, "first"), "first", 3);
        let bad_last = spoilt(&longer(&trunk, "last", 3), "last");
        let good = longer(&trunk, "good", 4);
        files.write(1, &file(&[&bad_first[9..], &bad_last[9..], &good[9..]].concat()));
        assert_eq!(start(&node, &files).await, hash(&good[12]));
        node.sound().await;
    }
}

/// The chain of all that is bad: every block of the longest branch is tried in vain, one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn c2_many_bad_branches_are_all_left() {
    let node = Node::new(RollbackMode::Node);
    let trunk = longer(&[], "trunk", 6);
    let files = Files::of(&file(&trunk));
    start(&node, &files).await;
    let bad = (0..12).flat_map(|branch| {
        let fork = &trunk[..2 + branch % 4];
        let label = format!("bad {branch}");
        // As much work as the trunk at most, and later.
        let at = longer(fork, &label, branch % 2);
        longer(&spoilt(&at, &label), &label, 8)[fork.len()..].to_vec()
    });
    files.write(1, &file(&bad.collect::<Vec<_>>()));
    assert_eq!(start(&node, &files).await, hash(&trunk[5]));
    assert_eq!(start(&node, &files).await, hash(&trunk[5]));
    node.sound().await;
}

/// Files that begin later than the chain, and whose first block cannot be applied because what it spends is not here.
#[tokio::test(flavor = "multi_thread")]
async fn h6_files_whose_first_block_is_refused_come_to_an_end() {
    let trunk = longer(&[], "trunk", 5);
    let files = Files::of(&file(&longer(&spoilt(&trunk, "bad"), "bad", 2)[5..]));
    let anchor = ChainPoint::new(Height(4), hash(&trunk[4]).parse().unwrap());
    let node = Node::new(RollbackMode::Follower);
    let follower = node.follow(data::open_after(&files, REGTEST, anchor));
    tokio::time::timeout(Duration::from_secs(60), follower.catch_up()).await.expect("no hang").unwrap();
    assert_eq!(follower.rejected().len(), 1);
    assert_eq!(node.store.last_applied().await.unwrap(), None);

    let Some(dir) = data::bitcoin() else { return };
    let stretch = coins::of_2015(&dir);
    let files = Files::new();
    let follower = node.follow(stretch.source(&files));
    tokio::time::timeout(Duration::from_secs(60), follower.catch_up()).await.expect("no hang").unwrap();
    assert_eq!(follower.rejected()[0].hash, stretch.blocks[0].hash);
    assert_eq!(node.store.last_applied().await.unwrap(), None);
}

/// A block that is not what its header says.
fn bad_merkle(chain: &[Block]) -> Block {
    let mut block = taking(chain, "bad merkle", 1);
    block.txdata = vec![coinbase(chain.len(), "another", 1)];
    block
}

fn two_coinbases(chain: &[Block]) -> Block {
    with(chain, vec![coinbase(chain.len(), "one", 1), coinbase(chain.len(), "two", 1)])
}

fn no_coinbase(chain: &[Block]) -> Block {
    let mut not_one = coinbase(chain.len(), "x", 1);
    not_one.input[0].previous_output.vout = 7;
    with(chain, vec![not_one])
}

#[tokio::test(flavor = "multi_thread")]
async fn m15_block_that_cannot_be_read_as_best_tip_is_left_for_a_good_sibling() {
    let broken: [fn(&[Block]) -> Block; 3] = [bad_merkle, two_coinbases, no_coinbase];
    for broken in broken {
        let trunk = longer(&[], "trunk", 5);
        let mut worse = longer(&trunk, "worse", 1);
        worse.push(broken(&worse));
        // A last block that is not whole does not count, so another comes after it.
        let worse = longer(&worse, "worse", 1);
        let good = longer(&trunk, "good", 2);
        let files = Files::of(&file(&[&worse[..], &good[5..]].concat()));
        let node = Node::new(RollbackMode::Follower);
        assert_eq!(start(&node, &files).await, hash(&good[6]), "{:?}", serialize(&worse[6]).len());
        assert_eq!(start(&node, &files).await, hash(&good[6]));
        node.sound().await;
    }
}

/// The same transactions, twice, under a header that is met by both: the good copy comes later.
#[tokio::test(flavor = "multi_thread")]
async fn m15_good_copy_of_a_damaged_block_is_followed_when_it_comes() {
    let chain = longer(&[], "block", 8);
    let mut damaged = chain.clone();
    damaged[4].txdata = vec![coinbase(4, "damaged", 1)];
    mine(&mut chain[7].clone());
    let files = Files::of(&file(&damaged));
    let node = Node::new(RollbackMode::Follower);
    let following = node.start(Arc::new(files.open(REGTEST)));
    let refused = following.until("refused", |progress| progress.source.refused.is_some()).await;
    let refused = refused.source.refused.unwrap();
    assert_eq!((refused.height, refused.descendants), (Height(4), 3));
    assert!(refused.reason.contains("merkle"), "{}", refused.reason);
    files.write(1, &file(&chain[4..5]));
    following.reaches(&node, &hash(&chain[7])).await;
    following.end().await;
    node.sound().await;
}

/// Nothing to stop at lies below where the source begins.
#[tokio::test(flavor = "multi_thread")]
async fn h6_height_to_stop_at_below_the_first_block_comes_to_an_end() {
    let trunk = longer(&[], "trunk", 8);
    let files = Files::of(&file(&trunk[5..]));
    let anchor = ChainPoint::new(Height(4), hash(&trunk[4]).parse().unwrap());
    let node = Node::new(RollbackMode::Follower);
    let options =
        sapwood_chain::FollowOptions { stop_at: Some(Height(2)), ..sapwood_chain::FollowOptions::default() };
    let source = data::open_after(&files, REGTEST, anchor);
    assert_eq!(source.first().await.unwrap(), Height(5));
    let follower = sapwood_chain::Follower::new(
        node.chain.clone(),
        Arc::new(source),
        options,
        sapwood_chain::Stop::default(),
    );
    tokio::time::timeout(Duration::from_secs(60), follower.catch_up()).await.expect("no hang").unwrap();
    assert_eq!(node.store.last_applied().await.unwrap(), None);
}
