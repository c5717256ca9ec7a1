//! `bench chain`: blocks of real size through the planner and the applier, against the store alone.

use std::{
    fmt,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Args;
use sapwood_chain::{ApplyMode, Chain, ChainOptions, DEFAULT_QUEUE, Events};
use sapwood_rules::Policy;
use sapwood_sources::synthetic::{SyntheticChain, SyntheticOptions};
use sapwood_store::{AddressIndexing, ApplyOptions, RollbackMode, Store, StoreWrite as _};
use sapwood_store_embedded::{EmbeddedOptions, EmbeddedStore};
use sapwood_types::Block;
use serde::Serialize;

use crate::node::runtime;

/// Measure blocks of real size through the planner and the applier.
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

/// What a block costs, by what is done with it.
#[derive(Debug, Serialize)]
pub(crate) struct FollowingReport {
    /// The time through planner and applier over that of the store alone.
    pub(crate) chain_over_store: f64,
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
    slowest_block_ms: f64,
    blocks: usize,
    txs_per_block: u32,
}

impl Following {
    pub(super) fn run(mut self) -> anyhow::Result<()> {
        if self.quick {
            self.blocks = self.blocks.min(25);
            self.outputs = self.outputs.min(150_000);
        }
        let directory = tempfile::tempdir().context("making a temporary directory")?;
        let report = runtime()?.block_on(self.measure(directory.path()))?;
        match self.json {
            true => println!("{}", serde_json::to_string_pretty(&report)?),
            false => print!("{report}"),
        }
        Ok(())
    }

    /// All ways take each block before the next one comes, so that a noisy moment hits them all.
    pub(crate) async fn measure(&self, directory: &Path) -> anyhow::Result<FollowingReport> {
        let mut synthetic = SyntheticChain::new(SyntheticOptions {
            txs_per_block: self.txs,
            first_outputs: self.outputs,
            addresses: 10_000,
            repeated_addresses: 0.5,
            ..SyntheticOptions::benchmark()
        })?;
        let way = |name: &str, options: EmbeddedOptions, mode| Way::new(&directory.join(name), options, mode);
        let plain = EmbeddedOptions { record_cache_bytes: 64 << 20, ..EmbeddedOptions::default() };
        let address_index = AddressIndexing { address: true, credential: false };
        let mut ways = [
            way("store", plain.clone(), None)?,
            way("chain", plain.clone(), Some(ApplyMode::Sync))?,
            way("hash", EmbeddedOptions { utxo_hash: true, ..plain.clone() }, Some(ApplyMode::Sync))?,
            way("address", EmbeddedOptions { address_index, ..plain.clone() }, Some(ApplyMode::Sync))?,
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
        for number in 0..self.blocks {
            for block in synthetic.step().blocks() {
                // Whoever comes first finds the block cold, so the ways take turns.
                for turn in 0..ways.len() {
                    let way = &mut ways[(turn + number) % 5];
                    way.apply(block).await?;
                    way.drain().await?;
                }
            }
        }
        let per_100 = |way: &Way| way.total.as_secs_f64() * 100.0 / self.blocks as f64;
        let [store, chain, hash, address, queued] = &ways;
        Ok(FollowingReport {
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
            blocks: self.blocks,
            txs_per_block: self.txs,
        })
    }
}

/// One way to apply blocks, on a store of its own.
struct Way {
    store: EmbeddedStore,
    chain: Option<Chain>,
    total: Duration,
    slowest: Duration,
    since: Instant,
}

impl Way {
    fn new(directory: &Path, options: EmbeddedOptions, mode: Option<ApplyMode>) -> anyhow::Result<Self> {
        let store = EmbeddedStore::open(directory, Policy::default(), options)?;
        let shared = Arc::new(store.clone()) as Arc<dyn Store>;
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

impl fmt::Display for FollowingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "100 blocks of {} transactions, measured over {}\n", self.txs_per_block, self.blocks)?;
        let mark = if self.chain_over_store <= 1.25 { "✓" } else { "✗" };
        let rows = [
            ("the store alone", self.store_seconds_per_100_blocks, String::new()),
            (
                "through planner and applier",
                self.chain_seconds_per_100_blocks,
                format!("{:.2} × the store, ≤ 1.25 × {mark}", self.chain_over_store),
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
        ];
        for (what, seconds, ratio) in rows {
            writeln!(f, "{what:<32}{seconds:>8.2} s   {ratio}")?;
        }
        writeln!(f, "\nslowest block                   {:>8.0} ms", self.slowest_block_ms)
    }
}
