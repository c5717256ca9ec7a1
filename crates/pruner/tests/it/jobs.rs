//! Jobs: one at a time, the newest height wins, limits, cancelling, and what is remembered.

use std::{sync::Arc, time::Duration};

use sapwood_conformance::fixtures::small;
use sapwood_pruner::{JobId, JobState, PrunerError, PrunerOptions, StopReason, Trigger};
use sapwood_types::Height;

use crate::harness::{World, pruner_options};

async fn with_due(options: PrunerOptions, count: usize) -> World {
    let world = World::with(options, None).await;
    world.block_at(1, &[]).await;
    world.settle().await;
    world.burns("due", count).await;
    world.extend_to(10).await;
    world
}

fn in_chunks_of_ten() -> PrunerOptions {
    PrunerOptions { chunk_records: 10, parallel_chunks: 1, ..pruner_options(small()) }
}

#[tokio::test]
async fn a_newer_height_supersedes_the_one_that_waits() {
    let world = with_due(in_chunks_of_ten(), 30).await;
    let held = world.hook.hold_chunk(1);
    let running = world.pruner.prune_now(Some(Height(10))).unwrap();
    let held = held.arrived().await;
    let ask = |height| world.pruner.prune_now(Some(Height(height))).unwrap();
    let (first, second, third) = (ask(7), ask(8), ask(9));
    assert_eq!(ask(8), third, "a lower height is done with the greater one");
    for (job, by) in [(first, second), (second, third)] {
        let job = world.pruner.job(job).unwrap();
        assert_eq!((job.state, job.superseded_by), (JobState::Superseded, Some(by)));
    }
    drop(held);
    assert_eq!(world.pruner.wait(running).await.unwrap().state, JobState::Completed);
    let last = world.pruner.wait(first).await.unwrap();
    assert_eq!(
        (last.id, last.state, last.height),
        (third, JobState::Completed, Some(Height(9))),
        "waiting follows"
    );
    world.sound().await;
}

#[tokio::test]
async fn a_job_at_its_limit_makes_room_and_another_goes_on() {
    let world = with_due(PrunerOptions { records_per_job: 20, ..in_chunks_of_ten() }, 55).await;
    let job = world.prune().await;
    assert_eq!((job.state, &job.stopped_early), (JobState::Completed, &Some(StopReason::RecordLimit)));
    assert_eq!(job.counts.deleted, 20);
    let mut next = JobId(job.id.0 + 1);
    loop {
        let job = world.pruner.wait(next).await.unwrap();
        assert_eq!(job.trigger, Trigger::Continued);
        if job.stopped_early.is_none() {
            assert_eq!(job.counts.deleted, 15);
            break;
        }
        next = JobId(next.0 + 1);
    }
    assert_eq!(world.records().await, 0);
    let status = world.pruner.status().await.unwrap();
    assert_eq!((status.totals.deleted, status.backlog_records, status.lag_blocks), (55, 0, 0));
    assert!(status.totals.records_per_second.is_some_and(|rate| rate > 0.0));
    world.sound().await;
}

/// A caller that waits until no job is in flight takes what is there then for all there is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn between_a_job_and_the_one_that_goes_on_there_is_no_gap() {
    let world = with_due(PrunerOptions { records_per_job: 10, ..in_chunks_of_ten() }, 2_000).await;
    world.pruner.prune_now(None).unwrap();
    while world.pruner.jobs(3).iter().any(|job| !job.state.is_over()) {
        std::thread::yield_now();
    }
    assert_eq!(world.records().await, 0);
    world.sound().await;
}

#[tokio::test]
async fn jobs_can_be_cancelled_before_and_while_they_run() {
    let world = with_due(in_chunks_of_ten(), 50).await;
    let held = world.hook.hold_chunk(2);
    let running = world.pruner.prune_now(Some(Height(9))).unwrap();
    let held = held.arrived().await;
    let waiting = world.pruner.prune_now(Some(Height(10))).unwrap();
    world.pruner.cancel(waiting).unwrap();
    assert_eq!(world.pruner.job(waiting).unwrap().state, JobState::Cancelled);
    world.pruner.cancel(running).unwrap();
    drop(held);
    let job = world.pruner.wait(running).await.unwrap();
    assert_eq!(
        (job.state, job.stopped_early, job.counts.deleted),
        (JobState::Cancelled, Some(StopReason::Cancelled), 10)
    );
    let over = PrunerError::JobOver { job: running, state: JobState::Cancelled };
    assert_eq!(world.pruner.cancel(running), Err(over));
    let unknown = JobId(9999);
    assert_eq!(world.pruner.cancel(unknown), Err(PrunerError::NoSuchJob { job: unknown }));
    assert_eq!(world.pruner.wait(unknown).await, None);
    assert_eq!(world.prune_ok().await, 40, "the next one does the rest");
    world.sound().await;
}

#[tokio::test]
async fn stopping_waits_for_the_chunk_in_flight() {
    let world = with_due(in_chunks_of_ten(), 50).await;
    let held = world.hook.hold_chunk(2);
    let running = world.pruner.prune_now(None).unwrap();
    let held = held.arrived().await;
    let pruner = world.pruner.clone();
    let stopping = tokio::spawn(async move { pruner.stop().await });
    while world.pruner.prune_now(None) != Err(PrunerError::Stopped) {
        tokio::task::yield_now().await;
    }
    assert!(!stopping.is_finished(), "a chunk is in flight");
    drop(held);
    stopping.await.unwrap();
    let job = world.pruner.job(running).unwrap();
    assert_eq!(
        (job.state, job.stopped_early, job.counts.deleted),
        (JobState::Cancelled, Some(StopReason::Stopping), 10)
    );
    world.sound().await;
}

