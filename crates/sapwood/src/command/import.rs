//! `sapwood import`: take over a chain from files.

use std::{ops::ControlFlow, path::PathBuf, sync::Arc, time::Instant};

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use sapwood_chain::{
    ApplyMode, Chain, ChainError, ChainOptions, DEFAULT_QUEUE, Events, FollowOptions, Follower, Rejected,
    Stop,
};
use sapwood_pruner::{Bodies, Pruner, PrunerOptions, SystemClock};
use sapwood_rules::Policy;
use sapwood_sources::{
    BlockSource as _, ChainPoint, SourceView,
    bitcoin::{BlkOptions, BlkSource, Network, blk::BlkReport},
};
use sapwood_store::{RollbackMode, Store, StoreRead as _};
use sapwood_store_embedded::EmbeddedOptions;
use sapwood_types::{BlockHash, Height};

use super::{BodiesArg, DataArg};
use crate::node::{self, NodeFile, counting_bar, follow_bar, runtime, stop_on_signals};

/// Which chain.
#[derive(Debug, Subcommand)]
pub(crate) enum Import {
    /// Import Bitcoin block files (blk*.dat), or directories of them. Can be repeated: it goes on where it was.
    Bitcoin(ImportBitcoin),
}

#[derive(Debug, Args)]
pub(crate) struct ImportBitcoin {
    #[command(flatten)]
    data: DataArg,
    #[command(flatten)]
    bodies: BodiesArg,
    /// mainnet, testnet3, testnet4, signet or regtest.
    #[arg(long, default_value = "mainnet")]
    network: Network,
    /// Block files, or directories of them such as a node's `blocks`.
    #[arg(required = true, value_name = "FILE_OR_DIR")]
    places: Vec<PathBuf>,
    /// Go no further than this height.
    #[arg(long, value_name = "HEIGHT")]
    stop_at: Option<u32>,
    /// The block before the first one in the files, as HEIGHT:HASH, for files that begin later than the chain.
    #[arg(long, value_name = "HEIGHT:HASH", value_parser = parse_anchor)]
    after: Option<ChainPoint>,
    /// Keep an index of unspent outputs by address. Fixed when the data directory is made; need not be repeated.
    #[arg(long)]
    address_index: bool,
    /// Keep an index of unspent outputs by payment credential. Fixed when the data directory is made; need not be repeated.
    #[arg(long)]
    credential_index: bool,
    /// Keep the hash of the UTXO set rolling with each block.
    #[arg(long)]
    utxo_hash: bool,
    /// Blocks a record is kept after it settled. What the data directory has unless given, 288 for a new one.
    #[arg(long, value_name = "BLOCKS")]
    retention: Option<u32>,
    /// How many blocks can be rolled back. What the data directory has unless given, as many as the retention for a new one.
    #[arg(long, value_name = "BLOCKS")]
    reorg_window: Option<u32>,
    /// Blocks before a coinbase's outputs may be spent. What the data directory has unless given, 100 for a new one.
    #[arg(long, value_name = "BLOCKS")]
    coinbase_maturity: Option<u32>,
    /// Keep every record: prune nothing while importing. `sapwood run` prunes later.
    #[arg(long)]
    keep_all: bool,
    /// Apply blocks by a worker of its own, while the next ones are read.
    #[arg(long)]
    asynchronous: bool,
    /// Print what was done as JSON.
    #[arg(long)]
    json: bool,
}

fn parse_anchor(text: &str) -> Result<ChainPoint, String> {
    let wrong = || format!("{text:?} is not HEIGHT:HASH");
    let (height, hash) = text.split_once(':').ok_or_else(wrong)?;
    let hash: BlockHash = hash.parse().map_err(|_| wrong())?;
    Ok(ChainPoint::new(Height(height.parse().map_err(|_| wrong())?), hash))
}

impl Import {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let Import::Bitcoin(import) = self;
        runtime()?.block_on(import.run())
    }
}

