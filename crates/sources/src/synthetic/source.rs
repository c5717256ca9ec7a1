//! A synthetic chain as a source of blocks.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use sapwood_types::{BlockHash, BlockRules, Height};
use tokio::sync::watch;

use super::{
    chain::{Step, SyntheticChain},
    options::{OptionsError, SyntheticOptions, in_range},
};
use crate::{BlockSource, ChainPoint, SourceBlock, SourceError, SourceHeader};

/// A synthetic chain as a source of blocks. It stands still until somebody calls [`advance`](SyntheticSource::advance). All
/// clones are the same chain.
#[derive(Clone)]
pub struct SyntheticSource(Arc<Shared>);

struct Shared {
    chain: Mutex<SyntheticChain>,
    tip: watch::Sender<Option<ChainPoint>>,
}

impl SyntheticSource {
    /// A chain without any block so far. It has to remember at least its last block.
    pub fn new(options: SyntheticOptions) -> Result<Self, OptionsError> {
        in_range("remember", options.remember.into(), 1, u32::MAX.into())?;
        let chain = Mutex::new(SyntheticChain::new(options)?);
        Ok(Self(Arc::new(Shared { chain, tip: watch::Sender::new(None) })))
    }

    /// The chain goes on by a step, and whoever waits for a change is woken.
    pub fn advance(&self) -> Step {
        self.change(SyntheticChain::step)
    }

    /// Looks at the chain.
    pub fn look<T>(&self, look: impl FnOnce(&SyntheticChain) -> T) -> T {
        look(&self.0.chain.lock())
    }

    fn change<T>(&self, change: impl FnOnce(&mut SyntheticChain) -> T) -> T {
        let mut chain = self.0.chain.lock();
        let result = change(&mut chain);
        // Told under the lock, so that nobody is told of an older tip last.
        self.0.tip.send_replace(chain.tip());
        result
    }
}

#[async_trait]
impl BlockSource for SyntheticSource {
    fn name(&self) -> String {
        format!("a synthetic chain of seed {}", self.look(|chain| chain.options().seed))
    }

    async fn tip(&self) -> Result<Option<ChainPoint>, SourceError> {
        Ok(self.look(SyntheticChain::tip))
    }

    async fn hash_at(&self, height: Height) -> Result<Option<BlockHash>, SourceError> {
        Ok(self.look(|chain| chain.hash_at(height)))
    }

    async fn header(&self, hash: &BlockHash) -> Result<Option<SourceHeader>, SourceError> {
        Ok(self.look(|chain| chain.header(hash)))
    }

    async fn block(&self, hash: &BlockHash) -> Result<Option<SourceBlock>, SourceError> {
        let block = self.look(|chain| chain.block(hash))?;
        Ok(block.map(|block| SourceBlock {
            point: ChainPoint::new(block.height, block.hash),
            parent: block.parent,
            time: block.time,
            raw: Bytes::new(),
            // The first outputs come out of nothing, so amounts cannot be checked by what a block may mint.
            rules: BlockRules::default(),
            utxo: Some(block),
        }))
    }

    async fn wait_for_change(
        &self,
        known: Option<&BlockHash>,
        timeout: Duration,
    ) -> Result<Option<ChainPoint>, SourceError> {
        let mut tips = self.0.tip.subscribe();
        let change = tips.wait_for(|tip| tip.as_ref().map(|tip| &tip.hash) != known);
        // Whether it changed or the time is over, the tip is what it is now.
        let _ = tokio::time::timeout(timeout, change).await;
        self.tip().await
    }

    async fn reject(&self, hash: &BlockHash) -> Result<bool, SourceError> {
        Ok(self.change(|chain| chain.reject(hash)))
    }
}
