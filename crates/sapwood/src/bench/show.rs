//! `bench run`: the benchmark's work, to look at.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use sapwood_engine_rocksdb::Options;

use super::{
    Shape,
    chain::{BenchChain, RETENTION, prune_all},
    measure::{Times, bytes_on_disk},
    parse_duration,
    report::thousands,
    working_directory,
};

/// Apply and prune blocks for a while, with a live display.
#[derive(Debug, Args)]
pub(crate) struct Show {
    #[command(flatten)]
    shape: Shape,
    /// For how long, for example 30s or 2m.
    #[arg(long = "for", default_value = "30s", value_parser = parse_duration)]
    duration: Duration,
    /// Keep the store in this directory instead of a temporary one. It must not exist.
    #[arg(long)]
    data: Option<PathBuf>,
}

impl Show {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let temporary = tempfile::tempdir().context("making a temporary directory")?;
        let directory = working_directory(self.data.as_deref(), &temporary)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
        runtime.block_on(self.show(&directory))
    }

    async fn show(&self, directory: &std::path::Path) -> anyhow::Result<()> {
        println!(
            "A chain of {} transactions a block on the embedded store. Records go {RETENTION} blocks after they settled.",
            thousands(self.shape.txs as u64)
        );
        let mut chain = BenchChain::new(directory, &self.shape, Options::default())?;
        chain.fund(self.shape.outputs, false).await?;
        let bar = ProgressBar::new(self.duration.as_secs());
        bar.set_style(ProgressStyle::with_template("{wide_bar} {pos} of {len} s\n{msg}")?);
        let started = Instant::now();
        let (mut times, mut pruned) = (Times::default(), 0);
        while started.elapsed() < self.duration {
            let block = chain.workload.next_block();
            let height = block.height;
            let store = chain.store.clone();
            let pruner = tokio::spawn(async move { prune_all(&store).await });
            let block_started = Instant::now();
            chain.apply(block).await?;
            times.add(block_started.elapsed());
            pruned += pruner.await??;
            let counts = chain.store.counts().await?;
            bar.set_position(started.elapsed().as_secs());
            bar.set_message(format!(
                "block {height}: {} transactions/s   {} live outputs   {} records kept, {} pruned   {} MiB on disk",
                thousands((self.shape.txs as f64 * 1000.0 / times.mean_ms()) as u64),
                thousands(counts.unspent),
                thousands(counts.records),
                thousands(pruned),
                bytes_on_disk(directory) >> 20,
            ));
        }
        bar.finish_and_clear();
        self.summary(&chain, &times, pruned, directory).await
    }

    async fn summary(
        &self,
        chain: &BenchChain,
        times: &Times,
        pruned: u64,
        directory: &std::path::Path,
    ) -> anyhow::Result<()> {
        let counts = chain.store.counts().await?;
        let report = chain.store.verify(std::sync::Arc::new(|_, _| {})).await?;
        let seconds = times.total().as_secs_f64();
        let made = (seconds * 1000.0 / times.mean_ms()).round() as u64 * self.shape.txs as u64;
        println!("blocks applied       {:>12}", thousands(made / self.shape.txs as u64));
        println!(
            "transactions applied {:>12}   {} per second",
            thousands(made),
            thousands((made as f64 / seconds) as u64)
        );
        println!(
            "time of a block      {:>9.0} ms   p99 {:.0} ms",
            times.percentile_ms(50),
            times.percentile_ms(99)
        );
        println!(
            "records pruned       {:>12}   while blocks were applied, each child checked",
            thousands(pruned)
        );
        println!("records kept         {:>12}", thousands(counts.records));
        println!("live outputs         {:>12}", thousands(counts.unspent));
        println!("on disk              {:>8} MiB", bytes_on_disk(directory) >> 20);
        anyhow::ensure!(report.is_clean(), "the store is damaged: {report}");
        println!(
            "verified             {:>12}   records and their indexes, nothing is broken",
            thousands(report.records)
        );
        Ok(())
    }
}
