//! A store and the workload that feeds it.

use std::{path::Path, sync::Arc, time::Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use sapwood_engine_rocksdb::{OpenMode, Options, open_ledger};
use sapwood_ledger::{ApplyOptions, Cursor, DeleteDue, DueRecord, Ledger, Page};
use sapwood_rules::{Policy, PruneContext, lifecycle::due_up_to};
use sapwood_types::{Block, Height, TxId};
use tokio::task::JoinSet;

use super::{Shape, workload::Workload};

/// Blocks a record is kept after it settled. Short, so that there is something to prune within the run.
pub(super) const RETENTION: u32 = 20;
/// Records deleted in one write: the pruner's default.
const PRUNE_CHUNK: usize = 1000;
/// Writes under way at the same time while there is much to delete: the pruner's default.
const CHUNKS_IN_FLIGHT: usize = 10;

pub(super) struct BenchChain {
    pub(super) store: Ledger,
    pub(super) workload: Workload,
}

impl BenchChain {
    pub(super) fn new(directory: &Path, shape: &Shape, options: Options) -> anyhow::Result<Self> {
        Self::open(directory, Workload::new(shape)?, options)
    }

    /// Goes on with a workload on the store in this directory.
    pub(super) fn open(directory: &Path, workload: Workload, options: Options) -> anyhow::Result<Self> {
        let store = open_ledger(directory, OpenMode::Create, Policy::with_retention(RETENTION), options)
            .context("opening the store to measure")?;
        Ok(Self { store, workload })
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

/// Up to `limit` records that may be deleted by their rule at the current height.
async fn due(store: &Ledger, after: Option<Cursor>, limit: usize) -> anyhow::Result<Page<DueRecord>> {
    match due_up_to(tip(store).await?, RETENTION) {
        Some(up_to) => Ok(store.due(up_to, after, limit).await?),
        None => Ok(Page::new(Vec::new(), None)),
    }
}

/// Deletes records, all of which are due.
async fn delete(
    store: &Ledger,
    current: Height,
    records: &[DueRecord],
    check_children: bool,
) -> anyhow::Result<u64> {
    let txids = records.iter().map(|record| record.txid).collect();
    let context = PruneContext { current, safe: Some(current), retention: RETENTION };
    let judged = store
        .delete_due(DeleteDue {
            txids,
            context,
            check_children,
            save_cursor: None,
            spare_external: false,
            permit: None,
        })
        .await?;
    let kept = judged.iter().find(|judged| !judged.verdict.may_go());
    anyhow::ensure!(kept.is_none(), "a due record was not deleted: {kept:?}");
    Ok(judged.len() as u64)
}

/// One turn of a pruner that has to catch up: lists the next due records and deletes them, several chunks at a time. Returns
/// how many went, and where the next turn begins.
pub(super) async fn prune_turn(
    store: &Ledger,
    after: Option<Cursor>,
    check_children: bool,
) -> anyhow::Result<(u64, Option<Cursor>)> {
    let page = due(store, after, PRUNE_CHUNK * CHUNKS_IN_FLIGHT).await?;
    let current = tip(store).await?;
    let mut chunks = JoinSet::new();
    for chunk in page.items.chunks(PRUNE_CHUNK) {
        let (store, chunk) = (store.clone(), chunk.to_vec());
        chunks.spawn(async move { delete(&store, current, &chunk, check_children).await });
    }
    let mut pruned = 0;
    while let Some(chunk) = chunks.join_next().await {
        pruned += chunk??;
    }
    Ok((pruned, page.next))
}

/// Deletes everything that is due, a chunk at a time, as a pruner that keeps up does beside the blocks. Returns how many
/// records went.
pub(super) async fn prune_all(store: &Ledger) -> anyhow::Result<u64> {
    let mut pruned = 0;
    let mut after = None;
    loop {
        let page = due(store, after, PRUNE_CHUNK).await?;
        pruned += delete(store, tip(store).await?, &page.items, true).await?;
        after = page.next;
        if after.is_none() {
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
