//! A pruner that was down: records pile up, the node is restarted, and the pruner works them off beside blocks.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use sapwood_chain::{Chain, ChainOptions, ChainState, Events};
use sapwood_engine_rocksdb::Options;
use sapwood_ledger::ApplyOptions;
use sapwood_pruner::{Pruner, PrunerHandle, PrunerOptions, SystemClock};
use sapwood_rules::Policy;

use super::{
    chain::{BenchChain, RETENTION},
    measure::Times,
    progress,
    pruning::Beside,
};

/// Blocks with the pruner at work, and then as many without.
const IN_A_ROW: usize = 10;
const AFTER_PAUSES: usize = 5;
/// Blocks before the first that is measured: after a restart no record is in memory.
const WARM_UP: usize = 25;
/// Time between blocks that find the pruner at full speed: it needs 100 ms without a block to come to it.
const PAUSE: Duration = Duration::from_millis(160);

/// What blocks notice of a pruner that has much to catch up with.
pub(super) struct CatchingUp {
    /// Records that were due when the node was restarted.
    pub(super) backlog: u64,
    /// Blocks that come one after another.
    pub(super) in_a_row: Beside,
    /// Blocks each of which finds the pruner at full speed, because there was none for a while.
    pub(super) after_a_pause: Beside,
    /// Records deleted per second once no more blocks came.
    pub(super) rest_per_s: f64,
}

/// Applies `down` blocks without pruning, opens the store again as a restart does, and measures `blocks` blocks beside the pruner and as
/// many without, once without a pause between them and once with.
pub(super) async fn catching_up(
    chain: BenchChain,
    directory: &Path,
    down: usize,
    blocks: usize,
    quiet: bool,
) -> anyhow::Result<CatchingUp> {
    let bar = progress("blocks while the pruner is down", down, quiet)?;
    let BenchChain { store, mut workload, .. } = chain;
    for _ in 0..down {
        store.apply_block(Arc::new(workload.next_block()), ApplyOptions::default()).await?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    drop(store);

    let mut chain = BenchChain::open(directory, workload, Options::default())?;
    let node = Node::start(&chain).await?;
    let backlog = node.pruner.status().await?.backlog_records;
    node.warm_up(&mut chain).await?;
    let in_a_row = node.measure(&mut chain, blocks, IN_A_ROW, Duration::ZERO, quiet).await?;
    let after_a_pause = node.measure(&mut chain, blocks / 2, AFTER_PAUSES, PAUSE, quiet).await?;

    let (before, started) = (node.deleted().await?, Instant::now());
    node.pruner.enable().await?;
    loop {
        let job = node.pruner.wait(node.pruner.prune_now(None)?).await.context("the job is forgotten")?;
        anyhow::ensure!(job.error.is_none(), "{job}");
        if job.stopped_early.is_none() {
            break;
        }
    }
    let rest_per_s = (node.deleted().await? - before) as f64 / started.elapsed().as_secs_f64();
    let left = node.pruner.plan(None, u64::MAX).await?.records;
    anyhow::ensure!(left == 0, "the pruner has caught up, but {left} records could go");
    node.pruner.stop().await;
    Ok(CatchingUp { backlog, in_a_row, after_a_pause, rest_per_s })
}

/// What a node runs on its store: an applier and a pruner that hears of its blocks.
struct Node {
    applier: Chain,
    pruner: PrunerHandle,
}

impl Node {
    async fn start(chain: &BenchChain) -> anyhow::Result<Self> {
        let store = chain.store.clone();
        let events = Events::default();
        events.enter(ChainState::Running);
        let applier = Chain::new(store.clone(), events.clone(), ChainOptions::default());
        let policy = Policy::with_retention(RETENTION);
        let options = PrunerOptions::with_policy(policy);
        let pruner = Pruner::start(store, events, None, options, Arc::new(SystemClock)).await?;
        Ok(Self { applier, pruner })
    }

    async fn deleted(&self) -> anyhow::Result<u64> {
        Ok(self.pruner.status().await?.totals.deleted)
    }

    async fn warm_up(&self, chain: &mut BenchChain) -> anyhow::Result<()> {
        self.set_pruning(false).await?;
        for _ in 0..WARM_UP {
            self.applier.apply(Arc::new(chain.workload.next_block()), ApplyOptions::default()).await?;
        }
        Ok(())
    }

    /// Some blocks with the pruner at work, some without, and so on, so that a noisy moment of the machine hits both.
    async fn measure(
        &self,
        chain: &mut BenchChain,
        blocks: usize,
        at_a_time: usize,
        pause: Duration,
        quiet: bool,
    ) -> anyhow::Result<Beside> {
        let before = self.deleted().await?;
        let (mut alone, mut beside) = (Times::default(), Times::default());
        let bar = progress("apply, alone and while the pruner catches up", 2 * blocks, quiet)?;
        for turn in 0..2 * blocks.div_ceil(at_a_time) {
            // Each is as often before the other as after it.
            let pruning = matches!(turn % 4, 0 | 3);
            self.set_pruning(pruning).await?;
            for _ in 0..at_a_time {
                let block = Arc::new(chain.workload.next_block());
                tokio::time::sleep(pause).await;
                let started = Instant::now();
                self.applier.apply(block, ApplyOptions::default()).await?;
                if pruning { &mut beside } else { &mut alone }.add(started.elapsed());
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        Ok(Beside { alone, beside, pruned: self.deleted().await? - before })
    }

    /// Sets the pruner going, or stops it and waits until it rests.
    async fn set_pruning(&self, pruning: bool) -> anyhow::Result<()> {
        if pruning {
            self.pruner.enable().await?;
            self.pruner.prune_now(None)?;
            return Ok(());
        }
        self.pruner.disable().await?;
        while let Some(job) = self.pruner.jobs(10).into_iter().find(|job| !job.state.is_over()) {
            self.pruner.wait(job.id).await;
        }
        Ok(())
    }
}
