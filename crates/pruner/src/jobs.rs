//! Jobs: what the pruner was asked to do, what it did, and why it stopped.
//!
//! The history is kept in memory and ends with the process. What a job did is in the store.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    time::Duration,
};

use parking_lot::Mutex;
use sapwood_chain::{ChainState, Timing, TimingSummary};
use sapwood_types::Height;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};
use tokio::sync::{broadcast, watch};
#[cfg(feature = "schema")]
use utoipa::ToSchema;

use crate::text;

/// Which job. Numbers count up from 1 in each process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(transparent))]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What became of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub enum JobState {
    /// It waits for its turn.
    Pending,
    /// It is in flight.
    Running,
    /// It did what it was asked, or as much as one job does at a time.
    Completed,
    /// Something went wrong. What it had done by then stays done.
    Failed,
    /// It was stopped, or could not begin, because of what the chain or an operator did.
    Cancelled,
    /// A request for a greater height took its place before it began.
    Superseded,
}

impl JobState {
    /// All states.
    pub const ALL: [JobState; 6] = [
        JobState::Pending,
        JobState::Running,
        JobState::Completed,
        JobState::Failed,
        JobState::Cancelled,
        JobState::Superseded,
    ];

    /// Whether nothing more happens to the job.
    pub fn is_over(self) -> bool {
        !matches!(self, JobState::Pending | JobState::Running)
    }

    /// The name used in interfaces.
    pub fn name(self) -> &'static str {
        match self {
            JobState::Pending => "pending",
            JobState::Running => "running",
            JobState::Completed => "completed",
            JobState::Failed => "failed",
            JobState::Cancelled => "cancelled",
            JobState::Superseded => "superseded",
        }
    }
}

/// Why a job was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub enum Trigger {
    /// The pruner started.
    StartUp,
    /// The persister wrote a block.
    BlockPersisted,
    /// All transactions of a block are marked as mined, and no persister is registered.
    BlockMined,
    /// It was time to look through everything.
    Timer,
    /// A client asked, or the policy was changed.
    OnDemand,
    /// The job before left something to do.
    Continued,
    /// What kept the pruner from working is over.
    Resumed,
}

impl Trigger {
    /// Whether all bodies are looked through for those without a record.
    pub(crate) fn looks_at_all_bodies(self) -> bool {
        matches!(self, Trigger::StartUp | Trigger::OnDemand)
    }

    /// The name used in interfaces.
    pub fn name(self) -> &'static str {
        match self {
            Trigger::StartUp => "start_up",
            Trigger::BlockPersisted => "block_persisted",
            Trigger::BlockMined => "block_mined",
            Trigger::Timer => "timer",
            Trigger::OnDemand => "on_demand",
            Trigger::Continued => "continued",
            Trigger::Resumed => "resumed",
        }
    }
}

/// Why a job did not go to the end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(Serialize, Deserialize),
    serde(rename_all = "snake_case", tag = "reason")
)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub enum StopReason {
    /// The chain is not being followed, or a branch is being exchanged.
    ChainNotRunning {
        /// What it does instead.
        state: ChainState,
    },
    /// Block assembly is registered and does not say that it is running.
    BlockAssemblyNotRunning,
    /// Block assembly is registered, and its last report is too long ago to count.
    BlockAssemblySilent {
        /// Seconds since its last report.
        seconds: u64,
    },
    /// No block has been applied.
    NoBlocks,
    /// Pruning is disabled.
    Disabled,
    /// Deleting is turned off (`pruner.delete_due`). Only plans and explanations say so: a job does its other work.
    DeletingOff,
    /// An operator cancelled it.
    Cancelled,
    /// The pruner is stopping.
    Stopping,
    /// It has looked at as many records as one job does. Another job goes on.
    RecordLimit,
    /// It has worked as long as one job does. Another job goes on.
    TimeLimit,
}

impl StopReason {
    /// Every short fixed name there is, and the one of a job that could not preserve a parent.
    pub const LABELS: [&str; 9] = [
        "not_running",
        "no_blocks",
        "disabled",
        "deleting_off",
        "cancelled",
        "stopping",
        "record_limit",
        "time_limit",
        "preserve_failed",
    ];

