//! What the task and its handles share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use sapwood_chain::{ChainState, Events};
use sapwood_ledger::{Cursor, Ledger, StoreError};
use sapwood_rules::Policy;
use sapwood_types::Height;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::PrunerError;
use crate::{
    bodies::Bodies,
    clock::Clock,
    holds::{BLOCK_ASSEMBLY, Consumer, Holds},
    jobs::{JobId, Jobs, StopReason, Trigger},
    metrics::PrunerMetrics,
    options::PrunerOptions,
    pace::LOOK_AGAIN_AFTER,
    policy::{PolicyState, settle_policy},
    requests::Requests,
    retained::Found,
    run::{Phase, Preserved},
    safety::Situation,
    status::{TOTALS_NOTE, Totals},
};

/// The name of the note that says whether an operator enabled or disabled pruning.
pub const ENABLED_NOTE: &str = "pruner/enabled";
const ENABLED_VERSION: u8 = 1;

/// A job that could not begin or was cut short.
#[derive(Clone, Copy, Debug)]
struct Owed {
    trigger: Trigger,
    whole: bool,
}

/// What the task and its handles share.
pub(crate) struct Shared {
    pub(crate) store: Ledger,
    pub(crate) events: Events,
    pub(crate) bodies: Option<Bodies>,
    pub(crate) options: PrunerOptions,
    pub(crate) policy: RwLock<Policy>,
    /// The policy with where each number comes from.
    pub(crate) policy_state: RwLock<PolicyState>,
    /// Held while the policy is being changed.
    pub(crate) changing_policy: tokio::sync::Mutex<()>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) holds: Holds,
    pub(crate) jobs: Jobs,
    pub(crate) requests: Requests,
    pub(crate) metrics: PrunerMetrics,
    enabled: AtomicBool,
    /// Whether block assembly says that it is running. Counts only while it is registered.
    pub(crate) assembly_running: AtomicBool,
    /// The job to be made up for as soon as pruning can run. `None` if there is none.
    owed: Mutex<Option<Owed>>,
    /// The running job that was cancelled.
    pub(crate) cancelled: Mutex<Option<JobId>>,
    /// Wakes a job that rests.
    pub(crate) interrupted: Notify,
    pub(crate) stopping: watch::Sender<bool>,
    pub(crate) stopped: watch::Sender<bool>,
    /// What the running job does.
    pub(crate) phase: Mutex<Option<Phase>>,
    /// Preservations that this pruner made.
    pub(crate) preserved: Mutex<Preserved>,
    /// Held from reading preservations to changing them, so that the pruner never takes those of another caller for its own.
    pub(crate) preserving: tokio::sync::Mutex<()>,
    /// Where to look next for bodies without a record: those of ids that begin with this byte.
    pub(crate) next_body_part: AtomicU8,
    /// All bodies have to be looked through, and the job that was asked to ended before that.
    pub(crate) owes_all_bodies: AtomicBool,
    /// Up to which settled height the last whole look came. What is still listed up to there was retained.
    pub(crate) looked_up_to: Mutex<Option<Height>>,
    /// What is retained although it is due, and what cannot be read.
    pub(crate) found: Mutex<Found>,
    pub(crate) totals: Mutex<Totals>,
    /// The totals as they were last written down, and when.
    totals_written: Mutex<(Totals, Instant)>,
}

