//! Pruning: which blocks go, and how.
//!
//! **What lives here.** The policy and its water marks ([`policy`]), the decision block by block ([`walk`], pure), the
//! work in bounded commits (`run`), and when it is done (`tick`). **What may not.** Who holds what: holds are heights
//! that the caller passes.
//!
//! # Correctness
//! Blocks are pruned from the oldest upwards, each as a whole in one commit: its row and the boundary together, its
//! regions into quarantine with a journal entry. The boundary never falls. A block at or above the finality floor is
//! never pruned, whatever the budget says.

pub mod policy;
mod run;
mod tick;
pub mod walk;

use sapwood_types::Height;

pub use self::{
    run::Plan,
    tick::{Tick, Trigger},
};

/// A consumer's claim on history.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HeightHold {
    /// Its name, for messages.
    pub name: String,
    /// The first block that is still needed. `None`: the consumer has not reported yet, and everything is.
    pub keep_from: Option<Height>,
    /// Whether pruning by capacity goes past it above the hard limit.
    pub yields_in_emergency: bool,
}

impl HeightHold {
    /// Creates a hold that never yields.
    pub fn new(name: impl Into<String>, keep_from: Option<Height>) -> Self {
        Self { name: name.into(), keep_from, yields_in_emergency: false }
    }
}

/// What was pruned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Pruning {
    /// How many blocks.
    pub blocks: u64,
    /// How many entries of them: see [`BlockMeta::prune_ops`](crate::BlockMeta::prune_ops). A gap before a block counts
    /// as one.
    pub ops: u64,
    /// Region bytes that they had.
    pub region_bytes: u64,
    /// Blocks at or below it are pruned. `None` if none ever was.
    pub boundary: Option<Height>,
    /// Why it ended.
    pub stopped: Stop,
    /// Blocks whose row could not be read. They count as pruned; their rows and regions stay for a repair.
    pub unreadable: Vec<Height>,
    /// Holds that pruning went past, because the archive was above its hard limit.
    pub overridden: Vec<HeightHold>,
}

/// Why pruning ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case", tag = "reason"))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Stop {
    /// There is nothing more to prune.
    Done,
    /// Low water is reached.
    LowWater,
    /// The next block has more entries than are left of `max_ops`.
    Ops {
        /// How many it has.
        next: u64,
    },
    /// The next block is not final.
    Floor {
        /// The lowest block that a reorg can return to. `None` if that could be any.
        floor: Option<Height>,
    },
    /// A consumer still needs the next block.
    Held(HeightHold),
}

/// Something that an operator should know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case", tag = "alert"))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Alert {
    /// Blocks that are not final fill the budget.
    #[error(
        "{used} bytes of blocks are kept, above the high water of {high} (target {target}), and those from \
         block {} to {head} are not final: they are not pruned. Raise the target, or lower the reorg window", floor.unwrap_or_default()
    )]
    FloorOverBudget {
        /// Region bytes that count against the budget.
        used: u64,
        /// High water in bytes.
        high: u64,
        /// The target in bytes.
        target: u64,
        /// The lowest block that a reorg can return to.
        floor: Option<Height>,
        /// The newest block.
        head: Height,
    },
    /// A hold keeps more than the budget.
    #[error(
        "{used} bytes of blocks are kept, above the high water of {high} (target {target}), because {} holds \
         everything from block {} on",
        hold.name, hold.keep_from.unwrap_or_default()
    )]
    HoldOverBudget {
        /// Region bytes that count against the budget.
        used: u64,
        /// High water in bytes.
        high: u64,
        /// The target in bytes.
        target: u64,
        /// The hold.
        hold: HeightHold,
    },
    /// Blocks were pruned that a consumer had not acknowledged.
    #[error(
        "blocks up to {boundary} were pruned although {} holds everything from block {} on: the archive was above \
         its hard limit of {hard} bytes",
        hold.name, hold.keep_from.unwrap_or_default()
    )]
    HoldOverridden {
        /// The hold.
        hold: HeightHold,
        /// Blocks at or below it are pruned.
        boundary: Height,
        /// The hard limit in bytes.
        hard: u64,
    },
    /// The estimate is above the hard limit.
    #[error(
        "{estimated} bytes are kept, above the hard limit of {hard} (target {target}): pruning does not keep up"
    )]
    HardLimit {
        /// Region bytes, those in quarantine included.
        estimated: u64,
        /// The hard limit in bytes.
        hard: u64,
        /// The target in bytes.
        target: u64,
    },
    /// Rows of blocks could not be read.
    #[error(
        "{count} blocks could not be read when they were to be pruned, the last one at {height}: run verify"
    )]
    Unreadable {
        /// How many, since the archive was made.
        count: u64,
        /// The last one of this tick.
        height: Height,
    },
}
