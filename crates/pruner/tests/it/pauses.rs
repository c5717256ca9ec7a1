//! Making way for blocks.

use std::time::Duration;

use sapwood_conformance::fixtures::small;
use sapwood_pruner::{JobState, Pacing, PrunerOptions};

use crate::harness::{World, pruner_options};

/// A pruner that would rest for an hour is woken by whatever it has to look at.
#[tokio::test]
async fn a_rest_ends_when_something_happens() {
    let pacing =
        Pacing { busy_share: 1e-9, quiet_after: Duration::from_secs(3600), full_speed_above: u64::MAX };
    let options = PrunerOptions { chunk_records: 10, pacing, ..pruner_options(small()) };
    let world = World::with(options, None).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    world.burns("due", 30).await;
    world.extend_to(10).await;
    let job = world.pruner.prune_now(None).unwrap();
    while world.pruner.job(job).unwrap().counts.deleted == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let pruner = world.pruner.clone();
    pruner.stop().await;
    let job = world.pruner.job(job).unwrap();
    assert_eq!((job.state, job.counts.deleted), (JobState::Cancelled, 10));
    world.sound().await;
}

/// With more due records than the limit it does not rest at all.
#[tokio::test]
async fn a_great_backlog_is_worked_off_without_rest() {
    let pacing = Pacing { busy_share: 1e-9, quiet_after: Duration::from_secs(3600), full_speed_above: 29 };
    let options = PrunerOptions { chunk_records: 10, pacing, ..pruner_options(small()) };
    let world = World::with(options, None).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    world.burns("due", 30).await;
    world.extend_to(10).await;
    assert_eq!(world.prune_ok().await, 30);
    world.sound().await;
}