impl Shared {
    /// Reads what was left in the store. Also returns how far the due index has been looked through.
    pub(super) async fn open(
        store: Ledger,
        events: Events,
        bodies: Option<Bodies>,
        options: PrunerOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<(Arc<Self>, Option<Cursor>), PrunerError> {
        let holds = Holds::load(store.clone(), Arc::clone(&clock)).await?;
        let enabled = match store.note(ENABLED_NOTE).await? {
            None => options.enabled,
            Some(note) => decode_enabled(&note)?,
        };
        let policy = settle_policy(&store, &options.policy).await?;
        let totals = match store.note(TOTALS_NOTE).await? {
            None => Totals::default(),
            Some(note) => Totals::decode(note)
                .map_err(|cause| StoreError::Corrupt { what: format!("the note {TOTALS_NOTE}"), cause })?,
        };
        let position = store.prune_cursor().await?;
        let shared = Arc::new(Shared {
            store,
            events,
            bodies,
            policy: RwLock::new(policy.policy()),
            policy_state: RwLock::new(policy),
            changing_policy: tokio::sync::Mutex::default(),
            clock,
            holds,
            jobs: Jobs::new(options.job_history),
            requests: Requests::new(),
            metrics: PrunerMetrics::default(),
            options,
            enabled: AtomicBool::new(enabled),
            assembly_running: AtomicBool::new(false),
            owed: Mutex::default(),
            cancelled: Mutex::new(None),
            interrupted: Notify::new(),
            stopping: watch::channel(false).0,
            stopped: watch::channel(false).0,
            phase: Mutex::new(None),
            preserved: Mutex::default(),
            preserving: tokio::sync::Mutex::default(),
            next_body_part: AtomicU8::new(0),
            owes_all_bodies: AtomicBool::new(false),
            found: Mutex::default(),
            looked_up_to: Mutex::default(),
            totals: Mutex::new(totals.clone()),
            totals_written: Mutex::new((totals, Instant::now())),
        });
        shared.metrics.restore(&shared.totals.lock());
        shared.metrics.enabled.set(enabled.into());
        Ok((shared, position))
    }
}

impl Shared {
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }

    /// Enables or disables pruning, for good.
    pub(crate) async fn set_enabled(&self, enabled: bool) -> Result<(), StoreError> {
        let note = Bytes::copy_from_slice(&[ENABLED_VERSION, enabled.into()]);
        self.store.put_notes(vec![(ENABLED_NOTE.into(), Some(note))]).await?;
        self.enabled.store(enabled, Ordering::Release);
        self.metrics.enabled.set(enabled.into());
        self.interrupted.notify_waiters();
        if enabled {
            self.resume_if_wanted();
        }
        Ok(())
    }

    /// Why nothing may be pruned now. `None` if it may.
    pub(crate) fn stop_reason(&self, job: Option<JobId>) -> Option<StopReason> {
        if *self.stopping.borrow() {
            return Some(StopReason::Stopping);
        }
        if !self.is_enabled() {
            return Some(StopReason::Disabled);
        }
        if job.is_some() && *self.cancelled.lock() == job {
            return Some(StopReason::Cancelled);
        }
        match self.events.state() {
            // Offline no block comes, and none is rolled back.
            ChainState::Running | ChainState::Offline => {}
            ChainState::CatchingUp if self.options.while_catching_up => {}
            state => return Some(StopReason::ChainNotRunning { state }),
        }
        self.holds.get(BLOCK_ASSEMBLY)?;
        // What it said last counts no longer once that is too long ago, whatever it was.
        let silent = self.holds.silent_seconds(BLOCK_ASSEMBLY);
        if let Some(seconds) = silent.filter(|seconds| *seconds > self.options.block_assembly_ttl.as_secs()) {
            return Some(StopReason::BlockAssemblySilent { seconds });
        }
        let running = self.assembly_running.load(Ordering::Acquire);
        (!running).then_some(StopReason::BlockAssemblyNotRunning)
    }

    /// Why a job now would delete nothing, whatever is due. `None` if it would delete.
    pub(crate) fn nothing_deleted(&self) -> Option<StopReason> {
        let off = (!self.options.delete_due).then_some(StopReason::DeletingOff);
        self.stop_reason(None).or(off)
    }

    pub(crate) fn submit(&self, trigger: Trigger, asked: Option<Height>, whole: bool) -> JobId {
        if trigger.looks_at_all_bodies() {
            self.owes_all_bodies.store(true, Ordering::Relaxed);
        }
        self.requests.submit(&self.jobs, trigger, asked, whole, self.clock.now())
    }

