//! Branches that turn out bad, and branches that are too far away.

use sapwood_chain::{ChainError, ChainState, Event, Told};
use sapwood_ledger::{ApplyError, RollbackMode};
use sapwood_rules::Policy;
use sapwood_types::Height;

use crate::follow::{
    data::Node,
    scripted::{Scripted, bad, longer},
};

/// Everything that was told, without the blocks.
async fn told(node: &Node, subscriber: &mut sapwood_chain::Subscription) -> Vec<Event> {
    node.events.enter(ChainState::Stopped);
    let mut events = Vec::new();
    while let Some(Told::Event(event)) = subscriber.next().await {
        match event.as_ref() {
            Event::StateChanged(ChainState::Stopped) => return events,
            Event::BlockApplied(_) | Event::MinedSet(_) => {}
            event => events.push(event.clone()),
        }
    }
    panic!("something was missed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_branch_is_left_and_the_old_one_is_back_as_it_was() {
    for mode in [RollbackMode::Node, RollbackMode::Follower] {
        let node = Node::new(mode);
        let source = Scripted::new(true);
        let trunk = longer(&[], "trunk", 5);
        let old = longer(&trunk, "old", 3);
        source.prefer(&old);
        let follower = node.follow_shared(source.clone());
        follower.catch_up().await.unwrap();
        let before = node.counted().await;

        let mut new = longer(&trunk, "new", 3);
        new.push(bad(&new, "bad"));
        source.prefer(&new);
        let mut subscriber = node.events.subscribe();
        follower.catch_up().await.unwrap();

        assert_eq!(node.store.last_applied().await.unwrap().unwrap().hash, old.last().unwrap().hash);
        let after = node.counted().await;
        assert_eq!((after.coins, after.digest()), (before.coins, before.digest()));
        let rejected = follower.rejected();
        assert_eq!(rejected.len(), 1);
        assert_eq!(rejected[0].hash, new.last().unwrap().hash, "the bad block, not its branch");
        let events = told(&node, &mut subscriber).await;
        let started = events.iter().any(|event| {
            matches!(event, Event::ReorgStarted(start) if start.fork == Some(Height(4)) && start.depth == 3)
        });
        let given_up = events.iter().any(
            |event| matches!(event, Event::ReorgFinished(end) if !end.adopted && end.to.unwrap().height == Height(7)),
        );
        assert!(started && given_up, "{events:?}");
        node.sound().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_branch_is_adopted_and_told() {
    let node = Node::new(RollbackMode::Node);
    let source = Scripted::new(true);
    let trunk = longer(&[], "trunk", 5);
    source.prefer(&longer(&trunk, "old", 3));
    let follower = node.follow_shared(source.clone());
    follower.catch_up().await.unwrap();
    let new = longer(&trunk, "new", 40);
    source.prefer(&new);
    let mut subscriber = node.events.subscribe();
    follower.catch_up().await.unwrap();
    let last = node.store.last_applied().await.unwrap().unwrap();
    assert_eq!(last.hash, new.last().unwrap().hash);
    let events = told(&node, &mut subscriber).await;
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| match event {
            Event::ReorgStarted(_) => "started",
            Event::RolledBack(back) if back.blocks == 3 => "rolled back",
            Event::ReorgFinished(end) if end.adopted => "adopted",
            Event::StateChanged(state) => state.name(),
            _ => "something else",
        })
        .collect();
    assert_eq!(
        kinds,
        ["reorganising", "started", "rolled back", "adopted", "running", "catching_up", "running"]
    );
    node.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_stands_by_a_bad_block_is_an_error_that_names_it_and_nothing_is_lost() {
    let node = Node::new(RollbackMode::Node);
    let source = Scripted::new(false);
    let trunk = longer(&[], "trunk", 3);
    source.prefer(&trunk);
    let follower = node.follow_shared(source.clone());
    follower.catch_up().await.unwrap();
    let digest = node.store.state_digest().await.unwrap();
    let mut new = trunk.clone();
    new.push(bad(&trunk, "bad"));
    source.prefer(&new);
    let error = follower.catch_up().await.unwrap_err();
    let ChainError::BadBlock { height: Height(3), hash, cause, .. } = &error else { panic!("{error}") };
    assert_eq!(*hash, new[3].hash);
    assert!(matches!(cause.as_ref(), ChainError::Apply(ApplyError::Tx { .. })));
    assert!(error.to_string().contains("nowhere") || error.to_string().contains("input 0"), "{error}");
    assert_eq!(node.store.state_digest().await.unwrap(), digest);
    node.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_below_the_floor_is_refused_and_changes_nothing() {
    let node = Node::with(Default::default(), Policy::with_retention(4));
    let source = Scripted::new(true);
    let trunk = longer(&[], "trunk", 5);
    source.prefer(&longer(&trunk, "old", 10));
    let follower = node.follow_shared(source.clone());
    follower.catch_up().await.unwrap();
    let digest = node.store.state_digest().await.unwrap();
    source.prefer(&longer(&trunk, "new", 20));
    for result in [follower.catch_up().await, follower.reconcile().await] {
        let error = result.unwrap_err();
        assert!(matches!(error, ChainError::ForkBelowFloor { floor: Height(10), .. }), "{error}");
        assert!(error.to_string().contains("new data directory"), "it tells what to do");
    }
    assert_eq!(node.store.state_digest().await.unwrap(), digest);
    node.sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_block_in_common_goes_back_to_the_very_first_one_if_that_can_be() {
    let node = Node::new(RollbackMode::Follower);
    let source = Scripted::new(true);
    source.prefer(&longer(&[], "old", 4));
    node.follow_shared(source.clone()).catch_up().await.unwrap();
    let new = longer(&[], "new", 3);
    source.prefer(&new);
    node.follow_shared(source.clone()).catch_up().await.unwrap();
    assert_eq!(node.store.last_applied().await.unwrap().unwrap().hash, new[2].hash);
    node.sound().await;
}

/// The source forgot the old branch: there is nothing to go back to, and it goes on from the fork with what there is.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_branch_of_a_source_that_forgot_the_old_one_ends_at_the_fork() {
    let node = Node::new(RollbackMode::Follower);
    let source = Scripted::new(true);
    let trunk = longer(&[], "trunk", 5);
    source.prefer(&trunk);
    let old = longer(&trunk, "old", 2);
    source.prefer(&old);
    let follower = node.follow_shared(source.clone());
    follower.catch_up().await.unwrap();
    let mut new = longer(&trunk, "new", 1);
    new.push(bad(&new, "bad"));
    new = longer(&new, "new", 2);
    source.prefer(&new);
    for block in &old[5..] {
        source.forget(&block.hash);
        sapwood_sources::BlockSource::reject(source.as_ref(), &block.hash).await.unwrap();
    }
    follower.catch_up().await.unwrap();
    assert_eq!(node.store.last_applied().await.unwrap().unwrap().hash, trunk[4].hash);
    node.sound().await;
}
