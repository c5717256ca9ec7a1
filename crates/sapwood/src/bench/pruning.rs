//! Pruning, with and without the check of children, alone and beside blocks. Shared by `bench apply` and `bench prune`.

use std::time::{Duration, Instant};

use super::{
    chain::{BenchChain, RETENTION, prune_all, prune_turn},
    measure::Times,
    progress,
};

/// Records pruned, and in which time.
#[derive(Default)]
pub(super) struct Pruned {
    pub(super) records: u64,
    times: Times,
    /// The time of each turn for a thousand records.
    per_thousand: Times,
}

impl Pruned {
    pub(super) fn per_second(&self) -> f64 {
        self.records as f64 / self.times.total().as_secs_f64()
    }

    /// How many times as long as `other` a typical turn takes. Of a dozen, the one that a compaction hits must not decide.
    pub(super) fn over(&self, other: &Self) -> f64 {
        self.per_thousand.percentile_ms(50) / other.per_thousand.percentile_ms(50)
    }

    fn add(&mut self, records: u64, time: Duration) {
        self.records += records;
        self.times.add(time);
        if records > 0 {
            self.per_thousand.add(time.mul_f64(1000.0 / records as f64));
        }
    }
}

/// Deletes all that is due, one turn with the check of children, the next without. Returns both, with the check first. The first turn, which
/// finds nothing in memory, counts for neither.
pub(super) async fn with_and_without_check(chain: &BenchChain) -> anyhow::Result<(Pruned, Pruned)> {
    let (mut with, mut without) = (Pruned::default(), Pruned::default());
    for turn in 0.. {
        let check = turn % 2 == 0;
        let started = Instant::now();
        let (records, more) = prune_turn(&chain.store, check).await?;
        if turn > 0 {
            if check { &mut with } else { &mut without }.add(records, started.elapsed());
        }
        if !more {
            break;
        }
    }
    anyhow::ensure!(
        with.records > 0,
        "too few blocks to measure pruning: raise --blocks well above {RETENTION}"
    );
    Ok((with, without))
}

/// Blocks applied alone and beside pruning.
pub(super) struct Beside {
    pub(super) alone: Times,
    pub(super) beside: Times,
    pub(super) pruned: u64,
}

impl Beside {
    pub(super) fn ratio(&self) -> f64 {
        self.beside.mean_ms() / self.alone.mean_ms()
    }
}

/// Every second block is applied while what became due is pruned.
pub(super) async fn apply_beside_pruning(
    chain: &mut BenchChain,
    blocks: usize,
    quiet: bool,
) -> anyhow::Result<Beside> {
    let mut times = Beside { alone: Times::default(), beside: Times::default(), pruned: 0 };
    let bar = progress("apply, alone and while pruning", blocks, quiet)?;
    for turn in 0..blocks {
        let block = chain.workload.next_block();
        if turn % 2 == 0 {
            let started = Instant::now();
            chain.apply(block).await?;
            times.alone.add(started.elapsed());
        } else {
            let store = chain.store.clone();
            let pruner = tokio::spawn(async move { prune_all(&store).await });
            let started = Instant::now();
            chain.apply(block).await?;
            times.beside.add(started.elapsed());
            times.pruned += pruner.await??;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(times)
}
