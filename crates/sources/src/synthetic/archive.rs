//! Which blocks are remembered.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use sapwood_types::{Block, BlockHash, Height};

use crate::{ChainPoint, SourceError, SourceHeader};

/// When the first block was made, in seconds since 1970.
const FIRST_TIME: u64 = 1_700_000_000;
/// Seconds between two blocks.
const BLOCK_TIME: u64 = 600;

/// When the block at a height was made.
pub(super) fn time_at(height: Height) -> u64 {
    FIRST_TIME + u64::from(height.0) * BLOCK_TIME
}

struct Known {
    height: Height,
    parent: BlockHash,
    /// Nothing if it was forgotten.
    block: Option<Arc<Block>>,
}

/// The newest blocks of every branch as a whole; of older ones the hashes of the best chain.
pub(super) struct Archive {
    /// The best chain, from height 0.
    best: Vec<BlockHash>,
    known: HashMap<BlockHash, Known>,
    /// The blocks held as a whole, by height.
    whole: BTreeMap<u32, Vec<BlockHash>>,
    remember: u32,
}

impl Archive {
    pub(super) fn new(remember: u32) -> Self {
        Self { best: Vec::new(), known: HashMap::new(), whole: BTreeMap::new(), remember }
    }

    pub(super) fn tip(&self) -> Option<ChainPoint> {
        let hash = self.best.last()?;
        Some(ChainPoint::new(Height(self.best.len() as u32 - 1), *hash))
    }

    pub(super) fn hash_at(&self, height: Height) -> Option<BlockHash> {
        self.best.get(height.0 as usize).copied()
    }

    pub(super) fn header(&self, hash: &BlockHash) -> Option<SourceHeader> {
        let known = self.known.get(hash)?;
        Some(SourceHeader {
            height: known.height,
            hash: *hash,
            parent: known.parent,
            time: time_at(known.height),
            on_best_chain: self.hash_at(known.height) == Some(*hash),
        })
    }

    pub(super) fn block(&self, hash: &BlockHash) -> Result<Option<Arc<Block>>, SourceError> {
        let Some(known) = self.known.get(hash) else { return Ok(None) };
        match &known.block {
            Some(block) => Ok(Some(block.clone())),
            None => {
                let point = ChainPoint::new(known.height, *hash);
                Err(SourceError::Forgotten { point, remembered_from: self.remembered_from() })
            }
        }
    }

    /// How many blocks are held as a whole, on the best chain or not.
    pub(super) fn remembered(&self) -> usize {
        self.whole.values().map(Vec::len).sum()
    }

    fn remembered_from(&self) -> Height {
        self.whole.keys().next().map_or(Height(self.best.len() as u32), |height| Height(*height))
    }

    /// Adds the block after the last one of the best chain.
    pub(super) fn add(&mut self, block: &Arc<Block>) {
        self.best.push(block.hash);
        let known = Known { height: block.height, parent: block.parent, block: Some(block.clone()) };
        self.known.insert(block.hash, known);
        self.whole.entry(block.height.0).or_default().push(block.hash);
        let from = (self.best.len() as u32).saturating_sub(self.remember);
        while let Some(lowest) = self.whole.first_entry().filter(|lowest| *lowest.key() < from) {
            for hash in lowest.remove() {
                self.forget(&hash);
            }
        }
    }

    fn forget(&mut self, hash: &BlockHash) {
        let Some(known) = self.known.get_mut(hash) else { return };
        if self.best.get(known.height.0 as usize) == Some(hash) {
            known.block = None;
        } else {
            self.known.remove(hash);
        }
    }

    /// Takes the blocks above a height off the best chain. They are still known.
    pub(super) fn cut_above(&mut self, height: u32) {
        self.best.truncate(height as usize + 1);
    }
}
