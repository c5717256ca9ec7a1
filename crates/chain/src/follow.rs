//! Following a source: reconcile, catch up, stay at the tip, change branches.

use std::{
    collections::VecDeque,
    future::Future,
    ops::ControlFlow,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sapwood_ledger::ApplyOptions;
use sapwood_sources::{BlockSource, ChainPoint, Gap, ReadAhead, SourceBlock, SourceError};
use sapwood_types::{Block, BlockHash, BlockMark, Height};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{BelowFloor, Chain, ChainError, ChainState, LONGEST_RUN, Progress, SourceHealth};

/// The longest pause before a source that failed is asked again. That it answers again is to show within five seconds, measuring and
/// asking included.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause before a block that the source stands by is tried again if that takes a rollback: everyone would see the chain go
/// back and forth.
pub const LONGEST_REFUSAL: Duration = Duration::from_secs(600);
/// A source that has not answered for this long counts as unreachable, and is still waited for.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);
/// The same for a source that is to deliver a block, which may be large.
const BLOCK_WITHIN: Duration = Duration::from_secs(30);
/// How often a failure that lasts is logged.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// How to follow.
#[derive(Clone, Copy, Debug)]
pub struct FollowOptions {
    /// How many blocks are fetched and decoded ahead of time.
    pub read_ahead: usize,
    /// Go no further than this height.
    pub stop_at: Option<Height>,
    /// How long one wait for another tip lasts before the source is asked again what it has.
    pub wait: Duration,
    /// The first pause after a failure that may pass. It doubles up to [`LONGEST_PAUSE`].
    pub retry: Duration,
    /// The pause before a block that the source stands by is tried again. If that takes a rollback, it doubles up to
    /// [`LONGEST_REFUSAL`].
    pub retry_refused: Duration,
    /// With more blocks to go than this the state is "catching up".
    pub behind: u32,
    /// How often the log tells how far catching up is.
    pub log_every: Duration,
}

impl Default for FollowOptions {
    fn default() -> Self {
        Self {
            read_ahead: 8,
            stop_at: None,
            wait: Duration::from_secs(1),
            retry: Duration::from_millis(250),
            retry_refused: LONGEST_PAUSE,
            behind: 2,
            log_every: Duration::from_secs(10),
        }
    }
}

/// A block that could not be applied, and what the source then did without.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// The block.
    pub hash: BlockHash,
    /// Why.
    pub cause: ChainError,
}

/// Asks a follower to stop. Clones ask the same one. It stops between two blocks, or rows of blocks while it catches up.
#[derive(Clone, Debug)]
pub struct Stop(watch::Sender<bool>);

impl Default for Stop {
    fn default() -> Self {
        Self(watch::channel(false).0)
    }
}

impl Stop {
    /// Asks to stop.
    pub fn ask(&self) {
        self.0.send_replace(true);
    }

    /// Whether it was asked.
    pub fn is_asked(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is asked.
    pub async fn asked(&self) {
        // The sender lives as long as this does, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|asked| *asked).await;
    }

    /// The work's result. `None` if asked to stop before.
    pub async fn or<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.asked() => None,
            result = work => Some(result),
        }
    }
}

/// Follows a source. Clones share everything.
#[derive(Clone)]
pub struct Follower {
    pub(crate) chain: Chain,
    pub(crate) source: Arc<dyn BlockSource>,
    options: FollowOptions,
    stop: Stop,
    progress: watch::Sender<Progress>,
    rejected: Arc<Mutex<VecDeque<Rejected>>>,
}

/// Why the source's chain is not tried again yet.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// The block at which it failed, which the source may leave. `None` if it is not about a block.
    block: Option<ChainPoint>,
    /// The source's tip, if another one is worth a try.
    tip: Option<BlockHash>,
    /// When it is tried again in any case.
    until: tokio::time::Instant,
}

impl Held {
    fn left(&self) -> Duration {
        self.until.saturating_duration_since(tokio::time::Instant::now())
    }
}

