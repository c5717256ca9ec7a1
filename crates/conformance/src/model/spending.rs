//! Operations on single transactions and outputs.

use sapwood_ledger::{
    BatchResult, CreateError, CreateRequest, DeleteError, FreezeError, InputRefusal, PreserveError, Reassign,
    ReassignError, SpendError, SpendRequest, Unspend, UnspendError,
};
use sapwood_rules::{
    SpendRefusal,
    spendability::{SlotSpend, SpendOverrides, check_record, check_slot},
};
use sapwood_types::{
    Blocks, Height, OutPoint, Reassignment, Slot, Spender, Tx, TxHead, TxId, TxRecord, UtxoHash,
};

use super::Model;

/// One input that wants to spend.
pub(super) struct Wanted {
    pub(super) vin: u32,
    pub(super) outpoint: OutPoint,
    pub(super) expected: Option<UtxoHash>,
}

impl Wanted {
    pub(super) fn all_of(tx: &Tx) -> Vec<Wanted> {
        let wanted = |(vin, outpoint)| Wanted { vin, outpoint, expected: None };
        (0..).zip(tx.inputs.iter().map(|input| input.outpoint)).map(wanted).collect()
    }
}

impl Model {
    /// Stores transactions.
    pub fn create(&mut self, batch: Vec<CreateRequest>, height: Height) -> BatchResult<(), CreateError> {
        self.each(batch, |model, request| model.create_one(request, height)).map(|_| ())
    }

    fn create_one(&mut self, request: CreateRequest, height: Height) -> Result<(), CreateError> {
        let tx = &request.tx;
        let txid = tx.txid;
        if tx.outputs.is_empty() {
            return Err(CreateError::NoOutputs { txid });
        }
        if self.records.contains_key(&txid) {
            return Err(CreateError::Exists { txid });
        }
        let mut mined_in = request.mined_in;
        if let Some(block) = &mut mined_in {
            block.on_longest_chain &= !request.conflicting;
        }
        let mined = mined_in.is_some_and(|block| block.on_longest_chain);
        let created_height = mined_in.filter(|_| mined).map_or(height, |block| block.height);
        if !request.conflicting {
            let mined_at = mined.then_some(created_height);
            let overrides = SpendOverrides::default();
            let mut wanted = Wanted::all_of(tx);
            if request.trust_inputs {
                wanted.retain(|wanted| self.record(wanted.outpoint.txid).is_some());
            }
            let inputs = self.spend_inputs(txid, wanted, height, overrides, mined_at);
            if !inputs.is_empty() {
                return Err(CreateError::Inputs { txid, inputs });
            }
        }
        if request.conflicting {
            let remembered = |wanted: &Wanted| {
                let by = Spender::new(txid, wanted.vin);
                let slot = self.record(wanted.outpoint.txid)?.slots.get(wanted.outpoint.vout as usize)?;
                let mined_at = slot.child_mined_at().filter(|_| slot.spender() == Some(by))?;
                let refusal = SpendRefusal::SpenderPruned { by, mined_at };
                Some(InputRefusal { vin: wanted.vin, outpoint: wanted.outpoint, refusal })
            };
            let inputs: Vec<InputRefusal> = Wanted::all_of(tx).iter().filter_map(remembered).collect();
            if !inputs.is_empty() {
                return Err(CreateError::Inputs { txid, inputs });
            }
        }
        let mut record = self.new_record(tx, created_height, mined_in.into_iter().collect());
        record.head.locked = request.locked && !mined;
        record.head.external = request.external;
        record.head.created_at = request.created_at;
        record.head.first_unmined = (!mined).then_some(height);
        record.head.conflicting_since = request.conflicting.then_some(height);
        if request.frozen {
            record
                .slots
                .iter_mut()
                .filter(|slot| **slot == Slot::Unspent)
                .for_each(|slot| *slot = Slot::Frozen);
        }
        self.insert(record);
        if request.conflicting {
            self.list_with_parents(txid);
        }
        Ok(())
    }

    pub(super) fn new_record(&self, tx: &Tx, created_height: Height, blocks: Blocks) -> TxRecord {
        let maturity = self.policy.coinbase_maturity;
        let head = TxHead {
            coinbase: tx.coinbase,
            created_height,
            spending_height: tx.coinbase.then(|| created_height.plus(maturity)),
            blocks,
            ..TxHead::default()
        };
        TxRecord::new(tx, head)
    }

