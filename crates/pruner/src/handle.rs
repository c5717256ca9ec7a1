//! What others do with a running pruner.

use std::sync::{Arc, atomic::Ordering};

use sapwood_ledger::{BatchResult, PreserveError, StoreError};
use sapwood_types::{Height, TxId};
use tokio::sync::broadcast;

use crate::{
    bodies::Bodies,
    holds::{Consumer, HoldError, HoldStatus, Holds},
    jobs::{Job, JobId, JobState, StopReason, Trigger},
    metrics::PrunerMetrics,
    options::PrunerOptions,
    safety::Situation,
    service::{PrunerError, Shared, said},
};

/// A running pruner. Clones are the same one. It goes on when all are dropped; [`stop`](PrunerHandle::stop) ends it.
#[derive(Clone)]
pub struct PrunerHandle {
    pub(crate) shared: Arc<Shared>,
}

impl PrunerHandle {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Asks for a job that looks through everything that is due at a height, or at that of the chain. Returns at once; a job for the same
    /// or a greater height that has not begun yet does for this one too.
    pub fn prune_now(&self, height: Option<Height>) -> Result<JobId, PrunerError> {
        if height == Some(Height::GENESIS) {
            return Err(PrunerError::HeightZero);
        }
        if self.is_stopping() {
            return Err(PrunerError::Stopped);
        }
        if !self.shared.is_enabled() {
            return Err(PrunerError::Disabled);
        }
        Ok(self.shared.submit(Trigger::OnDemand, height, true))
    }

    /// Preserves transactions for somebody, and returns how many of them are stored. The pruner ends what it preserved itself as soon as
    /// its reason is gone; what somebody asked for here it leaves alone, also where its own would have lasted longer.
    pub async fn preserve(&self, txids: Vec<TxId>, until: Height) -> BatchResult<usize, PreserveError> {
        let _preserving = self.shared.preserving.lock().await;
        {
            let mut own = self.shared.preserved.lock();
            txids.iter().for_each(|txid| _ = own.remove(txid));
        }
        self.shared.store.preserve(txids, until).await
    }

    /// Waits until a job is over. If another one took its place, waits for that one. Nothing if it is not remembered.
    pub async fn wait(&self, mut job: JobId) -> Option<Job> {
        loop {
            let over = tokio::select! {
                over = self.shared.jobs.over(job) => over?,
                // Once the task has ended, nothing more happens to any job.
                () = self.stopped() => self.job(job)?,
            };
            match over.superseded_by {
                Some(by) => job = by,
                None => return Some(over),
            }
        }
    }

    /// Cancels a job: at once if it has not begun, else at the next chunk.
    pub fn cancel(&self, id: JobId) -> Result<(), PrunerError> {
        let job = self.job(id).ok_or(PrunerError::NoSuchJob { job: id })?;
        if job.state.is_over() {
            return Err(PrunerError::JobOver { job: id, state: job.state });
        }
        *self.shared.cancelled.lock() = Some(id);
        self.shared.interrupted.notify_waiters();
        if self.shared.requests.take(|request| request.job == id).is_some() {
            let now = self.shared.clock.now();
            self.shared.jobs.update(id, |job| {
                job.state = JobState::Cancelled;
                job.stopped_early = Some(StopReason::Cancelled);
                job.ended_at = Some(now);
            });
        }
        Ok(())
    }

    /// The newest jobs first, those under way included.
    pub fn jobs(&self, limit: usize) -> Vec<Job> {
        self.shared.jobs.newest(limit)
    }

    /// One job, if it is remembered.
    pub fn job(&self, id: JobId) -> Option<Job> {
        self.shared.jobs.get(id)
    }

    /// Every job from now on: when it is made, and whenever its state changes. How far a running one is, [`job`](Self::job) tells. Who is too
    /// slow misses some.
    pub fn watch_jobs(&self) -> broadcast::Receiver<Job> {
        self.shared.jobs.watch()
    }

    /// Whether pruning is enabled.
    pub fn is_enabled(&self) -> bool {
        self.shared.is_enabled()
    }

    /// Enables pruning. Written down: it stays so after a restart.
    pub async fn enable(&self) -> Result<(), StoreError> {
        self.shared.set_enabled(true).await
    }

    /// Disables pruning; a job under way stops at the next chunk. Written down: it stays so after a restart.
    pub async fn disable(&self) -> Result<(), StoreError> {
        self.shared.set_enabled(false).await
    }

    /// The holds that can be set, renewed and released.
    pub fn holds(&self) -> &Holds {
        &self.shared.holds
    }

    /// Every hold and what it does, that of the reorganisation window first.
    pub async fn list_holds(&self) -> Result<Vec<HoldStatus>, StoreError> {
        match Situation::of(&self.shared, None).await? {
            Some(situation) => self.shared.hold_views(&situation).await,
            None => {
                let (now, holds) = (self.shared.clock.now(), &self.shared.holds);
                Ok(holds.all().iter().map(|hold| HoldStatus::new(hold, now, None).heard_by(holds)).collect())
            }
        }
    }

    /// Registers the persister or block assembly. Until it reports, nothing may go.
    pub async fn register(&self, consumer: Consumer) -> Result<(), HoldError> {
        self.shared.holds.register(consumer).await
    }

    /// All blocks up to this height are persisted. The same as the event, but it is written down when this returns.
    pub async fn report_persisted(&self, height: Height) -> Result<JobId, HoldError> {
        self.shared.holds.report(Consumer::Persister, height).await?;
        Ok(self.shared.submit(Trigger::BlockPersisted, Some(height), false))
    }

    /// Whether block assembly is running, and up to which height it has taken in blocks. Registers it: from then on nothing is pruned
    /// while it is not running, or above its height.
    pub async fn report_block_assembly(
        &self,
        running: bool,
        height: Option<Height>,
    ) -> Result<(), HoldError> {
        match height {
            Some(height) => self.shared.holds.report(Consumer::BlockAssembly, height).await?,
            None => self.shared.holds.register(Consumer::BlockAssembly).await?,
        }
        self.shared.assembly_running.store(running, Ordering::Release);
        self.shared.interrupted.notify_waiters();
        self.shared.resume_if_wanted();
        Ok(())
    }

    /// How the pruner was set up. The policy in force is that of [`PrunerHandle::policy`].
    pub fn options(&self) -> &PrunerOptions {
        &self.shared.options
    }

    /// The external bodies, if there are any.
    pub fn bodies(&self) -> Option<&Bodies> {
        self.shared.bodies.as_ref()
    }

    /// What the pruner counts and measures.
    pub fn metrics(&self) -> &PrunerMetrics {
        &self.shared.metrics
    }

    fn is_stopping(&self) -> bool {
        *self.shared.stopping.borrow()
    }

    async fn stopped(&self) {
        said(&mut self.shared.stopped.subscribe()).await;
    }

    /// Stops the pruner. A job under way ends at the next chunk; returns when nothing is under way any more.
    pub async fn stop(&self) {
        self.shared.stopping.send_replace(true);
        self.shared.interrupted.notify_waiters();
        self.stopped().await;
    }
}
