//! Going over to another branch, as one operation.

use sapwood_sources::{ChainPoint, SourceBlock};
use sapwood_types::{BlockHash, BlockMark, Height};
use tracing::{info, warn};

use crate::{
    ChainError, ChainState, Event, Follower,
    events::{ReorgFinished, ReorgStarted},
    follow::to_apply,
};

/// The way from one branch to another.
#[derive(Debug, PartialEq, Eq)]
struct Way {
    /// The last block both have.
    fork: Option<ChainPoint>,
    /// What is applied above it, lowest first.
    old: Vec<BlockHash>,
    /// What the source has above it, lowest first, as far as one block higher than what is applied.
    new: Vec<BlockHash>,
}

impl Follower {
    /// Goes over to the branch of `tip`: back to the last common block, then up the new branch until it is higher than the old one
    /// or at its end. If a block of it turns out bad, everything is put back as it was, and the error is that of the block.
    pub(crate) async fn change_branch(&self, last: BlockMark, tip: ChainPoint) -> Result<(), ChainError> {
        let way = self.find_way(last, tip).await?;
        let (events, depth) = (self.chain.events(), way.old.len() as u32);
        info!(%last, %tip, depth, fork = way.fork.map(|fork| fork.height.0), "changing to another branch");
        // What can be had beforehand cannot fail to come when there is no way back.
        let first = match way.new.first() {
            Some(first) => Some(self.block_of(first, tip.height).await?),
            None => None,
        };
        let before = events.state();
        events.enter(ChainState::Reorganising);
        events.tell(Event::ReorgStarted(ReorgStarted {
            from: last,
            fork: way.fork.map(|fork| fork.height),
            depth,
        }));
        let went = self.exchange(&way, first).await;
        let to = self.chain.last().await?;
        events.tell(Event::ReorgFinished(ReorgFinished { to, adopted: went.is_ok() }));
        events.enter(before);
        went
    }

    /// Rolls the old branch back and applies the new one. Puts the old one back if a block of the new one is bad. If the source
    /// cannot be read, where it is now is a good place to wait for it.
    async fn exchange(&self, way: &Way, first: Option<SourceBlock>) -> Result<(), ChainError> {
        self.chain.roll_back(way.fork).await?;
        let went = self.apply_branch(&way.new, first).await;
        if let Err(error) = &went
            && error.bad_block().is_some()
        {
            warn!(%error, "the new branch is bad: going back to the old one");
            self.chain.roll_back(way.fork).await?;
            self.restore(&way.old).await?;
        }
        went
    }

    async fn apply_branch(&self, new: &[BlockHash], first: Option<SourceBlock>) -> Result<(), ChainError> {
        let mut cached = first;
        for hash in new {
            let block = match cached.take() {
                Some(block) => block,
                None => self.block_of(hash, Height::GENESIS).await?,
            };
            let (block, options) = to_apply(block)?;
            self.chain.apply_now(block, options).await?;
        }
        Ok(())
    }

    /// Puts the old branch back. A source that does not know its blocks any more offers something else anyway.
    async fn restore(&self, old: &[BlockHash]) -> Result<(), ChainError> {
        for hash in old {
            let Some(block) = self.source.block(hash).await? else {
                warn!(%hash, "the source no longer has the old branch: going on from where it is known");
                return Ok(());
            };
            let (block, options) = to_apply(block)?;
            self.chain.apply_now(block, options).await?;
        }
        Ok(())
    }

    async fn block_of(&self, hash: &BlockHash, height: Height) -> Result<SourceBlock, ChainError> {
        let missing = || ChainError::BlockMissing { source_name: self.source.name(), height, hash: *hash };
        self.source.block(hash).await?.ok_or_else(missing)
    }

    /// Walks down from the source's branch and from what is applied until both meet.
    async fn find_way(&self, last: BlockMark, tip: ChainPoint) -> Result<Way, ChainError> {
        let floor = self.chain.store().rollback_floor().await?.unwrap_or(last.height);
        let too_deep = || ChainError::ForkBelowFloor { source_name: self.source.name(), tip, floor };
        // A look at the floor saves the walk down to it, which a chain that cannot be reached would cost at every try.
        let first = self.source.first().await?;
        if floor > first && self.source.hash_at(floor).await? != self.chain.hash_at(floor).await? {
            return Err(too_deep());
        }
        let top = tip.height.min(last.height.next());
        // The tip may have moved meanwhile; what counts is that the walk follows the links of one branch.
        let Some(top_hash) = self.source.hash_at(top).await? else { return Err(changed(tip, last)) };
        let mut new = Vec::new();
        let mut at = ChainPoint::new(top, top_hash);
        let mut applied = Applied { follower: self, old: Vec::new(), next: last.height };
        let fork = loop {
            if applied.is_at(at).await? {
                break Some(at);
            }
            if at.height < floor {
                return Err(too_deep());
            }
            new.push(at.hash);
            let Some(header) = self.source.header(&at.hash).await? else { return Err(changed(at, last)) };
            match at.height.0.checked_sub(1).filter(|_| at.height > first) {
                Some(height) => at = ChainPoint::new(Height(height), header.parent),
                // Not a single block in common: everything applied goes, if it may.
                None => break None,
            }
        };
        let mut old = applied.down_to(fork.map(|fork| fork.height)).await?;
        old.reverse();
        new.reverse();
        Ok(Way { fork, old, new })
    }
}

/// The applied chain, walked down.
struct Applied<'a> {
    follower: &'a Follower,
    /// The blocks passed so far, highest first.
    old: Vec<BlockHash>,
    /// The next height to look at.
    next: Height,
}

impl Applied<'_> {
    /// Walks down to a height, and says whether the block there is this one.
    async fn is_at(&mut self, point: ChainPoint) -> Result<bool, ChainError> {
        while self.next > point.height {
            if !self.pass().await? {
                return Ok(false);
            }
        }
        Ok(self.next == point.height && self.follower.chain.hash_at(point.height).await? == Some(point.hash))
    }

    /// All blocks above a height, or all there are.
    async fn down_to(mut self, height: Option<Height>) -> Result<Vec<BlockHash>, ChainError> {
        while height.is_none_or(|height| self.next > height) {
            if !self.pass().await? {
                break;
            }
        }
        Ok(self.old)
    }

    /// Passes the block at the next height. Says whether there is one below.
    async fn pass(&mut self) -> Result<bool, ChainError> {
        let Some(hash) = self.follower.chain.hash_at(self.next).await? else { return Ok(false) };
        self.old.push(hash);
        let below = self.next.0.checked_sub(1).map(Height);
        self.next = below.unwrap_or(self.next);
        Ok(below.is_some())
    }
}

/// The source changed while it was asked; the next look will be consistent again.
fn changed(at: ChainPoint, last: BlockMark) -> ChainError {
    sapwood_sources::SourceError::ChainChanged { height: at.height, parent: at.hash, before: last.hash }
        .into()
}