    /// May this input spend that output? `Ok(true)` if it does already.
    pub(super) fn check_input(
        &self,
        child: TxId,
        wanted: &Wanted,
        height: Height,
        overrides: SpendOverrides,
    ) -> Result<bool, SpendRefusal> {
        let Wanted { vin, outpoint, expected } = *wanted;
        let parent = self.record(outpoint.txid).ok_or(SpendRefusal::NotFound)?;
        check_record(&parent.head, height, overrides)?;
        let slot = self.slot(outpoint);
        if let (Some(expected), Some(Some(output))) = (expected, parent.outputs.get(outpoint.vout as usize)) {
            let actual = output.utxo_hash(outpoint);
            if actual != expected {
                return Err(SpendRefusal::HashMismatch { actual, expected });
            }
        }
        let by = Spender::new(child, vin);
        let present = self.records.contains_key(&child);
        match check_slot(&parent.head, outpoint.vout, slot.as_ref(), by, height) {
            Ok(SlotSpend::New) => Ok(false),
            Ok(SlotSpend::Repeat { mined_at: Some(mined_at) }) if !present => {
                Err(SpendRefusal::SpenderPruned { by, mined_at })
            }
            Ok(SlotSpend::Repeat { .. }) => Ok(true),
            Err(SpendRefusal::SpentAndSettled { .. }) if present && self.holds(child, vin, outpoint) => {
                Ok(true)
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// Holds each output that may be held, in order, and returns the refusals of the others.
    pub(super) fn spend_inputs(
        &mut self,
        child: TxId,
        inputs: Vec<Wanted>,
        height: Height,
        overrides: SpendOverrides,
        child_mined_at: Option<Height>,
    ) -> Vec<InputRefusal> {
        let mut refusals = Vec::new();
        for wanted in inputs {
            let Wanted { vin, outpoint, .. } = wanted;
            match self.check_input(child, &wanted, height, overrides) {
                Ok(true) => {}
                Ok(false) => self.set_slot(outpoint, Slot::spent(Spender::new(child, vin), child_mined_at)),
                Err(refusal) => refusals.push(InputRefusal { vin, outpoint, refusal }),
            }
        }
        refusals
    }

    /// Spends inputs of stored transactions.
    pub fn spend(&mut self, batch: Vec<SpendRequest>, height: Height) -> BatchResult<(), SpendError> {
        self.each(batch, |model, request| model.spend_one(request, height)).map(|_| ())
    }

    fn spend_one(&mut self, request: SpendRequest, height: Height) -> Result<(), SpendError> {
        let child = request.child;
        let Some(record) = self.record(child) else { return Err(SpendError::UnknownSpender { child }) };
        if let Some(since) = record.head.conflicting_since {
            return Err(SpendError::SpenderConflicting { child, since });
        }
        for input in &request.inputs {
            let named = record.body.inputs.get(input.vin as usize).map(|input| input.outpoint);
            if named != Some(input.outpoint) {
                return Err(SpendError::NotAnInput { child, vin: input.vin, outpoint: input.outpoint });
            }
        }
        let wanted = request.inputs.iter();
        let wanted = wanted.map(|it| Wanted { vin: it.vin, outpoint: it.outpoint, expected: it.expected });
        let mined_at = self.mined_at(child);
        let inputs = self.spend_inputs(child, wanted.collect(), height, request.overrides, mined_at);
        if inputs.is_empty() { Ok(()) } else { Err(SpendError::Inputs { child, inputs }) }
    }

    /// Takes spends back.
    pub fn unspend(&mut self, batch: Vec<Unspend>) -> BatchResult<(), UnspendError> {
        self.each(batch, Model::unspend_one).map(|_| ())
    }

    fn unspend_one(&mut self, request: Unspend) -> Result<(), UnspendError> {
        let Unspend { outpoint, spender: wanted } = request;
        match self.slot(outpoint) {
            None | Some(Slot::Unspendable) => Err(UnspendError::NotFound { outpoint }),
            Some(Slot::Unspent) => Ok(()),
            Some(Slot::Frozen) => Err(UnspendError::Frozen { outpoint }),
            Some(Slot::Spent { spender: by, .. }) if by != wanted => {
                Err(UnspendError::OtherSpender { outpoint, by, wanted })
            }
            Some(Slot::Settled { child_mined_at: mined_at })
            | Some(Slot::Spent { child_mined_at: Some(mined_at), .. }) => {
                Err(UnspendError::SpenderMined { outpoint, mined_at })
            }
            Some(Slot::Spent { child_mined_at: None, .. }) => {
                self.set_slot(outpoint, Slot::Unspent);
                Ok(())
            }
        }
    }

    /// Locks or unlocks transactions.
    pub fn set_locked(&mut self, txids: Vec<TxId>, on: bool) -> BatchResult<(), FreezeError> {
        let one = |model: &mut Model, txid| {
            let record = model.record_mut(txid).ok_or(FreezeError::NotFound { txid })?;
            record.head.locked = on;
            Ok(())
        };
        self.each(txids, one).map(|_| ())
    }

    /// Freezes unspent outputs.
    pub fn freeze(&mut self, outpoints: Vec<OutPoint>) -> BatchResult<(), FreezeError> {
        let one = |model: &mut Model, outpoint| match model.slot_to_freeze(outpoint)? {
            Slot::Unspent => {
                model.set_slot(outpoint, Slot::Frozen);
                Ok(())
            }
            _ => Err(FreezeError::NotUnspent { outpoint }),
        };
        self.each(outpoints, one).map(|_| ())
    }

    /// Unfreezes outputs.
    pub fn unfreeze(&mut self, outpoints: Vec<OutPoint>) -> BatchResult<(), FreezeError> {
        let one = |model: &mut Model, outpoint| match model.slot_to_freeze(outpoint)? {
            Slot::Frozen => {
                model.set_slot(outpoint, Slot::Unspent);
                Ok(())
            }
            _ => Err(FreezeError::NotFrozen { outpoint }),
        };
        self.each(outpoints, one).map(|_| ())
    }

    fn slot_to_freeze(&self, outpoint: OutPoint) -> Result<Slot, FreezeError> {
        if self.record(outpoint.txid).is_none() {
            return Err(FreezeError::NotFound { txid: outpoint.txid });
        }
        self.slot(outpoint).ok_or(FreezeError::NoSuchOutput { outpoint })
    }

    /// Gives frozen outputs to other owners.
    pub fn reassign(&mut self, batch: Vec<Reassign>, height: Height) -> BatchResult<(), ReassignError> {
        self.each(batch, |model, request| model.reassign_one(request, height)).map(|_| ())
    }

    fn reassign_one(&mut self, request: Reassign, height: Height) -> Result<(), ReassignError> {
        let Reassign { outpoint, expected, script, credential } = request;
        match self.slot(outpoint) {
            None | Some(Slot::Unspendable) => return Err(ReassignError::NotFound { outpoint }),
            Some(Slot::Frozen) => {}
            Some(_) => return Err(ReassignError::NotFrozen { outpoint }),
        }
        let spendable_from = height.plus(self.policy.reassignment_delay);
        let record = self.present_mut(outpoint.txid);
        let output = record.outputs[outpoint.vout as usize].as_mut().expect("a frozen output is kept");
        let old = output.utxo_hash(outpoint);
        if old != expected {
            return Err(ReassignError::HashMismatch { outpoint, actual: old, expected });
        }
        output.script = script;
        output.credential = credential;
        let new = output.utxo_hash(outpoint);
        let change = Reassignment { vout: outpoint.vout, old, new, at: height, spendable_from };
        record.head.reassignments.push(change);
        self.set_slot(outpoint, Slot::Unspent);
        Ok(())
    }

    /// Forbids deletion up to a height.
    pub fn preserve(&mut self, txids: Vec<TxId>, until: Height) -> BatchResult<usize, PreserveError> {
        let one = |model: &mut Model, txid| {
            let Some(record) = model.record_mut(txid) else { return Ok(0) };
            record.head.preserve_until = record.head.preserve_until.max(Some(until));
            Ok(1)
        };
        self.each(txids, one).map(|present| present.into_iter().sum())
    }

    /// Ends preservations up to exactly these heights.
    pub fn end_preservations(&mut self, preserved: &[(TxId, Height)]) -> usize {
        let mut ended = 0;
        for (txid, until) in preserved {
            if let Some(record) = self.record_mut(*txid)
                && record.head.preserve_until == Some(*until)
            {
                record.head.preserve_until = None;
                ended += 1;
            }
        }
        ended
    }

    /// Records whose preservation ends at or below a height, the earliest first.
    pub fn preserved(&self, up_to: Height) -> Vec<(Height, TxId)> {
        let over = |record: &TxRecord| record.head.preserve_until.filter(|until| *until <= up_to);
        let mut found: Vec<(Height, TxId)> =
            self.records.values().filter_map(|record| Some((over(record)?, record.txid))).collect();
        found.sort();
        found
    }

    /// Ends preservations.
    pub fn expire_preservations(&mut self, height: Height, limit: usize) -> usize {
        let mut ending = self.preserved(height);
        ending.truncate(limit);
        for (_, txid) in &ending {
            self.present_mut(*txid).head.preserve_until = None;
        }
        ending.len()
    }

    /// Forgets unmined transactions.
    pub fn delete(&mut self, txids: Vec<TxId>) -> BatchResult<(), DeleteError> {
        self.each(txids, Model::delete_one).map(|_| ())
    }

    fn delete_one(&mut self, txid: TxId) -> Result<(), DeleteError> {
        let Some(record) = self.record(txid) else { return Ok(()) };
        if let Some(mined_at) = self.mined_at(txid) {
            return Err(DeleteError::Mined { txid, mined_at });
        }
        let outpoints: Vec<OutPoint> =
            (0..record.slots.len()).map(|vout| record.outpoint(vout as u32)).collect();
        for outpoint in outpoints {
            match self.slot(outpoint) {
                // It is present, or remembered as mined: no slot names any other.
                Some(Slot::Spent { spender, .. }) => {
                    return Err(DeleteError::HasChild { txid, child: Some(spender.child) });
                }
                // Somebody spent it; who it was is forgotten.
                Some(Slot::Settled { .. }) => {
                    return Err(DeleteError::HasChild { txid, child: None });
                }
                Some(Slot::Frozen) => return Err(DeleteError::Frozen { outpoint }),
                _ => {}
            }
        }
        self.forget(txid);
        Ok(())
    }

    /// A present transaction gives back what it holds, is listed by nobody, and is gone.
    pub(super) fn forget(&mut self, txid: TxId) {
        self.give_back(txid);
        self.unlist_with_parents(txid);
        self.remove(txid);
    }
}
