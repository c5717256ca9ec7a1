//! Following a source: reconcile, catch up, stay at the tip, change branches.

use std::{
    future::Future,
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sapwood_sources::{BlockSource, ChainPoint, ReadAhead, SourceError};
use sapwood_store::ApplyOptions;
use sapwood_types::{Block, BlockHash, BlockMark, Height};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{Chain, ChainError, ChainState, LONGEST_RUN, progress::Progress};

/// How to follow.
#[derive(Clone, Copy, Debug)]
pub struct FollowOptions {
    /// How many blocks are fetched and decoded ahead of time.
    pub read_ahead: usize,
    /// Go no further than this height.
    pub stop_at: Option<Height>,
    /// How long one wait for news lasts before the source is asked anew.
    pub wait: Duration,
    /// The first pause after a failure that may pass. It doubles up to a minute.
    pub retry: Duration,
    /// With more blocks to go than this the state is "catching up".
    pub behind: u32,
}

impl Default for FollowOptions {
    fn default() -> Self {
        Self {
            read_ahead: 8,
            stop_at: None,
            wait: Duration::from_secs(30),
            retry: Duration::from_millis(250),
            behind: 2,
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

    /// The work's result, or nothing if asked to stop before.
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
    rejected: Arc<Mutex<Vec<Rejected>>>,
}

/// Rejected blocks that are remembered: somebody may feed bad ones for ever.
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
        self.rejected.lock().clone()
    }

    /// Compares what is applied with the source, and goes back to the last block both have. Before anything else.
    pub async fn reconcile(&self) -> Result<(), ChainError> {
        self.chain.events().enter(ChainState::Resetting);
        let Some(last) = self.chain.last().await? else {
            info!(source = self.source.name(), "nothing is applied yet");
            return Ok(());
        };
        let Some(tip) = self.source.tip().await? else {
            warn!(source = self.source.name(), %last, "the source has no blocks: what is applied stays as it is");
            return Ok(());
        };
        match self.source.hash_at(last.height).await? {
            Some(hash) if hash == last.hash => {
                info!(%last, %tip, behind = tip.height.0 - last.height.0, "reconciled");
                Ok(())
            }
            // Ahead of the source, or another block at the same height.
            _ => self.change_branch(last, tip).await,
        }
    }

    /// Applies everything up to the tip, or to the height to stop at. Returns when there is nothing more, or when asked to stop.
    pub async fn catch_up(&self) -> Result<(), ChainError> {
        let result = self.catch_up_or_fail().await;
        // What was handed over is applied, whatever happened.
        let drained = self.chain.drain().await;
        result.and(drained)
    }

    /// Follows until asked to stop. What may pass is tried again.
    pub async fn follow(&self) -> Result<(), ChainError> {
        let result = self.follow_or_fail().await;
        let closed = self.chain.close().await;
        self.chain.events().enter(ChainState::Stopped);
        result.and(closed)
    }

    async fn follow_or_fail(&self) -> Result<(), ChainError> {
        let mut pause = self.options.retry;
        let mut reconciled = false;
        while !self.stop.is_asked() {
            let step = async {
                if !reconciled {
                    self.reconcile().await?;
                    reconciled = true;
                }
                self.catch_up().await?;
                self.news().await
            };
            match step.await {
                Ok(()) => pause = self.options.retry,
                Err(error) if error.may_pass() => {
                    warn!(%error, "trying again in {pause:?}");
                    self.stop.or(tokio::time::sleep(pause)).await;
                    pause = (pause * 2).min(Duration::from_secs(60));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits for another tip.
    async fn news(&self) -> Result<(), ChainError> {
        let known = self.source.tip().await?.map(|tip| tip.hash);
        // At the height to stop at there is nothing to wait for but the end.
        match self.stop.or(self.source.wait_for_change(known.as_ref(), self.options.wait)).await {
            Some(Err(error)) => Err(error.into()),
            Some(Ok(_)) | None => Ok(()),
        }
    }

    async fn catch_up_or_fail(&self) -> Result<(), ChainError> {
        loop {
            let Some(tip) = self.source.tip().await? else { return Ok(()) };
            let goal = self.options.stop_at.map_or(tip.height, |stop| stop.min(tip.height));
            let last = self.chain.last().await?;
            self.show(last, tip);
            let result = match last {
                Some(last) if last.hash == tip.hash => break,
                None => self.extend(None, self.source.first().await?, goal).await,
                Some(last) => match self.source.hash_at(last.height).await? {
                    Some(hash) if hash == last.hash && last.height >= goal => break,
                    Some(hash) if hash == last.hash => {
                        self.extend(Some(last.hash), last.height.next(), goal).await
                    }
                    _ => self.change_branch(last, tip).await.map(ControlFlow::Continue),
                },
            };
            match result {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(()),
                Err(error) => self.reject(error).await?,
            }
        }
        self.chain.events().enter(ChainState::Running);
        Ok(())
    }

    /// Applies the blocks of the best chain from one height to another.
    async fn extend(
        &self,
        before: Option<BlockHash>,
        from: Height,
        to: Height,
    ) -> Result<ControlFlow<()>, ChainError> {
        let far = to.0.saturating_sub(from.0) >= self.options.behind;
        self.chain.events().enter(if far { ChainState::CatchingUp } else { ChainState::Running });
        let mut reader = ReadAhead::new(Arc::clone(&self.source), before, from, to, self.options.read_ahead);
        let mut shown = Instant::now();
        let result: Result<_, ChainError> = async {
            loop {
                let next = self.stop.or(reader.next_run(LONGEST_RUN)).await;
                let Some(next) = next else { return Ok(ControlFlow::Break(())) };
                let run = match next {
                    Ok(run) => run,
                    // The source went over to another chain while it was read: look again.
                    Err(SourceError::ChainChanged { .. }) => return Ok(ControlFlow::Continue(())),
                    Err(error) => return Err(error.into()),
                };
                let Some(height) = run.last().map(|block| block.height) else {
                    return Ok(ControlFlow::Continue(()));
                };
                let run = run.into_iter().map(|block| self.with_options(block)).collect();
                self.chain.apply_run(run).await?;
                self.progress.send_modify(|progress| progress.handed_over(height));
                if shown.elapsed() > Duration::from_secs(10) {
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

    /// A block, and how the source wants it applied.
    pub(crate) fn with_options(&self, block: Arc<Block>) -> (Arc<Block>, ApplyOptions) {
        let options = ApplyOptions {
            allow_overwrite: self.source.allows_overwrite(block.height, &block.hash),
            subsidy: self.source.subsidy(block.height),
            block_id: None,
            bodies_above: None,
        };
        (block, options)
    }

    /// A block turned out bad: tells the source, which then has another best chain. An error if that does not help.
    pub(crate) async fn reject(&self, error: ChainError) -> Result<(), ChainError> {
        let Some(hash) = error.bad_block() else { return Err(error) };
        let height = self.source.header(&hash).await?.map_or(Height::GENESIS, |header| header.height);
        if !self.source.reject(&hash).await? {
            let (source_name, cause) = (self.source.name(), Box::new(error));
            return Err(ChainError::BadBlock { source_name, height, hash, cause });
        }
        warn!(%error, "block {height} ({hash}) is not part of the chain");
        let mut rejected = self.rejected.lock();
        if rejected.len() < REJECTED_KEPT {
            rejected.push(Rejected { hash, cause: error });
        }
        Ok(())
    }

    fn show(&self, last: Option<BlockMark>, tip: ChainPoint) {
        self.progress.send_modify(|progress| progress.tip_is(last.map(|last| last.height), tip));
    }
}
