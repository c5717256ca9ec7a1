//! A store and the workload that feeds it.

use std::{path::Path, sync::Arc, time::Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use sapwood_engine_rocksdb::{OpenMode, Options, RocksEngine};
use sapwood_ledger::{ApplyOptions, Ledger, PruneFrom, PruneRequest, PruneWhat};
use sapwood_rules::{Policy, PruneContext, lifecycle::due_up_to};
use sapwood_types::{Block, Height, TxId};

use super::{
    Shape,
    counting::{Asked, CountingEngine},
    workload::Workload,
};

/// Blocks a record is kept after it settled. Short, so that there is something to prune within the run.
pub(super) const RETENTION: u32 = 20;
/// Records deleted in one write: the pruner's default.
const PRUNE_CHUNK: usize = 1000;
/// Writes under way at the same time while there is much to delete: the pruner's default.
const CHUNKS_IN_FLIGHT: usize = 10;

pub(super) struct BenchChain {
    pub(super) store: Ledger,
    pub(super) workload: Workload,
    /// What the store asks of its engine.
    pub(super) asked: Arc<Asked>,
}

impl BenchChain {
    pub(super) fn new(directory: &Path, shape: &Shape, options: Options) -> anyhow::Result<Self> {
        Self::open(directory, Workload::new(shape)?, options)
    }

    /// Goes on with a workload on the store in this directory.
    pub(super) fn open(directory: &Path, workload: Workload, options: Options) -> anyhow::Result<Self> {
        let asked = Arc::new(Asked::default());
        let engine = RocksEngine::open(directory, OpenMode::Create, &options.engine);
        let engine = engine.context("opening the database to measure")?;
        let engine = CountingEngine { engine, asked: Arc::clone(&asked) };
        let store = Ledger::open(Arc::new(engine), Policy::with_retention(RETENTION), options.ledger);
        Ok(Self { store: store.context("opening the store to measure")?, workload, asked })
    }

    /// Makes the outputs to begin with.
    pub(super) async fn fund(&mut self, outputs: u64, quiet: bool) -> anyhow::Result<()> {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(outputs) };
        let style = "making outputs to begin with {wide_bar} {human_pos} of {human_len}, {eta} left";
        bar.set_style(ProgressStyle::with_template(style)?);
        while self.workload.is_beginning() {
            let block = self.workload.next_block();
            self.apply(block).await?;
            bar.set_position(self.store.counts().await?.unspent);
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Applies blocks in a row, as a node does that catches up.
    pub(super) async fn apply_run(&self, blocks: &[Arc<Block>]) -> anyhow::Result<()> {
        let run = blocks.iter().map(|block| (Arc::clone(block), ApplyOptions::default())).collect();
        let done = self.store.apply_blocks(run).await;
        done.refused.map_or(Ok(()), |error| Err(error.into()))
    }

    pub(super) async fn apply(&self, block: Block) -> anyhow::Result<()> {
        self.store.apply_block(Arc::new(block), ApplyOptions::default()).await?;
        Ok(())
    }
}

/// The bytes of all records and their keys, as they are stored and before the engine compresses them.
pub(super) async fn record_bytes(store: &Ledger) -> anyhow::Result<u64> {
    const AT_A_TIME: usize = 10_000;
    let (mut bytes, mut after) = (0, None);
    loop {
        let page = store.records(after, AT_A_TIME).await?;
        anyhow::ensure!(page.unreadable.is_empty(), "records cannot be read: {:?}", page.unreadable);
        for record in &page.items {
            let (first, further) = record.to_pages();
            let pages = further.iter().map(|page| page.encode().len() + TxId::SIZE + size_of::<u32>());
            bytes += (TxId::SIZE + first.bytes().len() + pages.sum::<usize>()) as u64;
        }
        after = page.next;
        if after.is_none() {
            return Ok(bytes);
        }
    }
}

async fn tip(store: &Ledger) -> anyhow::Result<Height> {
    Ok(store.last_applied().await?.context("no block was applied")?.height)
}

/// Deletes the next `limit` records that may be deleted by their rule at the current height. Returns how many, and whether there are more.
async fn prune(
    store: &Ledger,
    from: PruneFrom,
    limit: usize,
    check_children: bool,
) -> anyhow::Result<(u64, bool)> {
    let current = tip(store).await?;
    let Some(up_to) = due_up_to(current, RETENTION) else { return Ok((0, false)) };
    let context = PruneContext { current, safe: Some(current), retention: RETENTION };
    let what = PruneWhat::Settled { from, up_to, limit, per_write: PRUNE_CHUNK };
    let request = PruneRequest { what, check_children, ..PruneRequest::records(Vec::new(), context) };
    let outcome = store.prune(request).await?;
    if let Some(error) = outcome.stopped_by {
        return Err(error.into());
    }
    let kept = outcome.judged.iter().find(|judged| !judged.verdict.may_go());
    anyhow::ensure!(kept.is_none(), "a due record was not deleted: {kept:?}");
    Ok((outcome.judged.len() as u64, outcome.next.is_some()))
}

/// One turn of a pruner that has to catch up: deletes the next due records, several chunks at a time. Returns how many, and whether there
/// are more.
pub(super) async fn prune_turn(store: &Ledger, check_children: bool) -> anyhow::Result<(u64, bool)> {
    prune(store, PruneFrom::Cursor, PRUNE_CHUNK * CHUNKS_IN_FLIGHT, check_children).await
}

/// Deletes everything that is due, a chunk at a time, as a pruner that keeps up does beside the blocks. Returns how many
/// records went.
pub(super) async fn prune_all(store: &Ledger) -> anyhow::Result<u64> {
    let (mut pruned, mut from) = (0, PruneFrom::Oldest);
    loop {
        let (records, more) = prune(store, from, PRUNE_CHUNK, true).await?;
        pruned += records;
        from = PruneFrom::Cursor;
        if !more {
            return Ok(pruned);
        }
    }
}

/// Applies blocks and tells each on standard output, until the process is killed.
pub(super) fn apply_until_killed(directory: &Path, shape: &Shape) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let mut chain = BenchChain::new(directory, shape, Options::default())?;
        chain.fund(shape.outputs, true).await?;
        loop {
            let block = chain.workload.next_block();
            let (height, started) = (block.height, Instant::now());
            chain.apply(block).await?;
            println!("{height} {}", started.elapsed().as_millis());
        }
    })
}