/// What a follower remembers between two rounds.
struct Rounds {
    reconciled: bool,
    /// The pause after the next failure.
    pause: Duration,
    /// The pause after the next refusal of a block that the source stands by and that takes a rollback to try.
    refusal: Duration,
    held: Option<Held>,
    /// The failure that was logged last, without its numbers, and when. `None` while all is well.
    logged: Option<(Instant, String)>,
}

/// Rejected blocks that are remembered: a source may have any number of bad ones.
const REJECTED_KEPT: usize = 1000;

impl Follower {
    /// A follower of `source` that applies to `chain`.
    pub fn new(chain: Chain, source: Arc<dyn BlockSource>, options: FollowOptions, stop: Stop) -> Self {
        let progress = watch::channel(Progress::default()).0;
        Self { chain, source, options, stop, progress, rejected: Arc::default() }
    }

    /// How far it is.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Blocks that could not be applied so far, oldest first.
    pub fn rejected(&self) -> Vec<Rejected> {
        self.rejected.lock().iter().cloned().collect()
    }

    /// Compares what is applied with the source, and goes to the branch of the source that can be applied. Before anything else.
    pub async fn reconcile(&self) -> Result<(), ChainError> {
        self.chain.events().enter(ChainState::Resetting);
        if self.chain.last().await?.is_none() {
            info!(source = self.source.name(), "no block is applied yet");
            return Ok(());
        }
        match self.join_branch().await? {
            Some((Some(last), tip)) => {
                info!(%last, %tip, behind = tip.height.above(last.height), "reconciled");
            }
            _ => {
                warn!(source = self.source.name(), "the source has no blocks: what is applied stays as it is")
            }
        }
        Ok(())
    }

    /// Applies everything up to the tip, or to the height to stop at. Returns when there is nothing more, or when asked to stop.
    pub async fn catch_up(&self) -> Result<(), ChainError> {
        let result = match self.catch_up_or_fail().await {
            Err(ChainError::Source(SourceError::Interrupted)) if self.stop.is_asked() => Ok(()),
            result => result,
        };
        // What was handed over is applied, whatever happened.
        let drained = self.chain.drain().await;
        result.and(drained)
    }

    /// Follows until asked to stop. Whatever the source does is shown in [`Progress::source`] and tried again; an error is one of the
    /// store.
    pub async fn follow(&self) -> Result<(), ChainError> {
        let result = self.follow_or_fail().await;
        let closed = self.chain.close().await;
        self.chain.events().enter(ChainState::Stopped);
        result.and(closed)
    }

    async fn follow_or_fail(&self) -> Result<(), ChainError> {
        let FollowOptions { retry, retry_refused, .. } = self.options;
        let mut rounds =
            Rounds { reconciled: false, pause: retry, refusal: retry_refused, held: None, logged: None };
        while !self.stop.is_asked() {
            let Err(error) = self.round(&mut rounds).await else {
                if rounds.held.is_none() {
                    (rounds.pause, rounds.refusal) = (retry, retry_refused);
                }
                continue;
            };
            if self.stop.is_asked() && error.may_pass() {
                break;
            }
            let pause = self.take_failure(error, &mut rounds)?;
            self.stop.or(tokio::time::sleep(pause)).await;
        }
        Ok(())
    }

    /// Asks the source what it has, applies it, and waits for more.
    async fn round(&self, rounds: &mut Rounds) -> Result<(), ChainError> {
        let tip = self.look().await?;
        if let Some(held) = self.held(rounds, tip).await? {
            self.health(SourceHealth::works);
            // The source is still asked every now and then, so that it is known how far it is.
            self.stop.or(tokio::time::sleep(self.options.wait.min(held.left()))).await;
            return Ok(());
        }
        if !rounds.reconciled {
            self.reconcile().await?;
            rounds.reconciled = true;
        }
        self.catch_up().await?;
        self.health(|health| {
            health.works();
            health.bodies = None;
            health.below_floor = None;
            if health.refused.as_ref().is_some_and(|refused| refused.insisted) {
                health.refused = None;
            }
        });
        // A block may have been rejected meanwhile.
        let tip = self.look().await?;
        self.chain.events().enter(self.resting_state());
        if rounds.logged.take().is_some() {
            info!(source = self.source.name(), "following again");
        }
        let known = tip.map(|tip| tip.hash);
        self.ask(self.source.wait_for_change(known.as_ref(), self.options.wait)).await.map(drop)
    }

