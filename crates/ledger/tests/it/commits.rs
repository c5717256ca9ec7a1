//! Commits that fail, and their numbers.

use std::sync::Arc;

use sapwood_conformance::fixtures::{child, coin};
use sapwood_engine_memory::FailPoint;
use sapwood_ledger::{ApplyError, ApplyOptions, EngineError, StoreError, engine::Engine};
use sapwood_types::Height;

use crate::{World, block};

#[tokio::test]
async fn every_write_is_one_commit_with_the_next_number() {
    let world = World::new();
    let position = || world.engine.position().unwrap();
    assert_eq!(position(), 1, "a new ledger notes what it was made with");
    let parent = coin("parent", 2);
    world.apply(1, vec![parent.clone()]).await;
    assert_eq!(position(), 2);
    world.apply(2, vec![child("child", &[(&parent, 0)], 1)]).await;
    world.ledger.put_notes(vec![("note".into(), Some("text".into()))]).await.unwrap();
    world.ledger.preserve(vec![parent.txid], Height(9)).await.unwrap();
    assert_eq!(position(), 5);
    // A call that changes nothing commits nothing.
    world.ledger.set_locked(vec![parent.txid], false).await.unwrap();
    assert_eq!(position(), 5);
}

/// A failed commit poisons the ledger; opened again it is as the engine has it, and goes on.
#[tokio::test]
async fn failed_commit_refuses_further_writes_until_reopened() {
    for (point, applied) in [(FailPoint::BeforeCommit, 1), (FailPoint::AfterCommit, 2)] {
        let world = World::new();
        world.apply(1, vec![coin("one", 1)]).await;
        let number = world.engine.position().unwrap() + 1;
        world.engine.fail_at(number, point);
        let next = block(2, vec![coin("two", 1)]);
        let error = world.ledger.apply_block(next, ApplyOptions::default()).await.unwrap_err();
        assert!(
            matches!(error, ApplyError::Store(StoreError::Engine(EngineError::Failed { .. }))),
            "{error:?}"
        );
        let refused = world.ledger.put_notes(vec![("note".into(), None)]).await;
        assert!(matches!(refused, Err(StoreError::Poisoned { .. })), "{refused:?}");
        assert!(world.ledger.writable().await.is_err());

        let again = World::on(Arc::new(world.engine.reopen()));
        let last = again.ledger.last_applied().await.unwrap().map(|block| block.height);
        assert_eq!(last, Some(Height(applied)), "{point:?}");
        assert!(again.verify().await.is_clean());
        again.apply(applied + 1, vec![coin("three", 1)]).await;
    }
}

/// Two ledgers on one engine: the second to write is refused, instead of overwriting what the first wrote.
#[tokio::test]
async fn write_prepared_against_an_older_state_is_refused() {
    let world = World::new();
    let other = World::on(Arc::new(world.engine.reopen()));
    world.apply(1, vec![coin("one", 1)]).await;
    let late = block(1, vec![coin("other", 1)]);
    let error = other.ledger.apply_block(late, ApplyOptions::default()).await.unwrap_err();
    let expected = EngineError::WrongNumber { number: 2, position: 2 };
    assert_eq!(error, ApplyError::Store(StoreError::Engine(expected)));
    assert!(world.ledger.get(coin("other", 1).txid).await.unwrap().is_none());
    assert!(world.verify().await.is_clean());
}
