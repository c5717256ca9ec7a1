//! A made-up chain, thousands of blocks long, with the pruner at work: in the end nothing is broken and nothing is kept beyond need.
//!
//! `SAPWOOD_BLOCKS` (700) says how many blocks; `make sim` runs it with 10,000.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sapwood_chain::{Chain, ChainOptions, ChainState, Events};
use sapwood_engine_rocksdb::{OpenMode, open_ledger};
use sapwood_ledger::{ApplyOptions, CreateRequest, Ledger, RollbackMode};
use sapwood_pruner::{Bodies, BodyLocation, JobState, ManualClock, PrunerHandle, PrunerOptions};
use sapwood_rules::Policy;
use sapwood_sources::synthetic::{Outcome, SyntheticChain, SyntheticOptions};
use sapwood_types::{Height, Slot, TxRecord};
use tempfile::TempDir;

use crate::harness::{NOW, pruner_options, start, store_options};

const RETENTION: u32 = 48;

fn blocks() -> u32 {
    let blocks = std::env::var("SAPWOOD_BLOCKS").ok();
    blocks.map_or(700, |blocks| blocks.parse().expect("SAPWOOD_BLOCKS must be a number"))
}

fn policy() -> Policy {
    Policy { coinbase_maturity: 20, parent_preservation: 240, ..Policy::with_retention(RETENTION) }
}

/// Reorganisations, late and never-mined children, double spends, and transactions whose body is outside.
fn shape(seed: u64) -> SyntheticOptions {
    SyntheticOptions {
        seed,
        txs_per_block: 24,
        first_outputs: 600,
        most_outputs: 1_500,
        coinbase_maturity: policy().coinbase_maturity,
        batches: 0.004,
        big: 0.0,
        unmined_per_block: 8,
        late: 0.05,
        late_blocks: (RETENTION / 2, RETENTION * 3),
        never: 0.03,
        double_spends: 0.04,
        expire_after: RETENTION * 4,
        reorg_probability: 0.04,
        max_reorg_depth: 8,
        ..SyntheticOptions::default()
    }
}

/// A node without servers: store, bodies, chain and, most of the time, a pruner.
struct Node {
    directory: TempDir,
    store: Ledger,
    events: Events,
    bodies: Bodies,
    chain: Chain,
    pruner: Option<PrunerHandle>,
    made: u64,
    reorganised: u64,
    large: u64,
}

impl Node {
    async fn new() -> Self {
        Self::open(tempfile::tempdir().unwrap()).await
    }

    async fn open(directory: TempDir) -> Self {
        let store = open_ledger(&directory.path().join("store"), OpenMode::Create, policy(), store_options())
            .unwrap();
        let location = BodyLocation::Directory(directory.path().join("bodies"));
        let bodies = Bodies::open(&location).unwrap().of_store(&store).await.unwrap();
        let events = Events::default();
        events.enter(ChainState::Running);
        let options = ChainOptions { rollback: RollbackMode::Node, ..ChainOptions::default() };
        let shared = store.clone();
        let chain = Chain::with_bodies(shared, events.clone(), options, Arc::new(bodies.clone()));
        Node { directory, store, events, bodies, chain, pruner: None, made: 0, reorganised: 0, large: 0 }
    }

    async fn start_pruner(&mut self, options: PrunerOptions) {
        let bodies = Some(self.bodies.clone());
        let clock = Arc::new(ManualClock::at(NOW));
        self.pruner = Some(start(&self.store, &self.events, bodies, options, &clock).await);
    }

    async fn stop_pruner(&mut self) {
        if let Some(pruner) = self.pruner.take() {
            pruner.stop().await;
        }
    }

    async fn restart(mut self) -> Self {
        self.stop_pruner().await;
        let Node { directory, store, bodies, chain, made, reorganised, large, .. } = self;
        drop((store, bodies, chain));
        Node { made, reorganised, large, ..Node::open(directory).await }
    }

    /// One step of the chain. Returns how long applying its blocks took.
    async fn step(&mut self, source: &mut SyntheticChain) -> Duration {
        let tip = source.tip().map_or(Height::GENESIS, |tip| tip.height);
        let step = source.step();
        self.store.delete(step.expired.clone()).await.unwrap();
        let seen = step.seen.iter().map(|seen| CreateRequest {
            conflicting: seen.rival_of.is_some(),
            ..CreateRequest::unmined(seen.tx.clone())
        });
        self.chain.create(seen.collect(), tip).await.unwrap().unwrap();
        if let Outcome::Reorganised { fork, .. } = &step.outcome {
            self.reorganised += 1;
            self.events.enter(ChainState::Reorganising);
            self.chain.roll_back(Some(*fork)).await.unwrap();
        }
        let mut took = Duration::ZERO;
        for block in step.blocks() {
            let started = Instant::now();
            let applied =
                self.chain.apply(Arc::clone(block), ApplyOptions::default()).await.unwrap().unwrap();
            took += started.elapsed();
            self.made += applied.created as u64;
            self.large +=
                block.txs.iter().filter(|tx| self.bodies.belongs_outside(tx).is_some()).count() as u64;
        }
        self.events.enter(ChainState::Running);
        took
    }

    /// Prunes until there is nothing more to do.
    async fn come_to_rest(&self) {
        let pruner = self.pruner.as_ref().unwrap();
        let job = pruner.prune_now(None).unwrap();
        let job = pruner.wait(job).await.unwrap();
        assert_eq!(job.state, JobState::Completed, "{job}");
        while let Some(job) = pruner.jobs(20).into_iter().find(|job| !job.state.is_over()) {
            pruner.wait(job.id).await;
        }
    }

