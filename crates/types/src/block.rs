//! Blocks.

use std::fmt;

use crate::{
    BlockHash, DecodeError, Height, Tx,
    codec::{Reader, Writer},
};

/// A block as a chain source delivers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its height.
    pub height: Height,
    /// Its hash.
    pub hash: BlockHash,
    /// The hash of the block before it.
    pub parent: BlockHash,
    /// When it was made, as a Unix timestamp, by its own account.
    pub time: u64,
    /// Its transactions, each after those it spends from.
    pub txs: Vec<Tx>,
}

/// The rules of a chain that differ from block to block. The default fits a chain whose amounts are not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockRules {
    /// What the block may mint. If given, amounts are checked: no transaction makes more than it spends, and the coinbase takes
    /// no more than this and the fees. `None` for chains with other rules for amounts.
    pub subsidy: Option<u64>,
    /// Whether a transaction may write over a mined one of the same id that has unspent outputs. Bitcoin has two such blocks.
    pub allow_overwrite: bool,
    /// Whether a transaction may have no outputs.
    pub allow_no_outputs: bool,
    /// After how many blocks a coinbase of this block can be spent. `None` for what the policy says.
    pub coinbase_maturity: Option<u32>,
}

/// A block's place in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ChainPoint {
    /// Its height.
    pub height: Height,
    /// Its hash.
    pub hash: BlockHash,
}

impl ChainPoint {
    /// The block `hash` at `height`.
    pub fn new(height: Height, hash: BlockHash) -> Self {
        Self { height, hash }
    }
}

impl fmt::Display for ChainPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {} ({})", self.height, self.hash)
    }
}

/// A block the store has applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockMark {
    /// Its number in this store. Numbers are never used twice, so two blocks at one height can be told apart.
    pub id: u32,
    /// Its height.
    pub height: Height,
    /// Its hash.
    pub hash: BlockHash,
}

impl From<BlockMark> for ChainPoint {
    fn from(mark: BlockMark) -> Self {
        ChainPoint::new(mark.height, mark.hash)
    }
}

impl BlockMark {
    /// Writes the mark: id, height and hash.
    pub fn encode(&self, to: &mut Writer) {
        to.u32(self.id);
        to.height(self.height);
        to.bytes(&self.hash.0);
    }

    /// Reads a mark.
    pub fn decode(from: &mut Reader) -> Result<Self, DecodeError> {
        const FIELD: &str = "block mark";
        Ok(BlockMark { id: from.u32(FIELD)?, height: from.height(FIELD)?, hash: from.block_hash(FIELD)? })
    }
}

impl fmt::Display for BlockMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {} ({})", self.height, self.hash)
    }
}