impl ImportBitcoin {
    async fn run(self) -> anyhow::Result<()> {
        let stop = Stop::default();
        stop_on_signals(stop.clone())?;
        let directory = self.data.directory();
        let made = directory.read()?;
        let policy = self.policy();
        policy.validate()?;
        // Everything that can be wrong with what was asked for comes before anything is made.
        let source = self.open_source(self.after, stop.clone()).await?;
        ensure!(source.report().blocks > 0, "the files hold no block at all: nothing was imported");
        if !directory.store().exists() {
            refuse_if_nothing_connects(&source.report())?;
        }
        let node_file = NodeFile {
            chain: "bitcoin".into(),
            network: self.network.to_string(),
            address_index: self.address_index || made.as_ref().is_some_and(|made| made.address_index),
            credential_index: self.credential_index || made.is_some_and(|made| made.credential_index),
            configuration: self.bodies.file()?,
        };
        directory.claim(&node_file)?;
        let options = EmbeddedOptions { utxo_hash: self.utxo_hash, ..EmbeddedOptions::default() };
        let store = directory.open(&node_file, options, &policy).await?;

        let started = Instant::now();
        let before = store.last_applied().await?;
        let mode =
            if self.asynchronous { ApplyMode::Async { queue: DEFAULT_QUEUE } } else { ApplyMode::Sync };
        let chain_options = ChainOptions { mode, rollback: RollbackMode::Follower };
        let bodies = Arc::new(self.bodies.open(&directory, &store).await?);
        let shared: Arc<dyn Store> = Arc::new(store.clone());
        let chain = Chain::with_bodies(
            Arc::clone(&shared),
            Events::default(),
            chain_options,
            Arc::clone(&bodies) as _,
        );
        let source = match node::anchor(&chain, &source).await? {
            Some(anchor) if self.after.is_none() => self.open_source(Some(anchor), stop.clone()).await?,
            _ => source,
        };
        let report = source.report();
        say_what_is_odd(&report);
        let has_more = has_more(&chain, &source, self.after).await?;
        let prune = PrunerOptions::with_policy(policy);
        let pruning = match self.keep_all {
            true => None,
            false => {
                let (events, bodies) = (chain.events().clone(), Bodies::clone(&bodies));
                let clock = Arc::new(SystemClock);
                Some(Pruner::start(Arc::clone(&shared), events, Some(bodies), prune.clone(), clock).await?)
            }
        };
        let follow = FollowOptions { stop_at: self.stop_at.map(Height), ..FollowOptions::default() };
        let follower = Follower::new(chain.clone(), Arc::new(source.clone()), follow, stop.clone());
        let (bar, drawing) = follow_bar(follower.progress());
        let result = async {
            if has_more {
                follower.reconcile().await?;
                follower.catch_up().await?;
            }
            Ok::<_, ChainError>(())
        }
        .await;
        drawing.abort();
        bar.finish_and_clear();
        let closed = chain.close().await;
        if let Some(pruning) = &pruning {
            pruning.stop().await;
        }
        closed?;
        result?;
        let pruned = match pruning {
            None => None,
            Some(pruning) => {
                let before = pruning.status().await?.totals.deleted;
                let rest = match !stop.is_asked() && pruning.is_enabled() {
                    true => prune_the_rest(shared, Bodies::clone(&bodies), prune).await?,
                    false => 0,
                };
                Some(before + rest)
            }
        };

        let view = source.survey().await?;
        let tip = report.tip;
        if has_more {
            crate::status::note_tip(&store, tip).await?;
        }
        let last = store.last_applied().await?;
        let figures = chain.figures();
        let seconds = started.elapsed().as_secs_f64();
        if self.json {
            let summary = serde_json::json!({
                "from": before.map(|block| block.height.0),
                "last_applied": last.map(|block| serde_json::json!({
                    "height": block.height.0, "hash": block.hash.to_string() })),
                "tip": { "height": tip.height.0, "hash": tip.hash.to_string() },
                "blocks": figures.apply.count,
                "transactions": figures.transactions,
                "rejected": follower.rejected().iter().map(|rejected| serde_json::json!({
                    "hash": rejected.hash.to_string(), "cause": rejected.cause.to_string() })).collect::<Vec<_>>(),
                "unconnected": report.unconnected,
                "pruned": pruned,
                "bytes_passed_over": report.notes.iter().map(|note| note.skipped).sum::<u64>(),
                "cut_off": report.notes.iter().filter(|note| note.torn.is_some()).count(),
                "seconds": seconds,
                "interrupted": stop.is_asked(),
            });
            println!("{}", serde_json::to_string_pretty(&summary)?);
        } else {
            match last {
                Some(last) => println!(
                    "{} with {} transactions in {seconds:.1} s; the last one is {last}",
                    blocks(figures.apply.count),
                    figures.transactions
                ),
                None => println!("no block was imported"),
            }
            if let Some(pruned @ 1..) = pruned {
                println!("{pruned} records were pruned");
            }
            if stop.is_asked() {
                println!("stopped on request; the same command goes on from here");
            }
        }
        // What was asked for, or less because it was asked to stop, is no failure.
        if stop.is_asked() {
            return Ok(());
        }
        refuse_if_something_is_left(&follower.rejected(), &source.report(), &view)
    }

    /// The policy as it is given. What a data directory promised before is not shortened by it.
    fn policy(&self) -> Policy {
        let base = self.retention.map_or_else(Policy::default, Policy::with_retention);
        Policy {
            reorg_window: self.reorg_window.unwrap_or(base.retention.max(1)),
            coinbase_maturity: self.coinbase_maturity.unwrap_or(base.coinbase_maturity),
            ..base
        }
    }

