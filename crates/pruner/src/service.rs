//! The pruner as a task: hears what happens to the chain, and does one job after the other.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use sapwood_chain::{ChainState, Event, Events, Subscription, Told};
use sapwood_rules::Policy;
use sapwood_store::{Cursor, Store, StoreError};
use sapwood_types::{BlockMark, Height};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, MissedTickBehavior},
};

use crate::{
    bodies::Bodies,
    clock::Clock,
    handle::PrunerHandle,
    holds::{BLOCK_ASSEMBLY, Consumer, Holds, PERSISTER},
    jobs::{JobId, JobState, Jobs, StopReason, Trigger},
    metrics::PrunerMetrics,
    options::{OptionsError, Pacing, PrunerOptions},
    pace::{LOOK_AGAIN_AFTER, Pacer},
    policy::{PolicyState, Shortening, settle_policy},
    requests::{Request, Requests},
    retained::Found,
    run::{Halt, Phase, Preserved, Run, RunError, Sweep},
    safety::Situation,
    status::{TOTALS_NOTE, Totals},
};

/// The name of the note that says whether somebody enabled or disabled pruning.
pub const ENABLED_NOTE: &str = "pruner/enabled";
const ENABLED_VERSION: u8 = 1;

/// Why the pruner could not start, or refuses a request.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PrunerError {
    /// The options cannot be used.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// Pruning is disabled.
    #[error("pruning is disabled: enable it first")]
    Disabled,
    /// Nothing can be due at the first block.
    #[error("height 0 cannot be pruned: give a height of at least 1, or none for the height of the chain")]
    HeightZero,
    /// The pruner has stopped, or is about to.
    #[error("the pruner has stopped")]
    Stopped,
    /// There is no such job, or it is over and forgotten.
    #[error("there is no job {job}")]
    NoSuchJob {
        /// Which.
        job: JobId,
    },
    /// The job is over.
    #[error("job {job} is {} already", .state.name())]
    JobOver {
        /// Which.
        job: JobId,
        /// What became of it.
        state: JobState,
    },
    /// Less would be kept than before, and that was not confirmed.
    #[error("{0}")]
    Shortens(Box<Shortening>),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The pruner. [`Pruner::start`] runs it beside a chain that is followed, [`Pruner::offline`] opens it where none is.
pub struct Pruner;

