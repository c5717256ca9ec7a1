//! A node as a source of blocks.

use std::time::Duration;

use async_trait::async_trait;
use bitcoin::hex::FromHex;
use sapwood_types::{BlockHash, Height};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::{RpcClient, RpcError, RpcOptions};
use crate::{
    BlockSource, ChainPoint, SourceBlock, SourceError, SourceHeader, SourceView,
    bitcoin::{Network, convert::Delivery, error::bad_block},
    error::Place,
};

/// There is no such block.
const INVALID_ADDRESS_OR_KEY: i64 = -5;
/// There is no such height.
const INVALID_PARAMETER: i64 = -8;
/// Anything else, a pruned block for one.
const MISC_ERROR: i64 = -1;

/// How far a node is.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeStatus {
    /// The last block of its best chain.
    pub tip: ChainPoint,
    /// The height of the last header it knows. It has the blocks between still to fetch.
    pub headers: Height,
    /// Whether it is still catching up itself.
    pub catching_up: bool,
    /// How much of the chain it has verified, by its own estimate, from 0 to 1.
    pub verified: f64,
    /// The first height of which it still has the block, if it prunes.
    pub kept_from: Option<Height>,
}

#[derive(Deserialize)]
struct ChainInfo {
    chain: String,
    blocks: u32,
    headers: u32,
    bestblockhash: String,
    #[serde(default)]
    initialblockdownload: bool,
    #[serde(default)]
    verificationprogress: f64,
    #[serde(default)]
    pruned: bool,
    pruneheight: Option<u32>,
}

#[derive(Deserialize)]
struct HeaderInfo {
    height: u32,
    time: u64,
    /// Below zero for a block that is not on the best chain.
    confirmations: i64,
    /// The first block has none.
    previousblockhash: Option<String>,
}

/// A node as a source of blocks.
pub struct RpcSource {
    client: RpcClient,
    network: Network,
}

impl RpcSource {
    /// Asks the node which network it is of, and refuses another one. Waits for a node that is starting.
    pub async fn connect(options: RpcOptions) -> Result<Self, RpcError> {
        let network = options.network;
        let source = RpcSource { client: RpcClient::new(options)?, network };
        let info = source.chain_info().await?;
        let first = source.hash_at_height(Height::GENESIS).await?;
        if first != Some(network.genesis()) {
            let (url, found) = (source.client.url().to_owned(), info.chain);
            return Err(RpcError::WrongNetwork { url, wanted: network, found });
        }
        Ok(source)
    }

    /// How far the node is, for progress displays.
    pub async fn status(&self) -> Result<NodeStatus, RpcError> {
        let info = self.chain_info().await?;
        Ok(NodeStatus {
            tip: ChainPoint::new(Height(info.blocks), self.hash("getblockchaininfo", &info.bestblockhash)?),
            headers: Height(info.headers),
            catching_up: info.initialblockdownload,
            verified: info.verificationprogress,
            kept_from: info.pruneheight.filter(|_| info.pruned).map(Height),
        })
    }

    async fn chain_info(&self) -> Result<ChainInfo, RpcError> {
        self.client.call("getblockchaininfo", &[]).await
    }

    fn hash(&self, method: &'static str, text: &str) -> Result<BlockHash, RpcError> {
        text.parse().map_err(|error| self.client.unusable(method, format!("{text:?} is no hash: {error}")))
    }

    async fn hash_at_height(&self, height: Height) -> Result<Option<BlockHash>, RpcError> {
        const METHOD: &str = "getblockhash";
        let answer = self.client.call::<String>(METHOD, &[json!(height.0)]).await;
        unless(answer, INVALID_PARAMETER)?.map(|text| self.hash(METHOD, &text)).transpose()
    }

    async fn header_of(&self, hash: &BlockHash) -> Result<Option<SourceHeader>, RpcError> {
        const METHOD: &str = "getblockheader";
        let answer = self.client.call::<HeaderInfo>(METHOD, &[json!(hash.to_string())]).await;
        let Some(info) = unless(answer, INVALID_ADDRESS_OR_KEY)? else { return Ok(None) };
        let parent = match info.previousblockhash {
            Some(text) => self.hash(METHOD, &text)?,
            None => BlockHash::default(),
        };
        let on_best_chain = info.confirmations >= 0;
        Ok(Some(SourceHeader {
            height: Height(info.height),
            hash: *hash,
            parent,
            time: info.time,
            on_best_chain,
        }))
    }

