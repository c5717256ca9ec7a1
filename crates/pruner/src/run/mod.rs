//! One job, from the preflight to the last phase.
//!
//! # Correctness
//! Before each phase and between chunks it asks again whether it may go on: a reorganisation, a stop or a new hold takes effect at the
//! next chunk. A chunk is one write of the store, so whatever ends the job, or the process, nothing is half done. The height to
//! work at is fixed when the job begins and only ever lowered, so what phase 1 has preserved covers all of phase 2.

mod delete;
mod orphans;
mod preserve;

pub(crate) use preserve::Preserved;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sapwood_ledger::{BatchError, Cursor, Permit, PreserveError, StoreError};
use sapwood_types::Height;
use tokio::time::Instant;

use crate::{
    jobs::{JobCounts, JobDurations, JobId, StopReason},
    pace::Pacer,
    requests::Request,
    retained::Retained,
    safety::Situation,
    service::Shared,
    text,
};

/// What went wrong in a job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// A parent of an old unmined transaction could not be preserved, so nothing is deleted.
    #[error("parents of old unmined transactions could not be preserved, so nothing was deleted: {cause}")]
    Preserve {
        /// Why not.
        cause: String,
    },
    /// It took too long.
    #[error("it did not end within {} s; what it had done by then stays done", .after.as_secs_f64())]
    TimedOut {
        /// How long it could take.
        after: Duration,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<BatchError<PreserveError>> for RunError {
    fn from(error: BatchError<PreserveError>) -> Self {
        RunError::Preserve { cause: error.to_string() }
    }
}

/// Why a job ends before its end.
pub(crate) enum Halt {
    Stop(StopReason),
    Fail(RunError),
}

impl From<StopReason> for Halt {
    fn from(reason: StopReason) -> Self {
        Halt::Stop(reason)
    }
}

impl<E: Into<RunError>> From<E> for Halt {
    fn from(error: E) -> Self {
        Halt::Fail(error.into())
    }
}

/// What a look through the due index found. Lives longer than a job. How far it got, the ledger knows.
pub(crate) struct Sweep {
    /// What lies before the ledger's cursor has to be looked at again: a record that was kept, or became due late, is there.
    pub(crate) look_back: bool,
    /// What was retained since the look began at the first record.
    seen: Retained,
    /// That look has come to the end. What is looked at since then became due since then.
    complete: bool,
}

impl Sweep {
    /// A sweep that goes on where an earlier process was.
    pub(crate) fn resume(position: Option<Cursor>) -> Self {
        Sweep { look_back: position.is_some(), seen: Retained::default(), complete: false }
    }
}

/// The phases. They have one name in metrics, REST and gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    PreserveParents,
    ExpirePreservations,
    DeleteDue,
    DropUndo,
}

impl Phase {
    /// In the order in which a job goes through them.
    pub(crate) const ALL: [Phase; 4] =
        [Phase::PreserveParents, Phase::ExpirePreservations, Phase::DeleteDue, Phase::DropUndo];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Phase::PreserveParents => "preserve_parents",
            Phase::ExpirePreservations => "expire_preservations",
            Phase::DeleteDue => "delete_due",
            Phase::DropUndo => "drop_undo",
        }
    }

    pub(crate) fn words(self) -> &'static str {
        match self {
            Phase::PreserveParents => "preserving parents of old unmined transactions",
            Phase::ExpirePreservations => "ending preservations",
            Phase::DeleteDue => "deleting due records",
            Phase::DropUndo => "dropping undo records",
        }
    }
}

/// A job under way.
pub(crate) struct Run<'a> {
    shared: &'a Arc<Shared>,
    job: JobId,
    /// `false` once the job is over, however it ended: a chunk that is still in flight then deletes nothing.
    alive: Arc<AtomicBool>,
    asked: Option<Height>,
    /// Look through everything that is due.
    whole: bool,
    started: Instant,
    last_told: Instant,
    phase: Option<Phase>,
    counts: JobCounts,
    durations: JobDurations,
}

impl<'a> Run<'a> {
    pub(crate) fn new(shared: &'a Arc<Shared>, request: &Request) -> Self {
        let started = Instant::now();
        Run {
            shared,
            job: request.job,
            alive: Arc::new(AtomicBool::new(true)),
            asked: request.asked,
            whole: request.whole,
            started,
            last_told: started,
            phase: None,
            counts: JobCounts::default(),
            durations: JobDurations::default(),
        }
    }

