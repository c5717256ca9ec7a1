//! How the pruner is doing.

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    time::Duration,
};

use bytes::Bytes;
use sapwood_chain::{ChainState, TimingSummary, block_times};
use sapwood_ledger::{Cursor, DueRecord, StoreError, Unreadable};
use sapwood_types::{DecodeError, Height};
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};
#[cfg(feature = "schema")]
use utoipa::ToSchema;

use crate::{
    handle::PrunerHandle,
    holds::HoldStatus,
    jobs::{Job, JobCounts, JobDurations, JobState},
    options::PrunerOptions,
    policy::PolicyState,
    safety::Situation,
    service::Shared,
    text, totals,
};

/// How many of the newest jobs a status has.
pub const JOBS_SHOWN: usize = 20;

/// Entries of the due index that are looked through for the oldest that was not retained.
const LISTED: usize = 10_000;

/// The name of the note that has the totals.
pub const TOTALS_NOTE: &str = "pruner/totals";

/// What all jobs have done since the store was made. Written down about once a second while something is deleted, and when the pruner stops: a
/// process that is killed may forget the last second of it, and the jobs and retained records since then.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct Totals {
    /// Jobs that are over.
    pub jobs: u64,
    /// Records deleted.
    pub deleted: u64,
    /// Bytes of the pages of deleted records.
    pub bytes_freed: u64,
    /// External bodies deleted.
    pub bodies_deleted: u64,
    /// Times a due record was looked at and retained, by reason.
    pub retained: BTreeMap<String, u64>,
    /// Records deleted in a second of work, lately. `None` before the first one.
    pub records_per_second: Option<f64>,
}

impl Totals {
    /// The totals as they were left in the store.
    pub(crate) fn decode(note: Bytes) -> Result<Self, DecodeError> {
        let ([jobs, deleted, bytes_freed, bodies_deleted], retained) = totals::decode(note)?;
        Ok(Totals { jobs, deleted, bytes_freed, bodies_deleted, retained, records_per_second: None })
    }

    pub(crate) fn encode(&self) -> Bytes {
        totals::encode([self.jobs, self.deleted, self.bytes_freed, self.bodies_deleted], &self.retained)
    }

    pub(crate) fn add(&mut self, counts: &JobCounts, durations: &JobDurations) {
        /// How much the newest job counts in the rate.
        const NEWEST: f64 = 0.3;
        self.jobs += 1;
        self.deleted += counts.deleted;
        self.bytes_freed += counts.bytes_freed;
        self.bodies_deleted += counts.bodies_deleted;
        for (reason, count) in &counts.retained {
            *self.retained.entry(reason.clone()).or_default() += count;
        }
        let seconds = durations.delete_due.as_secs_f64();
        if counts.deleted > 0 && seconds > 0.0 {
            let rate = counts.deleted as f64 / seconds;
            let before = self.records_per_second.unwrap_or(rate);
            self.records_per_second = Some(before + NEWEST * (rate - before));
        }
    }
}

