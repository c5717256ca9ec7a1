//! How the pruner is doing.

use std::{collections::BTreeMap, fmt, time::Duration};

use bytes::Bytes;
use sapwood_chain::ChainState;
use sapwood_store::{Cursor, DueRecord, Store, StoreError};
use sapwood_types::{
    DecodeError, Height,
    codec::{Reader, Writer},
};
use serde::Serialize;

use crate::{
    handle::PrunerHandle,
    holds::HoldView,
    jobs::{Job, JobCounts, JobDurations, JobState},
    retained::UnreadableRecord,
    safety::Situation,
    service::Shared,
    text,
};

/// Entries of the due index that are counted one by one. What lies beyond is estimated.
const COUNTED: usize = 10_000;

/// How much is waiting to be deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Backlog {
    /// Due records that the holds let go and that have not been looked at.
    pub records: u64,
    /// Whether that is an estimate.
    pub estimated: bool,
}

/// Counts due records up to a settled height. Beyond a limit goes by how many there were a block so far.
pub(crate) async fn estimate_backlog(
    store: &dyn Store,
    up_to: Option<Height>,
    after: Option<Cursor>,
) -> Result<Backlog, StoreError> {
    let Some(up_to) = up_to else { return Ok(Backlog::default()) };
    let page = store.due(up_to, after, COUNTED).await?;
    let counted = page.items.len() as u64;
    let (Some(first), Some(last), true) = (page.items.first(), page.items.last(), page.next.is_some()) else {
        return Ok(Backlog { records: counted, estimated: false });
    };
    let blocks = |upper: Height| u64::from(upper.above(first.settled_at)) + 1;
    let records = counted * blocks(up_to) / blocks(last.settled_at);
    Ok(Backlog { records: records.max(counted + 1), estimated: true })
}

/// The name of the note that has the totals.
pub const TOTALS_NOTE: &str = "pruner/totals";
const TOTALS_VERSION: u8 = 1;

