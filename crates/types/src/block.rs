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
    /// When it was made, in seconds since 1970, by its own account.
    pub time: u64,
    /// Its transactions, each after those it spends from.
    pub txs: Vec<Tx>,
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
