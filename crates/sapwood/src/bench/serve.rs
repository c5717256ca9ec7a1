//! `bench serve`: read requests over HTTP while blocks are applied and pruned.
//!
//! The load comes from `wrk`, a program of its own. Rounds with load and rounds without take turns, so that a noisy moment of the machine
//! hits both. Keys are outputs that were unspent when the round began. A round is shorter than the retention, so none of their records can
//! be pruned before it ends, and every answer has to be a good one.

use std::{
    fmt,
    io::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use clap::Args;
use sapwood_chain::{Chain, ChainOptions, Events, FollowOptions, Follower, Stop};
use sapwood_engine_rocksdb::{OpenMode, Options, open_ledger};
use sapwood_ledger::{AddressIndexing, Ledger};
use sapwood_rules::Policy;
use sapwood_server::{ListenOptions, ServerOptions};
use sapwood_sources::synthetic::{SyntheticChain, SyntheticOptions, SyntheticSource};
use sapwood_types::{OutPoint, Slot};
use serde::{Deserialize, Serialize};
use tokio::{process::Command, time::MissedTickBehavior};

use super::{measure::Times, print_report, report::thousands, working_directory};
use crate::node::{Parts, Serving, runtime};

/// Blocks a record is kept after it settled.
const RETENTION: u32 = 60;
/// Keys asked for in a round.
const KEYS: usize = 20_000;
/// How wrk is told what to do.
const SCRIPT: &str = include_str!("reads.lua");

/// Read requests over HTTP while blocks are applied and pruned, against blocks alone. Needs wrk (Debian, Ubuntu: apt install wrk).
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Transactions in a block.
    #[arg(long, default_value_t = 2000)]
    txs: u32,
    /// Outputs to begin with.
    #[arg(long, default_value_t = 200_000)]
    outputs: u64,
    /// Blocks in a round: fewer than 60.
    #[arg(long, default_value_t = 20)]
    blocks: u32,
    /// Blocks a second.
    #[arg(long, default_value_t = 4.0)]
    speed: f64,
    /// Rounds with load on each kind of request, and as many without.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Connections at a time.
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// Let requests have the same priority as blocks, to see what becomes of it.
    #[arg(long)]
    same_priority: bool,
    /// How much lower the priority of wrk is, which would run on other machines in earnest. 0 to 19.
    #[arg(long, default_value_t = 19)]
    wrk_nice: u8,
    /// Keep the store in this directory instead of a temporary one. It must not exist.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What wrk tells of a round.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Told {
    requests: u64,
    seconds: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// Answers that are errors.
    refused: u64,
    /// Requests without any answer.
    broken: u64,
    bytes: u64,
}

/// What came of one kind of request.
#[derive(Debug, Serialize)]
struct Kind {
    path: &'static str,
    requests_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    slowest_ms: f64,
    errors: u64,
    bytes_per_answer: u64,
    apply_p50_ms: f64,
    /// The time of a block under this load over that of a block alone.
    apply_ratio: f64,
}

#[derive(Debug, Serialize)]
struct ServeReport {
    kinds: Vec<Kind>,
    apply_alone_p50_ms: f64,
    apply_alone_p99_ms: f64,
    blocks: u64,
    txs_per_block: u32,
    blocks_per_second: f64,
    records_pruned: u64,
    memory_bytes: u64,
    /// What memory grew by in rounds without load, where caches fill, and in those with load.
    memory_grown_alone_bytes: i64,
    memory_grown_loaded_bytes: i64,
    connections: usize,
    same_priority: bool,
}

impl Serve {
    pub(super) fn run(self) -> anyhow::Result<()> {
        ensure!(
            (1..RETENTION).contains(&self.blocks),
            "--blocks is {}: a round has 1 to {} blocks",
            self.blocks,
            RETENTION - 1
        );
        ensure!(
            self.speed.is_finite() && self.speed > 0.0,
            "--speed is {}: it has to be above 0",
            self.speed
        );
        ensure!(self.rounds > 0, "--rounds is 0: nothing would be measured");
        let temporary = tempfile::tempdir().context("making a temporary directory")?;
        let directory = working_directory(self.data.as_deref(), &temporary)?;
        let report = runtime()?.block_on(self.measure(&directory, temporary.path()))?;
        print_report(&report, self.json)
    }

