//! Reading blocks in order, ahead of time.

use std::{collections::VecDeque, sync::Arc};

use sapwood_types::{BlockHash, Height};
use tokio::task::JoinHandle;

use crate::{BlockSource, SourceBlock, SourceError};

/// Reads the best chain of a source from a height upwards. Several blocks are fetched and decoded at once, and they come out in
/// order. What is still being fetched when it is dropped is abandoned.
pub struct ReadAhead {
    source: Arc<dyn BlockSource>,
    /// The block before the next one, if the caller said which one that has to be or one was read.
    before: Option<BlockHash>,
    /// The next height to ask for.
    ask: Height,
    /// How many blocks are left to ask for.
    left: u64,
    depth: usize,
    coming: VecDeque<Fetch>,
    /// What was found out while blocks before it were handed over.
    failure: Option<SourceError>,
}

/// A block on its way. Aborted when dropped.
struct Fetch(JoinHandle<Result<Option<SourceBlock>, SourceError>>);

impl Drop for Fetch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ReadAhead {
    /// Reads from height `from` up to and including `to`, with up to `depth` blocks on their way at a time. The first block
    /// has to follow `before`, if that is given.
    pub fn new(
        source: Arc<dyn BlockSource>,
        before: Option<BlockHash>,
        from: Height,
        to: Height,
        depth: usize,
    ) -> Self {
        let left = (u64::from(to.0) + 1).saturating_sub(from.0.into());
        Self { source, before, ask: from, left, depth: depth.max(1), coming: VecDeque::new(), failure: None }
    }

    /// The next block and those after it that have come already, up to so many. Nothing where [`next`](Self::next) has nothing.
    pub async fn next_run(&mut self, most: usize) -> Result<Vec<SourceBlock>, SourceError> {
        let mut run: Vec<SourceBlock> = self.next().await?.into_iter().collect();
        while !run.is_empty()
            && run.len() < most
            && self.coming.front().is_some_and(|first| first.0.is_finished())
        {
            match self.next().await {
                Ok(Some(block)) => run.push(block),
                Ok(None) => break,
                // The blocks before it are good. The next call returns the error.
                Err(error) => {
                    self.failure = Some(error);
                    break;
                }
            }
        }
        Ok(run)
    }

    /// The next block. Nothing after the last one, or where the chain has become shorter. After an error there is nothing
    /// more to read: begin again.
    pub async fn next(&mut self) -> Result<Option<SourceBlock>, SourceError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        while self.left > 0 && self.coming.len() < self.depth {
            let (source, height) = (self.source.clone(), self.ask);
            self.coming.push_back(Fetch(tokio::spawn(async move { source.block_at(height).await })));
            self.ask = self.ask.next();
            self.left -= 1;
        }
        // Looked at in place: if the caller drops this call, the block is still there for the next one.
        let Some(first) = self.coming.front_mut() else { return Ok(None) };
        let fetched = (&mut first.0).await.map_err(SourceError::task).and_then(|fetched| fetched);
        self.coming.pop_front();
        let checked = fetched.and_then(|block| self.check(block));
        if !matches!(checked, Ok(Some(_))) {
            self.left = 0;
            self.coming.clear();
        }
        checked
    }

    fn check(&mut self, block: Option<SourceBlock>) -> Result<Option<SourceBlock>, SourceError> {
        let Some(block) = block else { return Ok(None) };
        if let Some(before) = self.before.filter(|before| *before != block.parent) {
            return Err(SourceError::ChainChanged {
                height: block.point.height,
                parent: block.parent,
                before,
            });
        }
        self.before = Some(block.point.hash);
        Ok(Some(block))
    }
}
