//! A store and the workload that feeds it.

use std::{path::Path, sync::Arc, time::Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use sapwood_rules::{Policy, PruneContext, SafeHeight, lifecycle::due_up_to};
use sapwood_store::{
    ApplyOptions, Cursor, DeleteDue, DueRecord, Judged, Page, StorePrune, StoreRead, StoreWrite,
};
use sapwood_store_embedded::{EmbeddedOptions, EmbeddedStore};
use sapwood_types::{Block, Height, TxId};

use super::{Shape, workload::Workload};

/// Blocks a record is kept after it settled. Short, so that there is something to prune within the run.
pub(super) const RETENTION: u32 = 20;
/// Records deleted in one write.
const PRUNE_CHUNK: usize = 1000;

pub(super) struct BenchChain {
    pub(super) store: EmbeddedStore,
    pub(super) workload: Workload,
}

impl BenchChain {
    pub(super) fn new(directory: &Path, shape: &Shape, options: EmbeddedOptions) -> anyhow::Result<Self> {
        let workload = Workload::new(shape)?;
        let store = EmbeddedStore::open(directory, Policy::with_retention(RETENTION), options)
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

    pub(super) async fn apply(&self, block: Block) -> anyhow::Result<()> {
        self.store.apply_block(Arc::new(block), ApplyOptions::default()).await?;
        Ok(())
    }

    /// A chunk of what may be deleted by its rule at the current height.
    pub(super) async fn due(&self, after: Option<Cursor>) -> anyhow::Result<Page<DueRecord>> {
        due(&self.store, after).await
    }

    pub(super) async fn delete(&self, txids: Vec<TxId>, check_children: bool) -> anyhow::Result<Vec<Judged>> {
        delete(&self.store, txids, check_children).await
    }
}

async fn tip(store: &EmbeddedStore) -> anyhow::Result<Height> {
    Ok(store.last_applied().await?.context("no block was applied")?.height)
}

async fn due(store: &EmbeddedStore, after: Option<Cursor>) -> anyhow::Result<Page<DueRecord>> {
    match due_up_to(tip(store).await?, RETENTION) {
        Some(up_to) => Ok(store.due(up_to, after, PRUNE_CHUNK).await?),
        None => Ok(Page { items: Vec::new(), next: None }),
    }
}

async fn delete(
    store: &EmbeddedStore,
    txids: Vec<TxId>,
    check_children: bool,
) -> anyhow::Result<Vec<Judged>> {
    let current = tip(store).await?;
    let context = PruneContext { current, safe: SafeHeight::at(current), retention: RETENTION };
    Ok(store.delete_due(DeleteDue { txids, context, check_children, save_cursor: None }).await?)
}

/// Deletes everything that is due, a chunk at a time. Returns how many records went.
pub(super) async fn prune_all(store: &EmbeddedStore) -> anyhow::Result<u64> {
    let mut pruned = 0;
    let mut after = None;
    loop {
        let page = due(store, after).await?;
        let txids: Vec<TxId> = page.items.iter().map(|record| record.txid).collect();
        let judged = delete(store, txids, true).await?;
        let kept = judged.iter().find(|judged| !judged.verdict.may_go());
        anyhow::ensure!(kept.is_none(), "a due record was not deleted: {kept:?}");
        pruned += judged.len() as u64;
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
        let mut chain = BenchChain::new(directory, shape, EmbeddedOptions::default())?;
        chain.fund(shape.outputs, true).await?;
        loop {
            let block = chain.workload.next_block();
            let (height, started) = (block.height, Instant::now());
            chain.apply(block).await?;
            println!("{height} {}", started.elapsed().as_millis());
        }
    })
}
