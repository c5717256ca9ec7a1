//! Phase 1: preserve the parents of old unmined transactions, and end preservations that are over.

use std::collections::BTreeSet;

use sapwood_types::{Height, TxId};

use super::{Halt, Run, RunError};
use crate::safety::Situation;

impl Run<'_> {
    /// Preserves the parents of every transaction that has been unmined for longer than the policy says. All of them, a page at a
    /// time: a cap would starve those behind it. Any failure ends the job before anything is deleted; an absent parent is none.
    ///
    /// A transaction that lost against another holds no output and cannot be mined inside the window, so it needs no parents.
    pub(super) async fn preserve_parents(&mut self, situation: &Situation) -> Result<(), Halt> {
        let policy = &situation.policy;
        if situation.height.0 <= policy.unmined_retention {
            return Ok(());
        }
        let cutoff = situation.height.minus(policy.unmined_retention);
        let until = situation.height.plus(policy.parent_preservation);
        // A preservation that is nearly fresh is left alone: to move each by one block with each block would rewrite all of them.
        let fresh_from = situation.height.plus(policy.parent_preservation - policy.parent_preservation / 10);
        let mut after = None;
        loop {
            let page = self.shared.store.old_unmined(cutoff, after, self.shared.options.chunk_records);
            let page = page.await.map_err(failed)?;
            let parents = self.parents(page.items, fresh_from).await?;
            if !parents.is_empty() {
                let preserved = self.shared.store.preserve(parents, until).await.map_err(RunError::from)?;
                self.counts.parents_preserved += preserved as u64;
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
            self.check()?;
            self.tell();
        }
    }

    /// Stored parents of these transactions that are not preserved for long enough yet.
    async fn parents(&self, txids: Vec<TxId>, fresh_from: Height) -> Result<Vec<TxId>, Halt> {
        let children = self.shared.store.get_many(txids).await.map_err(failed)?;
        let waiting = children.into_iter().flatten().filter(|child| !child.head.is_conflicting());
        let parents: BTreeSet<TxId> =
            waiting.flat_map(|child| child.body.inputs).map(|input| input.outpoint.txid).collect();
        let parents = self.shared.store.get_many(parents.into_iter().collect()).await.map_err(failed)?;
        let stale = |until: Option<Height>| until.is_none_or(|until| until < fresh_from);
        Ok(parents
            .into_iter()
            .flatten()
            .filter(|parent| stale(parent.head.preserve_until))
            .map(|parent| parent.txid)
            .collect())
    }

    /// Ends preservations that are over. What becomes of each record follows from its content.
    pub(super) async fn expire_preservations(&mut self, height: Height) -> Result<(), Halt> {
        let limit = self.shared.options.chunk_records;
        loop {
            let expired = self.shared.store.expire_preservations(height, limit).await?;
            self.counts.preservations_expired += expired as u64;
            if expired < limit {
                return Ok(());
            }
            self.check()?;
            self.tell();
        }
    }
}

fn failed(error: sapwood_store::StoreError) -> RunError {
    RunError::Preserve { cause: error.to_string() }
}
