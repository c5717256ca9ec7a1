//! Measurements against plain sequential writing: how fast blocks are written and pruned, and whether the arena stops
//! growing.
//!
//! **What lives here.** Functions for a benchmark command. **What may not.** How results are printed, and which targets
//! they have to reach.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use sapwood_ledger::engine::Engine;
use sapwood_types::{BlockHash, Height};

use crate::{AppendError, Archive, ArchiveError, ArchiveOptions, Continuity, Durability, NewBlock};

/// The file of the baseline.
const BASELINE_FILE: &str = "sequential";
/// Cycles after which the arena should not grow any more.
const FIRST_CYCLES: u32 = 100;
/// Blocks that stay when the others of a round are pruned.
const RETAIN: u32 = 4;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchOptions {
    /// Rounds, each with a baseline of its own. The median counts.
    pub rounds: u32,
    /// Blocks of a round.
    pub blocks: u32,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Blocks that are written and synced together, in the baseline, too. At the tip of a chain that is 1; a source
    /// that is behind has more.
    pub blocks_per_sync: usize,
    /// What blocks survive when their write is over, in the baseline, too.
    pub durability: Durability,
    /// Cycles of writing and pruning, at least 101.
    pub cycles: u32,
    /// Bytes of a block of these cycles.
    pub cycle_bytes: usize,
}

impl BenchOptions {
    /// Blocks of 1 MB, in a few seconds.
    pub fn quick() -> Self {
        Self {
            rounds: 5,
            blocks: 40,
            block_bytes: 1_000_000,
            blocks_per_sync: 4,
            durability: Durability::PowerLoss,
            cycles: 300,
            cycle_bytes: 60_000,
        }
    }

    /// Blocks of 1 MB, in about ten times as long.
    pub fn full() -> Self {
        Self { rounds: 9, blocks: 200, cycles: 2000, ..Self::quick() }
    }
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BenchReport {
    /// Bytes per second of plain sequential writing.
    pub sequential_bytes_per_second: f64,
    /// Bytes per second of appending blocks.
    pub write_bytes_per_second: f64,
    /// The second against the first, by the median of the rounds.
    pub write_over_sequential: f64,
    /// Bytes per second of pruning blocks.
    pub prune_bytes_per_second: f64,
    /// Pruning against appending, by the median of the rounds.
    pub prune_over_write: f64,
    /// Bytes of the arena after the first 100 cycles.
    pub arena_after_100_cycles: u64,
    /// By how much the arena grew after them, as a part of what it was: 0 if it did not.
    pub arena_growth_after_100_cycles: f64,
    /// How many cycles there were.
    pub cycles: u32,
}

/// Measures in a directory, with rows in `engine`. What is written there stays, but for the baseline.
///
/// # Errors
/// Those of the archive.
pub fn measure(
    directory: &Path,
    engine: Arc<dyn Engine>,
    bench: &BenchOptions,
) -> Result<BenchReport, ArchiveError> {
    let options =
        ArchiveOptions { durability: bench.durability, reorg_window: 1, tombstones: 0, ..Default::default() };
    let archive = Archive::open_in(directory, engine, options)?;
    let mut chain = Chain::new(archive);
    let baseline = directory.join(BASELINE_FILE);
    let mut rounds = Vec::new();
    // The first round is not counted: it fills caches and grows the arena.
    for round in 0..=bench.rounds {
        let payloads: Vec<Bytes> =
            (0..bench.blocks).map(|number| noise(round << 16 | number, bench.block_bytes)).collect();
        let mut file = File::create(&baseline).map_err(|error| failed(&baseline, &error))?;
        let (mut sequential, mut written) = (Duration::ZERO, Duration::ZERO);
        // In turns, so that what else the machine does is shared.
        for payloads in payloads.chunks(bench.blocks_per_sync.max(1)) {
            let took = write_plainly(&mut file, payloads, bench.durability);
            sequential += took.map_err(|error| failed(&baseline, &error))?;
            written += chain.append(payloads)?;
        }
        drop(file);
        fs::remove_file(&baseline).map_err(|error| failed(&baseline, &error))?;
        let pruned = chain.prune()?;
        if round > 0 {
            rounds.push((sequential, written, pruned));
        }
    }
    let (arena_after_100_cycles, arena_growth_after_100_cycles) = growth(&mut chain, bench)?;
    let bytes = bench.block_bytes as f64 * f64::from(bench.blocks);
    let rate = |of: fn(&(Duration, Duration, Duration)) -> Duration| {
        median(rounds.iter().map(|round| bytes / of(round).as_secs_f64().max(1e-9)))
    };
    let ratio = |of: fn(&(Duration, Duration, Duration)) -> f64| median(rounds.iter().map(of));
    Ok(BenchReport {
        sequential_bytes_per_second: rate(|round| round.0),
        write_bytes_per_second: rate(|round| round.1),
        write_over_sequential: ratio(|round| round.0.as_secs_f64() / round.1.as_secs_f64().max(1e-9)),
        prune_bytes_per_second: rate(|round| round.2),
        prune_over_write: ratio(|round| round.1.as_secs_f64() / round.2.as_secs_f64().max(1e-9)),
        arena_after_100_cycles,
        arena_growth_after_100_cycles,
        cycles: bench.cycles,
    })
}

/// Writes and prunes in cycles. Returns the size of the arena after the first of them, and by how much it grew later.
fn growth(chain: &mut Chain, bench: &BenchOptions) -> Result<(u64, f64), ArchiveError> {
    let mut first = 0;
    for cycle in 0..bench.cycles.max(FIRST_CYCLES + 1) {
        if cycle == FIRST_CYCLES {
            first = chain.archive.arena()?.file_bytes;
        }
        chain.append(&[noise(cycle, bench.cycle_bytes), noise(cycle, bench.cycle_bytes)])?;
        chain.prune()?;
    }
    let last = chain.archive.arena()?.file_bytes;
    Ok((first, last.saturating_sub(first) as f64 / first.max(1) as f64))
}

/// Writes payloads at the end of a plain file. Returns how long it took.
fn write_plainly(file: &mut File, payloads: &[Bytes], durability: Durability) -> std::io::Result<Duration> {
    let begin = Instant::now();
    payloads.iter().try_for_each(|payload| file.write_all(payload))?;
    if durability == Durability::PowerLoss {
        file.sync_data()?;
    }
    Ok(begin.elapsed())
}

/// A chain of blocks that is made up as it is written.
struct Chain {
    archive: Archive,
    next: u32,
    parent: BlockHash,
}

impl Chain {
    fn new(archive: Archive) -> Self {
        Self { archive, next: 0, parent: BlockHash::default() }
    }

