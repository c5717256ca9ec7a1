//! `bench apply`: the store against the bare engine, pruning, and reopening after a kill.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use sapwood_rules::Policy;
use sapwood_store::{StoreDiagnose, StoreRead};
use sapwood_store_embedded::{
    EmbeddedOptions, EmbeddedStore, Faults,
    floor::{Floor, Operations},
};
use sapwood_types::TxId;

use super::{
    Shape,
    chain::{BenchChain, RETENTION, prune_all},
    measure::{Times, bytes_on_disk, peak_rss_bytes},
    report::ApplyReport,
    working_directory,
};

/// Blocks the child applies before it is killed, so that there is a log to replay.
const BLOCKS_BEFORE_KILL: usize = 25;

/// Measure block apply and pruning on the embedded store.
#[derive(Debug, Args)]
pub(crate) struct Apply {
    #[command(flatten)]
    shape: Shape,
    /// Blocks to measure in each part.
    #[arg(long, default_value_t = 100)]
    blocks: usize,
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

/// Keeps the last batch the store wrote.
#[derive(Default)]
struct LastBatch(Mutex<Vec<u8>>);

impl Faults for LastBatch {
    fn reached(&self, _: &'static str) -> Result<(), String> {
        Ok(())
    }

    fn writing(&self, batch: &[u8]) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.clear();
        last.extend_from_slice(batch);
    }
}

impl LastBatch {
    fn take(&self) -> Operations {
        Operations::of(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Apply {
    pub(super) fn run(mut self) -> anyhow::Result<()> {
        if self.quick {
            self.blocks = self.blocks.min(30);
        }
        let temporary = tempfile::tempdir().context("making a temporary directory")?;
        let directory = working_directory(self.data.as_deref(), &temporary)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
        let report = runtime.block_on(self.measure(&directory))?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&report)?)
        } else {
            print!("{report}")
        }
        Ok(())
    }

    async fn measure(&self, directory: &Path) -> anyhow::Result<ApplyReport> {
        let store_directory = directory.join("store");
        let last_batch = Arc::new(LastBatch::default());
        let options =
            EmbeddedOptions { faults: Some(Arc::clone(&last_batch) as _), ..EmbeddedOptions::default() };
        let mut chain = BenchChain::new(&store_directory, &self.shape, options.clone())?;
        chain.fund(self.shape.outputs, self.json).await?;
        chain.store.settle_disk().await?;
        let outputs_at_start = chain.store.counts().await?.unspent;

        let copy = directory.join("floor");
        chain.store.checkpoint(&copy).await?;
        let floor = Floor::open(&copy, &options)?;
        let (apply, floor_times) = self.against_floor(&mut chain, &floor, &last_batch).await?;
        drop(floor);
        std::fs::remove_dir_all(&copy).context("removing the copy")?;

        let prune = self.prune(&chain).await?;
        let (alone, while_pruning, pruned_beside) = self.beside_pruning(&mut chain).await?;
        prune_all(&chain.store).await?;
        chain.store.settle_disk().await?;
        let live_outputs = chain.store.counts().await?.unspent;
        let bytes = bytes_on_disk(&store_directory);
        drop(chain);
        let reopen = self.reopen_after_kill(&directory.join("killed"))?;

        let txs = (self.blocks * self.shape.txs) as f64;
        let made_per_second = txs / apply.total().as_secs_f64();
        let prune_per_s = prune.checked as f64 / prune.with_check.total().as_secs_f64();
        let unchecked_per_s = prune.unchecked as f64 / prune.without_check.total().as_secs_f64();
        Ok(ApplyReport {
            apply_tx_per_s: made_per_second,
            floor_tx_per_s: txs / floor_times.total().as_secs_f64(),
            apply_over_floor: apply.total().as_secs_f64() / floor_times.total().as_secs_f64(),
            apply_p50_ms: apply.percentile_ms(50),
            apply_p99_ms: apply.percentile_ms(99),
            prune_per_s,
            prune_over_make: prune_per_s / made_per_second,
            child_check_ratio: unchecked_per_s / prune_per_s,
            apply_while_pruning_ratio: while_pruning.mean_ms() / alone.mean_ms(),
            bytes_per_live_output: bytes as f64 / live_outputs as f64,
            peak_rss_bytes: peak_rss_bytes(),
            reopen_after_kill_ms: reopen.as_secs_f64() * 1000.0,
            blocks: self.blocks,
            txs_per_block: self.shape.txs,
            outputs_at_start,
            live_outputs,
            records_pruned: prune.checked + prune.unchecked + pruned_beside,
        })
    }

