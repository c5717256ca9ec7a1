//! `sapwood import`: take over a chain from files.

use std::{ops::ControlFlow, path::PathBuf, sync::Arc, time::Instant};

use anyhow::Context;
use clap::{Args, Subcommand};
use sapwood_chain::{ApplyMode, Chain, ChainOptions, DEFAULT_QUEUE, Events, FollowOptions, Follower, Stop};
use sapwood_rules::Policy;
use sapwood_sources::{
    ChainPoint,
    bitcoin::{BlkOptions, BlkSource, Network},
};
use sapwood_store::{RollbackMode, Store, StoreRead as _};
use sapwood_store_embedded::EmbeddedOptions;
use sapwood_types::{BlockHash, Height};

use super::DataArg;
use crate::node::{NodeFile, counting_bar, follow_bar, runtime, stop_on_signals};

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
    /// Keep an index of unspent outputs by address. Cannot be changed later.
    #[arg(long)]
    address_index: bool,
    /// Keep the hash of the UTXO set rolling with each block.
    #[arg(long)]
    utxo_hash: bool,
    /// Blocks a record is kept after it settled.
    #[arg(long, default_value_t = sapwood_rules::policy::DEFAULT_RETENTION)]
    retention: u32,
    /// How many blocks can be taken back. As many as the retention unless given.
    #[arg(long, value_name = "BLOCKS")]
    reorg_window: Option<u32>,
    /// Blocks before a coinbase's outputs may be spent.
    #[arg(long, value_name = "BLOCKS", default_value_t = sapwood_rules::policy::DEFAULT_COINBASE_MATURITY)]
    coinbase_maturity: u32,
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
        let policy = Policy {
            reorg_window: self.reorg_window.unwrap_or(self.retention.max(1)),
            coinbase_maturity: self.coinbase_maturity,
            ..Policy::with_retention(self.retention)
        };
        policy.validate()?;
        // Everything that can be wrong with what was asked for comes before anything is made.
        let source = self.open_source(stop.clone()).await?;
        let directory = self.data.directory();
        let node = NodeFile {
            chain: "bitcoin".into(),
            network: self.network.to_string(),
            address_index: self.address_index,
            policy: policy.into(),
        };
        directory.claim(&node)?;
        let options = EmbeddedOptions { utxo_hash: self.utxo_hash, ..EmbeddedOptions::default() };
        let store = directory.open(&node, options)?;

        let started = Instant::now();
        let before = store.last_applied().await?;
        let mode =
            if self.asynchronous { ApplyMode::Async { queue: DEFAULT_QUEUE } } else { ApplyMode::Sync };
        let chain_options = ChainOptions { mode, rollback: RollbackMode::Follower };
        let chain = Chain::new(Arc::new(store.clone()) as Arc<dyn Store>, Events::default(), chain_options);
        let follow = FollowOptions { stop_at: self.stop_at.map(Height), ..FollowOptions::default() };
        let follower = Follower::new(chain.clone(), Arc::new(source.clone()), follow, stop.clone());
        let (bar, drawing) = follow_bar(follower.progress());
        let result = async {
            follower.reconcile().await?;
            follower.catch_up().await
        }
        .await;
        drawing.abort();
        bar.finish_and_clear();
        chain.close().await?;
        result?;

        let tip = source.report().tip;
        crate::status::note_tip(&store, tip).await?;
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
                "seconds": seconds,
                "interrupted": stop.is_asked(),
            });
            println!("{}", serde_json::to_string_pretty(&summary)?);
            return Ok(());
        }
        for rejected in follower.rejected() {
            println!("not part of the chain: {}", rejected.cause);
        }
        match last {
            Some(last) => println!(
                "{} blocks with {} transactions in {seconds:.1} s; the last one is {last}",
                figures.apply.count, figures.transactions
            ),
            None => println!("nothing was imported"),
        }
        if stop.is_asked() {
            println!("stopped on request; the same command goes on from here");
        }
        Ok(())
    }

    /// Reads the headers of all blocks, and says what is odd about the files.
    async fn open_source(&self, stop: Stop) -> anyhow::Result<BlkSource> {
        let options = BlkOptions { anchor: self.after, ..BlkOptions::new(self.network, self.places.clone()) };
        let (bar, show) = counting_bar("reading headers");
        let open = move || {
            BlkSource::open(options, |progress| {
                show(progress.bytes, progress.bytes_total);
                if stop.is_asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        };
        let source = tokio::task::spawn_blocking(open).await.context("reading headers")??;
        bar.finish_and_clear();
        let report = source.report();
        for note in &report.notes {
            let path = note.path.display();
            if note.skipped > 0 {
                eprintln!("{path}: {} bytes are not part of any block, and were passed over", note.skipped);
            }
            if let Some(offset) = note.torn {
                eprintln!("{path}: the block at byte {offset} is cut off, and does not count");
            }
        }
        if report.unconnected > 0 {
            eprintln!(
                "{} blocks hang in the air, because a block before them is not in the files; the first is {}",
                report.unconnected,
                report.orphans.first().map_or_else(String::new, |orphan| orphan.hash.to_string())
            );
        }
        Ok(source)
    }
}
