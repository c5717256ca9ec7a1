//! Starting beside a chain that is not followed yet, and opening where none is followed.

use std::sync::Arc;

use sapwood_chain::{ChainState, Event, Events, events::BlockPersisted};
use sapwood_conformance::fixtures::small;
use sapwood_pruner::{JobId, JobState, Pruner, PrunerHandle, PrunerOptions, SystemClock, Trigger};
use sapwood_types::Height;

use crate::harness::{World, pruner_options, skipped, start};

/// A world whose pruner has stopped, with so many records that may go.
async fn with_due(count: usize) -> World {
    let world = World::new(small()).await;
    world.block_at(1, &[]).await;
    world.burns("due", count).await;
    world.extend_to(10).await;
    world.pruner.stop().await;
    world
}

async fn offline(world: &World, options: PrunerOptions) -> PrunerHandle {
    let store = world.store.clone();
    Pruner::offline(store, None, options, Arc::new(SystemClock)).await.unwrap()
}

/// The first job of every start was "cancelled: the chain is resetting".
#[tokio::test]
async fn h7_no_job_before_the_chain_is_followed() {
    let world = with_due(3).await;
    let events = Events::default();
    assert_eq!(events.state(), ChainState::Resetting);
    let pruner = start(&world.store, &events, None, world.options.clone(), &world.clock).await;
    let mut changes = pruner.watch_jobs();
    // Whatever happens meanwhile makes no job that could only be cancelled.
    let last = world.store.last_applied().await.unwrap().unwrap();
    events.tell(Event::MinedSet(last));
    events.tell(Event::BlockPersisted(BlockPersisted { height: Height(10) }));
    // The start and both events have been decided about. The hold of the persister is there before that.
    world.until("three jobs are put off", || skipped(&pruner) == 3).await;
    assert!(pruner.holds().get("persister").is_some());
    assert_eq!(pruner.jobs(10), []);
    events.enter(ChainState::Running);
    let job = loop {
        let job = changes.recv().await.unwrap();
        if job.state.is_over() {
            break job;
        }
    };
    let told = (job.id, job.trigger, job.state, job.counts.deleted);
    assert_eq!(told, (JobId(1), Trigger::StartUp, JobState::Completed, 3), "{job}");
    pruner.stop().await;
}

#[tokio::test]
async fn h7_a_store_without_blocks_has_no_job_of_the_start() {
    let world = World::new(small()).await;
    assert_eq!(world.pruner.jobs(10), []);
    world.sound().await;
}

/// `prune plan` said "now it would delete nothing, because the chain is resetting", and `prune now` deleted 226 records.
#[tokio::test]
async fn h7_offline_the_plan_tells_what_pruning_does() {
    let world = with_due(30).await;
    let options = PrunerOptions { records_per_job: 10, chunk_records: 5, ..pruner_options(small()) };
    let pruner = offline(&world, options).await;
    let plan = pruner.plan(None, u64::MAX).await.unwrap();
    assert_eq!((plan.records, &plan.blocked), (30, &None), "{plan}");
    let job = pruner.prune_now(None).unwrap();
    let job = pruner.wait(job).await.unwrap();
    assert_eq!((job.state, job.counts.deleted), (JobState::Completed, plan.records));
    assert_eq!((job.stopped_early, job.counts.bytes_freed), (None, plan.bytes), "one job does all of it");
    assert_eq!(
        (pruner.jobs(10).len(), world.records().await),
        (1, 0),
        "and it is the job that is told about"
    );
    pruner.stop().await;
}

/// `prune status` on a data directory began a job.
#[tokio::test]
async fn h7_offline_looking_starts_no_job() {
    let world = with_due(3).await;
    let pruner = offline(&world, pruner_options(small())).await;
    let status = pruner.status().await.unwrap();
    assert_eq!((status.state.as_str(), status.backlog_records), ("idle", 3));
    assert_eq!(status.newest_jobs, []);
    pruner.plan(None, u64::MAX).await.unwrap();
    let record = world.store.due(Height::MAX, None, 1).await.unwrap().items[0].txid;
    let explanation = pruner.explain(record).await.unwrap();
    assert!(explanation.prunable && explanation.blocked.is_none(), "{explanation}");
    pruner.list_holds().await.unwrap();
    // What is asked of it afterwards is its first job.
    assert_eq!(pruner.jobs(10), []);
    assert_eq!(world.records().await, 3);
    assert_eq!(pruner.prune_now(None), Ok(JobId(1)));
    pruner.wait(JobId(1)).await.unwrap();
    pruner.stop().await;
}
