//! `sapwood import`: take over a chain from files.

use std::{ops::ControlFlow, path::PathBuf, sync::Arc, time::Instant};

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use sapwood_chain::{Chain, ChainError, Events, FollowOptions, Follower, Rejected, Stop};
use sapwood_engine_rocksdb::Options;
use sapwood_ledger::Ledger;
use sapwood_pruner::{Bodies, Pruner, PrunerOptions, SystemClock, text::counted};
use sapwood_rules::{Policy, PolicyChange};
use sapwood_sources::{
    BlockSource as _, ChainPoint, SourceError, SourceView,
    bitcoin::{BlkOptions, BlkSource, Network, blk::BlkReport},
};
use sapwood_types::{BlockHash, Height};

use super::DataArg;
use crate::{
    config::{Apply, Config, Mode, required_maturity},
    node::{self, NodeFile, a_while_after, counting_bar, follow_bar, runtime, stop_on_signals},
};

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
    /// The configuration file: `[apply]`, `[bodies]`, `[pruner]` and `[store]` are as for `sapwood run`, and for a new data directory `[chain]` and
    /// `[policy]` too. Unless named it is the one the data directory was last run with.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// mainnet, testnet3, testnet4, signet, regtest, or signet:MAGIC for a private signet. What the data directory has unless given; for a new
    /// one what the configuration says, mainnet by default.
    #[arg(long)]
    network: Option<Network>,
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
    /// Keep the hash of the UTXO set rolling with each block. Need not be repeated: where it is kept it stays kept.
    #[arg(long)]
    utxo_hash: bool,
    /// Blocks a record is kept after it settled. What the data directory has unless given; for a new one what the configuration says, 288 by
    /// default. Less than the data directory has does not take effect: `sapwood policy set` shortens it.
    #[arg(long, value_name = "BLOCKS")]
    retention: Option<u32>,
    /// How many blocks can be rolled back. What the data directory has unless given; for a new one as many as --retention, or what the
    /// configuration says if that is not given or 0.
    #[arg(long, value_name = "BLOCKS")]
    reorg_window: Option<u32>,
    /// Blocks before a coinbase's outputs may be spent. What the data directory has unless given; for a new one what the configuration says, 100
    /// by default. Only regtest takes another one than 100.
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
    /// Imports, and returns the exit code: 0 if everything was, that of the signal if it was stopped.
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        let Import::Bitcoin(import) = self;
        runtime()?.block_on(async {
            let stop = Stop::default();
            let stopped_by = stop_on_signals(stop.clone())?;
            match import.run(stop).await {
                // Before there was anything to import.
                Err(error) if stopped_by.code() != 0 && is_interruption(&error) => eprintln!("{error:#}"),
                result => result?,
            }
            Ok(stopped_by.code())
        })
    }
}

fn is_interruption(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(SourceError::Interrupted)))
}

impl ImportBitcoin {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let directory = self.data.directory();
        let made = directory.read()?;
        let config = directory.config(self.config.as_deref())?;
        let network = match (self.network, made.as_ref().and_then(NodeFile::bitcoin)) {
            (Some(network), _) | (None, Some(network)) => network,
            (None, None) => config.network()?,
        };
        let policy = |configured| {
            let policy = self.policy(configured, &config);
            policy.validate_for(required_maturity(network))?;
            Ok(policy)
        };
        // Everything that can be wrong with what was asked for comes before anything is made.
        config.validate_work()?;
        if !directory.store().exists() {
            policy(None)?;
        }
        let files = BlkOptions {
            raw_above: Some(config.bodies.above()),
            ..BlkOptions::new(network, self.places.clone())
        };
        let source = open_source(&files, self.after, stop.clone()).await?;
        ensure!(source.report().blocks > 0, "the files hold no block at all: nothing was imported");
        if !directory.store().exists() {
            refuse_if_nothing_connects(&source.report())?;
        }
        // What it was made with, or what a new one is to be made with.
        let indexing = made.as_ref().map_or(config.chain.indexing(), NodeFile::indexing);
        let utxo_hash = self.utxo_hash || (made.is_none() && config.chain.utxo_hash);
        let node_file = NodeFile {
            chain: "bitcoin".into(),
            network: network.to_string(),
            address_index: self.address_index || indexing.address,
            credential_index: self.credential_index || indexing.credential,
            configuration: self.config.as_deref().map(std::path::absolute).transpose()?,
        };
        directory.claim(&node_file)?;
        let options = Options::from(&config.store).ledger(|ledger| ledger.utxo_hash = utxo_hash);
        let (store, policy) = directory.open_as_left(&node_file, options, policy).await?;