    /// Asks the source what it has, and notes it.
    async fn look(&self) -> Result<Option<ChainPoint>, ChainError> {
        let view = self.ask(self.source.survey()).await?;
        let rejected = self.rejected.lock();
        let reason = |hash: &BlockHash| {
            rejected.iter().find(|rejected| rejected.hash == *hash).map(|rejected| rejected.cause.to_string())
        };
        let (tip, gap) = (view.tip, view.gap.clone());
        let mut gap_before = None;
        self.progress.send_modify(|progress| {
            gap_before = progress.source.gap.take();
            progress.source.saw(view, reason);
            progress.tip = tip;
        });
        match (gap, gap_before) {
            (Some(Gap { missing, child, waiting, damaged }), before)
                if before
                    .as_ref()
                    .is_none_or(|before| before.missing != missing || before.damaged != damaged) =>
            {
                warn!(%missing, %child, waiting, damaged, "the source has a gap");
            }
            (None, Some(_)) => info!("the source has no gap any more"),
            _ => {}
        }
        Ok(tip)
    }

    /// The source's answer, unless asked to stop before it comes.
    async fn ask<T>(&self, answer: impl Future<Output = Result<T, SourceError>>) -> Result<T, ChainError> {
        Ok(self.wait_for(ANSWER_WITHIN, answer).await.unwrap_or(Err(SourceError::Interrupted))?)
    }

    /// Waits for the source. One that takes longer than `within` is shown as unreachable until it answers. `None` if asked to stop before.
    async fn wait_for<T>(&self, within: Duration, answer: impl Future<Output = T>) -> Option<T> {
        let (asked, mut answer) = (tokio::time::Instant::now(), pin!(self.stop.or(answer)));
        loop {
            if let Ok(answer) = tokio::time::timeout(within, &mut answer).await {
                return answer;
            }
            // To open a source can take long: that is a state of its own.
            if self.progress.borrow().source.last_contact.is_none() {
                continue;
            }
            let seconds = asked.elapsed().as_secs();
            let source = self.source.name();
            if seconds < 2 * within.as_secs() {
                warn!(source, seconds, "the source does not answer; waiting for it");
            }
            self.health(|health| health.failed(format!("{source} has not answered for {seconds} s")));
            self.chain.events().enter(ChainState::Stalled);
        }
    }

    /// Why the source's chain is not to be tried again yet. `None` if it is.
    async fn held(&self, rounds: &mut Rounds, tip: Option<ChainPoint>) -> Result<Option<Held>, ChainError> {
        let Some(held) = rounds.held else { return Ok(None) };
        let left = match held.block {
            Some(block) => self.ask(self.source.hash_at(block.height)).await? != Some(block.hash),
            None => held.tip != tip.map(|tip| tip.hash),
        };
        if left || held.left().is_zero() {
            rounds.held = None;
            if left {
                rounds.refusal = self.options.retry_refused;
            }
        }
        Ok(rounds.held)
    }

    /// Notes a failure where it can be seen, and says how long to pause. An error if trying again is no use.
    fn take_failure(&self, error: ChainError, rounds: &mut Rounds) -> Result<Duration, ChainError> {
        let mut pause = rounds.pause;
        rounds.pause = (pause * 2).min(LONGEST_PAUSE);
        if error.is_no_room() {
            // The state stays as it is: pruning is what makes room.
            self.log_failure(&error, rounds);
            return Ok(pause);
        }
        match error.root() {
            ChainError::Source(SourceError::ChainChanged { .. }) => return Ok(pause),
            ChainError::Source(_) | ChainError::BlockMissing { .. } => {
                self.health(|health| health.failed(error.to_string()));
            }
            ChainError::Body { .. } => self.health(|health| health.bodies_failed(error.to_string())),
            ChainError::ForkBelowFloor { tip, floor, .. } => {
                let below = BelowFloor { tip: *tip, floor: *floor };
                self.health(|health| health.below_floor = Some(below));
                let until = tokio::time::Instant::now() + LONGEST_PAUSE;
                rounds.held = Some(Held { block: None, tip: Some(tip.hash), until });
                pause = Duration::ZERO;
            }
            ChainError::BadBlock { height, hash, cause, on_top, .. } => {
                let held = ChainPoint::new(*height, *hash);
                self.health(|health| health.insists(held, cause.to_string()));
                // To try the block after the last applied one costs a look at it, and changes nothing.
                let retry = if *on_top { self.options.retry_refused } else { rounds.refusal };
                rounds.refusal = (retry * 2).min(LONGEST_REFUSAL);
                let until = tokio::time::Instant::now() + retry;
                rounds.held = Some(Held { block: Some(held), tip: None, until });
                pause = Duration::ZERO;
            }
            _ => return Err(error),
        }
        self.chain.events().enter(ChainState::Stalled);
        self.log_failure(&error, rounds);
        // After a chain that is held no pause is needed: the next round waits.
        Ok(pause)
    }

