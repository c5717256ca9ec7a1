//! Commits that fail, and their numbers.

use std::{sync::Arc, time::Duration};

use sapwood_conformance::fixtures::{child, coin, small};
use sapwood_engine_memory::FailPoint;
use sapwood_ledger::{
    ApplyError, ApplyOptions, EngineError, Ledger, LedgerOptions, StoreError,
    engine::{Engine, WriteSet},
};
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

fn unavailable() -> EngineError {
    let (place, cause) = ("memory".into(), "no route to host".into());
    EngineError::Unavailable { place, cause, retry_after: Duration::ZERO }
}

fn unknown(number: u64) -> EngineError {
    EngineError::OutcomeUnknown { number, cause: "connection reset".into() }
}

/// Applies block 2 while its commit fails. Returns the world and what came of it.
async fn apply_while(
    point: FailPoint,
    error: EngineError,
    times: u32,
    options: LedgerOptions,
) -> (World, Result<(), StoreError>) {
    let mut world = World::new();
    world.apply(1, vec![coin("one", 1)]).await;
    world.ledger = Ledger::open(Arc::clone(&world.engine) as _, small(), options).unwrap();
    world.engine.fail_with(world.engine.position().unwrap() + 1, point, error, times);
    let next = block(2, vec![coin("two", 1)]);
    let applied = match world.ledger.apply_block(next, ApplyOptions::default()).await {
        Ok(_) => Ok(()),
        Err(ApplyError::Store(error)) => Err(error),
        Err(error) => unreachable!("{error:?}"),
    };
    (world, applied)
}

#[tokio::test]
async fn commit_is_done_once_whenever_the_connection_is_lost() {
    for (point, error) in [
        (FailPoint::BeforeCommit, unavailable()),
        (FailPoint::BeforeCommit, unknown(3)),
        (FailPoint::AfterCommit, unknown(3)),
    ] {
        let (world, applied) = apply_while(point, error.clone(), 3, LedgerOptions::default()).await;
        assert_eq!(applied, Ok(()), "{point:?}, {error}");
        assert_eq!(world.engine.position().unwrap(), 3, "{point:?}, {error}");
        // It goes on, and what is there is what was acknowledged.
        world.apply(3, vec![child("child", &[(&coin("two", 1), 0)], 1)]).await;
        assert!(world.verify().await.is_clean());
        let digest = world.ledger.state_digest().await;
        let again = World::on(Arc::new(world.engine.reopen()));
        assert_eq!(again.ledger.state_digest().await, digest);
    }
}

#[tokio::test]
async fn commit_on_an_engine_that_stays_away_fails_and_refuses_further_writes() {
    let options = || LedgerOptions { retry_commits_for: Duration::ZERO, ..LedgerOptions::default() };
    for (error, point, applied) in [
        (unavailable(), FailPoint::BeforeCommit, 1),
        (unknown(3), FailPoint::BeforeCommit, 1),
        (unknown(3), FailPoint::AfterCommit, 2),
    ] {
        let (world, refused) = apply_while(point, error.clone(), u32::MAX, options()).await;
        assert_eq!(refused, Err(StoreError::Engine(error)));
        let refused = world.ledger.put_notes(vec![("note".into(), None)]).await;
        assert!(matches!(refused, Err(StoreError::Poisoned { .. })), "{refused:?}");
        let again = World::on(Arc::new(world.engine.reopen()));
        assert_eq!(again.ledger.last_applied().await.unwrap().unwrap().height, Height(applied));
        again.apply(applied + 1, vec![coin("three", 1)]).await;
        assert!(again.verify().await.is_clean());
    }
}

/// What another attempt cannot change is reported at once: the commit was attempted once.
#[tokio::test]
async fn commit_that_the_server_refuses_is_not_attempted_again() {
    let place = || "memory".to_owned();
    for error in [
        EngineError::NotLeader { holder: Some("another".into()) },
        EngineError::Fenced { epoch: 1, current: 2 },
        EngineError::Full { place: place(), cause: "no space left".into() },
        EngineError::ReadOnly { place: place() },
    ] {
        let (world, refused) =
            apply_while(FailPoint::BeforeCommit, error.clone(), 1, LedgerOptions::default()).await;
        assert_eq!(refused, Err(StoreError::Engine(error)));
        assert_eq!(world.engine.position().unwrap(), 2);
    }
}

/// While the engine could not be reached, another process wrote. Its commit is not taken for the lost one, nor written over.
#[tokio::test]
async fn commit_after_another_process_wrote_is_refused() {
    let world = World::new();
    world.apply(1, vec![coin("one", 1)]).await;
    let number = world.engine.position().unwrap() + 1;
    world.engine.fail_with(number, FailPoint::BeforeCommit, unavailable(), 1);
    world.engine.reopen().commit(&WriteSet::new(number)).unwrap();
    let late = block(2, vec![coin("two", 1)]);
    let error = world.ledger.apply_block(late, ApplyOptions::default()).await.unwrap_err();
    let expected = EngineError::WrongNumber { number, position: number };
    assert_eq!(error, ApplyError::Store(StoreError::Engine(expected)));
    assert!(world.ledger.writable().await.is_err());
}
