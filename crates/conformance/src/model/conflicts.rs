//! Who loses against whom.

use std::collections::VecDeque;

use sapwood_ledger::{BatchResult, ConflictError, InputRefusal};
use sapwood_rules::{SpendRefusal, spendability::SpendOverrides};
use sapwood_types::{Height, OutPoint, Slot, TxId};

use super::{Model, spending::Wanted};

impl Model {
    /// Marks transactions as losers with their descendants, or takes that back for just these.
    pub fn set_conflicting(
        &mut self,
        txids: Vec<TxId>,
        on: bool,
        height: Height,
    ) -> BatchResult<Vec<TxId>, ConflictError> {
        let one = |model: &mut Model, txid| match model.record(txid) {
            None => Err(ConflictError::NotFound { txid }),
            Some(record) if record.head.is_conflicting() == on => Ok(Vec::new()),
            Some(_) if on => model.lose(vec![txid], height),
            Some(_) => model.lose_no_more(txid, height),
        };
        self.each(txids, one).map(|changed| changed.concat())
    }

    fn lose_no_more(&mut self, txid: TxId, height: Height) -> Result<Vec<TxId>, ConflictError> {
        let wanted = self.wanted(txid);
        let inputs = self.spend_inputs(txid, wanted, height, SpendOverrides::default(), None);
        if !inputs.is_empty() {
            return Err(ConflictError::Inputs { txid, inputs });
        }
        self.unlist_with_parents(txid);
        self.present_mut(txid).head.conflicting_since = None;
        Ok(vec![txid])
    }

    pub(super) fn wanted(&self, txid: TxId) -> Vec<Wanted> {
        let inputs = self.inputs(txid).into_iter();
        inputs.map(|(vin, outpoint)| Wanted { vin, outpoint, expected: None }).collect()
    }

    /// The present transactions that spend outputs of a present one, in the order of the outputs.
    pub(super) fn children(&self, txid: TxId) -> Vec<TxId> {
        let outputs = self.present(txid).slots.len() as u32;
        let slots = (0..outputs).filter_map(|vout| self.slot(OutPoint::new(txid, vout)));
        let children = slots.filter_map(|slot| slot.spender()).map(|by| by.child);
        children.filter(|child| self.records.contains_key(child)).collect()
    }

    /// These present transactions and all their present descendants, breadth first, each once.
    fn with_descendants(&self, first: Vec<TxId>) -> Vec<TxId> {
        let mut found = Vec::new();
        let mut queue = VecDeque::from(first);
        while let Some(txid) = queue.pop_front() {
            if !found.contains(&txid) {
                queue.extend(self.children(txid));
                found.push(txid);
            }
        }
        found
    }

    /// These and their descendants lose, together. Returns those that changed.
    pub(super) fn lose(&mut self, first: Vec<TxId>, height: Height) -> Result<Vec<TxId>, ConflictError> {
        let mut losers = self.with_descendants(first);
        losers.retain(|txid| !self.present(*txid).head.is_conflicting());
        for txid in &losers {
            if let Some(mined_at) = self.mined_at(*txid) {
                return Err(ConflictError::Mined { txid: *txid, mined_at });
            }
            let record = self.present(*txid);
            if let Some(vout) = record.slots.iter().position(|slot| *slot == Slot::Frozen) {
                return Err(ConflictError::Frozen { outpoint: record.outpoint(vout as u32) });
            }
        }
        for txid in &losers {
            self.give_back(*txid);
            self.present_mut(*txid).head.conflicting_since = Some(height);
            self.list_with_parents(*txid);
        }
        Ok(losers)
    }

    /// Makes each transaction win against whatever unmined transactions spend its inputs. All or nothing.
    pub fn resolve_conflicts(
        &mut self,
        winners: Vec<TxId>,
        height: Height,
    ) -> Result<Vec<TxId>, ConflictError> {
        self.attempt(|model| {
            let mut losers = Vec::new();
            for winner in &winners {
                model.win(*winner, height, &mut losers)?;
            }
            // Once all have won, nobody of them may spend from a loser.
            for winner in winners {
                let inputs = model.spends_from_losers(winner, |_| true);
                if !inputs.is_empty() {
                    return Err(ConflictError::Inputs { txid: winner, inputs });
                }
            }
            Ok(losers)
        })
    }

    /// The inputs of a present transaction that spend from a loser among those looked at.
    fn spends_from_losers(&self, txid: TxId, look_at: impl Fn(TxId) -> bool) -> Vec<InputRefusal> {
        let mut refusals = Vec::new();
        for (vin, outpoint) in self.inputs(txid) {
            let parent = self.record(outpoint.txid).filter(|parent| look_at(parent.txid));
            if let Some(since) = parent.and_then(|parent| parent.head.conflicting_since) {
                refusals.push(InputRefusal { vin, outpoint, refusal: SpendRefusal::Conflicting { since } });
            }
        }
        refusals
    }

    fn win(&mut self, winner: TxId, height: Height, losers: &mut Vec<TxId>) -> Result<(), ConflictError> {
        let Some(record) = self.record(winner) else { return Err(ConflictError::NotFound { txid: winner }) };
        let was_conflicting = record.head.is_conflicting();
        let inputs = self.inputs(winner);
        let holders = inputs.iter().filter_map(|(_, outpoint)| self.slot(*outpoint)?.spender());
        let rivals = holders.map(|by| by.child).filter(|child| *child != winner);
        let rivals = rivals.filter(|child| self.records.contains_key(child)).collect();
        losers.extend(self.lose(rivals, height)?);

        // Whoever spends from a loser of this call cannot win.
        let mut refusals = self.spends_from_losers(winner, |parent| losers.contains(&parent));
        if refusals.is_empty() {
            let overrides = SpendOverrides { ignore_conflicting: true, ignore_locked: true };
            let mut wanted = self.wanted(winner);
            wanted.retain(|wanted| was_conflicting || self.record(wanted.outpoint.txid).is_some());
            let mined_at = self.mined_at(winner);
            refusals = self.spend_inputs(winner, wanted, height, overrides, mined_at);
        }
        if !refusals.is_empty() {
            return Err(ConflictError::Inputs { txid: winner, inputs: refusals });
        }
        self.present_mut(winner).head.conflicting_since = None;
        self.unlist_with_parents(winner);
        Ok(())
    }
}
