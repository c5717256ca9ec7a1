//! Phase 1: preserve the parents of old unmined transactions, and end preservations that are over.

use std::collections::{BTreeSet, HashMap, HashSet};

use sapwood_ledger::Unreadable;
use sapwood_types::{Height, TxId};

use super::{Halt, Run, RunError};
use crate::{retained::readable, safety::Situation};

/// Preservations that the pruner made, and up to which height. In memory: those of an earlier process end at their height.
pub(crate) type Preserved = HashMap<TxId, Height>;

impl Run<'_> {
    /// Preserves the parents of every transaction that has been unmined for longer than the policy says. All of them, a page at a
    /// time: a cap would starve those behind it. Any failure ends the job before anything is deleted; an absent parent is none.
    ///
    /// A transaction that lost against another holds no output and cannot be mined inside the window, so it needs no parents. Once a
    /// transaction is mined or gone, its parents need no preservation: what the pruner preserved for it is let go again.
    pub(super) async fn preserve_parents(&mut self, situation: &Situation) -> Result<(), Halt> {
        let policy = &situation.policy;
        let (mut needed, mut unreadable) = (HashSet::new(), Vec::new());
        if situation.height.0 > policy.unmined_retention {
            let cutoff = situation.height.minus(policy.unmined_retention);
            let until = situation.height.plus(policy.parent_preservation);
            // A preservation that is nearly fresh is left alone: to move each by one block with each block would rewrite all.
            let fresh_from = until.minus(policy.parent_preservation / 10);
            let mut after = None;
            loop {
                let page = self.shared.store.old_unmined(cutoff, after, self.shared.options.chunk_records);
                let page = page.await.map_err(failed)?;
                let preserving = self.shared.preserving.lock().await;
                let parents = self.parents(page.items, &mut unreadable).await?;
                needed.extend(parents.iter().map(|(parent, _)| *parent));
                self.preserve(parents, fresh_from, until).await?;
                drop(preserving);
                after = page.next;
                if after.is_none() {
                    break;
                }
                self.check()?;
                self.tell();
            }
        }
        self.shared.found.lock().set_unmined(unreadable);
        self.let_go(&needed).await
    }

    /// Stored parents of those transactions that could still be mined, and up to which height each is preserved.
    ///
    /// A child or parent that cannot be read is noted and passed over. That costs nothing but the preservation: an unmined child keeps its
    /// parents by what their own records say, and a parent that cannot be read is not deleted.
    async fn parents(
        &self,
        txids: Vec<TxId>,
        unreadable: &mut Vec<Unreadable>,
    ) -> Result<Vec<(TxId, Option<Height>)>, Halt> {
        let store = &self.shared.store;
        let children = readable(store, txids, unreadable).await.map_err(failed)?;
        let waiting = children.into_iter().filter(|child| !child.head.is_conflicting());
        let parents: BTreeSet<TxId> =
            waiting.flat_map(|child| child.body.inputs).map(|input| input.outpoint.txid).collect();
        let parents = readable(store, parents.into_iter().collect(), unreadable).await.map_err(failed)?;
        Ok(parents.into_iter().map(|parent| (parent.txid, parent.head.preserve_until)).collect())
    }

    async fn preserve(
        &mut self,
        mut parents: Vec<(TxId, Option<Height>)>,
        fresh_from: Height,
        until: Height,
    ) -> Result<(), Halt> {
        parents.retain(|(_, before)| before.is_none_or(|before| before < fresh_from));
        if parents.is_empty() {
            return Ok(());
        }
        let txids = parents.iter().map(|(parent, _)| *parent).collect();
        let count = self.shared.store.preserve(txids, until).await.map_err(RunError::from)?;
        self.counts.parents_preserved += count as u64;
        let mut preserved = self.shared.preserved.lock();
        for (parent, before) in parents {
            // One that somebody else made is not the pruner's to end.
            if before.is_none() || before == preserved.get(&parent).copied() {
                preserved.insert(parent, until);
            }
        }
        Ok(())
    }

    /// Ends the pruner's own preservations of what is no longer a parent of an old unmined transaction.
    async fn let_go(&mut self, needed: &HashSet<TxId>) -> Result<(), Halt> {
        let over =
            |(parent, until): (&TxId, &Height)| (!needed.contains(parent)).then_some((*parent, *until));
        let over: Vec<(TxId, Height)> = self.shared.preserved.lock().iter().filter_map(over).collect();
        for chunk in over.chunks(self.shared.options.chunk_records) {
            let preserving = self.shared.preserving.lock().await;
            let ending = {
                let mut own = self.shared.preserved.lock();
                chunk.iter().filter(|(parent, _)| own.remove(parent).is_some()).copied().collect()
            };
            let ended = self.shared.store.end_preservations(ending).await?;
            drop(preserving);
            self.counts.preservations_expired += ended as u64;
            self.check()?;
        }
        Ok(())
    }

    /// Ends preservations that are over. What becomes of each record follows from its content.
    pub(super) async fn expire_preservations(&mut self, height: Height) -> Result<(), Halt> {
        let limit = self.shared.options.chunk_records;
        loop {
            let expired = self.shared.store.expire_preservations(height, limit).await?;
            self.counts.preservations_expired += expired.worked_off as u64;
            if expired.worked_off < limit {
                self.shared.found.lock().set_preserved(expired.unreadable);
                return Ok(());
            }
            self.check()?;
            self.tell();
        }
    }
}

fn failed(error: sapwood_ledger::StoreError) -> RunError {
    RunError::Preserve { cause: error.to_string() }
}
