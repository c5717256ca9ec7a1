//! `sapwood demo`: a node at work on a made-up chain, with something to look at.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::{Args, value_parser};
use indicatif::{ProgressBar, ProgressStyle};
use sapwood_chain::{Chain, ChainOptions, Events, FollowOptions, Follower, Stop};
use sapwood_engine_rocksdb::Options;
use sapwood_ledger::{BatchError, CreateRequest, Ledger, RollbackMode};
use sapwood_pruner::{Bodies, BodyLocation, Consumer, text::counted};
use sapwood_rules::{Hold, Policy};
use sapwood_server::{ListenOptions, ServerOptions, grpc::Feed, status::StatusReport};
use sapwood_sources::{
    BlockSource as _,
    synthetic::{MOST_TXS, Outcome, Step, SyntheticOptions, SyntheticSource},
};
use sapwood_types::Height;
use serde::Serialize;

use crate::{
    bench::{bytes_on_disk, parse_duration},
    node::{Directory, NodeFile, Parts, Serving, TOKEN_FILE, runtime, stop_on_signals},
};

/// Blocks a record is kept after it settled. Short, so that pruning shows within a minute.
const RETENTION: u32 = 30;
/// How far the persister is behind the chain.
const PERSISTER_LAG: u32 = 3;
/// The made-up indexer reports for a while, then stands still for a while and holds the pruner back.
const INDEXER_WORKS: Duration = Duration::from_secs(35);
const INDEXER_STALLS: Duration = Duration::from_secs(15);

/// Show a node at work on a made-up chain, until stopped.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Keep the data here instead of in a temporary directory. It must be new.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// End after this long, such as 30s or 2m.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Blocks a second.
    #[arg(long, default_value_t = 4.0)]
    speed: f64,
    /// Transactions in a block.
    #[arg(long, default_value_t = 200, value_parser = value_parser!(u32).range(1..=i64::from(MOST_TXS)))]
    txs: u32,
    /// The seed of the made-up chain: the same seed gives the same blocks.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the status page is served. Port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8097")]
    http: std::net::SocketAddr,
    /// Where gRPC is served. Port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8096")]
    grpc: std::net::SocketAddr,
    /// Print a summary as JSON at the end.
    #[arg(long)]
    json: bool,
}

/// What happened.
#[derive(Debug, Default, Serialize)]
struct Summary {
    blocks: u64,
    reorgs: u64,
    transactions: u64,
    pruned_records: u64,
    disk_bytes: u64,
    disk_bytes_without_pruning: u64,
    errors: u64,
}

impl Demo {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let temporary = tempfile::tempdir().context("making a temporary directory")?;
        let path = match &self.data {
            Some(path) if path.exists() => {
                anyhow::bail!("{} exists already: name a directory that does not", path.display())
            }
            Some(path) => path.clone(),
            None => temporary.path().join("demo"),
        };
        anyhow::ensure!(
            self.speed.is_finite() && self.speed > 0.0,
            "--speed is {}: it has to be above 0",
            self.speed
        );
        runtime()?.block_on(self.show(&path))
    }

    async fn show(&self, path: &Path) -> anyhow::Result<()> {
        let stop = Stop::default();
        // To end it is the usual way out, so its exit code is 0.
        let _ = stop_on_signals(stop.clone())?;
        let source = SyntheticSource::new(self.chain())?;
        let policy = Policy::with_retention(RETENTION);
        let (directory, store) = open(path, policy).await?;
        let options = ChainOptions { rollback: RollbackMode::Node, ..ChainOptions::default() };
        let chain = Chain::new(store.clone(), Events::default(), options);
        let follower =
            Follower::new(chain.clone(), Arc::new(source.clone()), FollowOptions::default(), stop.clone());
        let listen = |base: ListenOptions, address| ListenOptions { address, ..base };
        let servers = ServerOptions::default();
        let serving = Serving::start(Parts {
            feed: Feed::Closed { source: source.name(), utxo_admin: true },
            bodies: Some(Bodies::open(&BodyLocation::Directory(directory.bodies()))?),
            servers: ServerOptions {
                grpc: listen(servers.grpc.clone(), self.grpc),
                http: listen(servers.http.clone(), self.http),
                ..servers
            },
            ..Parts::of_synthetic("demo", chain, &follower, &source, directory.path(), policy)
        })
        .await?;
        if let Some(page) = serving.page() {
            eprintln!("status page: {page}     Ctrl-C ends it");
            eprintln!("to unlock its controls: the token in {}", directory.path().join(TOKEN_FILE).display());
        }
        if let Some(address) = serving.grpc() {
            eprintln!("gRPC: {address}");
        }
        serving.pruner.register(Consumer::Persister).await?;

        let bar = ProgressBar::new_spinner();
        bar.set_style(ProgressStyle::with_template("{spinner} {msg}")?);
        bar.enable_steady_tick(Duration::from_millis(200));
        let mut world = World { store, source, follower, serving, summary: Summary::default() };
        let started = Instant::now();
        let mut timer = tokio::time::interval(Duration::from_secs_f64(1.0 / self.speed));
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        while stop.or(timer.tick()).await.is_some() {
            if self.duration.is_some_and(|duration| started.elapsed() >= duration) {
                break;
            }
            world.step(started.elapsed()).await;
            bar.set_message(words(&*world.serving.node.status().await));
        }
        bar.finish_and_clear();
        let mut summary = world.end().await;
        // The status has measured the disk up to five seconds ago.
        summary.disk_bytes = bytes_on_disk(directory.path());
        summary.disk_bytes_without_pruning += summary.disk_bytes;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&summary)?);
        } else {
            print!("{summary}");
        }
        Ok(())
    }

    fn chain(&self) -> SyntheticOptions {
        SyntheticOptions {
            seed: self.seed,
            txs_per_block: self.txs,
            first_outputs: u64::from(self.txs) * 50,
            most_outputs: u64::from(self.txs) * 60,
            coinbase_maturity: Policy::default().coinbase_maturity,
            unmined_per_block: self.txs / 8,
            late_blocks: (RETENTION, 2 * RETENTION),
            expire_after: 4 * RETENTION,
            reorg_probability: 0.03,
            max_reorg_depth: 4,
            remember: 2 * RETENTION,
            ..SyntheticOptions::default()
        }
    }
}

