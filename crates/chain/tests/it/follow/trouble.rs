//! Sources that fail, change under the reader, or are not where they were at the last start.

use std::sync::Arc;

use sapwood_chain::{ChainError, ChainState, FollowOptions, Follower, Stop};
use sapwood_ledger::RollbackMode;
use sapwood_sources::{SourceError, bitcoin::convert::ConvertError};
use sapwood_types::Height;

use crate::follow::{
    data::Node,
    scripted::{Scripted, longer},
};

#[tokio::test(flavor = "multi_thread")]
async fn at_start_ahead_behind_and_elsewhere_are_told_apart() {
    let node = Node::new(RollbackMode::Follower);
    let trunk = longer(&[], "trunk", 10);
    let height = async || node.store.last_applied().await.unwrap().unwrap().height;
    let start = async |blocks: &[Arc<sapwood_types::Block>]| {
        let source = Scripted::new(true);
        source.prefer(blocks);
        let follower = node.follow_shared(source);
        follower.reconcile().await.unwrap();
        follower
    };
    start(&trunk).await.catch_up().await.unwrap();
    assert_eq!(height().await, Height(9));
    // Behind: nothing goes back.
    start(&longer(&trunk, "more", 5)).await;
    assert_eq!(height().await, Height(9));
    // Ahead: back to where the source is.
    start(&trunk[..7]).await;
    assert_eq!(height().await, Height(6));
    // The same height, but another block: a fork, not "equal".
    let other = longer(&trunk[..6], "other", 1);
    let follower = start(&other).await;
    assert_eq!(node.store.last_applied().await.unwrap().unwrap().hash, other[6].hash);
    follower.catch_up().await.unwrap();
    assert_eq!(node.events.state(), ChainState::Running);
    // A source without blocks says nothing about what is applied.
    start(&[]).await;
    assert_eq!(height().await, Height(6));
    node.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_pass_is_tried_again_and_a_malformed_body_is_rejected_by_name() {
    let node = Node::new(RollbackMode::Follower);
    let source = Scripted::new(true);
    let trunk = longer(&[], "trunk", 10);
    source.prefer(&trunk);
    let stop = Stop::default();
    let options = FollowOptions { retry: std::time::Duration::from_millis(1), ..FollowOptions::default() };
    let follower = Follower::new(node.chain.clone(), source.clone(), options, stop.clone());
    let before = trunk[2].hash;
    for _ in 0..5 {
        source.fail_next(SourceError::from(sapwood_sources::bitcoin::rpc::RpcError::Timeout {
            url: "http://127.0.0.1:1".into(),
            method: "getblock",
            after: std::time::Duration::from_secs(1),
        }));
    }
    source.fail_next(SourceError::ChainChanged { height: Height(3), parent: before, before });
    let mut states = node.events.watch_state();
    let following = tokio::spawn({
        let follower = follower.clone();
        async move { follower.follow().await }
    });
    states.wait_for(|state| *state == ChainState::Running).await.unwrap();
    stop.ask();
    following.await.unwrap().unwrap();
    assert_eq!(node.store.last_applied().await.unwrap().unwrap().height, Height(9));
    assert_eq!(node.events.state(), ChainState::Stopped);

    let source = Scripted::new(true);
    source.prefer(&longer(&trunk, "more", 2));
    let node = Node::new(RollbackMode::Follower);
    let malformed = SourceError::BadBlock {
        place: sapwood_sources::error::Place::BuiltIn,
        hash: Some(trunk[3].hash),
        cause: Box::new(ConvertError::RepeatedTransactions { hash: trunk[3].hash }.into()),
    };
    source.fail_next(malformed.clone());
    let follower = node.follow_shared(source);
    follower.catch_up().await.unwrap();
    let rejected = follower.rejected();
    assert_eq!(rejected[0].cause, ChainError::Source(malformed));
    assert_eq!(rejected[0].hash, trunk[3].hash);
    assert!(rejected[0].cause.to_string().contains(&trunk[3].hash.to_string()), "{}", rejected[0].cause);
    node.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn asked_to_stop_it_stops_between_two_blocks_and_goes_on_later() {
    let node = Node::new(RollbackMode::Follower);
    let source = Scripted::new(true);
    let trunk = longer(&[], "trunk", 200);
    source.prefer(&trunk);
    let stop = Stop::default();
    let follower = Follower::new(node.chain.clone(), source.clone(), FollowOptions::default(), stop.clone());
    let mut progress = follower.progress();
    let running = tokio::spawn(async move { follower.catch_up().await });
    progress.wait_for(|progress| progress.height >= Some(Height(20))).await.unwrap();
    stop.ask();
    running.await.unwrap().unwrap();
    let stopped_at = node.store.last_applied().await.unwrap().unwrap().height;
    assert!(stopped_at >= Height(19), "{stopped_at}");
    node.follow_shared(source).catch_up().await.unwrap();
    assert_eq!(node.store.last_applied().await.unwrap().unwrap().height, Height(199));
    node.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_goes_no_further_than_it_is_told() {
    let node = Node::new(RollbackMode::Follower);
    let source = Scripted::new(true);
    source.prefer(&longer(&[], "trunk", 20));
    for stop_at in [5, 5, 12] {
        let options = FollowOptions { stop_at: Some(Height(stop_at)), ..FollowOptions::default() };
        let follower = Follower::new(node.chain.clone(), source.clone(), options, Stop::default());
        follower.catch_up().await.unwrap();
        assert_eq!(node.store.last_applied().await.unwrap().unwrap().height, Height(stop_at));
    }
    node.sound().await;
}
