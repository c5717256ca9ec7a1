//! Blocks that can still be rolled back: what is kept of them.

use sapwood_types::{BlockHash, ChainPoint, TxId, Undo};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A block, without its transactions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockSummary {
    /// Its height and its hash.
    #[serde(flatten)]
    pub point: ChainPoint,
    /// The hash of the block before it. `None` for the first block that was applied.
    pub parent: Option<BlockHash>,
    /// When it was made by its own account, as a Unix timestamp. `None` if it brought no new transaction, which would know it.
    pub time: Option<u64>,
    /// How many transactions it has.
    pub tx_count: u64,
}

impl BlockSummary {
    /// What the undo record of a block says, and when the block was made.
    pub fn new(undo: &Undo, time: Option<u64>) -> Self {
        Self {
            point: undo.block.into(),
            parent: undo.previous.map(|previous| previous.hash),
            time,
            tx_count: (undo.created.len() + undo.mined.len()) as u64,
        }
    }
}

/// A block with the ids of its transactions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockView {
    /// The block.
    #[serde(flatten)]
    pub summary: BlockSummary,
    /// The ids of its transactions, those asked for: first those the block brought, then those that were known before, each in the
    /// order of the block.
    pub txids: Vec<TxId>,
}

impl BlockView {
    /// A block with at most `limit` ids of its transactions, from the one with number `from` on.
    pub fn new(undo: &Undo, time: Option<u64>, from: usize, limit: usize) -> Self {
        let txids = undo.created.iter().chain(&undo.mined).skip(from).take(limit);
        Self { summary: BlockSummary::new(undo, time), txids: txids.copied().collect() }
    }
}

/// A page of blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockPage {
    /// The blocks.
    pub items: Vec<BlockSummary>,
    /// Give it as `cursor` to get the next page. `None` at the end.
    pub cursor: Option<String>,
}