    async fn measure(&self, directory: &Path, scratch: &Path) -> anyhow::Result<ServeReport> {
        let mut node = Measured::start(self, directory).await?;
        node.fill(RETENTION + 10).await?;
        let script = scratch.join("reads.lua");
        std::fs::write(&script, SCRIPT)?;
        let paths = ["/api/v1/utxos/{txid}/{vout}", "/api/v1/txs/{txid}", "/api/v1/status"];
        let mut alone = Times::default();
        let mut loaded = paths.map(|path| (path, Times::default(), Vec::new()));
        // Caches and threads come to life in the first round, which does not count.
        node.round_with(self, "/api/v1/status", &script, &mut Times::default()).await?;
        let before = node.serving.node.sample().await;
        let (mut grown_alone, mut grown_loaded) = (0, 0);
        for _ in 0..self.rounds {
            for (path, times, told) in &mut loaded {
                let start = node.memory().await;
                node.round(self, &mut alone).await?;
                let between = node.memory().await;
                told.push(node.round_with(self, path, &script, times).await?);
                grown_alone += between - start;
                grown_loaded += node.memory().await - between;
            }
        }
        let after = node.serving.node.sample().await;
        node.serving.end().await;
        let alone_ms = alone.percentile_ms(50);
        let kind =
            |(path, times, told): (&'static str, Times, Vec<Told>)| Kind::new(path, &times, &told, alone_ms);
        Ok(ServeReport {
            kinds: loaded.into_iter().map(kind).collect(),
            apply_alone_p50_ms: alone_ms,
            apply_alone_p99_ms: alone.percentile_ms(99),
            blocks: after.chain.apply.count - before.chain.apply.count,
            txs_per_block: self.txs,
            blocks_per_second: self.speed,
            records_pruned: after.prune.totals.deleted - before.prune.totals.deleted,
            memory_bytes: after.process.resident_bytes.unwrap_or_default(),
            memory_grown_alone_bytes: grown_alone,
            memory_grown_loaded_bytes: grown_loaded,
            connections: self.connections,
            same_priority: self.same_priority,
        })
    }
}

impl Kind {
    fn new(path: &'static str, times: &Times, told: &[Told], alone_ms: f64) -> Self {
        let sum = |figure: fn(&Told) -> f64| told.iter().map(figure).sum::<f64>();
        // The middle of the rounds: one that something else on the machine spoilt does not decide.
        let middle = |figure: fn(&Told) -> f64| {
            let mut all: Vec<f64> = told.iter().map(figure).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied().unwrap_or_default()
        };
        let requests = sum(|told| told.requests as f64);
        Self {
            path,
            requests_per_second: requests / sum(|told| told.seconds),
            p50_ms: middle(|told| told.p50_ms),
            p99_ms: middle(|told| told.p99_ms),
            slowest_ms: told.iter().map(|told| told.max_ms).fold(0.0, f64::max),
            errors: told.iter().map(|told| told.refused + told.broken).sum(),
            bytes_per_answer: (sum(|told| told.bytes as f64) / requests.max(1.0)) as u64,
            apply_p50_ms: times.percentile_ms(50),
            apply_ratio: times.percentile_ms(50) / alone_ms,
        }
    }
}

/// The node that is measured.
struct Measured {
    store: Ledger,
    source: SyntheticSource,
    follower: Follower,
    serving: Serving,
    /// Outputs of the last blocks.
    made: Vec<OutPoint>,
}

impl Measured {
    async fn start(options: &Serve, directory: &Path) -> anyhow::Result<Self> {
        let source = SyntheticSource::new(SyntheticOptions {
            txs_per_block: options.txs,
            first_outputs: options.outputs.max(u64::from(options.txs) * 3),
            addresses: 1000,
            repeated_addresses: 0.5,
            remember: 100,
            ..SyntheticOptions::benchmark()
        })?;
        let policy = Policy { reorg_window: 20, ..Policy::with_retention(RETENTION) };
        let address_index = AddressIndexing { address: true, credential: false };
        let store = open_ledger(
            directory,
            OpenMode::Create,
            policy,
            Options::default().ledger(|ledger| ledger.address_index = address_index),
        )?;
        let chain = Chain::new(store.clone(), Events::default(), ChainOptions::default());
        let stop = Stop::default();
        let follower = Follower::new(chain.clone(), Arc::new(source.clone()), FollowOptions::default(), stop);
        let servers = ServerOptions::default();
        let anywhere = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let serving = Serving::start(Parts {
            servers: ServerOptions {
                http: ListenOptions { address: anywhere, ..servers.http.clone() },
                ..servers
            },
            serve: (false, true),
            give_way: !options.same_priority,
            ..Parts::of_synthetic("benchmark", chain, &follower, &source, directory, policy)
        })
        .await?;
        Ok(Self { store, source, follower, serving, made: Vec::new() })
    }

    /// The outputs to begin with, and so many blocks on top, as fast as they go.
    async fn fill(&mut self, blocks: u32) -> anyhow::Result<()> {
        while self.source.look(SyntheticChain::is_beginning) {
            self.block().await?;
        }
        for _ in 0..blocks {
            self.block().await?;
        }
        Ok(())
    }

    /// The memory of this process, in bytes. 0 where the system does not tell.
    async fn memory(&self) -> i64 {
        let bytes = self.serving.node.sample().await.process.resident_bytes.unwrap_or_default();
        i64::try_from(bytes).unwrap_or(i64::MAX)
    }

    /// One more block, and how long it took.
    async fn block(&mut self) -> anyhow::Result<Duration> {
        for block in self.source.advance().blocks() {
            let made = block
                .txs
                .iter()
                .flat_map(|tx| (0..tx.outputs.len() as u32).map(|index| OutPoint::new(tx.txid, index)));
            self.made.extend(made);
        }
        self.made.drain(..self.made.len().saturating_sub(8 * KEYS));
        let started = Instant::now();
        self.follower.catch_up().await?;
        Ok(started.elapsed())
    }

