//! Jobs, one after the other.

use std::sync::Arc;

use sapwood_ledger::Cursor;

use super::{Shared, said};
use crate::{
    jobs::{JobId, JobState, StopReason, Trigger},
    pace::Pacer,
    requests::Request,
    run::{Halt, Phase, Run, RunError, Sweep},
};

/// Does one job after the other.
pub(super) async fn work(shared: &Arc<Shared>, position: Option<Cursor>) {
    let mut stopping = shared.stopping.subscribe();
    let mut sweep = Sweep::resume(position);
    let mut pacer = Pacer::new(shared.options.pacing);
    loop {
        let request = tokio::select! {
            biased;
            () = said(&mut stopping) => break,
            request = shared.requests.next() => request,
        };
        do_job(shared, request, &mut sweep, &mut pacer).await;
    }
    shared.write_totals(true).await;
    if let Some(waiting) = shared.requests.take(|_| true) {
        end_job(shared, waiting.job, JobState::Cancelled, Some(StopReason::Stopping), None);
    }
}

async fn do_job(shared: &Arc<Shared>, request: Request, sweep: &mut Sweep, pacer: &mut Pacer) {
    let now = shared.clock.now();
    shared.jobs.update(request.job, |job| {
        job.state = JobState::Running;
        job.started_at = Some(now);
    });
    shared.metrics.running.set(1);
    let timeout = shared.options.job_timeout;
    let mut run = Run::new(shared, &request);
    let result = tokio::time::timeout(timeout, run.execute(sweep, pacer)).await;
    let result = result.unwrap_or(Err(Halt::Fail(RunError::TimedOut { after: timeout })));
    *shared.phase.lock() = None;
    shared.metrics.running.set(0);
    shared.totals.lock().add(run.counts(), run.durations());
    shared.jobs.update(request.job, |job| {
        job.counts = run.counts().clone();
        job.durations = run.durations().clone();
    });
    shared.write_totals(false).await;
    if shared.requests.waiting().is_none() || pacer.shows_again() {
        shared.measure().await;
    }
    match result {
        // The job that goes on is there before this one is over: a caller that waits until no job is in flight must not find a gap.
        Ok(()) => {
            if sweep.look_back && shared.requests.waiting().is_none() {
                shared.submit(Trigger::Continued, None, true);
            }
            end_job(shared, request.job, JobState::Completed, None, None);
        }
        Err(Halt::Stop(reason)) if reason.is_limit() => {
            shared.submit(Trigger::Continued, request.asked, false);
            end_job(shared, request.job, JobState::Completed, Some(reason), None);
        }
        Err(Halt::Stop(reason)) => {
            shared.metrics.skipped(reason.label());
            // The first block comes with an event of its own.
            if !matches!(reason, StopReason::Cancelled | StopReason::Stopping | StopReason::NoBlocks) {
                // A job that looks through everything and could not begin has not done so.
                sweep.look_back |= request.whole;
                shared.owe(Trigger::Resumed, false);
            }
            end_job(shared, request.job, JobState::Cancelled, Some(reason), None);
            // It may have become possible between the check and here.
            shared.resume_if_wanted();
        }
        Err(Halt::Fail(error)) => {
            let operation = run.phase().map_or("preflight", Phase::label);
            shared.metrics.failed(operation);
            if matches!(error, RunError::Preserve { .. }) {
                shared.metrics.skipped("preserve_failed");
            }
            sweep.look_back |= request.whole;
            tracing::error!(job = %request.job, operation, %error, "a pruning job failed");
            end_job(shared, request.job, JobState::Failed, None, Some(error.to_string()));
        }
    }
}

fn end_job(
    shared: &Shared,
    id: JobId,
    state: JobState,
    stopped_early: Option<StopReason>,
    error: Option<String>,
) {
    let now = shared.clock.now();
    let mut cancelled = shared.cancelled.lock();
    if *cancelled == Some(id) {
        *cancelled = None;
    }
    drop(cancelled);
    shared.metrics.job_over(state);
    let job = shared.jobs.update(id, |job| {
        job.state = state;
        job.stopped_early = stopped_early;
        job.error = error;
        job.ended_at = Some(now);
    });
    if let Some(job) = job {
        let quiet = job.counts.deleted == 0 && job.state != JobState::Failed;
        if quiet { tracing::debug!("{job}") } else { tracing::info!("{job}") }
    }
}
