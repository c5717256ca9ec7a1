//! Holds: the lowest decides, they survive a restart, and none goes in silence.

use sapwood_conformance::fixtures::{burn, small};
use sapwood_pruner::{Consumer, HoldError, HoldKind, JobId, JobState, PrunerOptions, holds};
use sapwood_rules::Hold;
use sapwood_types::{Height, Tx};
use tokio::task::JoinHandle;

use crate::harness::{NOW, World, pruner_options};

fn hold(name: &str, keep_from: Option<u32>, expires: Option<u64>) -> Hold {
    Hold {
        name: name.into(),
        owner: "tests".into(),
        keep_from: keep_from.map(Height),
        expires,
        reason: "we look".into(),
    }
}

/// One transaction due at each height from 6 to 10, at height 10.
async fn five_due() -> (World, Vec<Tx>) {
    five_due_with(pruner_options(small())).await
}

async fn five_due_with(options: PrunerOptions) -> (World, Vec<Tx>) {
    let world = World::with(options, None).await;
    let mut txs = Vec::new();
    for height in 1..=5 {
        let tx = burn(&format!("due at {}", height + 5), &[]);
        world.block_at(height, &[&tx]).await;
        txs.push(tx);
    }
    world.settle().await;
    world.extend_to(10).await;
    (world, txs)
}

async fn left(world: &World, txs: &[Tx]) -> usize {
    let mut left = 0;
    for tx in txs {
        left += usize::from(world.has(tx).await);
    }
    left
}

#[tokio::test]
async fn the_lowest_hold_decides_and_is_named() {
    let (world, txs) = five_due().await;
    let holds = world.pruner.holds();
    holds.set(hold("export", Some(9), None)).await.unwrap();
    holds.set(hold("snapshot/nightly", Some(8), None)).await.unwrap();
    let job = world.prune().await;
    assert_eq!((job.safe_height, job.decided_by.as_deref()), (Some(Height(7)), Some("snapshot/nightly")));
    assert_eq!((job.counts.deleted, left(&world, &txs).await), (2, 3));
    let status = world.pruner.status().await.unwrap();
    assert_eq!(status.state, "waiting for snapshot/nightly at 7");
    assert_eq!((status.lag_blocks, status.backlog_records), (3, 0));
    holds.release("snapshot/nightly").await.unwrap();
    assert_eq!(world.prune().await.decided_by.as_deref(), Some("export"));
    holds.release("export").await.unwrap();
    let job = world.prune().await;
    assert_eq!((job.safe_height, job.decided_by, left(&world, &txs).await), (Some(Height(10)), None, 0));
    world.sound().await;
}

#[tokio::test]
async fn a_registered_consumer_that_has_not_reported_blocks_everything() {
    let (world, txs) = five_due().await;
    world.pruner.register(Consumer::Persister).await.unwrap();
    let job = world.prune().await;
    assert_eq!((job.state, job.safe_height, job.counts.deleted), (JobState::Completed, None, 0));
    assert_eq!(job.decided_by.as_deref(), Some("persister"));
    assert_eq!(world.pruner.status().await.unwrap().state, "waiting for persister, which has not reported");
    // Zero is a report, and not the absence of a persister.
    world.pruner.report_persisted(Height(0)).await.unwrap();
    let job = world.prune().await;
    assert_eq!((job.safe_height, left(&world, &txs).await), (Some(Height(0)), 5));
    world.pruner.report_persisted(Height(8)).await.unwrap();
    assert_eq!(world.prune().await.safe_height, Some(Height(8)));
    assert_eq!(left(&world, &txs).await, 2);
    world.pruner.holds().release(holds::PERSISTER).await.unwrap();
    world.prune_ok().await;
    assert_eq!(left(&world, &txs).await, 0, "no persister holds nothing");
    world.sound().await;
}

#[tokio::test]
async fn holds_and_the_persisters_height_survive_a_restart() {
    let (world, txs) = five_due().await;
    world.pruner.report_persisted(Height(6)).await.unwrap();
    world.pruner.holds().set(hold("operator", Some(4), Some(NOW + 60))).await.unwrap();
    let before = world.pruner.list_holds().await.unwrap();
    let world = world.restart().await;
    assert_eq!(world.pruner.list_holds().await.unwrap(), before);
    let names: Vec<_> =
        before.iter().map(|status| (status.hold.name.as_str(), status.kind, status.decides)).collect();
    let expected = [
        ("reorg-window", HoldKind::ReorgWindow, false),
        ("persister", HoldKind::Persister, false),
        ("operator", HoldKind::Operator, true),
    ];
    assert_eq!(names, expected);
    world.pruner.holds().release("operator").await.unwrap();
    let job = world.prune().await;
    assert_eq!((job.safe_height, left(&world, &txs).await), (Some(Height(6)), 4));
    world.sound().await;
}