    /// Blocks at their pace.
    async fn round(&mut self, options: &Serve, times: &mut Times) -> anyhow::Result<()> {
        let mut pace = tokio::time::interval(Duration::from_secs_f64(1.0 / options.speed));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for _ in 0..options.blocks {
            pace.tick().await;
            times.add(self.block().await?);
        }
        Ok(())
    }

    /// The same while wrk asks for something.
    async fn round_with(
        &mut self,
        options: &Serve,
        path: &str,
        script: &Path,
        times: &mut Times,
    ) -> anyhow::Result<Told> {
        let keys = script.with_file_name("paths");
        let mut file = std::io::BufWriter::new(std::fs::File::create(&keys)?);
        for outpoint in self.unspent().await? {
            let txid = outpoint.txid.to_string();
            writeln!(
                file,
                "{}",
                path.replace("{txid}", &txid).replace("{vout}", &outpoint.vout.to_string())
            )?;
        }
        file.flush()?;
        let address = self.serving.http.context("HTTP is not served")?;
        let seconds = (f64::from(options.blocks) / options.speed).ceil().max(1.0);
        let wrk = Command::new("nice")
            .args(["-n", &options.wrk_nice.to_string(), "wrk", "--threads", "1"])
            .args(["--connections", &options.connections.to_string()])
            .args(["--duration", &format!("{seconds}s"), "--timeout", "10s", "--script"])
            .arg(script)
            .arg(format!("http://{address}"))
            .arg("--")
            .arg(&keys)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting wrk")?;
        self.round(options, times).await?;
        let output = wrk.wait_with_output().await?;
        let said = String::from_utf8_lossy(&output.stdout);
        let result = said.lines().find_map(|line| line.strip_prefix("RESULT "));
        let problem = String::from_utf8_lossy(&output.stderr);
        let result = result.with_context(|| {
            format!("wrk told nothing (Debian, Ubuntu: apt install wrk): {said}{problem}")
        })?;
        serde_json::from_str(result).context("reading what wrk told")
    }

    /// Outputs of the last blocks that are unspent now.
    async fn unspent(&self) -> anyhow::Result<Vec<OutPoint>> {
        let some = self.made.iter().step_by((self.made.len() / (2 * KEYS)).max(1)).copied().collect();
        let found = self.store.outputs(some).await?.into_iter().flatten().flatten();
        let unspent = found.filter(|utxo| matches!(utxo.slot, Slot::Unspent));
        let mut outpoints: Vec<OutPoint> = unspent.map(|utxo| utxo.outpoint).take(KEYS).collect();
        ensure!(!outpoints.is_empty(), "nothing is unspent: use more --outputs");
        // Neighbours of a block are not neighbours among the requests.
        outpoints.sort_unstable();
        Ok(outpoints)
    }
}

impl fmt::Display for ServeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} blocks of {} transactions, {} a second; {} records pruned meanwhile; wrk with {} connections{}\n",
            thousands(self.blocks),
            thousands(self.txs_per_block.into()),
            self.blocks_per_second,
            thousands(self.records_pruned),
            self.connections,
            if self.same_priority { "; the same priority for all" } else { "" },
        )?;
        writeln!(
            f,
            "{:<28} {:>11} {:>9} {:>9} {:>9} {:>7} {:>7} {:>11} {:>8}",
            "asked for",
            "requests/s",
            "p50 ms",
            "p99 ms",
            "slowest",
            "errors",
            "bytes",
            "a block ms",
            "alone ×"
        )?;
        for kind in &self.kinds {
            writeln!(
                f,
                "{:<28} {:>11} {:>9.2} {:>9.2} {:>9.1} {:>7} {:>7} {:>11.1} {:>8.2}",
                kind.path,
                thousands(kind.requests_per_second as u64),
                kind.p50_ms,
                kind.p99_ms,
                kind.slowest_ms,
                kind.errors,
                kind.bytes_per_answer,
                kind.apply_p50_ms,
                kind.apply_ratio
            )?;
        }
        writeln!(
            f,
            "\na block alone takes {:.1} ms, p99 {:.1} ms",
            self.apply_alone_p50_ms, self.apply_alone_p99_ms
        )?;
        writeln!(
            f,
            "memory {} MiB; it grew by {} MiB in rounds without load and by {} MiB in those with load",
            self.memory_bytes >> 20,
            self.memory_grown_alone_bytes >> 20,
            self.memory_grown_loaded_bytes >> 20
        )?;
        let mark = |good: bool| if good { "✓" } else { "✗" };
        if let Some(points) = self.kinds.first() {
            writeln!(f, "\npoint reads ≥ 10,000/s {}", mark(points.requests_per_second >= 10_000.0))?;
            writeln!(f, "p99 < 20 ms            {}", mark(points.p99_ms < 20.0))?;
        }
        writeln!(
            f,
            "apply ≤ 1.10 × alone   {}",
            mark(self.kinds.iter().all(|kind| kind.apply_ratio <= 1.1))
        )?;
        writeln!(f, "no errors              {}", mark(self.kinds.iter().all(|kind| kind.errors == 0)))
    }
}
