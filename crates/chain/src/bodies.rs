//! Bodies of large transactions: outside the store, and there before their records are.
//!
//! # Correctness
//! A record that says its body is outside is only written after the body is. Between the two the body is claimed, so that nobody
//! deletes it as one without a record. What fails after the body was written leaves a body without a record, never a record without
//! a body; so does taking a block back where its transactions are forgotten. Only the pruner deletes bodies, those without a record too.

use std::collections::HashSet;

use async_trait::async_trait;
use bytes::Bytes;
use sapwood_ledger::{ApplyOptions, BatchResult, CreateError, CreateRequest, transition};
use sapwood_types::{Block, BlockMark, External, Height, Tx, TxId, TxRecord};

use crate::{ChainError, chain::Worker};

/// A body to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// Whose.
    pub txid: TxId,
    /// As what.
    pub external: External,
    /// The body.
    pub bytes: Bytes,
}

/// A body could not be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body of transaction {txid} could not be kept: {cause}")]
pub struct BodyFailure {
    /// Whose.
    pub txid: TxId,
    /// Why not.
    pub cause: String,
}

/// While this lives, nobody else touches the bodies it was made for.
pub type BodyClaim = Box<dyn Send>;

/// Keeps bodies outside the store.
#[async_trait]
pub trait BodyKeeper: Send + Sync {
    /// Transactions with more bytes than this, or with more than one page of outputs, have their body here.
    fn above(&self) -> u32;

    /// Waits until nobody works on the bodies of these transactions, and keeps everybody else away from them.
    async fn claim(&self, txids: Vec<TxId>) -> BodyClaim;

    /// Puts bodies into place, over what is there. When it returns they are there to stay, even after a power failure.
    async fn put(&self, bodies: Vec<Body>) -> Result<(), BodyFailure>;
}

impl Worker {
    /// Puts the bodies of a block's large transactions into place. The claim has to live until the block is applied. It comes
    /// after `before`, or after the last applied block.
    pub(crate) async fn keep_bodies(
        &self,
        block: &Block,
        options: ApplyOptions,
        before: Option<&Block>,
    ) -> Result<(Option<BodyClaim>, ApplyOptions), ChainError> {
        let Some(bodies) = &self.bodies else { return Ok((None, options)) };
        let above = bodies.above();
        let options = ApplyOptions { bodies_above: Some(above), ..options };
        let large: Vec<(&Tx, External)> = large(block.txs.iter(), above).collect();
        if large.is_empty() {
            return Ok((None, options));
        }
        // Nothing is put for a block that cannot come next.
        let last = match before {
            Some(before) => Some(BlockMark { id: 0, height: before.height, hash: before.hash }),
            None => self.store.last_applied().await?,
        };
        transition::block::check_next(block, last.as_ref())?;
        Ok((Some(self.put_bodies(&**bodies, large).await?), options))
    }

    /// Stores transactions, the bodies of large ones first.
    pub(crate) async fn create(
        &self,
        mut batch: Vec<CreateRequest>,
        height: Height,
    ) -> Result<BatchResult<(), CreateError>, ChainError> {
        let Some(bodies) = &self.bodies else { return Ok(self.store.create(batch, height).await) };
        let above = bodies.above();
        let large: Vec<(&Tx, External)> = large(batch.iter().map(|request| &request.tx), above).collect();
        let _claim = if large.is_empty() { None } else { Some(self.put_bodies(&**bodies, large).await?) };
        for request in &mut batch {
            request.external = request.tx.body_outside(above);
        }
        Ok(self.store.create(batch, height).await)
    }

    async fn put_bodies(
        &self,
        bodies: &dyn BodyKeeper,
        large: Vec<(&Tx, External)>,
    ) -> Result<BodyClaim, ChainError> {
        let txids: Vec<TxId> = large.iter().map(|(tx, _)| tx.txid).collect();
        let claim = bodies.claim(txids.clone()).await;
        // Looked at under the claim: what is stored cannot be pruned meanwhile.
        let found = self.store.get_many(txids).await?.into_iter().collect::<Result<Vec<_>, _>>()?;
        let stored: HashSet<TxId> = found.into_iter().flatten().filter(stays).map(|it| it.txid).collect();
        let body = |(tx, external): (&Tx, External)| Body { txid: tx.txid, external, bytes: tx.body_bytes() };
        let missing: Vec<Body> =
            large.into_iter().filter(|(tx, _)| !stored.contains(&tx.txid)).map(body).collect();
        let failed = |BodyFailure { txid, cause }| ChainError::Body { txid, cause };
        bodies.put(missing).await.map_err(failed)?;
        Ok(claim)
    }
}

fn large<'a>(txs: impl Iterator<Item = &'a Tx>, above: u32) -> impl Iterator<Item = (&'a Tx, External)> {
    txs.filter_map(move |tx| Some((tx, tx.body_outside(above)?)))
}

/// Whether a stored record needs no body put: its body is there, or it has none outside and stays as it is.
fn stays(record: &TxRecord) -> bool {
    record.head.external.is_some() || record.head.mined_at().is_none()
}
