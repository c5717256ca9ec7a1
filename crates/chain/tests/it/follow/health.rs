//! How a follower and its source get on is visible, and whatever the source does, following goes on when it can.

use std::{fs, sync::Arc, time::Duration};

use async_trait::async_trait;
use sapwood_chain::{ChainState, FollowOptions, LONGEST_PAUSE, Progress, SourceState};
use sapwood_ledger::RollbackMode;
use sapwood_rules::Policy;
use sapwood_sources::{
    BlockSource, LazySource, Open, SourceError,
    bitcoin::{BlkOptions, BlkSource, Network, rpc::RpcError},
};
use sapwood_testing::regtest;
use sapwood_types::Height;

use crate::follow::{
    data::{Files, Node},
    scripted::{Scripted, bad, longer},
};

const REGTEST: Network = Network::Regtest;

fn unreachable() -> SourceError {
    let url = "http://127.0.0.1:1".to_owned();
    SourceError::from(RpcError::Unreachable { url, cause: "connection refused".into(), attempts: 3 })
}

fn is(state: SourceState) -> impl FnMut(&Progress) -> bool {
    move |progress| progress.source.state() == state
}

async fn applied(node: &Node) -> Option<Height> {
    node.store.last_applied().await.unwrap().map(|last| last.height)
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_refused_block_with_descendants_is_shown_until_a_better_chain_comes() {
    let trunk = regtest::longer(&[], "trunk", 6);
    let bad = regtest::longer(&regtest::spoilt(&trunk, "bad"), "on it", 53);
    let files = Files::of(&regtest::file(&bad));
    let node = Node::new(RollbackMode::Follower);
    let following = node.start(Arc::new(files.open(REGTEST)));
    let health = following.until("refused", is(SourceState::Refused)).await.source;
    let refused = health.refused.clone().unwrap();
    assert_eq!((refused.height, refused.hash.to_string()), (Height(6), regtest::hash(&bad[6])));
    assert_eq!((refused.descendants, refused.insisted), (53, false));
    assert!(refused.reason.contains("the subsidy and the fees"), "{}", refused.reason);
    assert!(health.is_stalled());
    assert_eq!((applied(&node).await, health.lag(applied(&node).await)), (Some(Height(5)), Some(54)));
    let mut states = node.events.watch_state();
    states.wait_for(|state| *state == ChainState::Stalled).await.unwrap();

    let good = regtest::longer(&trunk, "good", 60);
    files.write(1, &regtest::file(&good[6..]));
    following.reaches(&node, &regtest::hash(&good[65])).await;
    following.until("following", is(SourceState::Following)).await;
    following.end().await;
    node.sound().await;
}

/// The lag was counted against what the source had when catching up began.
#[tokio::test(flavor = "multi_thread")]
async fn c1_what_the_source_has_is_asked_again_while_catching_up() {
    let node = Node::new(RollbackMode::Follower);
    let source = Scripted::new(true);
    let chain = longer(&[], "block", 40);
    source.prefer(&chain[..20]);
    source.grow_when_read(chain[10].hash, &chain);
    let follower = node.follow_shared(source);
    follower.catch_up().await.unwrap();
    assert_eq!(applied(&node).await, Some(Height(39)));
    let health = follower.progress().borrow().source.clone();
    assert_eq!(
        (health.best_height, health.tip.map(|tip| tip.hash)),
        (Some(Height(39)), Some(chain[39].hash))
    );
}

/// A block that every node refuses, and on which none builds, is no fault of this node.
#[tokio::test(flavor = "multi_thread")]
async fn c1_refused_block_on_which_nothing_is_built_stalls_nothing() {
    let trunk = regtest::longer(&[], "trunk", 6);
    let files = Files::of(&regtest::file(&regtest::spoilt(&trunk, "bad")));
    let node = Node::new(RollbackMode::Follower);
    let following = node.start(Arc::new(files.open(REGTEST)));
    let health = following.until("refused", is(SourceState::Refused)).await.source;
    assert!(!health.is_stalled());
    assert_eq!(health.lag(Some(Height(5))), Some(1));
    following.reaches(&node, &regtest::hash(&trunk[5])).await;
    following.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_gap_in_the_files_is_shown_until_it_is_filled() {
    let chain = regtest::longer(&[], "block", 27);
    let files = Files::of(&regtest::file(&[&chain[..24], &chain[25..]].concat()));
    let node = Node::new(RollbackMode::Follower);
    let following = node.start(Arc::new(files.open(REGTEST)));
    let health = following.until("gap", |progress| progress.source.gap.is_some()).await.source;
    assert_eq!(health.gap.as_ref().unwrap().missing.to_string(), regtest::hash(&chain[24]));
    let mut states = node.events.watch_state();
    states.wait_for(|state| *state == ChainState::Stalled).await.unwrap();
    assert_eq!(applied(&node).await, Some(Height(23)));
    assert_eq!(health.lag(Some(Height(23))), Some(3));
    files.write(1, &regtest::file(&chain[24..25]));
    following.reaches(&node, &regtest::hash(&chain[26])).await;
    following.until("following", is(SourceState::Following)).await;
    following.end().await;
}

/// A node that answered "Block not found" for a block of its active chain was asked again at once, and nothing showed it.
#[tokio::test(flavor = "multi_thread")]
async fn block_that_the_source_names_and_does_not_have_is_shown_and_tried_with_pauses() {
    let node = Node::new(RollbackMode::Follower);
    let source = Scripted::new(false);
    let chain = longer(&[], "block", 10);
    source.prefer(&chain);
    source.forget(&chain[6].hash);
    let following = node.start(source.clone());
    let failing = |progress: &Progress| {
        progress.source.unreachable.as_ref().is_some_and(|failing| failing.attempts >= 3)
    };
    let health = following.until("unreachable", failing).await.source;
    let error = health.unreachable.clone().unwrap().error;
    assert!(error.contains(&format!("has no block {} at height 6", chain[6].hash)), "{error}");
    assert_eq!((health.is_stalled(), applied(&node).await), (true, Some(Height(5))));
    let reads = source.reads(&chain[6].hash);
    let attempts = following.until("unreachable", failing).await.source.errors;
    assert!(u64::from(reads) <= 2 * (attempts + 1), "{reads} reads for {attempts} failures");
    source.prefer(&chain);
    following.reaches(&node, &chain[9].hash.to_string()).await;
    following.until("following", is(SourceState::Following)).await;
    following.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_source_that_does_not_answer_is_shown_and_followed_when_it_does() {
    let node = Node::new(RollbackMode::Follower);
    let source = Scripted::new(false);
    source.prefer(&longer(&[], "trunk", 10));
    source.go_down(unreachable());
    let following = node.start(source.clone());
    let failing = |progress: &Progress| {
        progress.source.unreachable.as_ref().is_some_and(|failing| failing.attempts >= 3)
    };
    let health = following.until("unreachable from the start", failing).await.source;
    assert!(health.is_stalled() && health.last_contact.is_none());
    assert!(health.unreachable.unwrap().error.contains("connection refused"));
    assert_eq!(node.events.state(), ChainState::Stalled);
    source.come_up();
    let tip = longer(&[], "trunk", 10)[9].hash.to_string();
    following.reaches(&node, &tip).await;
    let health = following.until("following", is(SourceState::Following)).await.source;
    assert!(health.last_contact.is_some() && health.errors >= 3);

    // And while it runs.
    source.go_down(unreachable());
    following.until("unreachable", is(SourceState::Unreachable)).await;
    let mut states = node.events.watch_state();
    states.wait_for(|state| *state == ChainState::Stalled).await.unwrap();
    assert_eq!(applied(&node).await, Some(Height(9)));
    source.come_up();
    following.reaches(&node, &tip).await;
    following.end().await;
    assert_eq!(node.events.state(), ChainState::Stopped);
}

/// A node that has pruned what is wanted tells its tip and gives no block: that is no contact worth the name.
#[tokio::test(flavor = "multi_thread")]
async fn c1_source_that_answers_but_gives_no_block_is_unreachable_all_the_time() {
    let node = Node::new(RollbackMode::Follower);
    let source = Scripted::new(false);
    let trunk = longer(&[], "trunk", 10);
    source.prefer(&trunk);
    (0..20).for_each(|_| source.fail_next(unreachable()));
    let following = node.start(source.clone());
    let failing = |progress: &Progress| {
        progress.source.unreachable.as_ref().is_some_and(|failing| failing.attempts >= 5)
    };
    let health = following.until("five failures in a row", failing).await.source;
    assert!(health.last_contact.is_some() && health.tip.is_some(), "{health:?}");
    following.reaches(&node, &trunk[9].hash.to_string()).await;
    following.until("following", is(SourceState::Following)).await;
    following.end().await;
}

/// In time that passes at once when there is nothing to do: however long the source was away, it is asked every two seconds.
#[tokio::test(start_paused = true)]
async fn c1_pause_between_two_tries_is_bounded() {
    let node = Node::new(RollbackMode::Follower);
    let source = Scripted::new(false);
    source.go_down(unreachable());
    let following = node.start_with(source.clone(), FollowOptions::default());
    tokio::time::sleep(Duration::from_secs(3600)).await;
    source.come_up();
    source.go_down(unreachable());
    tokio::time::sleep(Duration::from_secs(600)).await;
    let asked = source.come_up();
    assert_eq!(LONGEST_PAUSE, Duration::from_secs(2));
    assert!((298..=302).contains(&asked), "asked {asked} times in ten minutes");
    following.end().await;
}

/// A file system that hangs, a node that is stopped: no error comes, and no answer either.
#[tokio::test(start_paused = true)]
async fn c1_source_that_does_not_answer_is_unreachable_until_it_does() {
    let node = Node::new(RollbackMode::Follower);
    let source = Scripted::new(false);
    let trunk = longer(&[], "trunk", 10);
    source.prefer(&trunk[..5]);
    let following = node.start_with(source.clone(), FollowOptions::default());
    following.reaches(&node, &trunk[4].hash.to_string()).await;
    source.be_silent(true);
    let asked = tokio::time::Instant::now();
    let health = following.until("unreachable", is(SourceState::Unreachable)).await.source;
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert!(health.unreachable.unwrap().error.contains("has not answered for 4 s"));
    assert_eq!(node.events.state(), ChainState::Stalled);
    source.prefer(&trunk);
    source.be_silent(false);
    following.reaches(&node, &trunk[9].hash.to_string()).await;
    following.until("following", is(SourceState::Following)).await;
    following.end().await;
}

/// A chain that is held until the source leaves it does not make a source that fails be asked without a pause.
#[tokio::test(start_paused = true)]
async fn c1_pause_between_two_tries_is_bounded_while_a_fork_below_the_floor_is_held() {
    let node = Node::with(Default::default(), Policy::with_retention(4));
    let source = Scripted::new(false);
    let trunk = longer(&[], "trunk", 5);
    let old = longer(&trunk, "old", 10);
    source.prefer(&old);
    let following = node.start_with(source.clone(), FollowOptions::default());
    following.reaches(&node, &old[14].hash.to_string()).await;
    source.prefer(&longer(&trunk, "new", 20));
    following.until("below the floor", is(SourceState::BelowFloor)).await;
    source.go_down(unreachable());
    tokio::time::sleep(Duration::from_secs(600)).await;
    let asked = source.come_up();
    assert!((290..=310).contains(&asked), "asked {asked} times in ten minutes");
    following.end().await;
}

/// A file that does not belong there forks below the floor, until the operator removes it.
#[tokio::test(flavor = "multi_thread")]
async fn h4_fork_below_the_floor_ends_when_its_file_is_removed() {
    let chain = regtest::longer(&[], "block", 30);
    let files = Files::of(&regtest::file(&chain));
    let node = Node::with(Default::default(), Policy::with_retention(4));
    let following = node.start(Arc::new(crate::follow::data::open(REGTEST, [files.path()])));
    following.reaches(&node, &regtest::hash(&chain[29])).await;
    files.write(1, &regtest::file(&regtest::longer(&chain[..5], "stray", 60)[5..]));
    following.until("below the floor", is(SourceState::BelowFloor)).await;
    fs::remove_file(files.path().join("blk00001.dat")).unwrap();
    following.until("following", is(SourceState::Following)).await;
    following.reaches(&node, &regtest::hash(&chain[29])).await;
    following.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h4_directory_that_goes_away_and_comes_back_is_followed_on() {
    let chain = regtest::longer(&[], "block", 12);
    let files = Files::new();
    let (blocks, gone) = (files.path().join("blocks"), files.path().join("gone"));
    fs::create_dir(&blocks).unwrap();
    fs::write(blocks.join("blk00000.dat"), regtest::file(&chain[..10])).unwrap();
    let node = Node::new(RollbackMode::Follower);
    let following = node.start(Arc::new(crate::follow::data::open(REGTEST, [&blocks])));
    following.reaches(&node, &regtest::hash(&chain[9])).await;
    fs::rename(&blocks, &gone).unwrap();
    let health = following.until("gone", is(SourceState::Unreachable)).await.source;
    assert!(health.unreachable.unwrap().error.contains("blocks"));
    fs::write(gone.join("blk00001.dat"), regtest::file(&chain[10..])).unwrap();
    fs::rename(&gone, &blocks).unwrap();
    following.reaches(&node, &regtest::hash(&chain[11])).await;
    following.end().await;
    node.sound().await;
}

/// Opens block files that may not be there yet.
struct Later(std::path::PathBuf);

#[async_trait]
impl Open for Later {
    async fn open(&self) -> Result<Arc<dyn BlockSource>, SourceError> {
        let options = BlkOptions { poll: Duration::from_millis(10), ..BlkOptions::new(REGTEST, [&self.0]) };
        Ok(Arc::new(BlkSource::open(options, |_| std::ops::ControlFlow::Continue(()))?))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h4_source_that_is_not_there_at_the_start_is_opened_when_it_comes() {
    let chain = regtest::longer(&[], "block", 5);
    let files = Files::new();
    let blocks = files.path().join("blocks");
    let node = Node::new(RollbackMode::Follower);
    let following = node.start(Arc::new(LazySource::new("late".into(), Later(blocks.clone()))));
    following.until("no directory", is(SourceState::Unreachable)).await;
    fs::create_dir(&blocks).unwrap();
    let no_files = |progress: &Progress| {
        let failing = progress.source.unreachable.as_ref();
        failing.is_some_and(|failing| failing.error.contains("no block files"))
    };
    following.until("no files", no_files).await;
    fs::write(blocks.join("blk00000.dat"), regtest::file(&chain)).unwrap();
    following.reaches(&node, &regtest::hash(&chain[4])).await;
    following.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h4_fork_below_the_floor_is_waited_out_and_changes_nothing() {
    let node = Node::with(Default::default(), Policy::with_retention(4));
    let source = Scripted::new(false);
    let trunk = longer(&[], "trunk", 5);
    let old = longer(&trunk, "old", 10);
    source.prefer(&old);
    let following = node.start(source.clone());
    let tip = old[14].hash.to_string();
    following.reaches(&node, &tip).await;
    let digest = node.store.state_digest().await.unwrap();
    // Higher, and lower than the floor.
    for other in [longer(&trunk, "new", 20), trunk.clone()] {
        source.prefer(&other);
        let health = following.until("below the floor", is(SourceState::BelowFloor)).await.source;
        let below = health.below_floor.unwrap();
        assert_eq!((below.floor, below.tip.hash), (Height(10), other.last().unwrap().hash));
        assert!(health.is_stalled());
        assert_eq!(node.store.state_digest().await.unwrap(), digest);
        source.prefer(&old);
        following.until("following", is(SourceState::Following)).await;
        following.reaches(&node, &tip).await;
        assert_eq!(node.store.state_digest().await.unwrap(), digest);
    }
    following.end().await;
    node.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h9_lower_tip_is_followed_live_as_at_start() {
    let node = Node::new(RollbackMode::Follower);
    let source = Scripted::new(false);
    let trunk = longer(&[], "trunk", 150);
    let old = longer(&trunk, "old", 6);
    source.prefer(&old);
    let following = node.start(source.clone());
    following.reaches(&node, &old[155].hash.to_string()).await;
    // `invalidateblock`, then three blocks on another branch.
    source.prefer(&trunk);
    following.reaches(&node, &trunk[149].hash.to_string()).await;
    let new = longer(&trunk, "new", 3);
    source.prefer(&new);
    following.reaches(&node, &new[152].hash.to_string()).await;
    let health = following.until("following", is(SourceState::Following)).await.source;
    assert_eq!((health.tip.unwrap().height, health.lag(applied(&node).await)), (Height(152), Some(0)));
    following.end().await;
    // At a start the same.
    source.prefer(&trunk);
    let again = Node::with(Default::default(), crate::follow::data::policy());
    let followed = again.follow_shared(source.clone());
    followed.catch_up().await.unwrap();
    source.prefer(&longer(&trunk[..140], "lower", 2));
    followed.reconcile().await.unwrap();
    assert_eq!(applied(&again).await, Some(Height(141)));
    node.sound().await;
}

/// Bitcoin Core lost its last blocks in a crash, and then went on with others.
#[tokio::test(flavor = "multi_thread")]
async fn bitcoin_34261_the_source_came_back_behind_us() {
    for mode in [RollbackMode::Node, RollbackMode::Follower] {
        let node = Node::new(mode);
        let source = Scripted::new(false);
        let trunk = longer(&[], "trunk", 20);
        source.prefer(&trunk);
        let following = node.start(source.clone());
        following.reaches(&node, &trunk[19].hash.to_string()).await;
        source.go_down(unreachable());
        following.until("crashed", is(SourceState::Unreachable)).await;
        // What it had not written is gone, also as blocks.
        source.prefer(&trunk[..15]);
        trunk[15..].iter().for_each(|lost| source.forget(&lost.hash));
        source.come_up();
        following.reaches(&node, &trunk[14].hash.to_string()).await;
        let other = longer(&trunk[..15], "other", 4);
        source.prefer(&other);
        following.reaches(&node, &other[18].hash.to_string()).await;
        following.end().await;

        let straight = Node::new(mode);
        let only = Scripted::new(false);
        only.prefer(&other);
        straight.follow_shared(only).catch_up().await.unwrap();
        let (went, direct) = (node.counted().await, straight.counted().await);
        assert_eq!((went.coins, went.amount, went.digest()), (direct.coins, direct.amount, direct.digest()));
        node.sound().await;
    }
}

/// Teranode tried such a block 145 times in 18 hours, and its log named another transaction.
#[tokio::test(flavor = "multi_thread")]
async fn teranode_1187_a_block_the_source_stands_by_is_tried_alone_and_named() {
    let node = Node::new(RollbackMode::Follower);
    let source = Scripted::new(false);
    let trunk = longer(&[], "trunk", 5);
    let mut poisoned = trunk.clone();
    poisoned.push(bad(&trunk, "poison"));
    let poisoned = longer(&poisoned, "on it", 3);
    source.prefer(&poisoned);
    let following = node.start_with(source.clone(), impatient());
    let refused = following.until("tried", tried(20)).await.source.refused.unwrap();
    let reads = |number: usize| source.reads(&poisoned[number].hash);
    assert!(reads(5) >= 20, "it is read again each time: {}", reads(5));
    assert!(reads(6) <= 2 && reads(8) <= 2, "and nothing else: {} and {}", reads(6), reads(8));
    assert_eq!((refused.height, refused.hash), (Height(5), poisoned[5].hash));
    assert_eq!((refused.descendants, refused.insisted), (3, true));
    let culprit = poisoned[5].txs[1].txid.to_string();
    assert!(refused.reason.contains(&culprit), "{}", refused.reason);
    assert_eq!((node.events.state(), applied(&node).await), (ChainState::Stalled, Some(Height(4))));
    // The source leaves it: followed at once.
    let good = longer(&trunk, "good", 2);
    source.prefer(&good);
    following.reaches(&node, &good[6].hash.to_string()).await;
    following.until("following", is(SourceState::Following)).await;
    following.end().await;
    node.sound().await;
}

/// To try it, the chain would go back and forth for everyone to see.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_block_behind_a_rollback_is_tried_ever_more_seldom() {
    let node = Node::new(RollbackMode::Follower);
    let source = Scripted::new(false);
    let trunk = longer(&[], "trunk", 5);
    let old = longer(&trunk, "old", 3);
    source.prefer(&old);
    let following = node.start_with(source.clone(), impatient());
    following.reaches(&node, &old[7].hash.to_string()).await;
    let mut poisoned = longer(&trunk, "new", 2);
    poisoned.push(bad(&poisoned, "poison"));
    let poisoned = longer(&poisoned, "on it", 3);
    let started = std::time::Instant::now();
    source.prefer(&poisoned);
    let refused = following.until("tried", tried(4)).await.source.refused.unwrap();
    // After 1, 2, 4 and so on: so many doublings fit into the time that passed, however slow the machine is.
    let first = impatient().retry_refused.as_millis();
    let most = 2 + (started.elapsed().as_millis() / first).max(1).ilog2();
    assert!(refused.attempts <= most, "{} times, at most {most}", refused.attempts);
    assert_eq!((applied(&node).await, refused.hash), (Some(Height(7)), poisoned[7].hash));
    following.end().await;
    node.sound().await;
}

/// A follower that hardly waits.
fn impatient() -> FollowOptions {
    let moment = Duration::from_millis(1);
    FollowOptions { wait: moment, retry: moment, retry_refused: moment, ..FollowOptions::default() }
}

fn tried(times: u32) -> impl FnMut(&Progress) -> bool {
    move |progress| progress.source.refused.as_ref().is_some_and(|refused| refused.attempts >= times)
}

/// In time that passes at once when there is nothing to do: however long it lasts, the block is tried every two seconds.
#[tokio::test(start_paused = true)]
async fn c1_pause_before_a_refused_block_is_tried_again_is_bounded() {
    let node = Node::new(RollbackMode::Follower);
    let source = Scripted::new(false);
    let trunk = longer(&[], "trunk", 5);
    let mut poisoned = trunk.clone();
    poisoned.push(bad(&trunk, "poison"));
    source.prefer(&poisoned);
    let following = node.start_with(source.clone(), FollowOptions::default());
    following.until("tried", tried(10)).await;
    let (before, from) = (source.reads(&poisoned[5].hash), tokio::time::Instant::now());
    tokio::time::sleep(Duration::from_secs(600)).await;
    let again = source.reads(&poisoned[5].hash) - before;
    assert!((250..=305).contains(&again), "tried {again} times in {:?}", from.elapsed());
    following.end().await;
}