    /// A short fixed name, for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            StopReason::ChainNotRunning { .. }
            | StopReason::BlockAssemblyNotRunning
            | StopReason::BlockAssemblySilent { .. } => "not_running",
            StopReason::NoBlocks => "no_blocks",
            StopReason::Disabled => "disabled",
            StopReason::DeletingOff => "deleting_off",
            StopReason::Cancelled => "cancelled",
            StopReason::Stopping => "stopping",
            StopReason::RecordLimit => "record_limit",
            StopReason::TimeLimit => "time_limit",
        }
    }

    /// Whether another job goes on at once.
    pub fn is_limit(&self) -> bool {
        matches!(self, StopReason::RecordLimit | StopReason::TimeLimit)
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopReason::ChainNotRunning { state } => {
                write!(f, "the chain is {}", state.name().replace('_', " "))
            }
            StopReason::BlockAssemblyNotRunning => write!(f, "block assembly is not running"),
            StopReason::BlockAssemblySilent { seconds } => {
                write!(f, "block assembly has not reported for {seconds} s")
            }
            StopReason::NoBlocks => write!(f, "no block has been applied yet"),
            StopReason::Disabled => write!(f, "pruning is disabled"),
            StopReason::DeletingOff => write!(f, "deleting is turned off by pruner.delete_due"),
            StopReason::Cancelled => write!(f, "it was cancelled"),
            StopReason::Stopping => write!(f, "the pruner is stopping"),
            StopReason::RecordLimit => {
                write!(f, "it has looked at as many records as one job does; another goes on")
            }
            StopReason::TimeLimit => write!(f, "it has worked as long as one job does; another goes on"),
        }
    }
}

/// Why a job stopped, or would not begin, as interfaces show it.
#[cfg(feature = "serde")]
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct Stopped {
    /// For programs.
    #[serde(flatten)]
    reason: StopReason,
    /// For people.
    message: String,
}

/// Reads and writes a [`StopReason`] as a [`Stopped`].
#[cfg(feature = "serde")]
pub(crate) mod stopped {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{StopReason, Stopped};

    pub(crate) fn serialize<S: Serializer>(stopped: &Option<StopReason>, to: S) -> Result<S::Ok, S::Error> {
        let stopped = stopped.clone();
        stopped.map(|reason| Stopped { message: reason.to_string(), reason }).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<StopReason>, D::Error> {
        Ok(Option::<Stopped>::deserialize(from)?.map(|stopped| stopped.reason))
    }
}

/// What a job counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct JobCounts {
    /// Parents of old unmined transactions whose preservation was set or renewed.
    pub parents_preserved: u64,
    /// Preservations that ended.
    pub preservations_expired: u64,
    /// Due records looked at.
    pub looked_at: u64,
    /// Records deleted.
    pub deleted: u64,
    /// Records that were not found any more when they were to be deleted.
    #[cfg_attr(feature = "serde", serde(rename = "not_found"))]
    pub gone: u64,
    /// Records retained, by reason.
    pub retained: BTreeMap<String, u64>,
    /// External bodies deleted, those not found any more included.
    pub bodies_deleted: u64,
    /// Bytes of the pages of deleted records.
    pub bytes_freed: u64,
    /// Undo records dropped.
    pub undo_dropped: u64,
}

impl JobCounts {
    /// How many records were retained.
    pub fn kept_in_all(&self) -> u64 {
        self.retained.values().sum()
    }

    pub(crate) fn keep(&mut self, reason: &str) {
        *self.retained.entry(reason.to_owned()).or_default() += 1;
    }
}

/// How long each part of a job took, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct JobDurations {
    /// Preserving parents.
    #[cfg_attr(feature = "serde", serde(with = "text::seconds"))]
    #[cfg_attr(feature = "schema", schema(value_type = f64))]
    pub preserve_parents: Duration,
    /// Ending preservations.
    #[cfg_attr(feature = "serde", serde(with = "text::seconds"))]
    #[cfg_attr(feature = "schema", schema(value_type = f64))]
    pub expire_preservations: Duration,
    /// Deleting due records, pauses included.
    #[cfg_attr(feature = "serde", serde(with = "text::seconds"))]
    #[cfg_attr(feature = "schema", schema(value_type = f64))]
    pub delete_due: Duration,
    /// Dropping undo records.
    #[cfg_attr(feature = "serde", serde(with = "text::seconds"))]
    #[cfg_attr(feature = "schema", schema(value_type = f64))]
    pub drop_undo: Duration,
}