    /// Appends a block for each payload, all at once. Returns how long it took.
    fn append(&mut self, payloads: &[Bytes]) -> Result<Duration, ArchiveError> {
        let blocks: Vec<NewBlock> = payloads.iter().map(|payload| self.block(payload.clone())).collect();
        let begin = Instant::now();
        self.archive.append(&blocks, Continuity::Strict).map_err(|error| match error {
            AppendError::Archive(error) => error,
            // Blocks are made to follow one another.
            other => ArchiveError::Poisoned { cause: other.to_string() },
        })?;
        Ok(begin.elapsed())
    }

    fn block(&mut self, payload: Bytes) -> NewBlock {
        let height = Height(self.next);
        let mut hash = [0xb1; 32];
        hash[..4].copy_from_slice(&self.next.to_be_bytes());
        let hash = BlockHash(hash);
        self.next += 1;
        NewBlock {
            height,
            hash,
            parent: std::mem::replace(&mut self.parent, hash),
            time: height.0.into(),
            txs: Vec::new(),
            segments: [payload, Bytes::new(), Bytes::new()],
        }
    }

    /// Prunes all blocks but a few. Returns how long it took.
    fn prune(&self) -> Result<Duration, ArchiveError> {
        let begin = Instant::now();
        self.archive.prune_blocks(RETAIN, u64::MAX, 0, &[])?;
        Ok(begin.elapsed())
    }
}

/// Bytes that a file system cannot make smaller.
fn noise(seed: u32, len: usize) -> Bytes {
    let mut state = u64::from(seed) << 1 | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes.into()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn failed(path: &Path, error: &std::io::Error) -> ArchiveError {
    ArchiveError::Io {
        place: path.display().to_string(),
        doing: "writing the baseline",
        kind: error.kind(),
        cause: error.to_string(),
    }
}
