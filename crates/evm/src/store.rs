//! What the JSON-RPC methods read from.
//!
//! What lives here: the seam between this crate and the archive. It speaks of segments and numbers, and knows neither arena nor engine.

use alloy_eips::BlockNumHash;
use alloy_primitives::B256;
use bytes::Bytes;

use crate::chain::ChainSpec;

/// A failure of the store itself.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// The blocks of the canonical chain that are kept.
///
/// One value answers one request: an implementation hands out a view in which the parts of a request agree, whatever is pruned or
/// reorganised meanwhile. Calls may block.
pub trait EvmBlocks {
    /// Returns the chain's configuration.
    fn spec(&self) -> &ChainSpec;

    /// Returns what is kept. `None` while there is no block.
    ///
    /// # Errors
    /// The store cannot be read.
    fn bounds(&self) -> Result<Option<Bounds>, StoreError>;

    /// Returns a segment of the block with this number. Receipts that were never stored are an empty segment; the receipts of a block
    /// without transactions are not, they are an empty RLP list.
    ///
    /// # Errors
    /// The store cannot be read.
    fn segment(&self, number: u64, segment: Segment) -> Result<Lookup<Bytes>, StoreError>;

    /// Returns the number of the block with this hash.
    ///
    /// # Errors
    /// The store cannot be read.
    fn number_of(&self, hash: &B256) -> Result<Lookup<u64>, StoreError>;

    /// Returns where a transaction is. Of a hash that may or may not have been pruned it is not known that it was: that is
    /// [`Lookup::NotFound`], because clients that wait for a transaction ask for hashes that are on no chain yet.
    ///
    /// # Errors
    /// The store cannot be read.
    fn transaction(&self, hash: &B256) -> Result<Lookup<TxPlace>, StoreError>;
}

/// A part of a stored block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    /// Segment 0: the RLP of the block.
    Block,
    /// Segment 1: the RLP list of its receipts.
    Receipts,
    /// Segment 2: a [`TxIndex`](crate::TxIndex).
    TxIndex,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<T> {
    /// It is kept.
    Found(T),
    /// It is known, but in no block yet.
    Pending,
    /// It was kept once.
    Pruned {
        /// The number of the block it was in. `None` if that is not known any more.
        requested: Option<u64>,
        /// The lowest number from which on everything is kept.
        earliest: u64,
    },
    /// It is not known.
    NotFound,
}

/// Where a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxPlace {
    /// The number of its block.
    pub number: u64,
    /// Its position in the block.
    pub index: usize,
}

/// Which blocks are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The newest block.
    pub head: BlockNumHash,
    /// The lowest number from which on everything is kept: one more than the prune boundary. Block 0 is kept besides.
    pub earliest: u64,
    /// The newest block that a reorg is not expected to reach. `None` if that is not known. What was imported from files is as good as
    /// final: then this is the head.
    pub safe: Option<u64>,
    /// The newest block that no reorg can reach. `None` if that is not known.
    pub finalized: Option<u64>,
    /// How many blocks are kept, if the retention is a number of blocks.
    pub retention_blocks: Option<u64>,
    /// Whether receipts are stored.
    pub receipts: bool,
    /// How far the source is. `None` unless the archive is catching up.
    pub syncing: Option<Syncing>,
}

/// The archive is catching up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syncing {
    /// The number of the block from which on it is.
    pub starting: u64,
    /// The number of the newest block of the source.
    pub highest: u64,
}