    /// Reads the headers of all blocks.
    async fn open_source(&self, anchor: Option<ChainPoint>, stop: Stop) -> anyhow::Result<BlkSource> {
        let options = BlkOptions {
            anchor,
            raw_above: Some(self.bodies.load(&self.data.directory())?.above()),
            ..BlkOptions::new(self.network, self.places.clone())
        };
        let (bar, show) = counting_bar("reading headers");
        let open = move || {
            BlkSource::open(options, |progress| {
                show(progress.bytes, progress.bytes_total);
                if stop.is_asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        };
        let source = tokio::task::spawn_blocking(open).await.context("reading headers")??;
        bar.finish_and_clear();
        Ok(source)
    }
}

/// Says what is no error, but not as it should be.
fn say_what_is_odd(report: &BlkReport) {
    for note in &report.notes {
        let path = note.path.display();
        if note.skipped > 0 {
            eprintln!("{path}: {} bytes are not part of any block, and were passed over", note.skipped);
        }
        if let Some(offset) = note.torn {
            eprintln!("{path}: the block at byte {offset} is cut off or damaged, and does not count");
        }
    }
}

/// `1 block`, `2 blocks`.
fn blocks(count: u64) -> String {
    if count == 1 { "1 block".into() } else { format!("{count} blocks") }
}

/// Prunes what became prunable with the last blocks, and says how many records went.
async fn prune_the_rest(
    store: Arc<dyn Store>,
    bodies: Bodies,
    options: PrunerOptions,
) -> anyhow::Result<u64> {
    if store.last_applied().await?.is_none() {
        return Ok(0);
    }
    let pruner = Pruner::offline(store, Some(bodies), options, Arc::new(SystemClock)).await?;
    let job = pruner.prune_now(None)?;
    let job = pruner.wait(job).await;
    pruner.stop().await;
    Ok(job.map_or(0, |job| job.counts.deleted))
}

/// Everything that is in the files and not in the store is an error that says so.
fn refuse_if_something_is_left(
    rejected: &[Rejected],
    report: &BlkReport,
    view: &SourceView,
) -> anyhow::Result<()> {
    let mut left = Vec::new();
    if let Some(first) = rejected.first() {
        let mut text = format!(
            "{} refused; the first is {}: {}",
            blocks(rejected.len() as u64),
            first.hash,
            first.cause
        );
        if let Some(branch) = view.rejected {
            let built = blocks(branch.descendants.into());
            text += &format!("; {built} are built on {}, more than what was imported has", branch.block);
        }
        left.push(text);
    }
    if let (1.., Some(orphan)) = (report.unconnected, report.orphans.first()) {
        left.push(format!(
            "{} without a known parent; the first is {}, which follows {}: give the files in between",
            blocks(report.unconnected as u64),
            orphan.hash,
            orphan.parent
        ));
    }
    ensure!(left.is_empty(), "not everything was imported: {}", left.join("; "));
    Ok(())
}

/// With nothing applied there is nothing that files could go on from.
fn refuse_if_nothing_connects(report: &BlkReport) -> anyhow::Result<()> {
    match report.orphans.first() {
        Some(orphan) if report.unconnected == report.blocks => bail!(
            "none of the {} blocks in the files follows {}; the first one is {}, which follows {}. Import the files before \
             them first, or check that they are of this network",
            report.blocks,
            report.tip,
            orphan.hash,
            orphan.parent
        ),
        _ => Ok(()),
    }
}

/// Whether the files have anything that is not applied. Files are no authority on where the chain ends, as a node is: what is
/// applied is not taken back because they end earlier.
async fn has_more(chain: &Chain, source: &BlkSource, after: Option<ChainPoint>) -> anyhow::Result<bool> {
    let Some(last) = chain.last().await? else { return Ok(true) };
    if source.header(&last.hash).await?.is_some() {
        return Ok(true);
    }
    let report = source.report();
    let tip = report.tip;
    if let Some(after) = after
        && chain.hash_at(after.height).await? != Some(after.hash)
    {
        bail!(
            "the files are said to begin after {after}, which is not applied here or too far back; the last applied block is \
             {last}. Nothing was changed"
        );
    }
    if chain.hash_at(tip.height).await? == Some(tip.hash) {
        ensure!(
            report.blocks > report.unconnected,
            "none of the {} blocks in the files follows what is applied, which ends with {last}. Nothing was changed: give the \
             files in between first",
            report.blocks
        );
        eprintln!("the files end with {tip}, and all of that is applied already");
        return Ok(false);
    }
    if let Some(floor) = chain.store().rollback_floor().await?
        && tip.height < floor
    {
        eprintln!(
            "the files end with {tip}, below {floor}, the lowest height a rollback can reach: what is applied is newer, so nothing \
             was imported"
        );
        return Ok(false);
    }
    ensure!(
        tip.height > last.height,
        "the files end with {tip} and do not have {last}, the last applied block. Nothing was changed: give files that go on \
         from it, or roll back first with `sapwood rollback`"
    );
    Ok(true)
}
