//! What can go wrong while a chain is followed.

use sapwood_sources::{ChainPoint, SourceError};
use sapwood_store::{ApplyError, RollbackError, StoreError};
use sapwood_types::{BlockHash, Height, TxId};

use crate::PlanError;

/// The chain could not be followed further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// A block is wrong in itself.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A block could not be applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// Blocks could not be taken back.
    #[error(transparent)]
    Rollback(#[from] RollbackError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The source failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A block that was queued before has failed, so this one was not queued.
    #[error("an earlier block failed, so block {height} was not queued: {cause}")]
    Earlier {
        /// The block that was not queued.
        height: Height,
        /// What happened to the earlier one.
        cause: Box<ChainError>,
    },
    /// The source's chain left ours below the reach of a rollback.
    #[error(
        "the chain of {source_name} leaves the one applied here below height {floor}, the lowest that can be gone back to; its \
         last block is {tip}. If that chain is the right one, import it into a new data directory; else wait until the source is \
         where it was, or check that it is the right network"
    )]
    ForkBelowFloor {
        /// The source.
        source_name: String,
        /// Its last block.
        tip: ChainPoint,
        /// The lowest height a rollback can reach.
        floor: Height,
    },
    /// The source has no block although it says so.
    #[error("{source_name} has no block {hash} at height {height}, although it is part of its chain")]
    BlockMissing {
        /// The source.
        source_name: String,
        /// The height.
        height: Height,
        /// The block.
        hash: BlockHash,
    },
    /// The source stands by a block that cannot be applied.
    #[error(
        "{source_name} stands by block {height} ({hash}), but it cannot be applied: {cause}. Nothing of it was written. Either \
         the source is wrong, or the data directory is damaged: `sapwood verify` tells"
    )]
    BadBlock {
        /// The source.
        source_name: String,
        /// The block's height.
        height: Height,
        /// The block.
        hash: BlockHash,
        /// What is wrong.
        cause: Box<ChainError>,
    },
    /// The body of a large transaction could not be put where bodies are kept.
    #[error("the body of transaction {txid} could not be kept, so nothing was written: {cause}")]
    Body {
        /// The transaction.
        txid: TxId,
        /// Why not.
        cause: String,
    },
    /// The chain was closed.
    #[error("the chain is closed: no more blocks are taken")]
    Closed,
}

impl ChainError {
    /// The block this is about, if the block itself is what is wrong.
    pub fn bad_block(&self) -> Option<BlockHash> {
        match self {
            ChainError::Plan(error) => Some(error.hash),
            ChainError::Apply(ApplyError::Tx { hash, .. }) => Some(*hash),
            ChainError::Earlier { cause, .. } => cause.bad_block(),
            _ => None,
        }
    }

    /// Whether it may be gone at the next try.
    pub fn may_pass(&self) -> bool {
        match self {
            ChainError::Source(error) => error.may_pass(),
            // Full, slow, unreachable or locked up: somebody mends it, and nothing was written meanwhile.
            ChainError::Body { .. } => true,
            ChainError::Earlier { cause, .. } => cause.may_pass(),
            _ => false,
        }
    }
}
