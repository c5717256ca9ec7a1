//! How the pruner is doing.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use sapwood_chain::ChainState;
use sapwood_ledger::{Cursor, DueRecord, StoreError};
use sapwood_types::{DecodeError, Height};
use serde::Serialize;

use crate::{
    handle::PrunerHandle,
    holds::HoldStatus,
    jobs::{Job, JobCounts, JobDurations, JobState},
    retained::UnreadableRecord,
    safety::Situation,
    service::Shared,
    text, totals,
};

/// Entries of the due index that are looked through for the oldest that was not retained.
const LISTED: usize = 10_000;

/// The name of the note that has the totals.
pub const TOTALS_NOTE: &str = "pruner/totals";

/// What all jobs have done since the store was made. Written down about once a second while something is deleted, and when the pruner stops: a
/// process that is killed may forget the last second of it, and the jobs and retained records since then.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Jobs that are over.
    pub jobs: u64,
    /// Records deleted.
    pub deleted: u64,
    /// Bytes of their pages.
    pub bytes_freed: u64,
    /// External bodies deleted.
    pub bodies_deleted: u64,
    /// Times a due record was kept, by reason.
    pub kept: BTreeMap<String, u64>,
    /// Records deleted in a second of work, lately.
    pub records_per_second: Option<f64>,
}

impl Totals {
    /// The totals as they were left in the store.
    pub(crate) fn decode(note: Bytes) -> Result<Self, DecodeError> {
        let ([jobs, deleted, bytes_freed, bodies_deleted], kept) = totals::decode(note)?;
        Ok(Totals { jobs, deleted, bytes_freed, bodies_deleted, kept, records_per_second: None })
    }

    pub(crate) fn encode(&self) -> Bytes {
        totals::encode([self.jobs, self.deleted, self.bytes_freed, self.bodies_deleted], &self.kept)
    }

    pub(crate) fn add(&mut self, counts: &JobCounts, durations: &JobDurations) {
        /// How much the newest job counts in the rate.
        const NEWEST: f64 = 0.3;
        self.jobs += 1;
        self.deleted += counts.deleted;
        self.bytes_freed += counts.bytes_freed;
        self.bodies_deleted += counts.bodies_deleted;
        for (reason, count) in &counts.retained {
            *self.kept.entry(reason.clone()).or_default() += count;
        }
        let seconds = durations.delete_due.as_secs_f64();
        if counts.deleted > 0 && seconds > 0.0 {
            let rate = counts.deleted as f64 / seconds;
            let before = self.records_per_second.unwrap_or(rate);
            self.records_per_second = Some(before + NEWEST * (rate - before));
        }
    }
}

/// How the pruner is doing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PrunerStatus {
    /// Whether pruning is enabled.
    pub enabled: bool,
    /// What it is doing or waiting for, in words.
    pub state: String,
    /// What the chain is doing.
    pub chain: ChainState,
    /// The height of the chain.
    pub height: Option<Height>,
    /// Up to which height deletion is safe. Nothing: nothing may go.
    pub safe_height: Option<Height>,
    /// The hold that decides it. Nothing if it is the height of the chain.
    pub decided_by: Option<String>,
    /// Every hold.
    pub holds: Vec<HoldStatus>,
    /// Where the next job goes on in the due index, as hexadecimal digits.
    pub cursor: Option<String>,
    /// Due records that the holds let go and that are still there, without those that were looked at and retained.
    pub backlog_records: u64,
    /// Blocks between the oldest record that is due by age and has not been looked at, and the newest. Holds make it grow.
    pub lag_blocks: u32,
    /// The height at which the oldest record became due that the holds let go and that has not been looked at. `None` if there is none.
    pub oldest_due_at: Option<Height>,
    /// When the backlog will be gone, as far as can be told.
    pub catch_up_seconds: Option<f64>,
    /// Records that are retained and would be deleted otherwise, by reason. `child_unmined`, `preserved`, `locked`, `not_deep_enough`,
    /// `retention_off` and `held` are counted by the store with each write. `unreadable`, `external_body` and `child_disagrees` are what the
    /// last whole look through the due index found, and what was looked at since.
    pub blocked: BTreeMap<String, u64>,
    /// Records that cannot be read, the first hundred by id. They are retained, and stop nothing else.
    pub unreadable: Vec<UnreadableRecord>,
    /// Blocks a record is kept after it settled.
    pub retention: u32,
    /// The job that runs.
    pub running: Option<Job>,
    /// The job that is over last.
    pub last_job: Option<Job>,
    /// What all jobs have done.
    pub totals: Totals,
}

/// What is measured for status and metrics.
struct Measured {
    situation: Option<Situation>,
    backlog: u64,
    blocked: BTreeMap<String, u64>,
    lag_blocks: u32,
    /// See [`PrunerStatus::oldest_due_at`].
    oldest_due_at: Option<Height>,
    catch_up: Option<Duration>,
}