    /// Records that nobody needs and that are still there: by a look at each record, without the index of what is due and without the
    /// code of the rules.
    async fn beyond_need(&self) -> Vec<TxRecord> {
        let tip = self.store.last_applied().await.unwrap().unwrap().height.0;
        let floor = self.store.rollback_floor().await.unwrap().unwrap().0;
        let mut beyond = Vec::new();
        let mut after = None;
        loop {
            let page = self.store.records(after, 1000).await.unwrap();
            beyond.extend(page.items.into_iter().filter(|record| is_useless(record, tip, floor)));
            after = page.next;
            if after.is_none() {
                return beyond;
            }
        }
    }

    /// Everything is sound, and nothing is kept beyond need. Returns the figures in words.
    async fn judge(&mut self) -> String {
        self.come_to_rest().await;
        let pruner = self.pruner.as_ref().unwrap();
        let deleted = pruner.status().await.unwrap().totals.deleted;
        let plan = pruner.plan(None, u64::MAX).await.unwrap();
        let beyond = self.beyond_need().await;
        for record in beyond.iter().take(3) {
            println!("{}", pruner.explain(record.txid).await.unwrap());
        }
        let outside = self.bodies.verify(&self.store, &policy(), &|_, _| Ok(())).await.unwrap();
        self.stop_pruner().await;
        let report = self.store.verify(Arc::new(|_, _| {})).await.unwrap();
        let figures = format!(
            "{} records made, {} reorganisations, {} large; {} left ({} bodies), {deleted} deleted since the last start; \
             kept beyond need: {} (plan: {})",
            self.made,
            self.reorganised,
            self.large,
            report.records,
            outside.found,
            beyond.len(),
            plan.records
        );
        println!("{figures}");
        assert!(report.is_clean(), "{report}");
        assert_eq!((outside.damaged.len(), outside.half_deleted, outside.orphans), (0, 0, 0), "{outside}");
        assert_eq!((beyond.len(), plan.records), (0, 0), "{figures}");
        figures
    }
}

/// Whether nobody needs a record any more at this height, given the lowest height a rollback can reach.
fn is_useless(record: &TxRecord, tip: u32, floor: u32) -> bool {
    let head = &record.head;
    if head.locked || head.preserve_until.is_some_and(|until| until.0 > tip) {
        return false;
    }
    let settled = match (head.conflicting_since, head.mined_at()) {
        (Some(since), _) => since.0,
        (None, None) => return false,
        (None, Some(mined_at)) => {
            let mut settled = mined_at.0;
            for slot in &record.slots {
                match slot {
                    Slot::Unspendable => {}
                    Slot::Spent { child_mined_at: Some(at), .. } | Slot::Settled { child_mined_at: at } => {
                        settled = settled.max(at.0);
                    }
                    _ => return false,
                }
            }
            settled
        }
    };
    settled + RETENTION <= tip && settled <= floor
}

/// Bar: after 10,000 blocks with reorganisations and pruning on, all is sound and nothing is kept beyond need.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sim_nothing_is_kept_beyond_need() {
    let (blocks, mut source) = (blocks(), SyntheticChain::new(shape(1)).unwrap());
    let mut node = Node::new().await;
    node.start_pruner(pruner_options(policy())).await;
    let started = Instant::now();
    while source.tip().is_none_or(|tip| tip.height.0 < blocks) {
        node.step(&mut source).await;
        let height = source.tip().unwrap().height.0;
        if height.is_multiple_of(blocks / 4) {
            node = node.restart().await;
            node.start_pruner(pruner_options(policy())).await;
        }
    }
    assert!(node.reorganised > u64::from(blocks) / 100 && node.large > 5);
    println!("{blocks} blocks in {:.1} s", started.elapsed().as_secs_f64());
    node.judge().await;
}

/// Bar: a pruner that was down for 5,000 blocks (half of all) catches up while blocks go on. What that costs them is printed here
/// and judged by the benchmark, where nothing else runs beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sim_a_pruner_that_was_down_catches_up() {
    let (down, mut source) = (blocks() / 2, SyntheticChain::new(shape(2)).unwrap());
    let mut node = Node::new().await;
    let mut alone = Vec::new();
    while source.tip().is_none_or(|tip| tip.height.0 < down) {
        alone.push(node.step(&mut source).await);
    }
    let before = node.store.counts().await.unwrap().records;
    let mut node = node.restart().await;
    // As configured by default: it makes way for blocks.
    let options = PrunerOptions { look_every: None, ..PrunerOptions::with_policy(policy()) };
    node.start_pruner(options).await;
    let (mut catching_up, mut caught_up) = (Vec::new(), false);
    // How fast it is beside blocks without a pause is for the benchmark to say: if it needs longer than this, it goes on without them.
    while !caught_up && catching_up.len() < down as usize {
        catching_up.push(node.step(&mut source).await);
        caught_up = node.pruner.as_ref().unwrap().status().await.unwrap().lag_blocks <= 2;
    }
    let steps = catching_up.len();
    let after = node.store.counts().await.unwrap().records;
    let mean = |times: &[Duration]| times.iter().sum::<Duration>().as_secs_f64() / times.len() as f64;
    // The last blocks before are as full as those after.
    let alone = &alone[alone.len() - alone.len().min(catching_up.len().max(100))..];
    println!(
        "down for {down} blocks: {before} records, {after} after {steps} more steps, caught up: {caught_up}; apply took {:.2} ms alone and {:.2} ms while \
         catching up, {:.2} times as long",
        mean(alone) * 1e3,
        mean(&catching_up) * 1e3,
        mean(&catching_up) / mean(alone)
    );
    node.judge().await;
}
