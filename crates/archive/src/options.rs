//! How an archive is opened.

use crate::{Classes, error::OptionError, prune::policy::Policy};

/// Bytes of the largest segment by default.
pub const DEFAULT_MAX_SEGMENT: u32 = 8 << 20;
/// Blocks that a reorg can replace by default: that of the ledger's policy.
pub const DEFAULT_REORG_WINDOW: u32 = 288;
/// How many pruned blocks and transactions are remembered by default: about 80 MB of rows.
pub const DEFAULT_TOMBSTONES: u64 = 1_000_000;
/// How many queued transactions there can be by default.
pub const DEFAULT_QUEUE: u64 = 1_000_000;

/// How an archive is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveOptions {
    /// What it is opened for.
    pub mode: OpenMode,
    /// The sizes that new regions have. They can be changed: regions of a size that is no longer listed stay until they
    /// are freed.
    pub classes: Classes,
    /// What an acknowledged block survives.
    pub durability: Durability,
    /// Whether the disk space of freed regions is given back.
    pub punch: Punch,
    /// How many blocks below the head a reorg can replace, at least 1. These blocks are never pruned.
    pub reorg_window: u32,
    /// When a block is final.
    pub finality: Finality,
    /// Whether block 0 is never pruned. An archive that was opened with this once keeps it.
    pub keep_genesis: bool,
    /// Bytes of the largest segment that is taken.
    pub max_segment_bytes: u32,
    /// How many pruned blocks and transactions are remembered, so that a lookup says *pruned* instead of *possibly
    /// pruned*.
    pub tombstones: u64,
    /// How many queued transactions there can be.
    pub queue_limit: u64,
    /// Blocks are refused while less than this many bytes of the disk are free.
    pub min_free_bytes: u64,
    /// How much is kept. A policy that was set at run time stays in force until this one changes.
    pub policy: Policy,
}

impl Default for ArchiveOptions {
    fn default() -> Self {
        Self {
            mode: OpenMode::Create,
            classes: Classes::default(),
            durability: Durability::PowerLoss,
            punch: Punch::Never,
            reorg_window: DEFAULT_REORG_WINDOW,
            finality: Finality::Depth,
            keep_genesis: false,
            max_segment_bytes: DEFAULT_MAX_SEGMENT,
            tombstones: DEFAULT_TOMBSTONES,
            queue_limit: DEFAULT_QUEUE,
            min_free_bytes: 0,
            policy: Policy::default(),
        }
    }
}

impl ArchiveOptions {
    /// Refuses what cannot work.
    ///
    /// # Errors
    /// [`OptionError`]. The policy is checked when the archive is opened.
    pub fn validate(&self) -> Result<(), OptionError> {
        match self {
            ArchiveOptions { reorg_window: 0, .. } => Err(OptionError::NoWindow),
            ArchiveOptions { max_segment_bytes: 0, .. } => Err(OptionError::NoSegments),
            _ => Ok(()),
        }
    }
}

/// What an archive is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Reading and writing. One that is not there is made.
    Create,
    /// Reading and writing what is there.
    Existing,
    /// Reading what is there. Nothing changes, and an interrupted prune is not finished.
    ReadOnly,
}

/// What an acknowledged block survives. The engine has a setting of its own for the rows: set both alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Durability {
    /// The end of the process. Bytes are handed to the system before the rows that refer to them are committed.
    ProcessCrash,
    /// A power loss, too. Bytes are synced to the device before the rows are committed.
    PowerLoss,
}

/// Whether the disk space of freed regions is given back to the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Punch {
    /// It stays with the arena for the next block.
    Never,
    /// It is given back where more than this many bytes would lie free. 0 gives all of it back.
    FreeAbove(u64),
}

/// When a block is final: no reorg returns below it, and until then it is not pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Finality {
    /// Once it is deeper than the reorg window.
    Depth,
    /// Once the chain says so ([`Archive::set_finalized`](crate::Archive::set_finalized)) and it is deeper than the
    /// reorg window. Without a report no block is.
    Reported,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_cannot_work_are_refused() {
        assert_eq!(ArchiveOptions::default().validate(), Ok(()));
        let no_window = ArchiveOptions { reorg_window: 0, ..Default::default() };
        assert_eq!(no_window.validate(), Err(OptionError::NoWindow));
        let no_segments = ArchiveOptions { max_segment_bytes: 0, ..Default::default() };
        assert_eq!(no_segments.validate(), Err(OptionError::NoSegments));
    }
}
