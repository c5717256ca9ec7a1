//! What an archive says of itself.

use sapwood_ledger::engine::{Scan, Table};
use sapwood_types::Height;

use crate::{
    Archive, PAGE,
    arena::{Region, RegionState},
    block::{BlockMeta, BlockPoint},
    core::{Trouble, block_row},
    error::ArchiveError,
    forecast::{Forecast, rate},
    keys,
    prune::{
        Alert,
        policy::{Policy, WaterMarks},
    },
    rows,
    state::{RegionBytes, Totals},
    volume::{ItemKind, Volume},
};

/// Blocks whose times and sizes make a rate where no other is known.
const RECENT_BLOCKS: usize = 1024;

/// Where an archive stands.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Status {
    /// The policy in force; with it whether pruning is enabled.
    pub policy: Policy,
    /// The water marks of its target. `None` without one.
    pub water: Option<WaterMarks>,
    /// Whether a prune is running.
    pub running: bool,
    /// Whether there is something to prune, enabled or not.
    pub need_prune: bool,
    /// Whether pruning by capacity began at high water and has not reached low water yet.
    pub latched: bool,
    /// When something was pruned last, a Unix timestamp in seconds. `None` if never.
    pub last_prune: Option<u64>,
    /// Blocks at or below it are pruned. `None` if none ever was.
    pub boundary: Option<Height>,
    /// The oldest block that is kept, without a block 0 that is never pruned. `None` if there is none.
    pub oldest: Option<Height>,
    /// Its time, a Unix timestamp in seconds.
    pub oldest_time: Option<u64>,
    /// The newest block. `None` if there is none.
    pub head: Option<BlockPoint>,
    /// The lowest block that a reorg can return to. `None` if that could be any.
    pub floor: Option<Height>,
    /// Region bytes that count against the budget, those of a block 0 that is never pruned not included.
    pub estimated_kept_bytes: u64,
    /// The arena.
    pub arena: ArenaStats,
    /// Counts.
    pub totals: Totals,
    /// How long the budget lasts.
    pub forecast: Forecast,
    /// What an operator should know.
    pub alerts: Vec<Alert>,
    /// What was come across and left alone since the archive was opened.
    pub trouble: Trouble,
    /// Why the archive refuses to write. `None` if it does not.
    pub poisoned: Option<String>,
}

/// Statistics of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ArenaStats {
    /// Bytes of regions by state.
    pub bytes: RegionBytes,
    /// Where the last region ends.
    pub end: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Pages of 64 KiB of the file.
    pub pages: u64,
    /// Bytes that the file takes on its disk. `None` if it is not known.
    pub allocated_bytes: Option<u64>,
    /// Journal entries whose regions are not free yet.
    pub journal_entries: u64,
    /// Readers that keep regions from being freed.
    pub readers: u64,
}

/// A part of the arena, for drawing it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MapCell {
    /// Bytes that blocks use.
    pub used: u64,
    /// Bytes in quarantine.
    pub quarantine: u64,
    /// Bytes that are free.
    pub free: u64,
}

impl Archive {
    /// Tells where the archive stands. `now` is a Unix timestamp in seconds. Waits for a write in flight.
    ///
    /// # Errors
    /// Those of reading.
    pub fn status(&self, now: u64) -> Result<Status, ArchiveError> {
        let core = &*self.core;
        let arena = self.arena()?;
        let (trouble, poisoned) = {
            let writer = core.writer.lock();
            (writer.trouble.clone(), writer.poisoned.clone())
        };
        let state = core.published().state;
        let policy = self.policy();
        Ok(Status {
            policy,
            water: policy.water(),
            running: core.pruning.load(std::sync::atomic::Ordering::Relaxed),
            need_prune: self.need_prune(now),
            latched: state.latched,
            last_prune: state.last_prune,
            boundary: state.boundary,
            oldest: state.oldest.map(|oldest| oldest.height),
            oldest_time: state.oldest.map(|oldest| oldest.time),
            head: state.head,
            floor: state.floor,
            estimated_kept_bytes: state.prunable_estimate(),
            arena,
            totals: state.totals,
            forecast: self.forecast()?,
            alerts: core.alerts.lock().clone(),
            trouble,
            poisoned,
        })
    }

    /// Returns statistics of the arena. Cheap, unlike [`status`](Self::status). Waits for a write in flight.
    ///
    /// # Errors
    /// Those of the file.
    pub fn arena(&self) -> Result<ArenaStats, ArchiveError> {
        let core = &*self.core;
        let journal_entries = core.writer.lock().waiting.len() as u64;
        let state = core.published().state;
        let file_bytes = core.file.size().map_err(core.io("measuring the arena"))?;
        Ok(ArenaStats {
            bytes: state.bytes,
            end: state.end,
            file_bytes,
            pages: file_bytes.div_ceil(PAGE),
            allocated_bytes: core.file.allocated().map_err(core.io("measuring the arena"))?,
            journal_entries,
            readers: core.readers.count() as u64,
        })
    }