impl Shared {
    async fn measured(&self) -> Result<Measured, StoreError> {
        let Some(situation) = Situation::of(self, None).await? else {
            return Ok(Measured {
                situation: None,
                backlog: 0,
                blocked: self.blocked(None).await?,
                lag_blocks: 0,
                oldest_due_at: None,
                catch_up: Some(Duration::ZERO),
            });
        };
        let blocked = self.blocked(Some(&situation)).await?;
        let position = self.position.lock().clone();
        let backlog = match situation.settled_up_to() {
            None => 0,
            Some(up_to) => {
                let settled = self.store.settled_between(Height::GENESIS, up_to).await?;
                settled.saturating_sub(self.found.lock().due())
            }
        };
        let (lag_blocks, oldest_due_at) = match situation.due_by_age() {
            None => (0, None),
            Some(up_to) => {
                // After a whole look what is left up to there is retained: it was looked at.
                let looked_up_to = *self.looked_up_to.lock();
                let listed = self.store.due(up_to, position, LISTED).await?.items;
                let retained = |due: &&DueRecord| Some(due.settled_at) <= looked_up_to;
                let retained = listed.iter().take_while(retained).count();
                let oldest = listed.get(retained).map(|oldest| oldest.settled_at);
                let lag = oldest.map_or(0, |oldest| up_to.above(oldest) + 1);
                let released = oldest.filter(|oldest| Some(*oldest) <= situation.settled_up_to());
                (lag, released.map(|oldest| oldest.plus(situation.policy.retention)))
            }
        };
        let rate = self.totals.lock().records_per_second;
        let catch_up = match (backlog, rate) {
            (0, _) => Some(Duration::ZERO),
            (records, Some(rate)) => Duration::try_from_secs_f64(records as f64 / rate).ok(),
            (_, None) => None,
        };
        Ok(Measured { situation: Some(situation), backlog, blocked, lag_blocks, oldest_due_at, catch_up })
    }

    /// Shows backlog and lag in the metrics. If they cannot be read, the next job says why.
    pub(crate) async fn measure(&self) {
        if let Ok(measured) = self.measured().await {
            self.show(&measured);
        }
    }

    fn show(&self, measured: &Measured) {
        self.metrics.backlog.set(measured.backlog as i64);
        self.metrics.lag.set(measured.lag_blocks.into());
        self.metrics.blocked(&measured.blocked);
        self.metrics.catch_up.set(measured.catch_up.map_or(-1, |catch_up| catch_up.as_secs() as i64));
        if let Some(situation) = &measured.situation {
            self.note_situation(situation);
        }
    }

    /// What the pruner is doing or waiting for.
    fn state_in_words(&self, measured: &Measured, running: Option<&Job>) -> String {
        if *self.stopped.borrow() {
            return "stopped".into();
        }
        if let Some(job) = running {
            let doing = self.phase.lock().map_or("beginning", |phase| phase.words());
            return format!("job {}: {doing}, {} records deleted", job.id, text::figure(job.counts.deleted));
        }
        if let Some(reason) = self.stop_reason(None) {
            return match reason {
                crate::StopReason::Disabled => "disabled".into(),
                reason => format!("waiting: {reason}"),
            };
        }
        let Some(situation) = &measured.situation else { return "waiting for the first block".into() };
        match &situation.safe.decided_by {
            Some(hold) if measured.lag_blocks > 0 || situation.safe.height.is_none() => {
                match hold.lets_go_up_to() {
                    None if hold.keep_from.is_none() => {
                        format!("waiting for {}, which has not reported", hold.name)
                    }
                    None => format!("waiting for {}, which needs everything", hold.name),
                    Some(height) => format!("waiting for {} at {}", hold.name, text::at(height)),
                }
            }
            _ => "idle".into(),
        }
    }
}

impl PrunerHandle {
    /// How the pruner is doing.
    pub async fn status(&self) -> Result<PrunerStatus, StoreError> {
        let shared = &self.shared;
        let measured = shared.measured().await?;
        // Metrics and status show the same.
        shared.show(&measured);
        let running = shared.jobs.newest_that(|state| state == JobState::Running);
        let state = shared.state_in_words(&measured, running.as_ref());
        let hexadecimal = |cursor: &Cursor| cursor.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let cursor = shared.position.lock().as_ref().map(hexadecimal);
        let situation = measured.situation.as_ref();
        let holds = match situation {
            Some(situation) => shared.hold_views(situation).await?,
            None => self.list_holds().await?,
        };
        Ok(PrunerStatus {
            enabled: shared.is_enabled(),
            state,
            chain: shared.events.state(),
            height: situation.map(|situation| situation.tip),
            safe_height: situation.and_then(|situation| situation.safe.height),
            decided_by: situation.and_then(Situation::decided_by),
            holds,
            cursor,
            backlog_records: measured.backlog,
            lag_blocks: measured.lag_blocks,
            oldest_due_at: measured.oldest_due_at,
            catch_up_seconds: measured.catch_up.map(|left| left.as_secs_f64()),
            blocked: measured.blocked,
            unreadable: shared.found.lock().named(),
            retention: self.policy().retention,
            running,
            last_job: shared.jobs.newest_that(|state| state.is_over() && state != JobState::Superseded),
            totals: shared.totals.lock().clone(),
        })
    }
}
