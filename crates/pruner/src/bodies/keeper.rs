//! Bodies as the chain wants them kept, and whose they are.

use std::hash::{BuildHasher, RandomState};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::{ObjectStoreExt, PutMode, PutOptions, path::Path};
use sapwood_chain::{Body, BodyClaim, BodyFailure, BodyKeeper};
use sapwood_ledger::{Ledger, StoreError};
use sapwood_types::TxId;

use super::{Bodies, BodyError};

/// Bodies put at the same time.
const PUTS_AT_A_TIME: usize = 16;
/// The object that says whose bodies these are.
const OWNER: &str = "owner";
/// The note in the store with the name under which it owns bodies.
pub const OWNER_NOTE: &str = "pruner/bodies-owner";

impl Bodies {
    /// Makes these the bodies of one store and no other: whatever has no record there is taken for left over and deleted, so two stores
    /// with one place for their bodies would delete each other's. The place is marked at the first use; a place that bears the mark of
    /// another store refuses everything.
    pub async fn of_store(self, store: &Ledger) -> Result<Self, StoreError> {
        let name = match store.note(OWNER_NOTE).await? {
            Some(name) => name,
            None => {
                let random = || RandomState::new().hash_one(0u8);
                let name = Bytes::from(format!("sapwood store {:016x}{:016x}\n", random(), random()));
                store.put_notes(vec![(OWNER_NOTE.into(), Some(name.clone()))]).await?;
                name
            }
        };
        Ok(Self { owner: Some(name), ..self })
    }

    /// Checks, until it is known, that the bodies are this store's. Before the first body is written, marks the place as this store's.
    pub(super) async fn check_owner(&self, writing: bool) -> Result<(), BodyError> {
        let Some(name) = &self.owner else { return Ok(()) };
        if self.owned.initialized() {
            return Ok(());
        }
        match (self.found_owner().await?, writing) {
            (None, true) => self.owned.get_or_try_init(|| self.mark(name)).await.copied(),
            // Nothing was ever written there.
            (None, false) => Ok(()),
            (Some(found), _) => {
                self.owned.get_or_try_init(async || self.compare(name, &found)).await.copied()
            }
        }
    }

    async fn found_owner(&self) -> Result<Option<Bytes>, BodyError> {
        let key = Path::from(OWNER);
        let read = async { self.objects.get(&key).await?.bytes().await };
        match self.call("reading", &key, read).await {
            Ok(found) => Ok(Some(found)),
            Err(BodyError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn mark(&self, name: &Bytes) -> Result<(), BodyError> {
        let key = Path::from(OWNER);
        let create = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let put = self.objects.put_opts(&key, name.clone().into(), create);
        match self.call("writing", &key, put).await {
            Ok(_) => Ok(()),
            // Somebody may have been quicker.
            Err(error) => self.compare(name, &self.found_owner().await?.ok_or(error)?),
        }
    }

    fn compare(&self, name: &Bytes, found: &Bytes) -> Result<(), BodyError> {
        if found == name {
            return Ok(());
        }
        Err(BodyError::Configuration {
            problem: format!(
                "{} holds the bodies of another store: give each store a directory or bucket of its own, or, if that store \
                 is gone for good, delete everything there",
                self.place
            ),
        })
    }
}

#[async_trait]
impl BodyKeeper for Bodies {
    fn above(&self) -> u32 {
        self.external_above
    }

    async fn claim(&self, txids: Vec<TxId>) -> BodyClaim {
        Box::new(self.claims.claim(txids).await)
    }

    async fn put(&self, bodies: Vec<Body>) -> Result<(), BodyFailure> {
        let puts = stream::iter(bodies).map(|Body { txid, external, bytes }| async move {
            let put = Bodies::put(self, txid, external, bytes).await;
            put.map_err(|error| BodyFailure { txid, cause: error.to_string() })
        });
        puts.buffer_unordered(PUTS_AT_A_TIME).try_collect().await
    }
}
