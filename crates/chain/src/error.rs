//! What can go wrong while a chain is followed.

use sapwood_ledger::{ApplyError, RollbackError, StoreError};
use sapwood_sources::{ChainPoint, SourceError};
use sapwood_types::{BlockHash, Height, TxId};

/// The chain could not be followed further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
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
    /// The source's chain left the applied one below the lowest height a rollback can reach.
    #[error(
        "the chain of {source_name} leaves the one applied here below height {floor}, the lowest a rollback can reach; its \
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
    /// The source does not have a block of its own chain.
    #[error(
        "{source_name} has no block {hash} at height {height}, although it is part of its chain: its block files are damaged or \
         incomplete. Check its log; a node fetches its blocks again with -reindex"
    )]
    BlockMissing {
        /// The source.
        source_name: String,
        /// The height.
        height: Height,
        /// The block.
        hash: BlockHash,
    },
    /// The source's chain has no UTXOs.
    #[error("{point} has no UTXOs: its chain can be archived, but not applied")]
    NoUtxos {
        /// The block.
        point: ChainPoint,
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
        /// Whether it is the block after the last applied one: to try it again takes no rollback.
        on_top: bool,
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
    /// The block this is about, if the block itself is what is wrong. `None` for any other failure.
    pub fn bad_block(&self) -> Option<BlockHash> {
        match self {
            ChainError::Apply(ApplyError::Tx { hash, .. }) => Some(*hash),
            ChainError::Source(SourceError::BadBlock { hash, .. }) => *hash,
            ChainError::Earlier { cause, .. } => cause.bad_block(),
            _ => None,
        }
    }

    /// Whether the store waits for room on its disk, and takes blocks again once there is some.
    pub(crate) fn is_no_room(&self) -> bool {
        matches!(
            self.root(),
            ChainError::Store(StoreError::NoRoom { .. })
                | ChainError::Apply(ApplyError::Store(StoreError::NoRoom { .. }))
        )
    }

    /// What happened, without what it kept from happening.
    pub(crate) fn root(&self) -> &ChainError {
        match self {
            ChainError::Earlier { cause, .. } => cause.root(),
            error => error,
        }
    }

    /// Whether it may be gone at the next try, although nothing is changed here: the source, or the place for bodies, is what failed.
    pub fn may_pass(&self) -> bool {
        match self {
            // Full, slow, unreachable or locked up: it can be fixed from outside, and nothing was written meanwhile.
            ChainError::Source(_) | ChainError::Body { .. } | ChainError::BlockMissing { .. } => true,
            // The source may leave its block or its chain.
            ChainError::BadBlock { .. } | ChainError::ForkBelowFloor { .. } => true,
            ChainError::Earlier { cause, .. } => cause.may_pass(),
            _ => false,
        }
    }
}
