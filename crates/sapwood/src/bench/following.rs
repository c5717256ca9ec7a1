//! `bench chain`: blocks of real size through the chain, against the store alone.

use std::{
    fmt,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Args;
use sapwood_chain::{ApplyMode, Chain, ChainOptions, DEFAULT_QUEUE, Events};
use sapwood_engine_rocksdb::{OpenMode, Options, open_ledger};
use sapwood_ledger::{AddressIndexing, ApplyOptions, Ledger, RollbackMode};
use sapwood_rules::Policy;
use sapwood_sources::synthetic::{SyntheticChain, SyntheticOptions};
use sapwood_types::Block;
use serde::Serialize;

use super::{print_report, progress};
use crate::node::runtime;

/// Measure blocks of real size through the chain, as the follower applies them.
#[derive(Clone, Debug, Args)]
pub(crate) struct Following {
    /// Blocks to measure.
    #[arg(long, default_value_t = 100)]
    blocks: usize,
    /// Transactions in a block.
    #[arg(long, default_value_t = 2000)]
    txs: u32,
    /// Outputs to begin with.
    #[arg(long, default_value_t = 300_000)]
    outputs: u64,
    /// Fewer blocks.
    #[arg(long)]
    quick: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What was measured, and over how much.
#[derive(Debug, Serialize)]
struct FollowingReport {
    #[serde(flatten)]
    figures: FollowingFigures,
    blocks: usize,
    txs_per_block: u32,
}

/// What a block costs, by what is done with it.
#[derive(Debug, Default, Serialize)]
pub(super) struct FollowingFigures {
    /// The time through the chain over that of the store alone.
    pub(super) chain_over_store: f64,
    /// The same blocks with the hash of the UTXO set kept, over those without.
    utxo_hash_ratio: f64,
    /// The same with the address index.
    address_index_ratio: f64,
    /// The same through the queue.
    async_ratio: f64,
    store_seconds_per_100_blocks: f64,
    chain_seconds_per_100_blocks: f64,
    utxo_hash_seconds_per_100_blocks: f64,
    address_index_seconds_per_100_blocks: f64,
    async_seconds_per_100_blocks: f64,
    pub(super) slowest_block_ms: f64,
}

/// The chain may take this much of the store's own time.
pub(super) const MOST_OVER_STORE: f64 = 1.25;

impl Following {
    /// The usual figures.
    pub(super) fn new(quick: bool, json: bool) -> Self {
        Self { blocks: 100, txs: 2000, outputs: 300_000, quick, json }.limited()
    }

    fn limited(mut self) -> Self {
        if self.quick {
            self.blocks = self.blocks.min(25);
            self.outputs = self.outputs.min(150_000);
        }
        self
    }

    pub(super) fn run(self) -> anyhow::Result<()> {
        let following = self.limited();
        let directory = tempfile::tempdir().context("making a temporary directory")?;
        let figures = runtime()?.block_on(following.measure(directory.path()))?;
        let Following { blocks, txs: txs_per_block, json, .. } = following;
        print_report(&FollowingReport { figures, blocks, txs_per_block }, json)
    }

    /// All ways take each block before the next one comes, so that a noisy moment hits them all.
    pub(super) async fn measure(&self, directory: &Path) -> anyhow::Result<FollowingFigures> {
        let mut synthetic = SyntheticChain::new(SyntheticOptions {
            txs_per_block: self.txs,
            first_outputs: self.outputs,
            addresses: 10_000,
            repeated_addresses: 0.5,
            ..SyntheticOptions::benchmark()
        })?;
        let way = |name: &str, options: Options, mode| Way::new(&directory.join(name), options, mode);
        let plain = Options::default().ledger(|ledger| ledger.record_cache_bytes = 64 << 20);
        let address_index = AddressIndexing { address: true, credential: false };
        let mut ways = [
            way("store", plain.clone(), None)?,
            way("chain", plain.clone(), Some(ApplyMode::Sync))?,
            way("hash", plain.clone().ledger(|ledger| ledger.utxo_hash = true), Some(ApplyMode::Sync))?,
            way(
                "address",
                plain.clone().ledger(|ledger| ledger.address_index = address_index),
                Some(ApplyMode::Sync),
            )?,
            way("async", plain, Some(ApplyMode::Async { queue: DEFAULT_QUEUE }))?,
        ];
        while synthetic.is_beginning() {
            for block in synthetic.step().blocks() {
                for way in &mut ways {
                    way.apply(block).await?;
                }
            }
        }
        for way in &mut ways {
            way.drain().await?;
            (way.total, way.slowest) = (Duration::ZERO, Duration::ZERO);
        }
        let bar = progress("blocks of real size, each in five ways", self.blocks, self.json)?;
        for number in 0..self.blocks {
            for block in synthetic.step().blocks() {
                // Whoever comes first finds the block cold, so the ways take turns.
                for turn in 0..ways.len() {
                    let way = &mut ways[(turn + number) % 5];
                    way.apply(block).await?;
                    way.drain().await?;
                }
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        let per_100 = |way: &Way| way.total.as_secs_f64() * 100.0 / self.blocks as f64;
        let [store, chain, hash, address, queued] = &ways;
        Ok(FollowingFigures {
            chain_over_store: per_100(chain) / per_100(store),
            utxo_hash_ratio: per_100(hash) / per_100(chain),
            address_index_ratio: per_100(address) / per_100(chain),
            async_ratio: per_100(queued) / per_100(chain),
            store_seconds_per_100_blocks: per_100(store),
            chain_seconds_per_100_blocks: per_100(chain),
            utxo_hash_seconds_per_100_blocks: per_100(hash),
            address_index_seconds_per_100_blocks: per_100(address),
            async_seconds_per_100_blocks: per_100(queued),
            slowest_block_ms: ways.iter().map(|way| way.slowest).max().unwrap_or_default().as_secs_f64()
                * 1000.0,
        })
    }
}

/// One way to apply blocks, on a store of its own.
struct Way {
    store: Ledger,
    chain: Option<Chain>,
    total: Duration,
    slowest: Duration,
    since: Instant,
}

impl Way {
    fn new(directory: &Path, options: Options, mode: Option<ApplyMode>) -> anyhow::Result<Self> {
        let store = open_ledger(directory, OpenMode::Create, Policy::default(), options)?;
        let shared = store.clone();
        let chain = mode.map(|mode| {
            Chain::new(shared, Events::default(), ChainOptions { mode, rollback: RollbackMode::Follower })
        });
        Ok(Self { store, chain, total: Duration::ZERO, slowest: Duration::ZERO, since: Instant::now() })
    }

    async fn apply(&mut self, block: &Arc<Block>) -> anyhow::Result<()> {
        self.since = Instant::now();
        match &self.chain {
            Some(chain) => drop(chain.apply(Arc::clone(block), ApplyOptions::default()).await?),
            None => drop(self.store.apply_block(Arc::clone(block), ApplyOptions::default()).await?),
        }
        Ok(())
    }

    /// Waits for what is queued: only then the block has been applied.
    async fn drain(&mut self) -> anyhow::Result<()> {
        if let Some(chain) = &self.chain {
            chain.drain().await?;
        }
        let took = self.since.elapsed();
        self.total += took;
        self.slowest = self.slowest.max(took);
        Ok(())
    }
}

impl FollowingFigures {
    /// What was done with the blocks, how long 100 of them took, and how that compares.
    pub(super) fn rows(&self) -> [(&'static str, f64, String); 5] {
        [
            ("the store alone", self.store_seconds_per_100_blocks, String::new()),
            (
                "through the chain",
                self.chain_seconds_per_100_blocks,
                format!("{:.2} × the store", self.chain_over_store),
            ),
            (
                "with the UTXO hash rolling",
                self.utxo_hash_seconds_per_100_blocks,
                format!("{:.2} × without", self.utxo_hash_ratio),
            ),
            (
                "with the address index",
                self.address_index_seconds_per_100_blocks,
                format!("{:.2} × without", self.address_index_ratio),
            ),
            (
                "through the queue",
                self.async_seconds_per_100_blocks,
                format!("{:.2} × at once", self.async_ratio),
            ),
        ]
    }
}

impl fmt::Display for FollowingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "100 blocks of {} transactions, measured over {}\n", self.txs_per_block, self.blocks)?;
        for (what, seconds, ratio) in self.figures.rows() {
            writeln!(f, "{what:<32}{seconds:>8.2} s   {ratio}")?;
        }
        let mark = if self.figures.chain_over_store <= MOST_OVER_STORE { "✓" } else { "✗" };
        writeln!(
            f,
            "\nthrough the chain: {:.2} × the store, at most {MOST_OVER_STORE} × {mark}",
            self.figures.chain_over_store
        )?;
        writeln!(f, "slowest block: {:.0} ms", self.figures.slowest_block_ms)
    }
}