/// What the pruner does, and what keeps it from doing more.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct PrunerStatus {
    /// Whether pruning is enabled.
    pub enabled: bool,
    /// What it is doing or waiting for, in words.
    pub state: String,
    /// What the chain is doing.
    pub chain: ChainState,
    /// The height of the chain. `None` before the first block.
    pub height: Option<Height>,
    /// Up to which height deletion is safe. `None`: no record is prunable.
    pub safe_height: Option<Height>,
    /// The hold that decides it. `None`: it is the height of the chain.
    pub decided_by: Option<String>,
    /// Due records that the holds let go and that are still there, without those that were looked at and retained.
    pub backlog_records: u64,
    /// Blocks between the oldest record that is due by age and has not been looked at, and the newest. Holds make it grow.
    pub lag_blocks: u32,
    /// Blocks since the oldest record became due that the holds let go and that has not been looked at: 0 if with the last block.
    /// `None` if no such record waits.
    pub oldest_prunable_blocks: Option<u32>,
    /// The same in seconds, by the times of the blocks. If it became due before the lowest block that can be rolled back, seconds since
    /// that one. `None` if no such record waits, or the times are not known.
    pub oldest_prunable_seconds: Option<u64>,
    /// Estimated seconds until the backlog is pruned. `None` if it is not known.
    pub catch_up_seconds: Option<f64>,
    /// Where the next job goes on in the due index, as hexadecimal digits. `None`: at the start.
    pub cursor: Option<String>,
    /// Records that are retained and would be deleted otherwise, by reason. `child_unmined`, `preserved`, `locked`, `not_deep_enough`,
    /// `retention_off` and `held` are counted by the store with each write; which hold retains how many is in `holds`. `unreadable`,
    /// `external_body` and `child_disagrees` are what the last whole look through the due index found, and what was looked at since.
    pub blocked: BTreeMap<String, u64>,
    /// Records that cannot be read, the first hundred by id. They are retained, and stop nothing else.
    pub unreadable: Vec<Unreadable>,
    /// How long things are kept, and where each number comes from.
    pub policy: PolicyState,
    /// How the pruner was set up.
    pub settings: PrunerOptions,
    /// What all jobs have done since the store was made.
    pub totals: Totals,
    /// How long jobs took that ran since the start.
    pub timing: TimingSummary,
    /// Every hold, that of the reorg window first.
    pub holds: Vec<HoldStatus>,
    /// The job that ended last, superseded ones aside. `None` if none has since the start.
    pub last_job: Option<Job>,
    /// The newest jobs, the newest first.
    pub newest_jobs: Vec<Job>,
}

/// What is measured for status and metrics.
struct Measured {
    situation: Option<Situation>,
    backlog: u64,
    blocked: BTreeMap<String, u64>,
    lag_blocks: u32,
    /// The height at which the oldest record became due that the holds let go and that has not been looked at. `None` if there is none.
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
        let position = self.store.prune_cursor().await?;
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

    /// Seconds from the block at which a record became due to the last block, by their times. From the lowest block that can be rolled
    /// back if that is above it: older times are not kept. `None` if they are not known.
    async fn seconds_since_due(&self, due_at: Height) -> Result<Option<u64>, StoreError> {
        let (last, lowest) = (self.store.last_applied().await?, self.store.undoable_from().await?);
        let (Some(last), Some(lowest)) = (last, lowest) else { return Ok(None) };
        let from = block_times::at(&self.store, due_at.max(lowest)).await?;
        let to = block_times::at(&self.store, last.height).await?;
        Ok(from.zip(to).map(|(from, to)| to.saturating_sub(from)))
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
    /// Returns what the pruner does, and what keeps it from doing more.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn status(&self) -> Result<PrunerStatus, StoreError> {
        let shared = &self.shared;
        let measured = shared.measured().await?;
        // Metrics and status show the same.
        shared.show(&measured);
        let running = shared.jobs.newest_that(|state| state == JobState::Running);
        let state = shared.state_in_words(&measured, running.as_ref());
        let hexadecimal = |cursor: &Cursor| cursor.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let cursor = shared.store.prune_cursor().await?.as_ref().map(hexadecimal);
        let situation = measured.situation.as_ref();
        let height = situation.map(|situation| situation.tip);
        let holds = match situation {
            Some(situation) => shared.hold_views(situation).await?,
            None => self.list_holds().await?,
        };
        let oldest_prunable_seconds = match measured.oldest_due_at {
            Some(due_at) => shared.seconds_since_due(due_at).await?,
            None => None,
        };
        Ok(PrunerStatus {
            enabled: shared.is_enabled(),
            state,
            chain: shared.events.state(),
            height,
            safe_height: situation.and_then(|situation| situation.safe.height),
            decided_by: situation.and_then(Situation::decided_by),
            backlog_records: measured.backlog,
            lag_blocks: measured.lag_blocks,
            oldest_prunable_blocks: height.zip(measured.oldest_due_at).map(|(height, due)| height.above(due)),
            oldest_prunable_seconds,
            catch_up_seconds: measured.catch_up.map(|left| left.as_secs_f64()),
            cursor,
            blocked: measured.blocked,
            unreadable: shared.found.lock().named(),
            policy: self.policy_state(),
            settings: self.options().clone(),
            totals: shared.totals.lock().clone(),
            timing: shared.jobs.timing(),
            holds,
            last_job: shared.jobs.newest_that(|state| state.is_over() && state != JobState::Superseded),
            newest_jobs: shared.jobs.newest(JOBS_SHOWN),
        })
    }
}