        let started = Instant::now();
        let before = store.last_applied().await?;
        let apply = Apply {
            mode: if self.asynchronous { Mode::Async } else { config.apply.mode },
            ..config.apply.clone()
        };
        let bodies = config.bodies.open(&directory, &store).await?;
        let bodies = Arc::new(bodies.with_stop(a_while_after(&stop)));
        let shared = store.clone();
        let chain = Chain::with_bodies(
            shared.clone(),
            Events::default(),
            apply.chain_options(),
            Arc::clone(&bodies) as _,
        );
        let source = match node::anchor(&chain, &source).await? {
            Some(anchor) if self.after.is_none() => open_source(&files, Some(anchor), stop.clone()).await?,
            _ => source,
        };
        let report = source.report();
        say_what_is_odd(&report);
        let has_more = has_more(&chain, &source, self.after).await?;
        let prune =
            PrunerOptions { policy, required_maturity: required_maturity(network), ..config.pruner.clone() };
        let pruning = match self.keep_all {
            true => None,
            false => {
                let (events, bodies) = (chain.events().clone(), Bodies::clone(&bodies));
                let clock = Arc::new(SystemClock);
                let pruner =
                    Pruner::start(shared.clone(), events, Some(bodies), prune.clone(), clock).await?;
                // Before the chain is followed nothing is deleted.
                let deleted_before = pruner.status().await?.totals.deleted;
                Some((pruner, deleted_before))
            }
        };
        let follow = FollowOptions {
            stop_at: self.stop_at.map(Height),
            read_ahead: apply.read_ahead,
            ..FollowOptions::default()
        };
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
        if let Some((pruning, _)) = &pruning {
            pruning.stop().await;
        }
        // Once it is asked to stop, a source or a place for bodies that does not answer is no failure.
        match result.and(closed) {
            Err(error) if stop.is_asked() && error.may_pass() => {}
            result => result?,
        }
        let pruned = match pruning {
            None => None,
            Some((pruning, deleted_before)) => {
                let deleted = pruning.status().await?.totals.deleted.saturating_sub(deleted_before);
                let rest = match !stop.is_asked() && pruning.is_enabled() {
                    true => prune_the_rest(shared, Bodies::clone(&bodies), prune).await?,
                    false => 0,
                };
                Some(deleted + rest)
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
                "from": before.map(|block| block.height),
                "applied": last.map(ChainPoint::from),
                "tip": tip,
                "blocks": figures.apply.count,
                "transactions": figures.transactions,
                "rejected": follower.rejected().iter().map(|rejected| serde_json::json!({
                    "hash": rejected.hash, "cause": rejected.cause.to_string() })).collect::<Vec<_>>(),
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
                    "{} with {} in {seconds:.1} s; the last one is {last}",
                    counted(figures.apply.count, "block"),
                    counted(figures.transactions, "transaction")
                ),
                None => println!("no block was imported"),
            }
            if let Some(pruned @ 1..) = pruned {
                println!("{} pruned", counted(pruned, "record"));
            }
            if stop.is_asked() {
                println!("stopped on request; the same command goes on from here");
            }
        }
        // What is left because it was asked to stop is no failure; the exit code tells.
        if stop.is_asked() {
            return Ok(());
        }
        refuse_if_something_is_left(&follower.rejected(), &source.report(), &view)
    }

    /// The policy to configure: what was configured last, changed by what is given. With `None` before, that of a new data directory.
    fn policy(&self, configured: Option<Policy>, config: &Config) -> Policy {
        let change = PolicyChange {
            retention: self.retention,
            reorg_window: self.reorg_window,
            coinbase_maturity: self.coinbase_maturity,
            ..PolicyChange::default()
        };
        match configured {
            Some(configured) => change.apply(&configured),
            None => {
                // 0 keeps everything, which says nothing about rollbacks.
                let reorg_window = self.reorg_window.or(self.retention.filter(|blocks| *blocks > 0));
                PolicyChange { reorg_window, ..change }.apply(&config.policy)
            }
        }
    }
}

/// Reads the headers of all blocks.
async fn open_source(
    options: &BlkOptions,
    anchor: Option<ChainPoint>,
    stop: Stop,
) -> anyhow::Result<BlkSource> {
    let options = BlkOptions { anchor, ..options.clone() };
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

/// Says what is no error, but not as it should be.
fn say_what_is_odd(report: &BlkReport) {
    for note in &report.notes {
        let path = note.path.display();
        if note.skipped > 0 {
            eprintln!("{path}: {} not part of any block, and passed over", counted(note.skipped, "byte"));
        }
        if let Some(offset) = note.torn {
            eprintln!("{path}: the block at byte {offset} is cut off or damaged, and does not count");
        }
    }
}

/// Prunes what became prunable with the last blocks, and says how many records went.
async fn prune_the_rest(store: Ledger, bodies: Bodies, options: PrunerOptions) -> anyhow::Result<u64> {
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
            counted(rejected.len() as u64, "block"),
            first.hash,
            first.cause
        );
        if let Some(branch) = view.rejected {
            text += &match branch.descendants {
                0 => format!("; {} is in the files and was not imported", branch.block),
                more => {
                    let built = counted(more, "block");
                    format!(
                        "; the files have {built} on top of {}, which were not imported either",
                        branch.block
                    )
                }
            };
        }
        left.push(text);
    }
    if let (1.., Some(orphan)) = (report.unconnected, report.orphans.first()) {
        left.push(format!(
            "{} without a known parent; the first is {}, which follows {}: give the files in between",
            counted(report.unconnected as u64, "block"),
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
            "of {} in the files none follows {}; the first one is {}, which follows {}. Import the files before \
             them first, or check that they are of this network",
            counted(report.blocks as u64, "block"),
            report.tip,
            orphan.hash,
            orphan.parent
        ),
        _ => Ok(()),
    }
}

/// Whether the files have anything that is not applied. Files are no authority on where the chain ends, as a node is: what is
/// applied is not rolled back because they end earlier.
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
            "of {} in the files none follows what is applied, which ends with {last}. Nothing was changed: give the \
             files in between first",
            counted(report.blocks as u64, "block")
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
