//! Bodies without a record, from writes that failed, processes that were killed, and transactions that were forgotten.
//!
//! Such a body is looked for where bodies are, a part at a time: all parts at a start and on demand, by that job or the one that goes on
//! after it, and some with each look by timer. It is
//! claimed before it is judged, so a body whose record is about to be written is never taken for one.

use std::sync::atomic::Ordering;

use sapwood_types::{External, TxId};

use super::{Halt, Run};
use crate::{
    bodies::{Bodies, BodyError, is_orphan},
    jobs::Trigger,
};

enum Trouble {
    Halt(Halt),
    Bodies(BodyError),
}

impl From<Halt> for Trouble {
    fn from(halt: Halt) -> Self {
        Trouble::Halt(halt)
    }
}

/// Parts looked through with each look by timer, out of 256: all of them within about half an hour by default. Each costs a request to
/// the object store.
const PARTS_BY_TIMER: usize = 8;

impl Run<'_> {
    pub(super) async fn delete_orphans(&mut self) -> Result<(), Halt> {
        let Some(bodies) = &self.shared.bodies else { return Ok(()) };
        let next_part = || Some(self.shared.next_body_part.fetch_add(1, Ordering::Relaxed));
        let trigger = self.shared.jobs.get(self.job).map(|job| job.trigger);
        let owed = self.shared.owes_all_bodies.swap(false, Ordering::Relaxed);
        let all = owed || trigger.is_some_and(Trigger::looks_at_all_bodies);
        let parts: Vec<Option<u8>> = match trigger {
            _ if all => vec![None],
            Some(Trigger::Timer) => (0..PARTS_BY_TIMER).map(|_| next_part()).collect(),
            _ => Vec::new(),
        };
        for part in parts {
            let looked = self.look_through(bodies, part).await;
            if let (true, Err(Trouble::Halt(_))) = (all, &looked) {
                self.shared.owes_all_bodies.store(true, Ordering::Relaxed);
            }
            match looked {
                // An object store that fails now is asked again by a later job.
                Err(Trouble::Bodies(error)) => {
                    self.shared.metrics.failed("orphan_bodies");
                    tracing::warn!(%error, "bodies without a record could not be looked for");
                    return Ok(());
                }
                Err(Trouble::Halt(halt)) => return Err(halt),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Looks through the bodies of ids that begin with a byte, or through all.
    async fn look_through(&mut self, bodies: &Bodies, part: Option<u8>) -> Result<(), Trouble> {
        let mut listing = bodies.list(part).await.map_err(Trouble::Bodies)?;
        let about = self.shared.options.chunk_records;
        while let Some(listed) = listing.next(about).await.map_err(Trouble::Bodies)? {
            self.check().map_err(Halt::Stop)?;
            self.delete_orphans_of(bodies, &listed).await?;
        }
        Ok(())
    }

    async fn delete_orphans_of(&mut self, bodies: &Bodies, listed: &[(TxId, External)]) -> Result<(), Halt> {
        let candidates = self.without_record(listed).await?;
        if candidates.is_empty() {
            return Ok(());
        }
        let _claim = bodies.claim_all(candidates.iter().map(|(txid, _)| *txid).collect()).await;
        // Looked at again: the record of one may have been written before it was claimed.
        for (txid, external) in self.without_record(&candidates).await? {
            match bodies.delete(txid, external).await {
                Ok(_) => {
                    tracing::info!(%txid, "a body without a record is deleted");
                    self.counts.bodies_deleted += 1;
                    self.shared.metrics.bodies_deleted.inc();
                }
                Err(error) => {
                    self.shared.metrics.failed("orphan_bodies");
                    tracing::warn!(%txid, %error, "a body without a record could not be deleted");
                }
            }
        }
        Ok(())
    }

    /// Those bodies that no record points at.
    async fn without_record(&self, listed: &[(TxId, External)]) -> Result<Vec<(TxId, External)>, Halt> {
        let context = self.situation().await?.context();
        let txids = listed.iter().map(|(txid, _)| *txid).collect();
        let judged = self.shared.store.judge(txids, context, false).await?;
        let pairs = listed.iter().zip(&judged);
        Ok(pairs.filter(|(body, judged)| is_orphan(body, judged)).map(|(body, _)| *body).collect())
    }
}