    /// Something is a reason to prune: makes a job, or, while pruning cannot run, one as soon as it can.
    pub(crate) fn trigger(&self, trigger: Trigger, asked: Option<Height>, whole: bool) {
        match self.stop_reason(None) {
            None => _ = self.submit(trigger, asked, whole),
            Some(reason) => {
                self.metrics.skipped(reason.label());
                self.owe(trigger, whole);
                // It may have become possible between the look and here.
                self.resume_if_wanted();
            }
        }
    }

    /// Notes a job that shall be made up for.
    pub(super) fn owe(&self, trigger: Trigger, whole: bool) {
        let mut owed = self.owed.lock();
        let before = owed.take();
        let at_start = |owed: &Owed| owed.trigger == Trigger::StartUp;
        let start_up = trigger == Trigger::StartUp || before.as_ref().is_some_and(at_start);
        let trigger = if start_up { Trigger::StartUp } else { Trigger::Resumed };
        *owed = Some(Owed { trigger, whole: whole || before.is_some_and(|before| before.whole) });
    }

    /// Makes up for a job that could not do its work, if there was one and it can now.
    pub(crate) fn resume_if_wanted(&self) {
        if self.stop_reason(None).is_some() {
            return;
        }
        let owed = self.owed.lock().take();
        if let Some(Owed { trigger, whole }) = owed {
            self.submit(trigger, None, whole);
        }
    }

    /// Pauses, unless something happens that the job should look at. Returns whether something did.
    pub(crate) async fn rest(&self, pause: Duration) -> bool {
        let mut state = self.events.watch_state();
        tokio::select! {
            () = tokio::time::sleep(pause) => false,
            () = self.interrupted.notified() => true,
            _ = state.changed() => true,
        }
    }

    /// The persister has written all blocks up to this height.
    pub(crate) async fn persisted(&self, height: Height) {
        if let Err(error) = self.holds.report(Consumer::Persister, height).await {
            // It counts in memory. After a restart less is known to be persisted, which keeps more.
            self.metrics.failed("holds");
            tracing::error!(%error, %height, "how far the persister is could not be written down");
        }
    }

    /// Writes the totals down: about once a second while something is deleted, or at once, and then all that was counted.
    pub(super) async fn write_totals(&self, at_once: bool) {
        let totals = self.totals.lock().clone();
        {
            let mut written = self.totals_written.lock();
            let (before, at) = &*written;
            let counted = |totals: &Totals| (totals.deleted, totals.bytes_freed, totals.bodies_deleted);
            let due = match at_once {
                true => *before != totals,
                false => at.elapsed() >= LOOK_AGAIN_AFTER && counted(before) != counted(&totals),
            };
            if !due {
                return;
            }
            *written = (totals.clone(), Instant::now());
        }
        if let Err(error) = self.store.put_notes(vec![(TOTALS_NOTE.into(), Some(totals.encode()))]).await {
            tracing::warn!(%error, "the totals of pruning could not be written down");
        }
    }

    /// Shows the safe height and the holds in the metrics.
    pub(crate) fn note_situation(&self, situation: &Situation) {
        let number = |height: Option<Height>| height.map_or(-1, |height| height.0.into());
        self.metrics.safe_height.set(number(situation.safe.height));
        self.metrics.holds_expired.set(situation.safe.expired.len() as i64);
        let first_needed = |keep_from: Option<Height>| keep_from.map_or(0, |height| height.0.into());
        self.metrics.hold_heights(
            situation.holds.iter().map(|hold| (hold.name.clone(), first_needed(hold.keep_from))),
        );
    }
}

fn decode_enabled(note: &Bytes) -> Result<bool, StoreError> {
    use sapwood_types::{DecodeError, codec::Reader};
    let decode = || -> Result<bool, DecodeError> {
        let mut from = Reader::new(note.clone());
        from.version(ENABLED_NOTE, ENABLED_VERSION)?;
        let enabled = match from.u8("enabled")? {
            0 => false,
            1 => true,
            value => return Err(DecodeError::UnknownValue { field: "enabled", value: value.into() }),
        };
        from.end(ENABLED_NOTE)?;
        Ok(enabled)
    };
    decode().map_err(|cause| StoreError::Corrupt { what: format!("the note {ENABLED_NOTE}"), cause })
}
