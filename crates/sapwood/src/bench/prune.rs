//! `bench prune`: what pruning costs, and what it costs the blocks beside it.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use clap::Args;
use sapwood_engine_rocksdb::Options;

use super::{
    Shape,
    catching_up::catching_up,
    chain::BenchChain,
    measure::Times,
    print_report, progress,
    pruning::{apply_beside_pruning, with_and_without_check},
    report::PruneReport,
    run_in_directory,
};

/// Measure pruning on the embedded store.
#[derive(Debug, Args)]
pub(crate) struct Prune {
    #[command(flatten)]
    shape: Shape,
    /// Blocks to measure in each part.
    #[arg(long, default_value_t = 150)]
    blocks: usize,
    /// Blocks for which the pruner is down before it catches up.
    #[arg(long, default_value_t = 300)]
    down: usize,
    /// Fewer blocks: done within 40 seconds.
    #[arg(long)]
    quick: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Keep the store in this directory instead of a temporary one. It must not exist.
    #[arg(long)]
    data: Option<PathBuf>,
}

impl Prune {
    pub(super) fn run(mut self) -> anyhow::Result<()> {
        if self.quick {
            self.blocks = self.blocks.min(60);
            self.down = self.down.min(40);
            self.shape.outputs = self.shape.outputs.min(300_000);
        }
        let report = run_in_directory(self.data.as_deref(), async |directory| self.measure(directory).await)?;
        print_report(&report, self.json)
    }

    async fn measure(&self, directory: &Path) -> anyhow::Result<PruneReport> {
        let mut chain = BenchChain::new(directory, &self.shape, Options::default())?;
        chain.fund(self.shape.outputs, self.json).await?;
        chain.store.settle_disk().await?;
        let outputs_at_start = chain.store.counts().await?.unspent;
        let mut apply = Times::default();
        let bar = progress("apply", self.blocks, self.json)?;
        for _ in 0..self.blocks {
            let block = chain.workload.next_block();
            let started = Instant::now();
            chain.apply(block).await?;
            apply.add(started.elapsed());
            bar.inc(1);
        }
        bar.finish_and_clear();
        // As it was when the blocks began: what they left to flush and compact is not to be paid by pruning.
        chain.store.settle_disk().await?;
        let (with, without) = with_and_without_check(&chain).await?;
        let beside = apply_beside_pruning(&mut chain, self.blocks, self.json).await?;
        let catching_up = catching_up(chain, directory, self.down, self.blocks / 2, self.json).await?;
        let make_per_s = (self.blocks * self.shape.txs) as f64 / apply.total().as_secs_f64();
        Ok(PruneReport {
            prune_over_make: with.per_second() / make_per_s,
            child_check_ratio: with.over(&without),
            apply_while_pruning_ratio: beside.ratio(),
            apply_while_catching_up_ratio: catching_up.in_a_row.ratio(),
            apply_at_full_prune_ratio: catching_up.after_a_pause.ratio(),
            make_per_s,
            prune_per_s: with.per_second(),
            prune_unchecked_per_s: without.per_second(),
            apply_alone_ms: beside.alone.mean_ms(),
            apply_while_pruning_ms: beside.beside.mean_ms(),
            apply_while_catching_up_ms: catching_up.in_a_row.beside.mean_ms(),
            apply_at_full_prune_ms: catching_up.after_a_pause.beside.mean_ms(),
            pruned_per_block_while_catching_up: catching_up.in_a_row.pruned as f64
                / catching_up.in_a_row.beside.count() as f64,
            catch_up_backlog: catching_up.backlog,
            catch_up_per_s: catching_up.rest_per_s,
            blocks_down: self.down,
            blocks: self.blocks,
            txs_per_block: self.shape.txs,
            outputs_at_start,
            records_pruned: with.records + without.records + beside.pruned,
        })
    }
}
