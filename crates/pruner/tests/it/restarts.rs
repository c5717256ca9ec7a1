//! A pruner that starts again goes on where it was, and looks again at what lies behind.

use sapwood_conformance::fixtures::{burn, small};
use sapwood_pruner::{JobState, PrunerOptions, Trigger};
use sapwood_types::Height;

use crate::harness::{World, pruner_options};

#[tokio::test]
async fn the_next_process_goes_on_at_the_cursor_and_then_looks_back() {
    let options = PrunerOptions { chunk_records: 10, parallel_chunks: 1, ..pruner_options(small()) };
    let world = World::with(options, None).await;
    let locked = burn("locked", &[]);
    world.block_at(1, &[&locked]).await;
    world.settle().await;
    world.store.set_locked(vec![locked.txid], true).await.unwrap();
    world.burns("due", 50).await;
    world.extend_to(10).await;
    let held = world.hook.hold_chunk(3);
    let job = world.pruner.prune_now(None).unwrap();
    let held = held.arrived().await;
    world.pruner.cancel(job).unwrap();
    drop(held);
    assert_eq!(world.pruner.wait(job).await.unwrap().counts.deleted, 20);
    let cursor = world.store.prune_cursor().await.unwrap();
    assert!(cursor.is_some());
    // Becomes due behind the cursor.
    world.store.set_locked(vec![locked.txid], false).await.unwrap();
    let world = world.restart().await;
    let jobs = loop {
        let jobs = world.pruner.jobs(100);
        if jobs.len() == 2 && jobs.iter().all(|job| job.state.is_over()) {
            break jobs;
        }
        world.pruner.wait(jobs[0].id).await;
        tokio::task::yield_now().await;
    };
    let told: Vec<_> =
        jobs.iter().map(|job| (job.trigger, job.whole, job.counts.deleted, job.state)).collect();
    let expected = [
        (Trigger::Continued, true, 1, JobState::Completed),
        (Trigger::StartUp, false, 30, JobState::Completed),
    ];
    assert_eq!(told, expected);
    assert_eq!(world.records().await, 0);
    world.sound().await;
}

/// What is kept behind the cursor, or comes to lie there, is found by the next job that looks through everything.
#[tokio::test]
async fn after_a_quiet_period_everything_that_may_go_is_gone() {
    let options = PrunerOptions { chunk_records: 3, ..pruner_options(small()) };
    let world = World::with(options, None).await;
    world.block_at(1, &[]).await;
    let early = world.burns("early", 20).await;
    world.store.preserve(early[..5].iter().map(|tx| tx.txid).collect(), Height(15)).await.unwrap();
    world.store.set_locked(early[5..10].iter().map(|tx| tx.txid).collect(), true).await.unwrap();
    for number in 0..10 {
        world.burns(&format!("later {number}"), 5).await;
    }
    world.extend_to(14).await;
    world.prune_ok().await;
    world.store.set_locked(early[5..10].iter().map(|tx| tx.txid).collect(), false).await.unwrap();
    world.extend_to(20).await;
    // By an event, which goes on at the cursor: the end of preservations makes it look back.
    let job = world.pruner.report_persisted(Height(20)).await.unwrap();
    let job = world.pruner.wait(job).await.unwrap();
    assert_eq!((job.whole, job.counts.preservations_expired), (true, 5));
    assert_eq!(world.records().await, 0);
    world.sound().await;
}

/// What was deleted and freed since the store was made, over restarts.
#[tokio::test]
async fn the_totals_survive_a_restart_and_go_on() {
    let world = World::new(small()).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    world.burns("first", 30).await;
    world.extend_to(10).await;
    assert_eq!(world.prune_ok().await, 30);
    let first = world.pruner.status().await.unwrap().totals;
    assert!(first.deleted == 30 && first.bytes_freed > 0);
    let world = world.restart().await;
    world.quiet().await;
    let after = world.pruner.status().await.unwrap().totals;
    assert_eq!((after.deleted, after.bytes_freed), (30, first.bytes_freed));
    world.burns("second", 12).await;
    world.extend_to(20).await;
    let job = world.prune().await;
    let world = world.restart().await;
    world.quiet().await;
    let second = world.pruner.status().await.unwrap().totals;
    assert_eq!((second.deleted, second.bytes_freed), (42, first.bytes_freed + job.counts.bytes_freed));
    world.sound().await;
}

/// What was retained and how many jobs there were counts too, also if none of them deleted anything.
#[tokio::test]
async fn totals_of_jobs_that_deleted_nothing_survive_a_clean_stop() {
    let world = World::new(small()).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    world.extend_to(10).await;
    for _ in 0..3 {
        assert_eq!(world.prune_ok().await, 0);
    }
    let before = world.pruner.status().await.unwrap().totals.jobs;
    assert!(before >= 3);
    let world = world.restart().await;
    let jobs = world.pruner.jobs(usize::MAX).len() as u64;
    assert!(world.pruner.status().await.unwrap().totals.jobs + jobs > before, "{before} jobs before");
    assert!(world.pruner.status().await.unwrap().totals.jobs >= before);
    world.sound().await;
}