    /// Logs a failure that is another one than before, or has lasted.
    fn log_failure(&self, error: &ChainError, rounds: &mut Rounds) {
        let text = error.to_string();
        // How much room there is changes all the time.
        let kind: String = text.chars().filter(|char| !char.is_ascii_digit()).collect();
        let known = |(at, before): &(Instant, String)| *before == kind && at.elapsed() < LOG_EVERY;
        if !rounds.logged.as_ref().is_some_and(known) {
            warn!(error = text, "the chain cannot be followed; trying again");
            rounds.logged = Some((Instant::now(), kind));
        }
    }

    fn health(&self, change: impl FnOnce(&mut SourceHealth)) {
        self.progress.send_modify(|progress| change(&mut progress.source));
    }

    /// The state of a chain that has everything it can have.
    fn resting_state(&self) -> ChainState {
        let stalled = self.progress.borrow().source.is_stalled();
        if stalled { ChainState::Stalled } else { ChainState::Running }
    }

    /// Goes over to the source's best chain that can be applied, and returns the last applied block, if there is one, and the
    /// source's tip. `None` if the source has no block. A block that turns out bad is rejected, and the next best chain tried.
    async fn join_branch(&self) -> Result<Option<(Option<BlockMark>, ChainPoint)>, ChainError> {
        loop {
            let Some(tip) = self.look().await? else { return Ok(None) };
            let last = self.chain.last().await?;
            self.show(last, tip);
            let Some(last) = last else { return Ok(Some((None, tip))) };
            if last.hash == tip.hash || self.ask(self.source.hash_at(last.height)).await? == Some(last.hash) {
                return Ok(Some((Some(last), tip)));
            }
            if let Err(error) = self.change_branch(last, tip).await {
                self.reject(error).await?;
            }
        }
    }

    async fn catch_up_or_fail(&self) -> Result<(), ChainError> {
        loop {
            let Some((last, tip)) = self.join_branch().await? else { return Ok(()) };
            let goal = self.options.stop_at.map_or(tip.height, |stop| stop.min(tip.height));
            let from = match last {
                Some(last) => last.height.next(),
                None => self.ask(self.source.first()).await?,
            };
            // A source that begins later than its tip has no block left: all were rejected.
            if from > goal {
                break;
            }
            // What is built on a block that was refused is read once that block is applied.
            let goal = if self.stands_by(from) { from } else { goal };
            match self.extend(last.map(|last| last.hash), from, goal).await {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(()),
                Err(error) => self.reject(error).await?,
            }
        }
        if self.chain.events().state() == ChainState::CatchingUp {
            info!("caught up: {}", *self.progress.borrow());
        }
        self.chain.events().enter(self.resting_state());
        Ok(())
    }

    /// Whether the source stands by a block at this height that could not be applied.
    fn stands_by(&self, height: Height) -> bool {
        let progress = self.progress.borrow();
        progress.source.refused.as_ref().is_some_and(|refused| refused.insisted && refused.height == height)
    }

