//! What makes the pruner run.

use std::time::Duration;

use sapwood_chain::{
    Event, Events,
    events::{BlockPersisted, BlocksRolledBack},
};
use sapwood_conformance::fixtures::small;
use sapwood_pruner::{Consumer, Job, JobState, PrunerOptions, Trigger};
use sapwood_types::{BlockHash, BlockMark, Height};

use crate::harness::{World, pruner_options};

async fn with_due(options: PrunerOptions) -> World {
    due_with(options, Events::default()).await
}

async fn due_with(options: PrunerOptions, events: Events) -> World {
    let world = World::with_events(options, None, events).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    world.burns("due", 3).await;
    world.extend_to(10).await;
    world
}

/// The next job with this trigger that is over.
async fn over(world: &World, changes: &mut tokio::sync::broadcast::Receiver<Job>, trigger: Trigger) -> Job {
    loop {
        let job = changes.recv().await.unwrap();
        if job.trigger == trigger && job.state.is_over() {
            assert_eq!(world.pruner.job(job.id).as_ref(), Some(&job));
            return job;
        }
    }
}

#[tokio::test]
async fn a_persisted_block_prunes_up_to_its_height() {
    let world = with_due(pruner_options(small())).await;
    let mut changes = world.pruner.watch_jobs();
    world.events.tell(Event::BlockPersisted(BlockPersisted { height: Height(6) }));
    let job = over(&world, &mut changes, Trigger::BlockPersisted).await;
    assert_eq!((job.height, job.counts.deleted), (Some(Height(6)), 0), "they are due at 7");
    world.events.tell(Event::BlockPersisted(BlockPersisted { height: Height(7) }));
    let job = over(&world, &mut changes, Trigger::BlockPersisted).await;
    assert_eq!((job.height, job.safe_height, job.counts.deleted), (Some(Height(7)), Some(Height(7)), 3));
    world.sound().await;
}

#[tokio::test]
async fn a_block_prunes_only_while_no_persister_is_registered() {
    let world = with_due(pruner_options(small())).await;
    let mut changes = world.pruner.watch_jobs();
    let last = world.store.last_applied().await.unwrap().unwrap();
    world.pruner.register(Consumer::Persister).await.unwrap();
    world.events.tell(Event::MinedSet(last));
    // Events are heard in order: the job of the second one shows that the first made none.
    world.events.tell(Event::BlockPersisted(BlockPersisted { height: Height(3) }));
    over(&world, &mut changes, Trigger::BlockPersisted).await;
    assert!(world.pruner.jobs(100).iter().all(|job| job.trigger != Trigger::BlockMined));
    world.pruner.holds().release("persister").await.unwrap();
    world.events.tell(Event::MinedSet(last));
    let job = over(&world, &mut changes, Trigger::BlockMined).await;
    assert_eq!((job.height, job.counts.deleted), (Some(Height(10)), 3));
    world.sound().await;
}

#[tokio::test]
async fn an_applied_block_alone_is_no_trigger() {
    let world = with_due(pruner_options(small())).await;
    let mut changes = world.pruner.watch_jobs();
    let block = world.store.last_applied().await.unwrap().unwrap();
    let applied = sapwood_chain::events::BlockApplied { block, transactions: 0, conflicting: vec![] };
    world.events.tell(Event::BlockApplied(applied));
    world.events.tell(Event::MinedSet(block));
    over(&world, &mut changes, Trigger::BlockMined).await;
    let triggers: Vec<_> = world.pruner.jobs(100).iter().map(|job| job.trigger).collect();
    assert_eq!(triggers, [Trigger::BlockMined]);
    world.sound().await;
}

/// teranode 498: pruning was triggered by events alone, and the backlog stayed after a restart.
#[tokio::test]
async fn teranode_498_prunes_at_start_without_any_event() {
    let world = with_due(pruner_options(small())).await;
    assert_eq!(world.records().await, 3);
    let world = world.restart().await;
    world.settle().await;
    let first = world.pruner.jobs(100).pop().unwrap();
    assert_eq!(
        (first.trigger, first.state, first.counts.deleted),
        (Trigger::StartUp, JobState::Completed, 3)
    );
    world.sound().await;
}

#[tokio::test]
async fn the_timer_looks_through_everything() {
    let world =
        with_due(PrunerOptions { look_every: Some(Duration::from_millis(20)), ..pruner_options(small()) })
            .await;
    let mut changes = world.pruner.watch_jobs();
    let job = over(&world, &mut changes, Trigger::Timer).await;
    assert!(job.whole);
    while world.records().await > 0 {
        over(&world, &mut changes, Trigger::Timer).await;
    }
    world.sound().await;
}

/// Thousands of events at once: the sender never waits, and the newest height is done.
#[tokio::test]
async fn a_flood_of_events_ends_at_the_newest_height() {
    let world = with_due(pruner_options(small())).await;
    let mut changes = world.pruner.watch_jobs();
    for height in 1..=5000 {
        world.events.tell(Event::BlockPersisted(BlockPersisted { height: Height(height) }));
    }
    loop {
        match changes.recv().await {
            Ok(job) if job.asked == Some(Height(5000)) && job.state == JobState::Completed => break,
            Ok(_) | Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {}
            Err(closed) => panic!("{closed}"),
        }
    }
    assert_eq!(world.records().await, 0);
    assert!(world.pruner.jobs(usize::MAX).len() < 5000, "the ones in between were skipped");
    world.sound().await;
}

/// A bus that keeps two events: what was missed still makes a job and moves the hold.
#[tokio::test]
async fn missed_events_are_made_up_for() {
    let world = due_with(pruner_options(small()), Events::new(2)).await;
    world.pruner.register(Consumer::Persister).await.unwrap();
    let mark = |height| BlockMark { id: height, height: Height(height), hash: BlockHash::default() };
    // None of it is heard before the last is told: the task that hears runs on this thread.
    world.events.tell(Event::BlockPersisted(BlockPersisted { height: Height(10) }));
    let rolled_back = BlocksRolledBack { from: mark(10), to: Some(mark(8)), blocks: 2 };
    world.events.tell(Event::RolledBack(rolled_back));
    for _ in 0..50 {
        world.events.tell(Event::MinedSet(mark(10)));
    }
    let keep_from = || world.pruner.holds().get("persister").unwrap().keep_from;
    world.until("the hold is that of the rollback", || keep_from() == Some(Height(9))).await;
    let by_event = || world.pruner.jobs(100).into_iter().find(|job| job.trigger == Trigger::BlockPersisted);
    world.until("a job comes", || by_event().is_some_and(|job| job.state.is_over())).await;
    let job = by_event().unwrap();
    assert_eq!(
        (job.state, job.asked, job.counts.deleted),
        (JobState::Completed, Some(Height(10)), 3),
        "{job}"
    );
    world.sound().await;
}

/// The same without a persister: then the block is what makes the job.
#[tokio::test]
async fn a_missed_block_is_made_up_for() {
    let world = due_with(pruner_options(small()), Events::new(2)).await;
    let last = world.store.last_applied().await.unwrap().unwrap();
    world.events.tell(Event::MinedSet(last));
    for _ in 0..50 {
        let applied =
            sapwood_chain::events::BlockApplied { block: last, transactions: 0, conflicting: vec![] };
        world.events.tell(Event::BlockApplied(applied));
    }
    let jobs = || world.pruner.jobs(100);
    world.until("a job comes", || jobs().iter().any(|job| job.trigger == Trigger::BlockMined)).await;
    world.quiet().await;
    assert_eq!(world.records().await, 0);
    world.sound().await;
}