    /// All phases.
    pub(crate) async fn execute(&mut self, sweep: &mut Sweep, pacer: &mut Pacer) -> Result<(), Halt> {
        self.check()?;
        let situation = self.situation().await?;
        // From here on the height can only go down.
        self.asked = Some(situation.height);
        self.shared.jobs.update(self.job, |job| job.height = Some(situation.height));
        self.note(&situation);

        let started = self.begin(Phase::PreserveParents);
        let preserved = self.preserve_parents(&situation).await;
        self.durations.preserve_parents = self.end(Phase::PreserveParents, started);
        preserved?;

        self.check()?;
        let started = self.begin(Phase::ExpirePreservations);
        let expired = self.expire_preservations(situation.height).await;
        self.durations.expire_preservations = self.end(Phase::ExpirePreservations, started);
        // What is preserved no more was due long ago, before where the last job was.
        self.whole |= self.counts.preservations_expired > 0;
        expired?;

        self.check()?;
        if self.shared.options.delete_due {
            let started = self.begin(Phase::DeleteDue);
            let deleted = self.delete_due(sweep, pacer).await;
            self.durations.delete_due = self.end(Phase::DeleteDue, started);
            deleted?;
        }

        self.check()?;
        let started = self.begin(Phase::DropUndo);
        let dropped = self.drop_undo().await;
        self.durations.drop_undo = self.end(Phase::DropUndo, started);
        dropped?;

        self.check()?;
        self.delete_orphans().await
    }

    fn begin(&mut self, phase: Phase) -> Instant {
        self.phase = Some(phase);
        *self.shared.phase.lock() = Some(phase);
        Instant::now()
    }

    fn end(&mut self, phase: Phase, started: Instant) -> Duration {
        let took = started.elapsed();
        self.shared.metrics.took(phase.label(), took);
        self.tell();
        took
    }

    /// The phase it is in, or ended in.
    pub(crate) fn phase(&self) -> Option<Phase> {
        self.phase
    }

    pub(crate) fn counts(&self) -> &JobCounts {
        &self.counts
    }

    pub(crate) fn durations(&self) -> &JobDurations {
        &self.durations
    }

    /// Asks, in the write that deletes, whether the job may still go on.
    fn permit(&self) -> Permit {
        let (shared, job, alive) = (Arc::clone(self.shared), self.job, Arc::clone(&self.alive));
        Permit::new(move || alive.load(Ordering::Acquire) && shared.stop_reason(Some(job)).is_none())
    }

    /// Whether the job may go on.
    fn check(&self) -> Result<(), StopReason> {
        self.shared.stop_reason(Some(self.job)).map_or(Ok(()), Err)
    }

    async fn situation(&self) -> Result<Situation, Halt> {
        match Situation::of(self.shared, self.asked).await? {
            Some(situation) => Ok(situation),
            None => Err(StopReason::NoBlocks.into()),
        }
    }

    /// Shows the safe height in the job.
    fn note(&self, situation: &Situation) {
        self.shared.note_situation(situation);
        self.shared.jobs.update(self.job, |job| {
            job.safe_height = situation.safe.height;
            job.decided_by = situation.decided_by();
            job.whole = self.whole;
        });
    }

    /// Shows in the job what it has done so far, and in the log now and then.
    fn tell(&mut self) {
        let job = self.shared.jobs.update(self.job, |job| {
            job.counts = self.counts.clone();
            job.durations = self.durations.clone();
        });
        let due = self.shared.options.progress_log.is_some_and(|every| self.last_told.elapsed() >= every);
        if let (true, Some(job), Some(phase)) = (due, job, self.phase) {
            self.last_told = Instant::now();
            let seconds = self.started.elapsed().as_secs();
            tracing::info!(job = %job.id, seconds, deleted = job.counts.deleted, kept = job.counts.kept_in_all(), "still {}", phase.words());
        }
    }

    /// Drops undo records that neither a reorganisation nor a hold needs, a chunk at a time.
    async fn drop_undo(&mut self) -> Result<(), Halt> {
        let mut from = None;
        loop {
            // Both may have moved since the last chunk.
            let situation = self.situation().await?;
            let floor = self.shared.store.rollback_floor().await?;
            let (Some(safe), Some(floor)) = (situation.safe.height, floor) else { return Ok(()) };
            let (below, limit) = (floor.min(safe).next(), self.shared.options.chunk_records);
            let undo = self.shared.store.prune_undo(from, below, limit).await?;
            self.counts.undo_dropped += undo.dropped;
            self.tell();
            from = undo.next;
            if from.is_none() {
                return Ok(());
            }
            self.check()?;
            if self.counts.undo_dropped >= self.shared.options.records_per_job {
                return Err(StopReason::RecordLimit.into());
            }
            self.check_time()?;
        }
    }

    fn check_time(&self) -> Result<(), StopReason> {
        if self.started.elapsed() >= self.shared.options.time_per_job {
            return Err(StopReason::TimeLimit);
        }
        Ok(())
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.alive.store(false, Ordering::Release);
    }
}

impl std::fmt::Display for Run<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let JobCounts { deleted, bytes_freed, .. } = &self.counts;
        write!(
            f,
            "job {}: {} records deleted ({})",
            self.job,
            text::figure(*deleted),
            text::bytes(*bytes_freed)
        )
    }
}
