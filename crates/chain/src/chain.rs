//! The chain as it is applied to a store: blocks go on, blocks come off, and everybody is told.

use std::{sync::Arc, time::Instant};

use sapwood_ledger::{
    Applied, ApplyOptions, BatchResult, CreateError, CreateRequest, Ledger, RollbackMode, RolledBack,
    StoreError,
};
use sapwood_sources::ChainPoint;
use sapwood_types::{Block, BlockHash, BlockMark, Height};
use tokio::sync::Mutex;

use crate::{
    BodyKeeper, ChainError, Event, Events, Timing, TimingSummary,
    events::{BlockApplied, BlocksRolledBack},
    queue::{Queue, Queued},
};

/// How many blocks may wait to be applied, unless told otherwise.
pub const DEFAULT_QUEUE: usize = 1024;

/// When a block that is handed over is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApplyMode {
    /// Before the call returns.
    #[default]
    Sync,
    /// Later, in order, by one worker. The call returns once there is room in the queue.
    Async {
        /// How many blocks may wait.
        queue: usize,
    },
}

/// How to follow a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainOptions {
    /// When blocks are applied.
    pub mode: ApplyMode,
    /// What becomes of transactions whose block is taken back.
    pub rollback: RollbackMode,
}

impl Default for ChainOptions {
    fn default() -> Self {
        Self { mode: ApplyMode::Sync, rollback: RollbackMode::Node }
    }
}

/// The chain on a store. Clones share it.
#[derive(Clone)]
pub struct Chain {
    worker: Arc<Worker>,
    queue: Option<Arc<Queue>>,
}

/// What applies blocks, one at a time.
pub(crate) struct Worker {
    pub(crate) store: Ledger,
    pub(crate) bodies: Option<Arc<dyn BodyKeeper>>,
    events: Events,
    options: ChainOptions,
    /// Held by whoever changes the chain.
    turn: Mutex<()>,
    apply: Timing,
    rollback: Timing,
    transactions: std::sync::atomic::AtomicU64,
    last_block: parking_lot::Mutex<Option<Instant>>,
}

/// What the chain has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ChainFigures {
    /// Blocks applied.
    pub apply: TimingSummary,
    /// Rollbacks done.
    pub rollback: TimingSummary,
    /// Transactions applied.
    pub transactions: u64,
    /// Blocks that were handed over and wait to be applied.
    pub queued: usize,
}

impl Chain {
    /// The chain on `store`, which tells `events`. In async mode it needs a Tokio runtime.
    ///
    /// Everything of a transaction goes into its record, however large it is: see [`Chain::with_bodies`].
    pub fn new(store: Ledger, events: Events, options: ChainOptions) -> Self {
        Self::over(store, events, options, None)
    }

    /// The chain on `store`, with the bodies of large transactions outside it.
    pub fn with_bodies(
        store: Ledger,
        events: Events,
        options: ChainOptions,
        bodies: Arc<dyn BodyKeeper>,
    ) -> Self {
        Self::over(store, events, options, Some(bodies))
    }

    fn over(
        store: Ledger,
        events: Events,
        options: ChainOptions,
        bodies: Option<Arc<dyn BodyKeeper>>,
    ) -> Self {
        let worker = Arc::new(Worker {
            store,
            bodies,
            events,
            options,
            turn: Mutex::new(()),
            apply: Timing::default(),
            rollback: Timing::default(),
            transactions: Default::default(),
            last_block: Default::default(),
        });
        let queue = match options.mode {
            ApplyMode::Sync => None,
            ApplyMode::Async { queue } => Some(Arc::new(Queue::start(Arc::clone(&worker), queue))),
        };
        Self { worker, queue }
    }

    /// The store.
    pub fn store(&self) -> &Ledger {
        &self.worker.store
    }

    /// Where things are told.
    pub fn events(&self) -> &Events {
        &self.worker.events
    }

    /// What it has done so far.
    pub fn figures(&self) -> ChainFigures {
        ChainFigures {
            apply: self.worker.apply.summary(),
            rollback: self.worker.rollback.summary(),
            transactions: self.worker.transactions.load(std::sync::atomic::Ordering::Relaxed),
            queued: self.queued(),
        }
    }

    /// When a block was applied last. `None` if none was since the chain was opened.
    pub fn last_block_at(&self) -> Option<Instant> {
        *self.worker.last_block.lock()
    }

