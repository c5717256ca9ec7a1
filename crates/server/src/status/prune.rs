//! What the pruner does, as it is told outside.

use std::collections::BTreeMap;

use sapwood_pruner::{HoldStatus, Job, PolicyState, PrunerOptions, PrunerStatus, UnreadableRecord};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::report::TimingReport;

/// How many of the newest jobs a status report has.
pub const JOBS_SHOWN: usize = 20;

/// What the pruner does, and what keeps it from doing more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PruneReport {
    /// Whether pruning is enabled.
    pub enabled: bool,
    /// What it is doing or waiting for, in words.
    pub state: String,
    /// Up to which height deletion is safe. Nothing: nothing may go.
    pub safe_height: Option<u32>,
    /// The hold that decides it. Nothing if it is the height of the chain.
    pub decided_by: Option<String>,
    /// Due records that the holds let go and that are still there, without those that were looked at and retained.
    pub backlog_records: u64,
    /// Blocks between the oldest record that is due by age and has not been looked at, and the newest. Holds make it grow.
    pub lag_blocks: Option<u64>,
    /// Blocks since the oldest record became due that the holds let go and that is still there: 0 if with the last block. `None` if no such
    /// record waits.
    pub oldest_prunable_blocks: Option<u64>,
    /// The same in seconds, by the times of the blocks. If it became due before the lowest block that can be rolled back, seconds since
    /// that one. `None` if no such record waits, or the times are not known.
    pub oldest_prunable_seconds: Option<u64>,
    /// When the backlog will be gone, if that can be told.
    pub catch_up_seconds: Option<f64>,
    /// Where the next job goes on in the due index, as hexadecimal digits.
    pub cursor: Option<String>,
    /// Records that are retained and would be deleted otherwise, by reason. `child_unmined`, `preserved`, `locked`, `not_deep_enough`,
    /// `retention_off` and `held` are counted by the store with each write; which hold retains how many is in `holds`. `unreadable`,
    /// `external_body` and `child_disagrees` are what the last whole look through what is due found, and what was looked at since.
    pub blocked: BTreeMap<String, u64>,
    /// Records that cannot be read, the first hundred by id. They are retained, and stop nothing else.
    pub unreadable: Vec<UnreadableReport>,
    /// How long things are kept, and where each number comes from.
    pub policy: PolicyState,
    /// How the pruner was set up.
    pub settings: SettingsReport,
    /// What all jobs have done since the store was made.
    pub totals: TotalsReport,
    /// Pruning jobs that ran.
    pub timing: TimingReport,
    /// What went wrong with the last job, if it failed.
    pub last_error: Option<String>,
    /// Every hold.
    pub holds: Vec<HoldStatus>,
    /// The newest jobs, the newest first.
    pub newest_jobs: Vec<Job>,
}

impl PruneReport {
    /// What the pruner said, with its newest jobs and how long they took.
    pub fn new(status: PrunerStatus, policy: PolicyState, jobs: &[Job], timing: TimingReport) -> Self {
        let oldest_prunable_blocks = oldest_prunable_blocks(&status);
        let last_error = status.last_job.as_ref().and_then(|job| job.error.clone());
        Self {
            enabled: status.enabled,
            state: status.state,
            safe_height: status.safe_height.map(|height| height.0),
            decided_by: status.decided_by,
            backlog_records: status.backlog_records,
            lag_blocks: Some(status.lag_blocks.into()),
            oldest_prunable_blocks,
            oldest_prunable_seconds: None,
            catch_up_seconds: status.catch_up_seconds,
            cursor: status.cursor,
            blocked: status.blocked,
            unreadable: status.unreadable.into_iter().map(UnreadableReport::new).collect(),
            policy,
            settings: SettingsReport::default(),
            totals: TotalsReport {
                jobs: status.totals.jobs,
                deleted: status.totals.deleted,
                bytes_freed: status.totals.bytes_freed,
                bodies_deleted: status.totals.bodies_deleted,
                retained: status.totals.kept,
                records_per_second: status.totals.records_per_second,
            },
            timing,
            last_error,
            holds: status.holds,
            newest_jobs: jobs.iter().take(JOBS_SHOWN).cloned().collect(),
        }
    }
}

/// Blocks since the oldest record became due that the holds let go.
fn oldest_prunable_blocks(status: &PrunerStatus) -> Option<u64> {
    Some(status.height?.above(status.oldest_due_at?).into())
}

/// How the pruner was set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SettingsReport {
    /// Records judged and deleted at once.
    pub chunk_records: u64,
    /// Chunks that are worked on at the same time.
    pub parallel_chunks: u64,
    /// Records one job looks at.
    pub records_per_job: u64,
    /// How long one job works, in seconds.
    pub time_per_job_seconds: f64,
    /// How long a job may take before it counts as failed, in seconds.
    pub job_timeout_seconds: f64,
    /// How often everything that is due is looked through, in seconds. `None` if only when asked.
    pub look_every_seconds: Option<f64>,
    /// Which part of the time the pruner works while blocks follow one another.
    pub busy_share: f64,
    /// From how many due records on it no longer waits for blocks.
    pub full_speed_above: u64,
    /// How long a report of block assembly counts, in seconds.
    pub block_assembly_ttl_seconds: u64,
    /// How often a long job logs how far it is, in seconds. `None` for never.
    pub progress_log_seconds: Option<f64>,
    /// Jobs that are remembered after they ended.
    pub job_history: u64,
    /// Whether due records are deleted. Without it parents are preserved all the same.
    pub delete_due: bool,
}

impl SettingsReport {
    /// What the options of a pruner say.
    pub fn new(options: &PrunerOptions) -> Self {
        Self {
            chunk_records: options.chunk_records as u64,
            parallel_chunks: options.parallel_chunks as u64,
            records_per_job: options.records_per_job,
            time_per_job_seconds: options.time_per_job.as_secs_f64(),
            job_timeout_seconds: options.job_timeout.as_secs_f64(),
            look_every_seconds: options.look_every.map(|every| every.as_secs_f64()),
            busy_share: options.pacing.busy_share,
            full_speed_above: options.pacing.full_speed_above,
            block_assembly_ttl_seconds: options.block_assembly_ttl.as_secs(),
            progress_log_seconds: options.progress_log.map(|every| every.as_secs_f64()),
            job_history: options.job_history as u64,
            delete_due: options.delete_due,
        }
    }
}

/// A record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnreadableReport {
    /// Which transaction.
    pub txid: String,
    /// What is wrong with its record.
    pub error: String,
}

impl UnreadableReport {
    fn new(record: UnreadableRecord) -> Self {
        Self { txid: record.txid.to_string(), error: record.error }
    }
}

/// What all jobs have done since the store was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TotalsReport {
    /// Jobs that are over.
    pub jobs: u64,
    /// Records deleted.
    pub deleted: u64,
    /// Bytes of the deleted records, as they were in the store.
    pub bytes_freed: u64,
    /// External bodies deleted.
    pub bodies_deleted: u64,
    /// Times a due record was looked at and retained, by reason.
    pub retained: BTreeMap<String, u64>,
    /// Records deleted in a second of work, lately. `None` before the first one.
    pub records_per_second: Option<f64>,
}