#[tokio::test]
async fn a_job_that_takes_too_long_has_failed_and_what_it_did_stays_done() {
    let world = with_due(in_chunks_of_ten(), 50).await;
    let held = world.hook.hold_chunk(2);
    let job = world.pruner.prune_now(None).unwrap();
    let held = held.arrived().await;
    // Ten minutes pass while the second chunk does not come to its end.
    tokio::time::pause();
    let minute = Duration::from_secs(60);
    tokio::time::advance(world.options.job_timeout - minute).await;
    assert_eq!(world.pruner.job(job).unwrap().state, JobState::Running);
    // More than what is left: timers go by whole milliseconds.
    tokio::time::advance(2 * minute).await;
    let job = world.pruner.wait(job).await.unwrap();
    tokio::time::resume();
    assert_eq!((job.state, job.counts.deleted), (JobState::Failed, 10));
    assert!(job.error.unwrap().contains("600 s"));
    drop(held);
    world.prune_ok().await;
    assert_eq!(world.records().await, 0);
    world.sound().await;
}

#[tokio::test]
async fn parallel_chunks_delete_everything_once() {
    let options = PrunerOptions { chunk_records: 7, parallel_chunks: 10, ..pruner_options(small()) };
    let world = with_due(options, 1000).await;
    let job = world.prune().await;
    assert_eq!((job.counts.deleted, job.counts.looked_at, job.counts.gone), (1000, 1000, 0));
    assert!(job.counts.bytes_freed > 1000);
    assert_eq!(world.records().await, 0);
    world.sound().await;
}

#[tokio::test]
async fn the_history_is_trimmed_newest_first() {
    let world = with_due(PrunerOptions { job_history: 5, ..pruner_options(small()) }, 1).await;
    for _ in 0..20 {
        world.prune_ok().await;
    }
    let jobs = world.pruner.jobs(100);
    assert_eq!(jobs.len(), 5);
    assert!(jobs.windows(2).all(|pair| pair[0].id > pair[1].id));
    assert_eq!(world.pruner.job(JobId(1)), None);
    world.sound().await;
}

#[tokio::test]
async fn every_change_of_a_job_can_be_watched() {
    let world = with_due(pruner_options(small()), 3).await;
    let mut changes = world.pruner.watch_jobs();
    let id = world.pruner.prune_now(None).unwrap();
    let mut states = Vec::new();
    while states.last() != Some(&JobState::Completed) {
        let job = changes.recv().await.unwrap();
        assert_eq!(job.id, id);
        if states.last() != Some(&job.state) {
            states.push(job.state);
        }
    }
    assert_eq!(states, [JobState::Pending, JobState::Running, JobState::Completed]);
    let shown = serde_json::to_value(world.pruner.job(id).unwrap()).unwrap();
    assert_eq!((&shown["state"], &shown["counts"]["deleted"]), (&"completed".into(), &3.into()));
    world.sound().await;
}

/// Neither job looks through everything, so only the place where the first one stopped brings the second to what failed.
#[tokio::test]
async fn a_chunk_that_failed_is_looked_at_by_the_next_job() {
    for (parallel_chunks, deleted) in [(1, 20), (4, 30)] {
        let options = PrunerOptions { parallel_chunks, ..in_chunks_of_ten() };
        let world = with_due(options, 50).await;
        world.hook.once("prune-judged", 3, || Err("a read failed".into()));
        let job = world.pruner.report_persisted(Height(10)).await.unwrap();
        let job = world.pruner.wait(job).await.unwrap();
        assert_eq!((job.state, job.whole, job.counts.deleted), (JobState::Failed, false, deleted), "{job}");
        assert_eq!(world.records().await, 50 - deleted);
        let next = world.pruner.report_persisted(Height(10)).await.unwrap();
        let next = world.pruner.wait(next).await.unwrap();
        assert_eq!((next.state, next.whole), (JobState::Completed, false), "{next}");
        assert_eq!((next.counts.deleted, world.records().await), (50 - deleted, 0), "{next}");
        world.sound().await;
    }
}

/// What is logged. One thread runs a test here, so it hears no other.
#[derive(Clone, Default)]
struct Log(Arc<parking_lot::Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_long_job_logs_how_far_it_is() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _listening = tracing::subscriber::set_default(subscriber);
    let world = with_due(in_chunks_of_ten(), 50).await;
    let held = world.hook.hold_chunk(3);
    let job = world.pruner.prune_now(None).unwrap();
    let held = held.arrived().await;
    tokio::time::pause();
    tokio::time::advance(world.options.progress_log.unwrap() + Duration::from_millis(500)).await;
    tokio::time::resume();
    drop(held);
    world.pruner.wait(job).await.unwrap();
    let told = String::from_utf8(log.0.lock().clone()).unwrap();
    let lines: Vec<&str> = told.lines().filter(|line| line.contains("still deleting due records")).collect();
    assert_eq!(lines.len(), 1, "{told}");
    assert!(lines[0].contains("deleted=30") && lines[0].contains("seconds=30"), "{}", lines[0]);
    world.sound().await;
}