    async fn block_of(&self, hash: &BlockHash, height: Height) -> Result<Option<SourceBlock>, SourceError> {
        const METHOD: &str = "getblock";
        let answer = self.client.call::<String>(METHOD, &[json!(hash.to_string()), json!(0)]).await;
        let answer = match answer {
            Err(error @ RpcError::Node { code: MISC_ERROR, .. }) => {
                return Err(self.pruned(hash, height).await?.unwrap_or(error).into());
            }
            other => unless(other, INVALID_ADDRESS_OR_KEY)?,
        };
        let Some(hex) = answer else { return Ok(None) };
        let bytes = Vec::<u8>::from_hex(&hex)
            .map_err(|error| self.client.unusable(METHOD, format!("a block in hex was expected: {error}")))?;
        let raw_above = self.client.options.raw_above;
        let delivery = Delivery { network: self.network, height, expected: Some(*hash), raw_above };
        // Some milliseconds of hashing: nothing for a thread that answers others.
        let block = tokio::task::spawn_blocking(move || delivery.whole(bytes.into()));
        let place = || Place::Node { url: self.client.url().to_owned() };
        let block = block.await.map_err(SourceError::task)?;
        block.map(Some).map_err(|cause| bad_block(place(), Some(*hash), cause))
    }

    /// Whether a block cannot be had because the node deleted it. The error alone does not tell: its code is that of
    /// anything else, too.
    async fn pruned(&self, hash: &BlockHash, height: Height) -> Result<Option<RpcError>, RpcError> {
        let kept_from = self.status().await?.kept_from.filter(|kept_from| height < *kept_from);
        let url = || self.client.url().to_owned();
        Ok(kept_from.map(|kept_from| RpcError::Pruned { url: url(), hash: *hash, height, kept_from }))
    }

    async fn current(&self) -> Result<ChainPoint, RpcError> {
        Ok(self.status().await?.tip)
    }

    /// The last block of the node's active chain. Small enough to be asked for several times a second.
    async fn best_hash(&self) -> Result<BlockHash, RpcError> {
        const METHOD: &str = "getbestblockhash";
        self.hash(METHOD, &self.client.call::<String>(METHOD, &[]).await?)
    }
}

/// Turns the error with this code into nothing.
fn unless<T>(answer: Result<T, RpcError>, nothing: i64) -> Result<Option<T>, RpcError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(RpcError::Node { code, .. }) if code == nothing => Ok(None),
        Err(error) => Err(error),
    }
}

#[async_trait]
impl BlockSource for RpcSource {
    fn name(&self) -> String {
        format!("{} node at {}", self.network, self.client.url())
    }

    async fn tip(&self) -> Result<Option<ChainPoint>, SourceError> {
        Ok(Some(self.current().await?))
    }

    async fn survey(&self) -> Result<SourceView, SourceError> {
        let NodeStatus { tip, headers, .. } = self.status().await?;
        let best_height = Some(headers.max(tip.height));
        Ok(SourceView { tip: Some(tip), best_height, ..SourceView::default() })
    }

    async fn hash_at(&self, height: Height) -> Result<Option<BlockHash>, SourceError> {
        Ok(self.hash_at_height(height).await?)
    }

    async fn header(&self, hash: &BlockHash) -> Result<Option<SourceHeader>, SourceError> {
        Ok(self.header_of(hash).await?)
    }

    async fn block(&self, hash: &BlockHash) -> Result<Option<SourceBlock>, SourceError> {
        match self.header_of(hash).await? {
            Some(header) => self.block_of(hash, header.height).await,
            None => Ok(None),
        }
    }

    async fn block_at(&self, height: Height) -> Result<Option<SourceBlock>, SourceError> {
        match self.hash_at_height(height).await? {
            Some(hash) => self.block_of(&hash, height).await,
            None => Ok(None),
        }
    }

    async fn wait_for_change(
        &self,
        known: Option<&BlockHash>,
        timeout: Duration,
    ) -> Result<Option<ChainPoint>, SourceError> {
        // The node's own calls that wait return for a higher block only. Its active chain can also become lower.
        let end = Instant::now() + timeout;
        while known == Some(&self.best_hash().await?) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            tokio::time::sleep(self.client.options.poll.min(left)).await;
        }
        Ok(Some(self.current().await?))
    }

    /// Takes no note: a block that is bad here but good for its node is a fault that no other branch fixes.
    async fn reject(&self, _hash: &BlockHash) -> Result<bool, SourceError> {
        Ok(false)
    }
}
