//! A source that is opened when it is first asked.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use sapwood_types::{BlockHash, Height};
use tokio::sync::Mutex;

use crate::{BlockSource, ChainPoint, SourceBlock, SourceError, SourceHeader, SourceView};

/// Opens a source.
#[async_trait]
pub trait Open: Send + Sync {
    /// Opens it. It may be tried again after an error.
    async fn open(&self) -> Result<Arc<dyn BlockSource>, SourceError>;
}

/// A source that is opened by the first call that needs it, so that a node can serve reads before its source is there. Until
/// it is open every call tries again and returns the error.
pub struct LazySource {
    name: String,
    opener: Box<dyn Open>,
    opened: Mutex<Option<Arc<dyn BlockSource>>>,
}

impl LazySource {
    /// A source called `name` that `opener` opens.
    pub fn new(name: String, opener: impl Open + 'static) -> Self {
        Self { name, opener: Box::new(opener), opened: Mutex::new(None) }
    }

    async fn source(&self) -> Result<Arc<dyn BlockSource>, SourceError> {
        let mut opened = self.opened.lock().await;
        match &*opened {
            Some(source) => Ok(Arc::clone(source)),
            None => Ok(Arc::clone(opened.insert(self.opener.open().await?))),
        }
    }
}

#[async_trait]
impl BlockSource for LazySource {
    fn name(&self) -> String {
        self.name.clone()
    }

    async fn tip(&self) -> Result<Option<ChainPoint>, SourceError> {
        self.source().await?.tip().await
    }

    async fn survey(&self) -> Result<SourceView, SourceError> {
        self.source().await?.survey().await
    }

    async fn hash_at(&self, height: Height) -> Result<Option<BlockHash>, SourceError> {
        self.source().await?.hash_at(height).await
    }

    async fn header(&self, hash: &BlockHash) -> Result<Option<SourceHeader>, SourceError> {
        self.source().await?.header(hash).await
    }

    async fn block(&self, hash: &BlockHash) -> Result<Option<SourceBlock>, SourceError> {
        self.source().await?.block(hash).await
    }

    async fn block_at(&self, height: Height) -> Result<Option<SourceBlock>, SourceError> {
        self.source().await?.block_at(height).await
    }

    async fn wait_for_change(
        &self,
        known: Option<&BlockHash>,
        timeout: Duration,
    ) -> Result<Option<ChainPoint>, SourceError> {
        self.source().await?.wait_for_change(known, timeout).await
    }

    async fn reject(&self, hash: &BlockHash) -> Result<bool, SourceError> {
        self.source().await?.reject(hash).await
    }

    async fn first(&self) -> Result<Height, SourceError> {
        self.source().await?.first().await
    }
}
