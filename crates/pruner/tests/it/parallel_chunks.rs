//! Several chunks in flight: however a job ends, what was not deleted is found again by going on at the cursor.
//!
//! A chunk is held after it was judged while the others go on. Which of them come to their end before the job is stopped depends on the
//! machine, so the tests go by what was deleted in fact.

use sapwood_conformance::fixtures::small;
use sapwood_pruner::{Job, JobState, PrunerError, PrunerOptions, StopReason, Trigger};
use sapwood_types::Height;

use crate::harness::{World, pruner_options};

const CHUNK: u64 = 10;
const CHUNKS_AT_A_TIME: usize = 4;
const DUE: u64 = 80;

async fn with_due() -> World {
    let options = PrunerOptions {
        chunk_records: CHUNK as usize,
        parallel_chunks: CHUNKS_AT_A_TIME,
        ..pruner_options(small())
    };
    let world = World::with(options, None).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    world.burns("due", DUE as usize).await;
    world.extend_to(10).await;
    world
}

/// Checks what a job did of which one chunk was held when it was stopped. Returns how many records it left.
async fn left_by(world: &World, job: &Job, reason: StopReason) -> u64 {
    assert_eq!((job.state, &job.stopped_early), (JobState::Cancelled, &Some(reason)), "{job}");
    let deleted = job.counts.deleted;
    assert!(deleted <= (CHUNKS_AT_A_TIME as u64 - 1) * CHUNK && deleted.is_multiple_of(CHUNK), "{job}");
    let left = world.records().await;
    assert_eq!(left, DUE - deleted, "the held chunk must not have deleted anything");
    left
}

#[tokio::test]
async fn a_cancelled_job_leaves_what_it_did_not_delete_to_the_next() {
    for held in 1..=CHUNKS_AT_A_TIME {
        let world = with_due().await;
        let held = world.hook.hold_chunk(held);
        let job = world.pruner.prune_now(None).unwrap();
        let held = held.arrived().await;
        world.pruner.cancel(job).unwrap();
        drop(held);
        let job = world.pruner.wait(job).await.unwrap();
        let left = left_by(&world, &job, StopReason::Cancelled).await;
        // Goes on where the other was, and does not look through everything.
        let next = world.pruner.report_persisted(Height(10)).await.unwrap();
        let next = world.pruner.wait(next).await.unwrap();
        assert_eq!((next.state, next.whole), (JobState::Completed, false), "{next}");
        assert_eq!((next.counts.deleted, world.records().await), (left, 0), "{next}");
        world.sound().await;
    }
}

#[tokio::test]
async fn a_process_that_stops_leaves_what_it_did_not_delete_to_the_next() {
    for held in 1..=CHUNKS_AT_A_TIME {
        let world = with_due().await;
        let held = world.hook.hold_chunk(held);
        let job = world.pruner.prune_now(None).unwrap();
        let held = held.arrived().await;
        let pruner = world.pruner.clone();
        let stopping = tokio::spawn(async move { pruner.stop().await });
        while world.pruner.prune_now(None) != Err(PrunerError::Stopped) {
            tokio::task::yield_now().await;
        }
        assert!(!stopping.is_finished(), "a chunk is in flight");
        drop(held);
        stopping.await.unwrap();
        let job = world.pruner.job(job).unwrap();
        let left = left_by(&world, &job, StopReason::Stopping).await;
        let world = world.restart().await;
        world.quiet().await;
        // The saved cursor alone leads there: only the job after this one looks through everything.
        let first = world.pruner.jobs(usize::MAX).pop().unwrap();
        assert_eq!(
            (first.trigger, first.whole, first.state),
            (Trigger::StartUp, false, JobState::Completed),
            "{first}"
        );
        assert_eq!((first.counts.deleted, world.records().await), (left, 0), "{first}");
        world.sound().await;
    }
}

#[tokio::test]
async fn a_job_that_is_disabled_between_chunks_is_made_up_for() {
    for held in 1..=CHUNKS_AT_A_TIME {
        let world = with_due().await;
        let held = world.hook.hold_chunk(held);
        let job = world.pruner.prune_now(None).unwrap();
        let held = held.arrived().await;
        world.pruner.disable().await.unwrap();
        drop(held);
        let job = world.pruner.wait(job).await.unwrap();
        let left = left_by(&world, &job, StopReason::Disabled).await;
        assert!(left > 0);
        world.pruner.enable().await.unwrap();
        world.quiet().await;
        assert_eq!(world.records().await, 0);
        world.sound().await;
    }
}