impl JobDurations {
    /// Returns how long all parts took.
    pub fn total(&self) -> Duration {
        let JobDurations { preserve_parents, expire_preservations, delete_due, drop_undo } = self;
        *preserve_parents + *expire_preservations + *delete_due + *drop_undo
    }
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct Job {
    /// Which.
    pub id: JobId,
    /// Why it was made.
    pub trigger: Trigger,
    /// What became of it.
    pub state: JobState,
    /// The height asked for. `None`: that of the chain when it begins.
    pub asked: Option<Height>,
    /// The height it works at: the one asked for, but not above the chain. `None`: it has not begun.
    pub height: Option<Height>,
    /// Up to which height deletion was safe when it was last checked. `None`: no record is prunable, or it has not begun.
    pub safe_height: Option<Height>,
    /// The hold that decided the safe height. `None`: it is the height itself.
    pub decided_by: Option<String>,
    /// Whether it looked through everything that is due, or went on where the last one was.
    pub whole: bool,
    /// What it counted.
    pub counts: JobCounts,
    /// How long each part took, in seconds.
    #[cfg_attr(feature = "serde", serde(rename = "seconds"))]
    pub durations: JobDurations,
    /// When it was made, as a Unix timestamp.
    pub created_at: u64,
    /// When it began, as a Unix timestamp. `None`: it has not.
    pub started_at: Option<u64>,
    /// When it ended, as a Unix timestamp. `None`: it has not.
    pub ended_at: Option<u64>,
    /// Why it did not go to the end. `None`: it did, or has not ended.
    #[cfg_attr(feature = "serde", serde(default, with = "stopped"))]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Stopped>))]
    pub stopped_early: Option<StopReason>,
    /// What went wrong. `None`: it did not fail.
    pub error: Option<String>,
    /// The job that took its place. `None`: none did.
    pub superseded_by: Option<JobId>,
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {} ({}) {}", self.id, self.trigger.name().replace('_', " "), self.state.name())?;
        if let Some(height) = self.height {
            write!(f, " at {}", text::at(height))?;
        }
        match (self.safe_height, &self.decided_by) {
            (Some(safe), Some(hold)) => write!(f, ", safe up to {} because of {hold}", text::at(safe))?,
            (None, Some(hold)) => write!(f, ", where {hold} retains everything")?,
            _ => {}
        }
        let JobCounts { deleted, bytes_freed, retained, .. } = &self.counts;
        write!(f, ": {} deleted ({})", text::counted(*deleted, "record"), text::bytes(*bytes_freed))?;
        if !retained.is_empty() {
            write!(f, ", retained: {}", text::reasons(retained))?;
        }
        if let Some(by) = self.superseded_by {
            write!(f, "; job {by} took its place")?;
        }
        if let Some(reason) = &self.stopped_early {
            write!(f, "; stopped because {reason}")?;
        }
        match &self.error {
            Some(error) => write!(f, "; {error}"),
            None => Ok(()),
        }
    }
}

/// How many changes a watcher may lag behind.
const CHANGES_KEPT: usize = 256;

/// All jobs that are remembered.
pub(crate) struct Jobs {
    jobs: Mutex<Remembered>,
    changes: broadcast::Sender<Job>,
    /// Counts up with each change of a state, for those who wait.
    version: watch::Sender<u64>,
    /// How long those took that ran and are over.
    timing: Timing,
}

struct Remembered {
    /// Oldest first.
    list: VecDeque<Job>,
    next: u64,
    history: usize,
}

impl Jobs {
    pub(crate) fn new(history: usize) -> Self {
        let jobs = Mutex::new(Remembered { list: VecDeque::new(), next: 1, history });
        let (changes, version) = (broadcast::channel(CHANGES_KEPT).0, watch::channel(0).0);
        Jobs { jobs, changes, version, timing: Timing::default() }
    }

    /// Makes a pending job.
    pub(crate) fn create(&self, trigger: Trigger, asked: Option<Height>, now: u64) -> JobId {
        let job = {
            let mut jobs = self.jobs.lock();
            let id = JobId(jobs.next);
            jobs.next += 1;
            let job = Job {
                id,
                trigger,
                state: JobState::Pending,
                asked,
                height: None,
                safe_height: None,
                decided_by: None,
                whole: false,
                counts: JobCounts::default(),
                durations: JobDurations::default(),
                created_at: now,
                started_at: None,
                ended_at: None,
                stopped_early: None,
                error: None,
                superseded_by: None,
            };
            jobs.list.push_back(job.clone());
            while jobs.list.len() > jobs.history && jobs.list.front().is_some_and(|job| job.state.is_over()) {
                jobs.list.pop_front();
            }
            job
        };
        let id = job.id;
        self.tell(job);
        id
    }

    /// Changes a job that is remembered. Watchers are told if its state changed.
    pub(crate) fn update(&self, id: JobId, change: impl FnOnce(&mut Job)) -> Option<Job> {
        let (before, job) = {
            let mut jobs = self.jobs.lock();
            let job = jobs.list.iter_mut().rev().find(|job| job.id == id)?;
            let before = job.state;
            change(job);
            (before, job.clone())
        };
        if job.state != before {
            if before == JobState::Running && job.state.is_over() {
                self.timing.note(job.durations.total());
            }
            self.tell(job.clone());
        }
        Some(job)
    }

    /// How long the jobs took that ran and are over.
    pub(crate) fn timing(&self) -> TimingSummary {
        self.timing.summary()
    }

