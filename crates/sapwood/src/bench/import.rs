//! `bench import`: block files imported by a process of its own, from its start to its end.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Args;
use sapwood_engine_rocksdb::{OpenMode, Options, open_ledger};
use sapwood_rules::Policy;
use serde::{Deserialize, Serialize};

use super::{
    measure::{bytes_on_disk, children_cpu_time, peak_rss_bytes_of},
    print_report,
    report::thousands,
    working_directory,
};
use crate::node::runtime;

/// How often the memory of the process is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Measure the import of block files.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// Block files, or directories of them.
    #[arg(required = true, value_name = "FILE_OR_DIR")]
    places: Vec<PathBuf>,
    /// The network of the files.
    #[arg(long, default_value = "regtest")]
    network: String,
    /// Times to import them, each into a new directory. The median counts.
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// Count the UTXO set afterwards and print its hash, to be compared with another program's.
    #[arg(long)]
    muhash: bool,
    /// Further options of `sapwood import bitcoin`, behind `--`.
    #[arg(last = true)]
    options: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Keep the data in this directory instead of a temporary one. It must not exist.
    #[arg(long)]
    data: Option<PathBuf>,
}

/// What was measured.
#[derive(Debug, Default, Serialize)]
struct ImportReport {
    /// From the start of the process to its end, which is after the last flush.
    seconds: f64,
    /// Processor time of all its threads.
    cpu_seconds: f64,
    tx_per_s: f64,
    tx_per_core_s: f64,
    peak_rss_bytes: u64,
    disk_bytes: u64,
    live_outputs: u64,
    bytes_per_live_output: f64,
    transactions: u64,
    blocks: u64,
    pruned: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    muhash: Option<String>,
    runs: usize,
}

/// What `sapwood import --json` prints, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Summary {
    blocks: u64,
    transactions: u64,
    pruned: Option<u64>,
}

/// One import.
struct Run {
    seconds: f64,
    cpu_seconds: f64,
    peak_rss_bytes: u64,
    summary: Summary,
}

impl Import {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let temporary = tempfile::tempdir().context("making a temporary directory")?;
        let directory = working_directory(self.data.as_deref(), &temporary)?;
        let mut runs = Vec::new();
        for number in 0..self.runs.max(1) {
            let data = directory.join(number.to_string());
            runs.push((self.import(&data)?, data));
        }
        runs.sort_by(|(one, _), (other, _)| one.seconds.total_cmp(&other.seconds));
        let (run, data) = &runs[runs.len() / 2];
        let (transactions, blocks) = (run.summary.transactions, run.summary.blocks);
        let (disk_bytes, (live_outputs, muhash)) = (bytes_on_disk(data), self.look_at(data)?);
        let report = ImportReport {
            seconds: run.seconds,
            cpu_seconds: run.cpu_seconds,
            tx_per_s: transactions as f64 / run.seconds,
            tx_per_core_s: transactions as f64 / run.cpu_seconds,
            peak_rss_bytes: run.peak_rss_bytes,
            disk_bytes,
            live_outputs,
            bytes_per_live_output: disk_bytes as f64 / live_outputs.max(1) as f64,
            transactions,
            blocks,
            pruned: run.summary.pruned,
            muhash,
            runs: runs.len(),
        };
        print_report(&report, self.json)
    }

    fn import(&self, data: &Path) -> anyhow::Result<Run> {
        let (cpu, started) = (children_cpu_time(), Instant::now());
        let mut child = Command::new(std::env::current_exe()?)
            .args(["import", "bitcoin", "--json", "--network", &self.network, "--data"])
            .arg(data)
            .args(&self.options)
            .args(&self.places)
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the import")?;
        let peak_rss_bytes = watch_memory(&mut child)?;
        let output = child.wait_with_output().context("waiting for the import")?;
        let seconds = started.elapsed().as_secs_f64();
        anyhow::ensure!(output.status.success(), "the import failed: {}", output.status);
        let summary = serde_json::from_slice(&output.stdout).context("reading what the import printed")?;
        let cpu_seconds = (children_cpu_time() - cpu).as_secs_f64();
        Ok(Run { seconds, cpu_seconds, peak_rss_bytes, summary })
    }

    /// Opens what was imported. Returns how many outputs are unspent, and their hash if it is wanted.
    fn look_at(&self, data: &Path) -> anyhow::Result<(u64, Option<String>)> {
        let store = crate::node::Directory::new(data).store();
        let store = open_ledger(&store, OpenMode::ReadOnly, Policy::default(), Options::default())?;
        runtime()?.block_on(async {
            let muhash = match self.muhash {
                true => store
                    .utxo_set(true, std::sync::Arc::new(|_, _| std::ops::ControlFlow::Continue(())))
                    .await?
                    .digest(),
                false => None,
            };
            Ok((store.counts().await?.unspent, muhash))
        })
    }
}

/// Waits for the end of a process whose output is short. Returns the most memory it had.
fn watch_memory(child: &mut Child) -> anyhow::Result<u64> {
    let mut most = 0;
    while child.try_wait().context("waiting for the import")?.is_none() {
        most = most.max(peak_rss_bytes_of(child.id()).unwrap_or(0));
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(most)
}

impl fmt::Display for ImportReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seconds, cpu_seconds, .. } = self;
        writeln!(f, "{} transactions in {} blocks", thousands(self.transactions), thousands(self.blocks))?;
        writeln!(f, "time, processor time       {seconds:.2} s, {cpu_seconds:.2} s")?;
        writeln!(f, "transactions per second    {}", thousands(self.tx_per_s as u64))?;
        writeln!(f, "the same for one core      {}", thousands(self.tx_per_core_s as u64))?;
        writeln!(f, "peak memory                {} MiB", self.peak_rss_bytes >> 20)?;
        writeln!(f, "bytes per live output      {:.0}", self.bytes_per_live_output)?;
        self.muhash.as_ref().map_or(Ok(()), |muhash| writeln!(f, "muhash                     {muhash}"))
    }
}