/// What all jobs have done since the store was made. Written down about once a second while there is something to count, and when the pruner
/// stops: a process that is killed may forget the last second.
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
        let mut from = Reader::new(note);
        from.version(TOTALS_NOTE, TOTALS_VERSION)?;
        let mut totals = Totals {
            jobs: from.varint("jobs")?,
            deleted: from.varint("deleted")?,
            bytes_freed: from.varint("bytes freed")?,
            bodies_deleted: from.varint("bodies deleted")?,
            ..Totals::default()
        };
        while from.left() > 0 {
            let reason = String::from_utf8_lossy(&from.sized("reason")?).into_owned();
            totals.kept.insert(reason, from.varint("kept")?);
        }
        from.end(TOTALS_NOTE)?;
        Ok(totals)
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut to = Writer::with_capacity(64);
        to.u8(TOTALS_VERSION);
        for count in [self.jobs, self.deleted, self.bytes_freed, self.bodies_deleted] {
            to.varint(count);
        }
        for (reason, count) in &self.kept {
            to.sized(reason.as_bytes());
            to.varint(*count);
        }
        Bytes::from(to.finish())
    }

    pub(crate) fn add(&mut self, counts: &JobCounts, durations: &JobDurations) {
        /// How much the newest job counts in the rate.
        const NEWEST: f64 = 0.3;
        self.jobs += 1;
        self.deleted += counts.deleted;
        self.bytes_freed += counts.bytes_freed;
        self.bodies_deleted += counts.bodies_deleted;
        for (reason, count) in &counts.kept {
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
    #[serde(serialize_with = "text::height_option")]
    pub height: Option<Height>,
    /// Up to which height deletion is safe. Nothing: nothing may go.
    #[serde(serialize_with = "text::height_option")]
    pub safe_height: Option<Height>,
    /// The hold that decides it. Nothing if it is the height of the chain.
    pub decided_by: Option<String>,
    /// Every hold.
    pub holds: Vec<HoldView>,
    /// Where the next job goes on in the due index, as hexadecimal digits.
    pub cursor: Option<String>,
    /// What may go and has not been looked at.
    pub backlog: Backlog,
    /// Blocks between the oldest record that is due by age and has not been looked at, and the newest. Holds make it grow.
    pub lag_blocks: u32,
    /// When the backlog will be gone, as far as can be told.
    #[serde(serialize_with = "text::seconds_option")]
    pub catch_up: Option<Duration>,
    /// Records retained although they are due, by reason: by the last whole look through the due index, and what was looked at since. A
    /// whole look comes with each start, each minute (`look_every`) and on demand.
    pub blocked: BTreeMap<String, u64>,
    /// Records that cannot be read, the first hundred by id. They are retained, and stop nothing else.
    pub unreadable: Vec<UnreadableRecord>,
    /// Blocks a record is kept after it settled.
    pub retention: u32,
    /// The job under way.
    pub running: Option<Job>,
    /// The job that is over last.
    pub last_job: Option<Job>,
    /// What all jobs have done.
    pub totals: Totals,
}

/// Figures that take reading the due index.
struct Measured {
    situation: Option<Situation>,
    backlog: Backlog,
    lag_blocks: u32,
    catch_up: Option<Duration>,
}

impl Shared {
    async fn measured(&self) -> Result<Measured, StoreError> {
        let Some(situation) = Situation::of(self, None).await? else {
            let (backlog, catch_up) = (Backlog::default(), Some(Duration::ZERO));
            return Ok(Measured { situation: None, backlog, lag_blocks: 0, catch_up });
        };
        let position = self.position.lock().clone();
        let mut backlog = estimate_backlog(&*self.store, situation.settled_up_to(), position.clone()).await?;
        let lag_blocks = match situation.due_by_age() {
            None => 0,
            Some(up_to) => {
                // After a whole look what is left up to there is retained: it was looked at.
                let looked_up_to = *self.looked_up_to.lock();
                let listed = self.store.due(up_to, position, COUNTED).await?.items;
                let retained = |due: &&DueRecord| Some(due.settled_at) <= looked_up_to;
                let retained = listed.iter().take_while(retained).count();
                backlog.records = backlog.records.saturating_sub(retained as u64);
                listed.get(retained).map_or(0, |oldest| up_to.above(oldest.settled_at) + 1)
            }
        };
        let rate = self.totals.lock().records_per_second;
        let catch_up = match (backlog.records, rate) {
            (0, _) => Some(Duration::ZERO),
            (records, Some(rate)) => Duration::try_from_secs_f64(records as f64 / rate).ok(),
            (_, None) => None,
        };
        Ok(Measured { situation: Some(situation), backlog, lag_blocks, catch_up })
    }

    /// Shows backlog and lag in the metrics. If they cannot be read, the next job says why.
    pub(crate) async fn measure(&self) {
        if let Ok(measured) = self.measured().await {
            self.show(&measured);
        }
    }

    fn show(&self, measured: &Measured) {
        self.metrics.backlog.set(measured.backlog.records as i64);
        self.metrics.lag.set(measured.lag_blocks.into());
        self.metrics.blocked(&self.found.lock().by_reason());
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
        // Whoever reads both finds the same figures in them.
        shared.show(&measured);
        let running = shared.jobs.newest_that(|state| state == JobState::Running);
        let state = shared.state_in_words(&measured, running.as_ref());
        let hexadecimal = |cursor: &Cursor| cursor.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let cursor = shared.position.lock().as_ref().map(hexadecimal);
        let situation = measured.situation.as_ref();
        let holds = match situation {
            Some(situation) => situation.views(&shared.holds),
            None => self.list_holds().await?,
        };
        let (blocked, unreadable) = {
            let found = shared.found.lock();
            (found.by_reason(), found.named())
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
            backlog: measured.backlog,
            lag_blocks: measured.lag_blocks,
            catch_up: measured.catch_up,
            blocked,
            unreadable,
            retention: self.policy().retention,
            running,
            last_job: shared.jobs.newest_that(|state| state.is_over() && state != JobState::Superseded),
            totals: shared.totals.lock().clone(),
        })
    }
}

impl fmt::Display for PrunerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let height = |height: Option<Height>| height.map_or("none".into(), text::at);
        writeln!(f, "state        {}", self.state)?;
        writeln!(f, "height       {} ({})", height(self.height), self.chain)?;
        let because = self.decided_by.as_ref().map_or(String::new(), |hold| format!(", because of {hold}"));
        writeln!(f, "safe height  {}{because}", height(self.safe_height))?;
        let about = if self.backlog.estimated { "about " } else { "" };
        write!(f, "backlog      {about}{} records", text::figure(self.backlog.records))?;
        match self.catch_up {
            Some(catch_up) if self.backlog.records > 0 => {
                writeln!(f, ", gone in about {} s", catch_up.as_secs())?
            }
            _ => writeln!(f)?,
        }
        writeln!(f, "lag          {} blocks", text::figure(self.lag_blocks))?;
        if !self.blocked.is_empty() {
            writeln!(f, "blocked      {}", text::reasons(&self.blocked))?;
        }
        for record in &self.unreadable {
            writeln!(f, "unreadable   {}: {}", record.txid, record.error)?;
        }
        let Totals { jobs, deleted, bytes_freed, .. } = &self.totals;
        let bytes = text::bytes(*bytes_freed);
        writeln!(
            f,
            "so far       {} records deleted ({bytes}) in {} jobs",
            text::figure(*deleted),
            text::figure(*jobs)
        )?;
        if let Some(job) = &self.last_job {
            writeln!(f, "last         {job}")?;
        }
        for hold in &self.holds {
            writeln!(f, "hold         {hold}")?;
        }
        Ok(())
    }
}