    fn tell(&self, job: Job) {
        self.version.send_modify(|version| *version += 1);
        // Nobody listening is fine.
        let _ = self.changes.send(job);
    }

    pub(crate) fn get(&self, id: JobId) -> Option<Job> {
        self.jobs.lock().list.iter().rev().find(|job| job.id == id).cloned()
    }

    /// The newest jobs first.
    pub(crate) fn newest(&self, limit: usize) -> Vec<Job> {
        self.jobs.lock().list.iter().rev().take(limit).cloned().collect()
    }

    /// The newest job in a state.
    pub(crate) fn newest_that(&self, wanted: impl Fn(JobState) -> bool) -> Option<Job> {
        self.jobs.lock().list.iter().rev().find(|job| wanted(job.state)).cloned()
    }

    pub(crate) fn watch(&self) -> broadcast::Receiver<Job> {
        self.changes.subscribe()
    }

    /// Waits until a job is over. Nothing if it is not remembered.
    pub(crate) async fn over(&self, id: JobId) -> Option<Job> {
        let mut version = self.version.subscribe();
        loop {
            version.mark_unchanged();
            let job = self.get(id)?;
            if job.state.is_over() {
                return Some(job);
            }
            // The sender lives as long as this.
            let _ = version.changed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_of_a_stop_is_listed() {
        let (_, stop) = include_str!("jobs.rs").split_once("impl StopReason").unwrap();
        let (_, label) = stop.split_once("pub fn label(&self)").unwrap();
        let body = label.split("\n    }\n").next().unwrap();
        let labels = body.split("=> \"").skip(1).filter_map(|arm| arm.split('"').next());
        let labels: Vec<&str> = labels.chain(["preserve_failed"]).collect();
        assert_eq!(labels, StopReason::LABELS);
    }

    #[test]
    fn history_is_trimmed_and_what_is_under_way_stays() {
        let jobs = Jobs::new(3);
        let first = jobs.create(Trigger::StartUp, None, 0);
        for _ in 0..10 {
            let id = jobs.create(Trigger::Timer, None, 0);
            jobs.update(id, |job| job.state = JobState::Completed);
        }
        assert_eq!(
            jobs.newest(100).len(),
            11,
            "the first one is still pending, so nothing before it ends goes"
        );
        jobs.update(first, |job| job.state = JobState::Cancelled);
        let last = jobs.create(Trigger::Timer, None, 0);
        let ids: Vec<_> = jobs.newest(100).iter().map(|job| job.id.0).collect();
        assert_eq!(ids, [12, 11, 10], "newest first");
        assert_eq!((jobs.get(first), last), (None, JobId(12)));
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_job_reads_back_from_json_with_the_reason_for_programs_and_for_people() {
        let jobs = Jobs::new(3);
        let id = jobs.create(Trigger::OnDemand, Some(Height(5)), 7);
        for reason in [
            None,
            Some(StopReason::TimeLimit),
            Some(StopReason::ChainNotRunning { state: ChainState::Reorganising }),
            Some(StopReason::BlockAssemblySilent { seconds: 61 }),
        ] {
            let job = jobs.update(id, |job| {
                job.stopped_early.clone_from(&reason);
                job.durations.delete_due = Duration::from_millis(1500);
                job.counts.keep("held");
            });
            let written = serde_json::to_value(job.as_ref().unwrap()).unwrap();
            assert_eq!((&written["seconds"]["delete_due"], &written["id"]), (&1.5.into(), &1.into()));
            let message = reason.as_ref().map(ToString::to_string);
            assert_eq!(written["stopped_early"]["message"].as_str(), message.as_deref());
            assert_eq!(serde_json::from_value::<Job>(written).unwrap(), job.unwrap());
        }
    }

    #[tokio::test]
    async fn waiting_ends_with_the_job_and_at_once_for_an_unknown_one() {
        let jobs = Jobs::new(3);
        let id = jobs.create(Trigger::OnDemand, Some(Height(5)), 0);
        let mut changes = jobs.watch();
        let (over, _) = tokio::join!(jobs.over(id), async {
            jobs.update(id, |job| job.state = JobState::Running);
            jobs.update(id, |job| job.durations.drop_undo = Duration::from_secs(2));
            jobs.update(id, |job| job.state = JobState::Failed);
        });
        assert_eq!((jobs.timing().count, jobs.timing().last_ms), (1, 2000.0));
        assert_eq!(over.map(|job| job.state), Some(JobState::Failed));
        assert_eq!(jobs.over(JobId(99)).await, None);
        assert_eq!(changes.recv().await.unwrap().state, JobState::Running);
        assert_eq!(changes.recv().await.unwrap().state, JobState::Failed);
    }
}