    fn progress(&self, what: &'static str) -> anyhow::Result<ProgressBar> {
        let bar = if self.json { ProgressBar::hidden() } else { ProgressBar::new(self.blocks as u64) };
        let style = format!("{what} {{wide_bar}} block {{pos}} of {{len}}, {{eta}} left");
        Ok(bar.with_style(ProgressStyle::with_template(&style)?))
    }

    /// Each block is applied by the store, and then its bytes are written straight into the copy. Side by side, so that a noisy
    /// moment of the machine hits both.
    async fn against_floor(
        &self,
        chain: &mut BenchChain,
        floor: &Floor,
        last_batch: &LastBatch,
    ) -> anyhow::Result<(Times, Times)> {
        let (mut apply, mut straight) = (Times::default(), Times::default());
        let bar = self.progress("apply, and the same bytes straight")?;
        for _ in 0..self.blocks {
            let block = chain.workload.next_block();
            let started = Instant::now();
            chain.apply(block).await?;
            apply.add(started.elapsed());
            let operations = last_batch.take();
            let started = Instant::now();
            floor.write(&operations)?;
            straight.add(started.elapsed());
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok((apply, straight))
    }

    /// Deletes all that is due, one chunk with the child check, the next without.
    async fn prune(&self, chain: &BenchChain) -> anyhow::Result<PruneTimes> {
        let mut times = PruneTimes::default();
        let mut after = None;
        for turn in 0.. {
            let page = chain.due(after).await?;
            let txids: Vec<TxId> = page.items.iter().map(|record| record.txid).collect();
            let check = turn % 2 == 0;
            let count = txids.len() as u64;
            let started = Instant::now();
            let judged = chain.delete(txids, check).await?;
            let elapsed = started.elapsed();
            let kept = judged.iter().find(|judged| !judged.verdict.may_go());
            anyhow::ensure!(kept.is_none(), "a due record was not deleted: {kept:?}");
            if check {
                times.with_check.add(elapsed);
                times.checked += count;
            } else {
                times.without_check.add(elapsed);
                times.unchecked += count;
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        anyhow::ensure!(
            times.unchecked > 0,
            "too few blocks to measure pruning: raise --blocks above {RETENTION}"
        );
        Ok(times)
    }

    /// Every second block is applied while what became due is pruned.
    async fn beside_pruning(&self, chain: &mut BenchChain) -> anyhow::Result<(Times, Times, u64)> {
        let (mut alone, mut beside) = (Times::default(), Times::default());
        let mut pruned = 0;
        let bar = self.progress("apply, alone and while pruning")?;
        for turn in 0..self.blocks {
            let block = chain.workload.next_block();
            if turn % 2 == 0 {
                let started = Instant::now();
                chain.apply(block).await?;
                alone.add(started.elapsed());
            } else {
                let store = chain.store.clone();
                let pruner = tokio::spawn(async move { prune_all(&store).await });
                let started = Instant::now();
                chain.apply(block).await?;
                beside.add(started.elapsed());
                pruned += pruner.await??;
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok((alone, beside, pruned))
    }

    /// Lets a child process apply blocks at full speed, kills it, and opens what it left.
    fn reopen_after_kill(&self, directory: &Path) -> anyhow::Result<Duration> {
        let mut child = Killed(
            Command::new(std::env::current_exe()?)
                .args(["bench", "until-killed"])
                .arg(directory)
                .args(["--outputs", "200000", "--txs", &self.shape.txs.to_string()])
                .stdout(Stdio::piped())
                .spawn()
                .context("starting a process to kill")?,
        );
        let output = child.0.stdout.take().context("the child has no output")?;
        let blocks = BufReader::new(output).lines().take(BLOCKS_BEFORE_KILL).count();
        anyhow::ensure!(blocks == BLOCKS_BEFORE_KILL, "the process to kill ended by itself");
        drop(child);
        let started = Instant::now();
        let store =
            EmbeddedStore::open(directory, Policy::with_retention(RETENTION), EmbeddedOptions::default());
        let elapsed = started.elapsed();
        store.context("opening the store after the kill")?;
        Ok(elapsed)
    }
}

#[derive(Default)]
struct PruneTimes {
    with_check: Times,
    checked: u64,
    without_check: Times,
    unchecked: u64,
}

/// A child process that is killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself, which its reader has noticed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
