//! `bench apply`: the store against the bare engine, pruning, reopening after a kill, and blocks of real size through the
//! chain.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Args;
use sapwood_chain::LONGEST_RUN;
use sapwood_engine_rocksdb::{OpenMode, Options, open_ledger};
use sapwood_rules::Policy;

use super::{
    Shape,
    baseline::{Baseline, Recorder},
    chain::{BenchChain, RETENTION, prune_all, record_bytes},
    cost::cost,
    following::Following,
    measure::{Times, bytes_on_disk, peak_rss_bytes, reset_peak_rss},
    print_report, progress,
    pruning::{apply_beside_pruning, with_and_without_check},
    report::ApplyReport,
    run_in_directory,
};

/// Blocks the child applies before it is killed, so that there is a log to replay.
const BLOCKS_BEFORE_KILL: usize = 25;
/// Blocks whose rows are written straight to measure the core time of that.
const BASELINE_CORE_BLOCKS: usize = 16;

/// Measure block apply and pruning on the embedded store, and what the chain and its options add to it.
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

/// Blocks applied by the ledger, and the rows of the same blocks written straight: the baseline.
#[derive(Default)]
struct AgainstBaseline {
    apply: Times,
    baseline: Times,
}

impl AgainstBaseline {
    fn ratio(&self) -> f64 {
        self.apply.total().as_secs_f64() / self.baseline.total().as_secs_f64()
    }
}

impl Apply {
    pub(super) fn run(mut self) -> anyhow::Result<()> {
        if self.quick {
            self.blocks = self.blocks.min(40);
        }
        let report = run_in_directory(self.data.as_deref(), async |directory| self.measure(directory).await)?;
        print_report(&report, self.json)
    }

    async fn measure(&self, directory: &Path) -> anyhow::Result<ApplyReport> {
        let store_directory = directory.join("store");
        let recorder = Arc::new(Recorder::default());
        let options = Options::default().ledger(|ledger| ledger.faults = Some(Arc::clone(&recorder) as _));
        let mut chain = BenchChain::new(&store_directory, &self.shape, options)?;
        chain.fund(self.shape.outputs, self.json).await?;
        chain.store.settle_disk().await?;
        let outputs_at_start = chain.store.counts().await?.unspent;

        let copy = directory.join("baseline");
        chain.store.checkpoint(&copy).await?;
        let baseline = Baseline::open(&copy, recorder)?;
        let (in_a_row, one_by_one) = self.against_baseline(&mut chain, &baseline).await?;
        let run: Vec<_> = (0..BASELINE_CORE_BLOCKS).map(|_| Arc::new(chain.workload.next_block())).collect();
        chain.apply_run(&run).await?;
        // Its own threads would be counted too.
        chain.store.settle_disk().await?;
        let baseline_core = baseline.core_time()?;
        drop((baseline, run));
        std::fs::remove_dir_all(&copy).context("removing the copy")?;
        // The baseline's memory is not the store's.
        reset_peak_rss();
        let cost = cost(&mut chain, self.blocks, self.json).await?;
        let (with_check, without_check) = with_and_without_check(&chain).await?;
        let beside = apply_beside_pruning(&mut chain, self.blocks, self.json).await?;
        prune_all(&chain.store).await?;
        chain.store.settle_disk().await?;
        let live_outputs = chain.store.counts().await?.unspent;
        let bytes = bytes_on_disk(&store_directory);
        let record_bytes = record_bytes(&chain.store).await?;
        drop(chain);
        let peak_rss_bytes = peak_rss_bytes();
        let reopen = self.reopen_after_kill(&directory.join("killed"))?;
        let following = Following::new(self.quick, self.json).measure(&directory.join("following")).await?;

        let txs = (self.blocks * self.shape.txs) as f64;
        let made_per_second = txs / in_a_row.apply.total().as_secs_f64();
        let prune_per_s = with_check.per_second();
        Ok(ApplyReport {
            apply_tx_per_s: made_per_second,
            baseline_tx_per_s: txs / in_a_row.baseline.total().as_secs_f64(),
            apply_over_baseline: in_a_row.ratio(),
            single_apply_over_baseline: one_by_one.ratio(),
            apply_p50_ms: one_by_one.apply.percentile_ms(50),
            apply_p99_ms: one_by_one.apply.percentile_ms(99),
            prune_per_s,
            prune_over_make: prune_per_s / made_per_second,
            child_check_ratio: with_check.over(&without_check),
            apply_while_pruning_ratio: beside.ratio(),
            bytes_per_live_output: bytes as f64 / live_outputs as f64,
            disk_over_record_bytes: bytes as f64 / record_bytes as f64,
            peak_rss_bytes,
            reopen_after_kill_ms: reopen.as_secs_f64() * 1000.0,
            core_ms_per_block: cost.core_ms_per_block,
            baseline_core_ms_per_block: baseline_core.as_secs_f64() * 1000.0,
            tx_per_core_s: cost.tx_per_core_s,
            engine_rows_per_tx: cost.engine_rows_per_tx,
            engine_bytes_per_tx: cost.engine_bytes_per_tx,
            written_bytes_per_tx: cost.written_bytes_per_tx,
            write_amplification: cost.write_amplification,
            cold_reads_per_block: cost.cold_reads_per_block,
            blocks: self.blocks,
            txs_per_block: self.shape.txs,
            outputs_at_start,
            live_outputs,
            records_pruned: with_check.records + without_check.records + beside.pruned,
            following,
        })
    }

    /// Blocks are applied by the store, and then their rows are written straight into the copy: in turns, so that a noisy moment of the
    /// machine hits both. First some in a row, as a node does that catches up, then as many one by one, waiting for each.
    async fn against_baseline(
        &self,
        chain: &mut BenchChain,
        baseline: &Baseline,
    ) -> anyhow::Result<(AgainstBaseline, AgainstBaseline)> {
        let (mut in_a_row, mut one_by_one) = (AgainstBaseline::default(), AgainstBaseline::default());
        let bar = progress("apply, and the same rows straight", 2 * self.blocks, self.json)?;
        while in_a_row.baseline.count() < self.blocks {
            let length = LONGEST_RUN.min(self.blocks - in_a_row.baseline.count());
            let run: Vec<_> = (0..length).map(|_| Arc::new(chain.workload.next_block())).collect();
            let started = Instant::now();
            chain.apply_run(&run).await?;
            in_a_row.apply.add(started.elapsed());
            baseline.write(&mut in_a_row.baseline)?;
            for _ in 0..length {
                let block = chain.workload.next_block();
                let started = Instant::now();
                chain.apply(block).await?;
                one_by_one.apply.add(started.elapsed());
                baseline.write(&mut one_by_one.baseline)?;
            }
            bar.inc(2 * length as u64);
        }
        bar.finish_and_clear();
        Ok((in_a_row, one_by_one))
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
            open_ledger(directory, OpenMode::Create, Policy::with_retention(RETENTION), Options::default());
        let elapsed = started.elapsed();
        store.context("opening the store after the kill")?;
        Ok(elapsed)
    }
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
