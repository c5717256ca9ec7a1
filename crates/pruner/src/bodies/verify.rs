//! Whether every record has its body, and every body its record.

use std::fmt;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use sapwood_ledger::{Judged, Ledger, StoreError};
use sapwood_rules::{KeepReason, Policy, PruneContext, Verdict};
use sapwood_types::{External, Height, TxId};

use super::{Bodies, BodyError};

/// Records and bodies looked at in one go.
const CHUNK: usize = 1000;
/// Bodies asked for at the same time.
const AT_A_TIME: usize = 16;

/// What came of comparing records and bodies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodiesReport {
    /// Records whose body is there.
    pub found: u64,
    /// Records whose body is missing although they are needed, or is not theirs: damage, in words.
    pub damaged: Vec<String>,
    /// Records that may go and whose body is gone already: a pruning job was killed in between, and the next one goes on.
    pub half_deleted: u64,
    /// Bodies without a record: the pruner deletes them.
    pub orphans: u64,
}

impl fmt::Display for BodiesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records have their body outside", self.found)?;
        if self.orphans > 0 {
            write!(f, "; {} bodies have no record, and go with the next pruning job", self.orphans)?;
        }
        if self.half_deleted > 0 {
            write!(f, "; {} bodies went before their record, which goes next", self.half_deleted)?;
        }
        Ok(())
    }
}

/// Why records and bodies could not be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyBodiesError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The object store failed.
    #[error(transparent)]
    Bodies(#[from] BodyError),
}

impl Bodies {
    /// Reads the body of every record that has one outside, and looks for the record of every body. Nothing is changed. `check` says what
    /// is wrong with a body that does not belong to a transaction's id.
    ///
    /// # Errors
    /// If the store fails, or the object store does with anything else than a missing object.
    pub async fn verify(
        &self,
        store: &Ledger,
        policy: &Policy,
        check: &(dyn Fn(TxId, &Bytes) -> Result<(), String> + Send + Sync),
    ) -> Result<BodiesReport, VerifyBodiesError> {
        let mut report = BodiesReport::default();
        let height = store.last_applied().await?.map_or(Height::GENESIS, |last| last.height);
        // Without holds: what only they keep has its body, or was not deleted yet.
        let context = PruneContext { current: height, safe: Some(height), retention: policy.retention };
        let mut after = None;
        loop {
            let page = store.records(after, CHUNK).await?;
            let unreadable = page.unreadable.iter().map(|record| record.error.clone());
            report.damaged.extend(unreadable);
            let outside = page.items.iter().filter_map(|record| Some((record.txid, record.head.external?)));
            let read = self.read(outside.collect(), check).await?;
            let mut absent = Vec::new();
            for ((txid, external), found) in read {
                match found {
                    Found::Missing => absent.push((txid, external)),
                    Found::Good => report.found += 1,
                    Found::Bad(problem) => report.damaged.push(format!(
                        "{txid} has a damaged body: {problem}. It is {} in {}",
                        super::key(&txid, external),
                        self.place
                    )),
                }
            }
            let judged = store.judge(absent.iter().map(|(txid, _)| *txid).collect(), context, false).await?;
            for (judged, (txid, external)) in judged.iter().zip(absent) {
                match &judged.verdict {
                    // It was pruned meanwhile, with its body.
                    Verdict::Gone => {}
                    verdict if verdict.may_go() => report.half_deleted += 1,
                    _ => report.damaged.push(format!(
                        "{txid} has no body: {} is not in {}. If bodies are kept elsewhere, name the configuration that says so",
                        super::key(&txid, external),
                        self.place
                    )),
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let mut listing = self.list(None).await?;
        while let Some(listed) = listing.next(CHUNK).await? {
            let judged = store.judge(listed.iter().map(|(txid, _)| *txid).collect(), context, false).await?;
            report.orphans +=
                listed.iter().zip(&judged).filter(|(body, judged)| is_orphan(body, judged)).count() as u64;
        }
        Ok(report)
    }

    async fn read(
        &self,
        wanted: Vec<(TxId, External)>,
        check: &(dyn Fn(TxId, &Bytes) -> Result<(), String> + Send + Sync),
    ) -> Result<Vec<((TxId, External), Found)>, BodyError> {
        let reads = wanted.into_iter().map(|(txid, external)| async move {
            let found = match self.get(txid, external).await {
                Ok(body) => check(txid, &body).map_or_else(Found::Bad, |()| Found::Good),
                Err(BodyError::NotFound { .. }) => Found::Missing,
                Err(error @ BodyError::Linked { .. }) => Found::Bad(error.to_string()),
                Err(error) => return Err(error),
            };
            Ok(((txid, external), found))
        });
        stream::iter(reads).buffered(AT_A_TIME).try_collect().await
    }
}

/// What became of reading a body.
enum Found {
    Good,
    Missing,
    /// It is not that of its transaction: why not.
    Bad(String),
}

/// Whether no record points at a body. Where the record cannot be read that is not known, and the body stays.
pub(crate) fn is_orphan((_, external): &(TxId, External), judged: &Judged) -> bool {
    match &judged.verdict {
        Verdict::Gone => true,
        Verdict::Kept(KeepReason::Unreadable { .. }) => false,
        _ => judged.external != Some(*external),
    }
}