/// A line for each thing: its name and what there is to say about it.
impl Display for PrunerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, value: &dyn Display| writeln!(f, "{name:<14}{value}");
        line("state", if self.enabled { &self.state } else { &"disabled" })?;
        let safe = self.safe_height.map_or("none".into(), text::at);
        let because = self.decided_by.as_ref().map_or(String::new(), |hold| format!(", because of {hold}"));
        line("safe height", &format_args!("{safe}{because}"))?;
        let left = match self.catch_up_seconds {
            Some(seconds) if self.backlog_records > 0 => format!(", done in about {seconds:.0} s"),
            _ => String::new(),
        };
        line("backlog", &format_args!("{}{left}", text::counted(self.backlog_records, "record")))?;
        line("lag", &text::counted(self.lag_blocks, "block"))?;
        if !self.blocked.is_empty() {
            line("blocked", &text::reasons(&self.blocked))?;
        }
        for Unreadable { txid, error } in &self.unreadable {
            line("unreadable", &format_args!("{txid}: {error}"))?;
        }
        if let Some(blocks) = self.oldest_prunable_blocks {
            let seconds =
                self.oldest_prunable_seconds.map_or(String::new(), |seconds| format!(", {seconds} s"));
            line("oldest", &format_args!("prunable for {}{seconds}", text::counted(blocks, "block")))?;
        }
        let Totals { jobs, deleted, bytes_freed, retained, .. } = &self.totals;
        let (deleted, jobs) = (text::counted(*deleted, "record"), text::counted(*jobs, "job"));
        line("so far", &format_args!("{deleted} deleted ({}) in {jobs}", text::bytes(*bytes_freed)))?;
        if !retained.is_empty() {
            let reasons = text::reasons(retained);
            line("retained", &format_args!("so far, each time a record was looked at: {reasons}"))?;
        }
        if let Some(job) = &self.last_job {
            line("last", job)?;
        }
        self.holds.iter().try_for_each(|hold| line("hold", hold))
    }
}

#[cfg(test)]
mod tests {
    use sapwood_types::TxId;

    use super::*;

    #[test]
    fn m10_prune_status_tells_what_blocks_deletion_and_what_cannot_be_read() {
        let mut status = PrunerStatus { enabled: true, state: "idle".into(), ..PrunerStatus::default() };
        assert!(!status.to_string().contains("blocked"));
        let txid = TxId([0xab; 32]);
        status.blocked = [("held".to_owned(), 1200), ("unreadable".to_owned(), 1)].into();
        status.unreadable = vec![Unreadable { txid, error: "it is cut".into() }];
        status.totals.retained = [("held".to_owned(), 5000)].into();
        let text = status.to_string();
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        assert!(line("blocked").contains("1,200") && line("blocked").contains("held"), "{text}");
        assert!(line("unreadable").ends_with(&format!("{txid}: it is cut")), "{text}");
        assert!(line("retained").contains("so far") && line("retained").contains("5,000"), "{text}");
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_status_reads_back_from_json() {
        let status = PrunerStatus { cursor: Some("00ff".into()), ..PrunerStatus::default() };
        let written = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<PrunerStatus>(&written).unwrap(), status);
    }
}