impl Pruner {
    /// Starts the pruner as a task of the current runtime. What was left in the store (holds, how far the persister is, whether pruning
    /// is enabled, the cursor) counts from the first moment on. The job of the start comes as soon as the chain is followed and has a
    /// block; until then there is no job.
    ///
    /// # Errors
    /// Options that cannot be used, and notes in the store that cannot be read.
    pub async fn start(
        store: Arc<dyn Store>,
        events: Events,
        bodies: Option<Bodies>,
        options: PrunerOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<PrunerHandle, PrunerError> {
        options.validate()?;
        // Before anything is read, so that nothing is missed in between.
        let heard = events.subscribe();
        let (shared, position) = Shared::open(store, events, bodies, options, clock).await?;
        if let Some(persisted) = shared.events.latest().block_persisted {
            shared.persisted(persisted.height).await;
        }
        if shared.store.last_applied().await?.is_some() {
            shared.trigger(Trigger::StartUp, None, false);
        }
        Ok(spawn(shared, position, Some(heard)))
    }

    /// Opens the pruner of a store whose chain is not followed. Nothing makes it prune but [`PrunerHandle::prune_now`], and one such job
    /// works to the end: limits and pauses are there for blocks that come meanwhile, and none does. Plan, explanations, status and holds
    /// change nothing and start no job.
    ///
    /// # Errors
    /// Options that cannot be used, and notes in the store that cannot be read.
    pub async fn offline(
        store: Arc<dyn Store>,
        bodies: Option<Bodies>,
        options: PrunerOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<PrunerHandle, PrunerError> {
        options.validate()?;
        let options = PrunerOptions {
            look_every: None,
            records_per_job: u64::MAX,
            time_per_job: Duration::MAX,
            job_timeout: Duration::MAX,
            pacing: Pacing { busy_share: 1.0, ..options.pacing },
            ..options
        };
        let events = Events::default();
        // No block can come or be rolled back meanwhile.
        events.enter(ChainState::Offline);
        let (shared, position) = Shared::open(store, events, bodies, options, clock).await?;
        Ok(spawn(shared, position, None))
    }
}

/// Runs jobs, and hears events if there are any to hear.
fn spawn(shared: Arc<Shared>, position: Option<Cursor>, heard: Option<Subscription>) -> PrunerHandle {
    let (stopped, task) = (TellStopped(shared.stopped.clone()), Arc::clone(&shared));
    tokio::spawn(async move {
        // Dropped in the opposite order: a caller that is told that the pruner has stopped can open the store again.
        let _stopped = stopped;
        let task = task;
        let listening = async {
            if let Some(heard) = heard {
                listen(&task, heard).await;
            }
        };
        tokio::join!(listening, work(&task, position));
    });
    PrunerHandle::new(shared)
}

impl Shared {
    /// Reads what was left in the store. Also returns how far the due index has been looked through.
    async fn open(
        store: Arc<dyn Store>,
        events: Events,
        bodies: Option<Bodies>,
        options: PrunerOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<(Arc<Self>, Option<Cursor>), PrunerError> {
        let holds = Holds::load(Arc::clone(&store), Arc::clone(&clock)).await?;
        let enabled = match store.note(ENABLED_NOTE).await? {
            None => options.enabled,
            Some(note) => decode_enabled(&note)?,
        };
        let policy = settle_policy(&*store, &options.policy).await?;
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
            position: Mutex::new(position.clone()),
            preserved: Mutex::default(),
            preserving: tokio::sync::Mutex::default(),
            next_body_part: AtomicU8::new(0),
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

/// Tells that the task has ended, however it did.
struct TellStopped(watch::Sender<bool>);

impl Drop for TellStopped {
    fn drop(&mut self) {
        self.0.send_replace(true);
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

/// A job that could not begin or was cut short.
#[derive(Clone, Copy, Debug)]
struct Owed {
    trigger: Trigger,
    whole: bool,
}

/// What the task and its handles share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
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
    /// The running job that somebody cancelled.
    pub(crate) cancelled: Mutex<Option<JobId>>,
    /// Wakes a job that rests.
    pub(crate) interrupted: Notify,
    pub(crate) stopping: watch::Sender<bool>,
    pub(crate) stopped: watch::Sender<bool>,
    /// What the running job does.
    pub(crate) phase: Mutex<Option<Phase>>,
    /// How far the due index has been looked through.
    pub(crate) position: Mutex<Option<Cursor>>,
    /// Preservations that this pruner made.
    pub(crate) preserved: Mutex<Preserved>,
    /// Held from reading preservations to changing them, so that the pruner never takes somebody else's for its own.
    pub(crate) preserving: tokio::sync::Mutex<()>,
    /// Where to look next for bodies without a record: those of ids that begin with this byte.
    pub(crate) next_body_part: AtomicU8,
    /// Up to which settled height the last whole look came. What is still listed up to there was retained.
    pub(crate) looked_up_to: Mutex<Option<Height>>,
    /// What is retained although it is due, and what cannot be read.
    pub(crate) found: Mutex<Found>,
    pub(crate) totals: Mutex<Totals>,
    /// The totals as they were last written down, and when.
    totals_written: Mutex<(Totals, Instant)>,
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

    /// Why nothing may be pruned now, if so.
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
        if !self.assembly_running.load(Ordering::Acquire) {
            return Some(StopReason::BlockAssemblyNotRunning);
        }
        let silent = self.holds.silent_seconds(BLOCK_ASSEMBLY);
        let silent = silent.filter(|seconds| *seconds > self.options.block_assembly_ttl.as_secs());
        silent.map(|seconds| StopReason::BlockAssemblySilent { seconds })
    }

    pub(crate) fn submit(&self, trigger: Trigger, asked: Option<Height>, whole: bool) -> JobId {
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
    fn owe(&self, trigger: Trigger, whole: bool) {
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

    /// Writes the totals down if they count more than last time: about once a second, or at once if asked to.
    async fn write_totals(&self, at_once: bool) {
        let totals = self.totals.lock().clone();
        {
            let mut written = self.totals_written.lock();
            let (before, at) = &*written;
            let counted = |totals: &Totals| (totals.deleted, totals.bytes_freed, totals.bodies_deleted);
            let due = at_once || at.elapsed() >= LOOK_AGAIN_AFTER;
            if !due || counted(before) == counted(&totals) {
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

/// Waits until it is said.
pub(crate) async fn said(flag: &mut watch::Receiver<bool>) {
    // Whoever says it lives as long as whoever waits.
    let _ = flag.wait_for(|said| *said).await;
}

/// Hears events, watches the chain's state and the time.
async fn listen(shared: &Shared, mut heard: Subscription) {
    let mut state = shared.events.watch_state();
    let mut stopping = shared.stopping.subscribe();
    let mut timer = shared.options.look_every.map(|every| {
        let mut timer = tokio::time::interval_at(Instant::now() + every, every);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        timer
    });
    loop {
        let tick = async {
            match &mut timer {
                Some(timer) => _ = timer.tick().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = said(&mut stopping) => return,
            told = heard.next() => match told {
                Some(Told::Event(event)) => hear(shared, &event).await,
                Some(Told::Missed(events)) => catch_up(shared, events).await,
                // The bus lives as long as this.
                None => return,
            },
            _ = state.changed() => {
                shared.interrupted.notify_waiters();
                shared.resume_if_wanted();
            }
            () = tick => shared.trigger(Trigger::Timer, None, true),
        }
    }
}

async fn hear(shared: &Shared, event: &Event) {
    match event {
        Event::BlockPersisted(persisted) => {
            shared.persisted(persisted.height).await;
            shared.trigger(Trigger::BlockPersisted, Some(persisted.height), false);
        }
        Event::MinedSet(block) => block_mined(shared, block),
        Event::RolledBack(rolled_back) => {
            let to = rolled_back.to.map(|block| block.height);
            if let Err(error) = shared.holds.rolled_back(to).await {
                shared.metrics.failed("holds");
                tracing::error!(%error, "that blocks are no longer persisted could not be written down");
            }
        }
        Event::BlockApplied(_)
        | Event::ReorgStarted(_)
        | Event::ReorgFinished(_)
        | Event::StateChanged(_) => {}
    }
}

/// A block is a reason to prune only while no persister is registered: else what it needs might go.
fn block_mined(shared: &Shared, block: &BlockMark) {
    if shared.holds.get(PERSISTER).is_none() {
        shared.trigger(Trigger::BlockMined, Some(block.height), false);
    }
}

/// Too many events came at once. The latest of each kind say where things stand.
async fn catch_up(shared: &Shared, missed: u64) {
    tracing::debug!(missed, "events were missed; going by the latest of each kind");
    let latest = shared.events.latest();
    if let Some(persisted) = latest.block_persisted {
        hear(shared, &Event::BlockPersisted(persisted)).await;
    }
    if let Some(rolled_back) = latest.rolled_back {
        // Which came first is not known. To take the persister for less far than it is keeps more, and its next report mends it.
        hear(shared, &Event::RolledBack(rolled_back)).await;
    }
    if let Some(block) = latest.mined_set {
        block_mined(shared, &block);
    }
}

/// Does one job after the other.
async fn work(shared: &Arc<Shared>, position: Option<Cursor>) {
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
    *shared.position.lock() = sweep.position.clone();
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
        // The job that goes on is there before this one is over: whoever waits until nothing is under way must not find a gap.
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