    /// Forecasts how long it takes to high water, and how many days of blocks low water holds. The rate is that of the
    /// ticks of the last day; before there are two of them, that of the newest blocks by their own times.
    ///
    /// # Errors
    /// Those of reading.
    pub fn forecast(&self) -> Result<Forecast, ArchiveError> {
        let measured = self.core.meter.lock().bytes_per_second();
        let bytes_per_second = match measured {
            Some(rate) => Some(rate),
            None => self.rate_of_recent_blocks()?,
        };
        let water = self.policy().water();
        let kept = self.core.published().state.prunable_estimate();
        let (high, low) = (water.map(|water| water.high), water.map(|water| water.low));
        Ok(Forecast::new(bytes_per_second, kept, high, low))
    }

    fn rate_of_recent_blocks(&self) -> Result<Option<f64>, ArchiveError> {
        let mut recent: Vec<BlockMeta> = Vec::new();
        let view = self.view()?;
        let kind = &keys::ALL_BLOCKS;
        let range =
            Scan { table: kind.table, from: kind.from, to: Some(kind.to), reverse: true, fill_cache: false };
        rows::scan(view.rows(), &range, |key, value| {
            let height = keys::height_in(key).unwrap_or_default();
            if !view.state.is_pruned(height) && view.boundary().is_none_or(|boundary| height > boundary) {
                recent.extend(block_row(height, value));
            }
            Ok(if recent.len() < RECENT_BLOCKS {
                std::ops::ControlFlow::Continue(())
            } else {
                std::ops::ControlFlow::Break(())
            })
        })?;
        // The bytes of the first one came before its time.
        let Some((first, later)) = recent.split_last() else { return Ok(None) };
        let seconds = later.first().map_or(0, |last| last.time.saturating_sub(first.time));
        Ok(rate(later.iter().map(BlockMeta::region_bytes).sum(), seconds))
    }

    /// Lists what the archive has on its disk: regions by state, and the rows.
    ///
    /// # Errors
    /// Those of reading.
    pub fn volume(&self) -> Result<Volume, ArchiveError> {
        let core = &*self.core;
        let RegionBytes { used, quarantine, free, punched } = core.published().state.bytes;
        let mut volume = Volume::default();
        volume.add("arena_used", used, ItemKind::Prunable);
        volume.add("arena_quarantine", quarantine, ItemKind::Prunable);
        volume.add("arena_free", free - punched, ItemKind::Reusable);
        let tables = core.engine.stats(None)?.tables;
        let of = |table: Table| {
            let found = tables.iter().find(|stats| stats.table == table);
            found.map_or(0, |stats| stats.disk_bytes + stats.memory_bytes)
        };
        volume.add("archive_journal", of(keys::SMALL), ItemKind::Fixed);
        let index = [keys::BLOCKS, keys::IDS, keys::POINTS, keys::META].map(of).iter().sum();
        volume.add("archive_index", index, ItemKind::Prunable);
        volume.set_disk(core.file.disk_space().map_err(core.io("measuring the disk"))?);
        Ok(volume)
    }

    /// Divides the arena into `cells` parts of equal size, and tells what lies in each. Reads the whole allocation
    /// table.
    ///
    /// # Errors
    /// Those of reading.
    pub fn region_map(&self, cells: usize) -> Result<Vec<MapCell>, ArchiveError> {
        let view = self.view()?;
        let size = (view.state.end).div_ceil(cells.max(1) as u64).max(1);
        let mut map = vec![MapCell::default(); cells];
        rows::scan_all(view.rows(), &keys::ALL_REGIONS, |key, value| {
            let (Some(offset), Ok(region)) = (keys::number_in(key), Region::decode(value)) else {
                return Ok(());
            };
            let (mut from, end) = (offset, offset.saturating_add(region.class.into()));
            while from < end {
                let to = ((from / size + 1) * size).min(end);
                if let Some(cell) = map.get_mut((from / size) as usize) {
                    *match region.state {
                        RegionState::Used => &mut cell.used,
                        RegionState::Quarantine => &mut cell.quarantine,
                        RegionState::Free { .. } => &mut cell.free,
                    } += to - from;
                }
                from = to;
            }
            Ok(())
        })?;
        Ok(map)
    }
}
