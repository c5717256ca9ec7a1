//! A reorganisation in the middle of a job.

use std::sync::Arc;

use sapwood_chain::ChainState;
use sapwood_conformance::fixtures::{child, coin, small};
use sapwood_pruner::{JobState, PrunerOptions, StopReason, Trigger};
use sapwood_types::Height;

use crate::harness::{World, pruner_options};

/// The chain begins to exchange a branch while a chunk is being deleted: that chunk is done as a whole, no other one is begun, and the job
/// is made up for when the chain runs again.
#[tokio::test]
async fn a_reorganisation_stops_the_job_at_the_next_chunk() {
    let options = PrunerOptions { chunk_records: 10, parallel_chunks: 1, ..pruner_options(small()) };
    let world = World::with(options, None).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    world.burns("due", 50).await;
    world.extend_to(10).await;
    let events = world.events.clone();
    world.hook.once("prune-judged", 3, move || {
        events.enter(ChainState::Reorganising);
        Ok(())
    });
    let job = world.prune().await;
    let stopped = StopReason::ChainNotRunning { state: ChainState::Reorganising };
    assert_eq!((job.state, job.stopped_early), (JobState::Cancelled, Some(stopped)));
    assert_eq!((job.counts.deleted, world.records().await), (20, 30));
    assert!(world.pruner.status().await.unwrap().state.contains("reorganising"));
    let mut changes = world.pruner.watch_jobs();
    world.roll_back_to(7).await;
    world.extend_to(9).await;
    world.events.enter(ChainState::Running);
    let resumed = loop {
        let job = changes.recv().await.unwrap();
        if job.state.is_over() {
            break job;
        }
    };
    assert_eq!(
        (resumed.trigger, resumed.state, resumed.counts.deleted),
        (Trigger::Resumed, JobState::Completed, 30)
    );
    world.sound().await;
}

/// The child of a record that is being judged is taken back before the record is deleted: it must stay, and the child be mined again.
#[tokio::test]
async fn a_rollback_under_a_chunk_keeps_what_it_needs() {
    let world = World::new(small()).await;
    let parent = coin("parent", 1);
    world.block_at(1, &[&parent]).await;
    world.settle().await;
    world.extend_to(10).await;
    let tx = child("child", &[(&parent, 0)], 1);
    // Mined outside of any block, deep enough: nothing keeps the parent but that.
    world.unmined(&tx, 2).await;
    world.set_mined(&tx, 3, false).await;
    let held = world.hook.hold_chunk(1);
    let job = world.pruner.prune_now(None).unwrap();
    let held = held.arrived().await;
    world.set_mined(&tx, 3, true).await;
    drop(held);
    let job = world.pruner.wait(job).await.unwrap();
    assert_eq!((job.counts.deleted, job.counts.retained.get("child_unmined")), (0, Some(&1)), "{job}");
    assert!(world.has(&parent).await);
    world.extend(&[&tx]).await;
    world.sound().await;
}

/// A branch as deep as the window can be exchanged right after pruning.
#[tokio::test]
async fn the_whole_window_can_be_taken_back_after_pruning() {
    let world = World::new(small()).await;
    let mut coins = vec![coin("coin 0", 1)];
    world.block_at(1, &[&coins[0]]).await;
    for number in 1..30u32 {
        let next = child(&format!("coin {number}"), &[(coins.last().unwrap(), 0)], 1);
        world.extend(&[&next]).await;
        coins.push(next);
        world.prune_ok().await;
    }
    let floor = world.store.rollback_floor().await.unwrap().unwrap();
    assert_eq!(floor, Height(25));
    world.roll_back_to(floor.0).await;
    let waiting: Vec<_> = coins[25..].iter().collect();
    world.extend(&waiting).await;
    let slots = Arc::new(world.record(&coins[28]).await.unwrap().slots);
    assert_eq!(slots[0].child_mined_at(), Some(Height(26)));
    world.extend_to(31).await;
    world.prune_ok().await;
    assert_eq!(world.records().await, 1, "all but the last, which is unspent");
    world.sound().await;
}

/// Records are locked and preserved after they were judged and before they are deleted: those stay, and the others go.
#[tokio::test]
async fn what_is_locked_or_preserved_under_a_chunk_stays() {
    for parallel_chunks in [1, 4] {
        let options = PrunerOptions { parallel_chunks, ..pruner_options(small()) };
        let world = World::with(options, None).await;
        world.block_at(1, &[]).await;
        world.settle().await;
        let txs = world.burns("due", 4).await;
        world.extend_to(10).await;
        let held = world.hook.hold_chunk(1);
        let job = world.pruner.prune_now(None).unwrap();
        let held = held.arrived().await;
        world.store.set_locked(vec![txs[0].txid], true).await.unwrap();
        world.store.preserve(vec![txs[1].txid], Height(50)).await.unwrap();
        drop(held);
        let job = world.pruner.wait(job).await.unwrap();
        assert_eq!(
            (job.state, job.counts.deleted, job.counts.kept_in_all()),
            (JobState::Completed, 2, 2),
            "{job}"
        );
        for (number, tx) in txs.iter().enumerate() {
            assert_eq!(world.has(tx).await, number < 2, "record {number}");
        }
        world.sound().await;
    }
}
