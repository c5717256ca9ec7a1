//! What a follower of a chain needs of it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
pub use sapwood_types::ChainPoint;
use sapwood_types::{Block, BlockHash, BlockRules, Height};

use crate::SourceError;

/// What a source knows of a block without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceHeader {
    /// Its height.
    pub height: Height,
    /// Its hash.
    pub hash: BlockHash,
    /// The hash of the block before it.
    pub parent: BlockHash,
    /// When it was made, as a Unix timestamp, by its own account.
    pub time: u64,
    /// Whether it is on the chain the source holds for the best.
    pub on_best_chain: bool,
}

/// A block as its chain wrote it, and what it means for the UTXO set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceBlock {
    /// Its place in the chain.
    pub point: ChainPoint,
    /// The hash of the block before it.
    pub parent: BlockHash,
    /// When it was made, as a Unix timestamp, by its own account.
    pub time: u64,
    /// Its bytes as the chain wrote them. Empty where the chain has no bytes, as a synthetic one.
    pub raw: Bytes,
    /// The chain's rules for it.
    pub rules: BlockRules,
    /// What it spends and makes. `None` on a chain without UTXOs.
    pub utxo: Option<Arc<Block>>,
}

/// What a source has, whether or not it can be applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceView {
    /// The last block of the best chain. `None` if there is no block at all.
    pub tip: Option<ChainPoint>,
    /// The greatest height the source knows of: headers whose blocks are still to come, rejected blocks with what is built on
    /// them, and blocks behind a gap included. `None` if there is no block at all.
    pub best_height: Option<Height>,
    /// The rejected block whose branch has more work than the best chain. `None` if there is none.
    pub rejected: Option<RejectedBranch>,
    /// Blocks newer than the best chain that cannot be connected to it. `None` if there are none.
    pub gap: Option<Gap>,
}

/// A rejected block with more work on it than the best chain has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejectedBranch {
    /// The rejected block.
    pub block: ChainPoint,
    /// How many blocks are built on it, one after the other.
    pub descendants: u32,
}

/// Blocks whose parent the source does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Gap {
    /// The block that is missing.
    pub missing: BlockHash,
    /// The block that names it as its parent.
    pub child: BlockHash,
    /// How many blocks wait for it, one after the other.
    pub waiting: u32,
    /// Where the source has a damaged block, which may be the missing one: a file and a place in it. `None` if no damage is known.
    pub damaged: Option<String>,
}

/// A chain, as its source sees it at this moment. It may be another one at the next call.
///
/// - To **reconcile**, compare one's own hash at a height with [`hash_at`](BlockSource::hash_at): equal heights may have
///   different blocks.
/// - To **find a fork point**, go down from one's own last block until `hash_at` agrees; or, with a block of the source in
///   hand, go up its ancestry with [`walk_parents`].
/// - To **catch up**, read with [`ReadAhead`](crate::ReadAhead).
/// - To **follow**, [`wait_for_change`](BlockSource::wait_for_change).
#[async_trait]
pub trait BlockSource: Send + Sync {
    /// What to call it in messages.
    fn name(&self) -> String;

    /// The last block of the best chain. Nothing if there is no block at all.
    async fn tip(&self) -> Result<Option<ChainPoint>, SourceError>;

    /// What the source has, whether or not it can be applied. One call, so that it can be asked every second.
    async fn survey(&self) -> Result<SourceView, SourceError> {
        let tip = self.tip().await?;
        Ok(SourceView { tip, best_height: tip.map(|tip| tip.height), ..SourceView::default() })
    }

    /// The block of the best chain at a height. Nothing above the tip.
    async fn hash_at(&self, height: Height) -> Result<Option<BlockHash>, SourceError>;

    /// What is known of a block, on the best chain or not. Nothing if the source does not know it, or not where it belongs.
    async fn header(&self, hash: &BlockHash) -> Result<Option<SourceHeader>, SourceError>;

    /// A block, on the best chain or not. Nothing if the source does not know it, or not where it belongs.
    async fn block(&self, hash: &BlockHash) -> Result<Option<SourceBlock>, SourceError>;

    /// The block of the best chain at a height. Nothing above the tip.
    async fn block_at(&self, height: Height) -> Result<Option<SourceBlock>, SourceError> {
        match self.hash_at(height).await? {
            Some(hash) => self.block(&hash).await,
            None => Ok(None),
        }
    }

    /// Waits until the tip is another one than `known`, but no longer than `timeout`, and returns the tip. It may still be
    /// `known`. Can be dropped at any time.
    async fn wait_for_change(
        &self,
        known: Option<&BlockHash>,
        timeout: Duration,
    ) -> Result<Option<ChainPoint>, SourceError>;

    /// Tells the source that a block turned out bad, so that neither it nor its descendants are part of the best chain any
    /// more. Returns whether the source took note. One that follows the opinion of somebody else, as a node's, does not.
    async fn reject(&self, hash: &BlockHash) -> Result<bool, SourceError>;

    /// The height of the first block the source has.
    async fn first(&self) -> Result<Height, SourceError> {
        Ok(Height::GENESIS)
    }
}

/// The ancestors of a block, itself first, as long as `go_on` says so and the source knows them. The last one is that for
/// which `go_on` said no, if there was one.
pub async fn walk_parents(
    source: &dyn BlockSource,
    from: BlockHash,
    mut go_on: impl FnMut(&SourceHeader) -> bool,
) -> Result<Vec<SourceHeader>, SourceError> {
    let mut walked = Vec::new();
    let mut next = from;
    while let Some(header) = source.header(&next).await? {
        let more = go_on(&header) && header.height > Height::GENESIS;
        walked.push(header);
        if !more {
            break;
        }
        next = header.parent;
    }
    Ok(walked)
}