async fn open(path: &Path, policy: Policy) -> anyhow::Result<(Directory, Ledger)> {
    let directory = Directory::new(path);
    let node = NodeFile {
        chain: "synthetic".into(),
        network: "demo".into(),
        address_index: true,
        credential_index: false,
        configuration: None,
    };
    directory.claim(&node)?;
    // Small buffers, so that what is deleted shows on disk within seconds.
    let options = Options::default().engine(|engine| {
        engine.write_buffer_bytes = 1 << 20;
        engine.block_cache_bytes = 32 << 20;
    });
    let store = directory.open(&node, options, &policy).await?;
    Ok((directory, store))
}

/// Everything that takes part.
struct World {
    store: Ledger,
    source: SyntheticSource,
    follower: Follower,
    serving: Serving,
    summary: Summary,
}

impl World {
    /// One more block, with what goes on around it.
    async fn step(&mut self, elapsed: Duration) {
        let step = self.source.advance();
        let done = self.take(&step).await;
        self.note("following the chain", done);
        let around = self.around(elapsed).await;
        self.note("playing the consumers", around);
        self.summary.blocks += step.blocks().len() as u64;
        self.summary.transactions += step.blocks().iter().map(|block| block.txs.len() as u64).sum::<u64>();
        self.summary.reorgs += u64::from(matches!(step.outcome, Outcome::Reorganised { .. }));
    }

    fn note(&mut self, doing: &str, result: anyhow::Result<()>) {
        if let Err(error) = result {
            tracing::error!("{doing}: {error:#}");
            self.summary.errors += 1;
        }
    }

    /// What a node does: it forgets what is too old, hears of new transactions, and follows the chain.
    async fn take(&self, step: &Step) -> anyhow::Result<()> {
        let height = self.store.last_applied().await?.map_or(Height::GENESIS, |last| last.height);
        if !step.expired.is_empty() {
            self.store.delete(step.expired.clone()).await?;
        }
        let create = step.seen.iter().map(|seen| CreateRequest {
            conflicting: seen.rival_of.is_some(),
            ..CreateRequest::unmined(seen.tx.clone())
        });
        match self.store.create(create.collect(), height).await {
            Ok(()) => {}
            Err(BatchError::Items { failed, total }) => {
                anyhow::bail!("{} of {total} new transactions were refused: {}", failed.len(), failed[0].1)
            }
            Err(error) => return Err(error.into()),
        }
        Ok(self.follower.catch_up().await?)
    }

    /// The persister follows a few blocks behind. The indexer works for a while, and then stands still for a while.
    async fn around(&self, elapsed: Duration) -> anyhow::Result<()> {
        let Some(last) = self.store.last_applied().await? else { return Ok(()) };
        let behind = |lag: u32| Height(last.height.0.saturating_sub(lag));
        self.serving.pruner.report_persisted(behind(PERSISTER_LAG)).await?;
        let whole = (INDEXER_WORKS + INDEXER_STALLS).as_secs();
        if elapsed.as_secs() % whole < INDEXER_WORKS.as_secs() {
            let hold = Hold {
                name: "indexer".into(),
                owner: "a wallet's indexer".into(),
                keep_from: Some(behind(8)),
                expires: None,
                reason: "reads blocks it has not indexed yet".into(),
            };
            self.serving.pruner.holds().set(hold).await?;
        }
        Ok(())
    }

    /// What happened, but for the bytes on disk.
    async fn end(mut self) -> Summary {
        let report = self.serving.node.sample().await;
        self.summary.pruned_records = report.prune.totals.deleted;
        self.summary.disk_bytes_without_pruning = report.prune.totals.bytes_freed;
        self.serving.end().await;
        self.summary
    }
}

/// The node's state in a line.
fn words(report: &StatusReport) -> String {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    format!(
        "block {}   {} records   {} pruned   disk {:.1} MiB, without pruning {:.1} MiB   {}",
        report.chain.applied.as_ref().map_or(0, |block| block.height.0),
        report.counts.records,
        report.prune.totals.deleted,
        mib(report.disk.total_bytes),
        mib(report.disk.without_pruning_bytes),
        report.prune.state
    )
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (blocks, transactions) =
            (counted(self.blocks, "block"), counted(self.transactions, "transaction"));
        writeln!(f, "{blocks} with {transactions}, {}", counted(self.reorgs, "reorg"))?;
        writeln!(f, "{} pruned", counted(self.pruned_records, "record"))?;
        writeln!(
            f,
            "{:.1} MiB on disk; without pruning it would be {:.1} MiB",
            mib(self.disk_bytes),
            mib(self.disk_bytes_without_pruning)
        )?;
        match self.errors {
            0 => writeln!(f, "no errors"),
            errors => writeln!(f, "{}, see above", counted(errors, "error")),
        }
    }
}