    /// Applies the blocks of the best chain from one height to another.
    async fn extend(
        &self,
        before: Option<BlockHash>,
        from: Height,
        to: Height,
    ) -> Result<ControlFlow<()>, ChainError> {
        let far = to.0.saturating_sub(from.0) >= self.options.behind;
        let state = if far { ChainState::CatchingUp } else { ChainState::Running };
        // One that is stalled is so until a block is applied.
        if self.chain.events().state() != ChainState::Stalled {
            self.chain.events().enter(state);
        }
        let mut reader = ReadAhead::new(Arc::clone(&self.source), before, from, to, self.options.read_ahead);
        let (mut shown, mut looked, mut next_height) = (Instant::now(), Instant::now(), from);
        let result: Result<_, ChainError> = async {
            loop {
                // What the source has grows while a long way is caught up on.
                if looked.elapsed() >= self.options.wait {
                    looked = Instant::now();
                    self.look().await?;
                }
                let next = self.wait_for(BLOCK_WITHIN, reader.next_run(LONGEST_RUN)).await;
                let Some(next) = next else { return Ok(ControlFlow::Break(())) };
                let run = match next {
                    Ok(run) => run,
                    // The source went over to another chain while it was read: look again.
                    Err(SourceError::ChainChanged { .. }) => return Ok(ControlFlow::Continue(())),
                    Err(error) => return Err(error.into()),
                };
                let Some(height) = run.last().map(|block| block.point.height) else {
                    if next_height <= to {
                        self.no_block_at(next_height).await?;
                    }
                    return Ok(ControlFlow::Continue(()));
                };
                next_height = height.next();
                let run = run.into_iter().map(to_apply).collect::<Result<_, _>>()?;
                self.chain.apply_run(run).await?;
                self.chain.events().enter(state);
                self.progress.send_modify(|progress| {
                    progress.handed_over(height);
                    progress.source.works();
                });
                if shown.elapsed() >= self.options.log_every {
                    shown = Instant::now();
                    info!("{}", *self.progress.borrow());
                }
            }
        }
        .await;
        // Only what is applied counts when it is decided what comes next.
        let drained = self.chain.drain().await;
        let flow = result?;
        drained?;
        Ok(flow)
    }

    /// The source had no block at a height below its tip. An error if it still names one there and does not have it; else its chain has
    /// become shorter or another one.
    async fn no_block_at(&self, height: Height) -> Result<(), ChainError> {
        let Some(hash) = self.ask(self.source.hash_at(height)).await? else { return Ok(()) };
        match self.ask(self.source.block(&hash)).await? {
            Some(_) => Ok(()),
            None => Err(ChainError::BlockMissing { source_name: self.source.name(), height, hash }),
        }
    }

    /// A block turned out bad: tells the source, which then has another best chain. An error if that does not help.
    pub(crate) async fn reject(&self, error: ChainError) -> Result<(), ChainError> {
        let Some(hash) = error.bad_block() else { return Err(error) };
        let header = self.ask(self.source.header(&hash)).await?;
        let height = header.as_ref().map_or(Height::GENESIS, |header| header.height);
        if !self.source.reject(&hash).await? {
            let (source_name, cause) = (self.source.name(), Box::new(error));
            let last = self.chain.last().await?.map(|last| last.hash);
            let on_top = last.is_none() || header.map(|header| header.parent) == last;
            return Err(ChainError::BadBlock { source_name, height, hash, cause, on_top });
        }
        warn!(%error, "block {height} ({hash}) is not part of the chain");
        let mut rejected = self.rejected.lock();
        if rejected.len() == REJECTED_KEPT {
            rejected.pop_front();
        }
        rejected.push_back(Rejected { hash, cause: error });
        Ok(())
    }

    fn show(&self, last: Option<BlockMark>, tip: ChainPoint) {
        self.progress.send_modify(|progress| progress.tip_is(last.map(|last| last.height), tip));
    }
}

/// What of a block goes to the ledger, and how it is applied.
pub(crate) fn to_apply(block: SourceBlock) -> Result<(Arc<Block>, ApplyOptions), ChainError> {
    let utxo = block.utxo.ok_or(ChainError::NoUtxos { point: block.point })?;
    Ok((utxo, ApplyOptions { rules: block.rules, ..ApplyOptions::default() }))
}