    /// How many blocks were handed over and wait to be applied: the lag of async mode.
    pub fn queued(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.len())
    }

    /// Applies a block, or queues it. What is returned in sync mode is what became of it; in async mode nothing, and a failure
    /// is told to the next caller, or by [`Chain::drain`]. A call that is dropped does not stop a block half way.
    pub async fn apply(
        &self,
        block: Arc<Block>,
        options: ApplyOptions,
    ) -> Result<Option<Applied>, ChainError> {
        match &self.queue {
            Some(queue) => queue.push(Queued { block, options }).await.map(|()| None),
            None => self.apply_now(block, options).await.map(Some),
        }
    }

    /// Stores transactions at a height, the bodies of large ones first: see [`Ledger::create`](sapwood_ledger::Ledger::create).
    /// If one of the bodies cannot be kept, nothing is written.
    pub async fn create(
        &self,
        batch: Vec<CreateRequest>,
        height: Height,
    ) -> Result<BatchResult<(), CreateError>, ChainError> {
        let worker = Arc::clone(&self.worker);
        run_to_end(async move { worker.create(batch, height).await }).await
    }

    /// Waits until every queued block is applied. Tells the failure of one of them.
    pub async fn drain(&self) -> Result<(), ChainError> {
        match &self.queue {
            Some(queue) => queue.drain().await,
            None => Ok(()),
        }
    }

    /// Applies what is queued, and takes nothing more.
    pub async fn close(&self) -> Result<(), ChainError> {
        let drained = self.drain().await;
        if let Some(queue) = &self.queue {
            queue.close();
        }
        drained
    }

    /// Applies blocks that follow one another, or queues them. In sync mode those before one that fails are applied.
    pub async fn apply_run(&self, run: Vec<(Arc<Block>, ApplyOptions)>) -> Result<(), ChainError> {
        let Some(queue) = &self.queue else {
            let worker = Arc::clone(&self.worker);
            return run_to_end(async move { worker.apply_run(run).await.result().map(drop) }).await;
        };
        for (block, options) in run {
            queue.push(Queued { block, options }).await?;
        }
        Ok(())
    }

    /// Applies a block now. Nothing may be queued.
    pub(crate) async fn apply_now(
        &self,
        block: Arc<Block>,
        options: ApplyOptions,
    ) -> Result<Applied, ChainError> {
        let worker = Arc::clone(&self.worker);
        run_to_end(async move { worker.apply(block, options).await }).await
    }

    /// Takes back all blocks above this one, or everything. All or nothing. What is queued is applied first.
    pub async fn roll_back(&self, to: Option<ChainPoint>) -> Result<RolledBack, ChainError> {
        self.drain().await?;
        let worker = Arc::clone(&self.worker);
        run_to_end(async move { worker.roll_back(to).await }).await
    }

    /// The last applied block.
    pub async fn last(&self) -> Result<Option<BlockMark>, ChainError> {
        Ok(self.worker.store.last_applied().await?)
    }

    /// The applied block at a height, as far back as a rollback can reach.
    pub async fn hash_at(&self, height: Height) -> Result<Option<BlockHash>, ChainError> {
        if let Some(undo) = self.worker.store.block_at(height).await? {
            return Ok(Some(undo.block.hash));
        }
        let after = self.worker.store.block_at(height.next()).await?;
        Ok(after.and_then(|undo| undo.previous).map(|block| block.hash))
    }
}

/// Runs to the end even if the caller loses interest, so that what was written is also told.
async fn run_to_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, ChainError>> + Send + 'static,
) -> Result<T, ChainError> {
    tokio::spawn(work).await.unwrap_or_else(|error| Err(StoreError::Task { cause: error.to_string() }.into()))
}

/// What came of a run of blocks.
pub(crate) struct Run {
    applied: Vec<Applied>,
    failure: Option<ChainError>,
}

impl Run {
    /// The failure, if there was one.
    pub(crate) fn result(self) -> Result<Vec<Applied>, ChainError> {
        self.failure.map_or(Ok(self.applied), Err)
    }
}

impl Worker {
    async fn apply(&self, block: Arc<Block>, options: ApplyOptions) -> Result<Applied, ChainError> {
        let mut applied = self.apply_run(vec![(block, options)]).await.result()?;
        let lost = || StoreError::Task { cause: "no word of what became of a block".into() };
        applied.pop().ok_or_else(|| lost().into())
    }

    /// Applies blocks that follow one another, up to the first that fails. The store may work on one while it writes the one before.
    pub(crate) async fn apply_run(&self, run: Vec<(Arc<Block>, ApplyOptions)>) -> Run {
        let _turn = self.turn.lock().await;
        let started = Instant::now();
        let mut ready = Vec::with_capacity(run.len());
        let mut transactions = Vec::with_capacity(run.len());
        let mut claims = Vec::new();
        let mut before: Option<Arc<Block>> = None;
        let mut failure = None;
        for (block, options) in run {
            match self.keep_bodies(&block, options, before.as_deref()).await {
                Ok((claim, options)) => {
                    transactions.push(block.txs.len());
                    claims.extend(claim);
                    before = Some(Arc::clone(&block));
                    ready.push((block, options));
                }
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let done = self.store.apply_blocks(ready).await;
        let each = started.elapsed() / done.applied.len().max(1) as u32;
        if !done.applied.is_empty() {
            *self.last_block.lock() = Some(Instant::now());
        }
        for (applied, transactions) in done.applied.iter().zip(transactions) {
            self.apply.note(each);
            self.transactions.fetch_add(transactions as u64, std::sync::atomic::Ordering::Relaxed);
            self.events.tell(Event::BlockApplied(BlockApplied {
                block: applied.block,
                transactions,
                conflicting: applied.conflicting.clone(),
            }));
            // The store marks all transactions of a block in the write that applies it.
            self.events.tell(Event::MinedSet(applied.block));
        }
        Run { applied: done.applied, failure: done.refused.map(ChainError::from).or(failure) }
    }

    async fn roll_back(&self, to: Option<ChainPoint>) -> Result<RolledBack, ChainError> {
        let _turn = self.turn.lock().await;
        let started = Instant::now();
        let from = self.store.last_applied().await?;
        let target = to.map(|to| (to.height, to.hash));
        let rolled_back = self.store.roll_back(target, self.options.rollback).await?;
        if let Some(from) = from.filter(|_| rolled_back.blocks > 0) {
            self.rollback.note(started.elapsed());
            let (to, blocks) = (rolled_back.last, rolled_back.blocks);
            self.events.tell(Event::RolledBack(BlocksRolledBack { from, to, blocks }));
        }
        Ok(rolled_back)
    }
}