#[tokio::test]
async fn an_expired_hold_lets_go_and_stays_in_the_list() {
    let (world, txs) = five_due().await;
    world.pruner.holds().set(hold("operator", Some(7), Some(NOW + 60))).await.unwrap();
    assert_eq!(world.prune().await.counts.deleted, 1);
    world.clock.set(NOW + 60);
    let listed = world.pruner.list_holds().await.unwrap().pop().unwrap();
    assert!(listed.expired && !listed.decides, "{listed}");
    assert_eq!(world.prune().await.counts.deleted, 4);
    assert_eq!(left(&world, &txs).await, 0);
    let world = world.restart().await;
    assert!(
        world.pruner.list_holds().await.unwrap().pop().unwrap().expired,
        "shown until somebody releases it"
    );
    let renewed = world.pruner.holds().renew("operator", Some(Height(20)), Some(NOW + 120)).await.unwrap();
    assert_eq!(renewed.keep_from, Some(Height(20)));
    assert!(!world.pruner.list_holds().await.unwrap().pop().unwrap().expired);
    world.pruner.holds().release("operator").await.unwrap();
    world.sound().await;
}

#[tokio::test]
async fn a_bad_hold_is_refused_by_field_and_changes_nothing() {
    let world = World::new(small()).await;
    let holds = world.pruner.holds();
    let bad = [
        (hold("", Some(1), None), "name"),
        (hold("Capital", Some(1), None), "name"),
        (hold(&"x".repeat(65), Some(1), None), "name"),
        (Hold { owner: String::new(), ..hold("a", None, None) }, "owner"),
        (Hold { reason: "x".repeat(513), ..hold("a", None, None) }, "reason"),
        (hold("a", Some(1), Some(NOW)), "expires"),
        // Milliseconds.
        (hold("a", Some(1), Some(1_794_975_948_000)), "expires"),
        (hold("a", Some(1), Some(u64::MAX)), "expires"),
    ];
    for (hold, expected) in bad {
        match holds.set(hold.clone()).await {
            Err(HoldError::Invalid { field, .. }) => assert_eq!(field, expected),
            other => panic!("{hold:?}: {other:?}"),
        }
    }
    for name in [holds::REORG_WINDOW, holds::PERSISTER, holds::BLOCK_ASSEMBLY] {
        let refused = holds.set(hold(name, Some(1), None)).await;
        assert!(matches!(refused, Err(HoldError::Reserved { .. })), "{name}: {refused:?}");
    }
    let missing = HoldError::NotFound { name: "nobody".into() };
    assert_eq!(holds.release("nobody").await, Err(missing.clone()));
    assert_eq!(holds.renew("nobody", None, None).await, Err(missing));
    assert!(matches!(holds.release(holds::REORG_WINDOW).await, Err(HoldError::Reserved { .. })));
    assert_eq!(world.pruner.list_holds().await.unwrap(), []);
    world.sound().await;
}

#[tokio::test]
async fn damaged_holds_keep_the_pruner_from_starting() {
    use std::sync::Arc;

    use sapwood_ledger::StoreError;
    use sapwood_pruner::{ManualClock, Pruner, PrunerError};
    let world = World::new(small()).await;
    for (name, note) in [(holds::NOTE, &b"\x09"[..]), (sapwood_pruner::ENABLED_NOTE, &b"\x01\x02"[..])] {
        world.store.put_notes(vec![(name.into(), Some(note.into()))]).await.unwrap();
        let clock = Arc::new(ManualClock::at(NOW));
        let refused =
            Pruner::start(world.store.clone(), world.events.clone(), None, world.options.clone(), clock)
                .await;
        let error = refused.err().unwrap();
        assert!(matches!(error, PrunerError::Store(StoreError::Corrupt { .. })), "{error}");
        world.store.put_notes(vec![(name.into(), None)]).await.unwrap();
    }
    world.sound().await;
}

fn keep_from(world: &World) -> Option<Height> {
    world.pruner.holds().get(holds::PERSISTER).unwrap().keep_from
}

/// Blocks that come in the place of persisted ones are not persisted.
#[tokio::test]
async fn a_rollback_lowers_the_persisted_height() {
    use sapwood_chain::{Event, events::BlocksRolledBack};
    use sapwood_types::{BlockHash, BlockMark};
    let (world, _) = five_due().await;
    world.pruner.report_persisted(Height(10)).await.unwrap();
    let mark = |height| BlockMark { id: height, height: Height(height), hash: BlockHash::default() };
    let event = BlocksRolledBack { from: mark(10), to: Some(mark(7)), blocks: 3 };
    world.events.tell(Event::RolledBack(event));
    world.until("the persister's hold goes back", || keep_from(&world) == Some(Height(8))).await;
    // A rollback to above what is persisted moves nothing. The event after it is heard after it.
    world.events.tell(Event::RolledBack(BlocksRolledBack { from: mark(12), to: Some(mark(9)), blocks: 3 }));
    world.events.tell(Event::RolledBack(BlocksRolledBack { from: mark(9), to: None, blocks: 10 }));
    let mut seen = Vec::new();
    world
        .until("the hold goes back to the first block", || {
            seen.push(keep_from(&world));
            seen.last() == Some(&Some(Height(0)))
        })
        .await;
    assert!(!seen.contains(&Some(Height(10))), "{seen:?}");
    world.sound().await;
}

/// A job whose first chunk waits, what lets it go on when dropped, and the setting of a hold that keeps everything. It is in force for
/// whatever begins now, but the chunk does not know of it.
async fn set_a_hold_during_the_first_chunk(
    world: &World,
) -> (JobId, impl Sized, JoinHandle<Result<(), HoldError>>) {
    let held = world.hook.hold_chunk(1);
    let job = world.pruner.prune_now(None).unwrap();
    let held = held.arrived().await;
    let pruner = world.pruner.clone();
    let setting =
        tokio::spawn(async move { pruner.holds().set(hold("operator", Some(1), None)).await.map(|_| ()) });
    while world.pruner.holds().get("operator").is_none() {
        tokio::task::yield_now().await;
    }
    (job, held, setting)
}

/// A hold that comes between two chunks of one job holds the second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_set_between_two_chunks_keeps_the_rest() {
    let options = PrunerOptions { chunk_records: 1, parallel_chunks: 1, ..pruner_options(small()) };
    let (world, txs) = five_due_with(options).await;
    let (job, held, setting) = set_a_hold_during_the_first_chunk(&world).await;
    drop(held);
    setting.await.unwrap().unwrap();
    let job = world.pruner.wait(job).await.unwrap();
    assert_eq!((job.counts.deleted, left(&world, &txs).await), (1, 4), "{job}");
    world.sound().await;
}

/// When a hold is set, nothing that it keeps goes any more, not even by a chunk that began before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn setting_a_hold_waits_for_the_chunk_under_way() {
    let (world, txs) = five_due().await;
    let (job, held, setting) = set_a_hold_during_the_first_chunk(&world).await;
    assert!(!setting.is_finished() && left(&world, &txs).await == 5);
    drop(held);
    setting.await.unwrap().unwrap();
    assert_eq!(left(&world, &txs).await, 0, "the chunk is over by the time the hold is set");
    assert!(world.pruner.wait(job).await.unwrap().state.is_over());
    world.sound().await;
}

/// Only an owner that is not heard of at all is one that may be gone.
#[tokio::test]
async fn m6_a_hold_that_is_set_again_as_it_was_is_not_stuck() {
    let world = World::new(small()).await;
    world.block_at(1, &[]).await;
    let holds = world.pruner.holds();
    let unchanged = async |name: &str| {
        let all = world.pruner.list_holds().await.unwrap();
        all.into_iter().find(|status| status.hold.name == name).unwrap().unchanged_seconds
    };
    let (hour, day) = (3600, 86_400);
    holds.set(hold("export", Some(9), Some(NOW + 2 * day))).await.unwrap();
    world.clock.set(NOW + day);
    assert_eq!(unchanged("export").await, Some(day));
    holds.renew("export", Some(Height(9)), Some(NOW + 3 * day)).await.unwrap();
    assert_eq!(unchanged("export").await, Some(0), "renewed at the same height");
    world.clock.set(NOW + day + hour);
    holds.set(hold("export", Some(9), Some(NOW + 3 * day))).await.unwrap();
    assert_eq!(unchanged("export").await, Some(0), "set as it was");
    world.pruner.report_persisted(Height(1)).await.unwrap();
    world.clock.set(NOW + day + 3 * hour);
    assert_eq!((unchanged("export").await, unchanged("persister").await), (Some(2 * hour), Some(2 * hour)));
    world.pruner.report_persisted(Height(1)).await.unwrap();
    assert_eq!(unchanged("persister").await, Some(0), "reported again");
    assert_eq!(unchanged(holds::REORG_WINDOW).await, None, "it follows from the chain");
    let refused = holds.renew("none", None, None).await.unwrap_err();
    assert!(matches!(refused, HoldError::NotFound { .. }));
}
