//! Everything that is not a block.

use bytes::Bytes;
use sapwood_ledger::{
    CreateRequest, Cursor, MineRequest, PruneFrom, PruneRequest, PruneWhat, Reassign, SpendInput,
    SpendRequest, Unspend,
};
use sapwood_rules::{Policy, spendability::SpendOverrides};
use sapwood_types::{External, Height, MinedIn, OutPoint, Slot, Spender, TxId, TxRecord, UtxoHash};

use super::{
    Generator, has_unspent, holds_all, random_policy,
    txs::{Wish, new_owner},
};
use crate::{
    model::Model,
    state_machine::{look, op::Op},
};

impl Generator {
    pub(super) fn create(&mut self, model: &Model) -> Op {
        let height = self.height(model);
        let count = self.rng.between(1, 3);
        let batch = (0..count).filter_map(|_| self.create_request(model, height)).collect();
        Op::Create { batch, height }
    }

    fn create_request(&mut self, model: &Model, height: Height) -> Option<CreateRequest> {
        let tx = match self.rng.weighted(&[60, 12, 12, 5, 3, 8]) {
            0 => self.tx(model, Wish::Coins)?,
            1 => self.tx(model, Wish::Rival)?,
            2 => self.tx(model, Wish::Anything)?,
            3 => self.rng.pick(&self.txs.clone())?,
            4 => self.coinbase(),
            // On top of one made a moment ago, which may be in the same batch.
            _ => {
                let on_top = self.txs.last().filter(|tx| !tx.outputs.is_empty()).map(|tx| tx.txid);
                let mut tx = self.new_tx(model, Wish::Coins);
                if let (Some(parent), Some(input)) = (on_top, tx.inputs.first_mut()) {
                    input.outpoint = OutPoint::new(parent, 0);
                    let last = self.txs.last_mut()?;
                    *last = tx.clone();
                }
                tx
            }
        };
        let rng = &mut self.rng;
        let conflicting = rng.chance(10);
        let trust_inputs = rng.chance(8);
        // Of one that has lost the parents are not asked, so a store cannot know that it had this one before.
        let remembered = model.is_remembered(&tx);
        let mined_in = rng.chance(20).then(|| MinedIn {
            block_id: rng.between(1, 60),
            height: height.plus(rng.between(0, 1)).minus(rng.between(0, 3)),
            subtree: rng.between(0, 2),
            on_longest_chain: rng.chance(70),
        });
        Some(CreateRequest {
            tx,
            mined_in,
            frozen: rng.chance(6),
            conflicting: conflicting && !remembered,
            locked: rng.chance(12),
            trust_inputs,
            external: rng.chance(5).then_some(External::Tx),
            created_at: rng.below(1 << 40),
        })
    }

    pub(super) fn spend(&mut self, model: &Model) -> Op {
        let height = self.height(model);
        let count = self.rng.between(1, 2);
        let batch = (0..count).filter_map(|_| self.spend_request(model)).collect();
        Op::Spend { batch, height }
    }

    fn spend_request(&mut self, model: &Model) -> Option<SpendRequest> {
        let open = |outpoint| model.output(outpoint).is_some_and(|utxo| utxo.slot.is_unspent());
        let unheld = |record: &TxRecord| {
            !record.head.is_conflicting() && record.body.inputs.iter().any(|input| open(input.outpoint))
        };
        let any = self.rng.chance(25);
        let spends = |record: &TxRecord| !record.body.inputs.is_empty();
        let child = self.some(model, 1, |record| spends(record) && (any || unheld(record))).pop()?;
        let count = model.records().get(&child).map_or(1, |record| record.body.inputs.len() as u32);
        let mut inputs = Vec::new();
        for vin in 0..count {
            if self.rng.chance(20) && count > 1 {
                continue;
            }
            let vin = if self.rng.chance(4) { vin + 1 } else { vin };
            let named = self.input_of(model, child, vin);
            let outpoint = if self.rng.chance(4) { self.any_outpoint() } else { named };
            let outpoint = outpoint.unwrap_or(OutPoint::new(child, 0));
            let expected = if self.rng.chance(35) { Some(self.expected(model, outpoint)) } else { None };
            inputs.push(SpendInput { vin, outpoint, expected });
        }
        let rng = &mut self.rng;
        let overrides = SpendOverrides { ignore_conflicting: rng.chance(20), ignore_locked: rng.chance(20) };
        Some(SpendRequest { child, inputs, overrides })
    }

    /// The hash of an output, now and then another.
    fn expected(&mut self, model: &Model, outpoint: OutPoint) -> UtxoHash {
        match model.output(outpoint) {
            Some(utxo) if !self.rng.chance(12) => utxo.output.utxo_hash(outpoint),
            _ => UtxoHash(self.rng.bytes()),
        }
    }

    pub(super) fn unspend(&mut self, model: &Model) -> Op {
        let count = self.rng.between(1, 2);
        Op::Unspend { batch: (0..count).filter_map(|_| self.unspend_one(model)).collect() }
    }

    fn unspend_one(&mut self, model: &Model) -> Option<Unspend> {
        let spent = |slot: &Slot| matches!(slot, Slot::Spent { child_mined_at: None, .. });
        let outpoint = self.output_where(model, 85, |_, slot| spent(slot))?;
        let by = model.output(outpoint).and_then(|utxo| utxo.slot.spender());
        let spender = match by {
            Some(by) if !self.rng.chance(12) => by,
            _ => Spender::new(self.any_id()?, self.rng.between(0, 1)),
        };
        Some(Unspend { outpoint, spender })
    }

    /// An output for which `wanted` holds, in so many of a hundred cases; otherwise any.
    fn output_where(
        &mut self,
        model: &Model,
        percent: u64,
        wanted: impl Fn(&TxRecord, &Slot) -> bool,
    ) -> Option<OutPoint> {
        let slots = model.records().values().flat_map(|record| {
            (0..).zip(&record.slots).map(move |(vout, slot)| (record, record.outpoint(vout), slot))
        });
        let fitting: Vec<OutPoint> =
            slots.filter(|(record, _, slot)| wanted(record, slot)).map(|(_, outpoint, _)| outpoint).collect();
        let picked = self.rng.pick(&fitting);
        if picked.is_some() && self.rng.chance(percent) {
            return picked;
        }
        let stored: Vec<&TxRecord> = model.records().values().map(AsRef::as_ref).collect();
        match self.rng.pick(&stored) {
            Some(record) if self.rng.chance(75) => {
                Some(record.outpoint(self.rng.below(record.slots.len() as u64) as u32))
            }
            _ => self.any_outpoint(),
        }
    }

    pub(super) fn set_mined(&mut self, model: &Model) -> Op {
        let height = self.height(model);
        let unset = self.rng.chance(35);
        let txids = if unset {
            self.some(model, 2, |record| !record.head.blocks.is_empty())
        } else {
            let any = self.rng.chance(25);
            self.some(model, 2, |record| {
                any || (record.head.mined_at().is_none() && holds_all(model, record))
            })
        };
        let entries = txids.iter().filter_map(|txid| model.records().get(txid));
        let entries: Vec<MinedIn> = entries.flat_map(|record| record.head.blocks.clone()).collect();
        let own_entry = if unset { 85 } else { 25 };
        let block_id = match self.rng.pick(&entries) {
            Some(entry) if self.rng.chance(own_entry) => entry.block_id,
            _ => self.block_id(model),
        };
        let rng = &mut self.rng;
        let block = MinedIn {
            block_id,
            height: height.plus(rng.between(0, 1)).minus(rng.between(0, 4)),
            subtree: rng.between(0, 2),
            on_longest_chain: rng.chance(75),
        };
        Op::SetMined { txids, request: MineRequest { block, unset }, height }
    }

    pub(super) fn mark(&mut self, model: &Model) -> Op {
        let height = self.height(model);
        let on = self.rng.chance(50);
        let fits =
            |record: &TxRecord| !record.head.blocks.is_empty() && record.head.mined_at().is_none() == on;
        Op::MarkOnLongestChain { txids: self.some(model, 2, fits), on, height }
    }

    pub(super) fn set_conflicting(&mut self, model: &Model) -> Op {
        let height = self.height(model);
        let on = self.rng.chance(50);
        let fits = |record: &TxRecord| {
            if on { record.head.mined_at().is_none() } else { record.head.is_conflicting() }
        };
        Op::SetConflicting { txids: self.some(model, 2, fits), on, height }
    }

    pub(super) fn resolve(&mut self, model: &Model) -> Op {
        let height = self.height(model);
        let fits = |record: &TxRecord| {
            record.head.mined_at().is_none() && (record.head.is_conflicting() || !holds_all(model, record))
        };
        Op::ResolveConflicts { winners: self.some(model, 2, fits), height }
    }

    pub(super) fn set_locked(&mut self, model: &Model) -> Op {
        let on = self.rng.chance(40);
        Op::SetLocked { txids: self.some(model, 2, |record| record.head.locked != on), on }
    }

    pub(super) fn freeze(&mut self, model: &Model) -> Op {
        let count = self.rng.between(1, 2);
        let unspent = |record: &TxRecord, slot: &Slot| slot.is_unspent() && has_unspent(record);
        Op::Freeze { outpoints: (0..count).filter_map(|_| self.output_where(model, 85, unspent)).collect() }
    }

    pub(super) fn unfreeze(&mut self, model: &Model) -> Op {
        let count = self.rng.between(1, 2);
        let frozen = |_: &TxRecord, slot: &Slot| *slot == Slot::Frozen;
        Op::Unfreeze { outpoints: (0..count).filter_map(|_| self.output_where(model, 85, frozen)).collect() }
    }

    pub(super) fn reassign(&mut self, model: &Model) -> Op {
        let height = self.height(model);
        let count = self.rng.between(1, 2);
        let batch = (0..count).filter_map(|_| {
            let outpoint = self.output_where(model, 85, |_, slot| *slot == Slot::Frozen)?;
            let expected = self.expected(model, outpoint);
            let (script, credential) = new_owner(&mut self.rng);
            Some(Reassign { outpoint, expected, script, credential })
        });
        Op::Reassign { batch: batch.collect(), height }
    }

    pub(super) fn preserve(&mut self, model: &Model) -> Op {
        let until = self.height(model).plus(self.rng.between(0, 5));
        Op::Preserve { txids: self.some(model, 3, |_| true), until }
    }

    pub(super) fn expire(&mut self, model: &Model) -> Op {
        let height = self.height(model).plus(self.rng.between(0, 6));
        Op::ExpirePreservations { height, limit: self.rng.between(1, 4) as usize }
    }

    /// Mostly preservations that there are, now and then with another height or of something else.
    pub(super) fn end_preservations(&mut self, model: &Model) -> Op {
        let txids = self.some(model, 3, |record| record.head.preserve_until.is_some());
        let until = |txid: &TxId| model.records().get(txid).and_then(|record| record.head.preserve_until);
        let preserved = |txid: TxId| {
            let until = until(&txid).unwrap_or(Height(3));
            (txid, if self.rng.chance(20) { until.next() } else { until })
        };
        Op::EndPreservations { preserved: txids.into_iter().map(preserved).collect() }
    }

    pub(super) fn delete(&mut self, model: &Model) -> Op {
        let unused = |record: &TxRecord| {
            let free = |slot: &Slot| matches!(slot, Slot::Unspent | Slot::Unspendable);
            record.head.mined_at().is_none() && record.slots.iter().all(free)
        };
        let any = self.rng.chance(30);
        Op::Delete { txids: self.some(model, 2, |record| any || unused(record)) }
    }

    pub(super) fn set_policy(&mut self, succeed: bool) -> Op {
        let mut policy = random_policy(&mut self.rng);
        if !succeed {
            let window = if self.rng.chance(50) { 0 } else { policy.retention + 1 };
            policy = Policy { reorg_window: window, retention: policy.retention.max(1), ..policy };
        }
        Op::SetPolicy { policy }
    }

    pub(super) fn prune(&mut self, model: &Model) -> Op {
        let what = if self.rng.chance(60) { self.records(model) } else { self.settled(model) };
        let context = look::context(&mut self.rng, model);
        let rng = &mut self.rng;
        let (check_children, spare_external, dry_run) = (rng.chance(50), rng.chance(30), rng.chance(10));
        Op::Prune {
            request: PruneRequest { what, context, check_children, spare_external, dry_run, permit: None },
        }
    }

    fn records(&mut self, model: &Model) -> PruneWhat {
        let mut txids: Vec<TxId> = model.due(Height::MAX).into_iter().map(|due| due.txid).collect();
        let keep = self.rng.between(1, 6) as usize;
        while txids.len() > keep {
            txids.remove(self.rng.below(txids.len() as u64) as usize);
        }
        if self.rng.chance(30) || txids.is_empty() {
            txids.extend(self.some(model, 2, |_| true));
        }
        let cursor = self.rng.chance(30).then(|| Cursor(Bytes::copy_from_slice(&self.rng.bytes::<5>())));
        PruneWhat::Records { txids, cursor }
    }

    fn settled(&mut self, model: &Model) -> PruneWhat {
        let tip = model.last_applied().map_or(self.base, |last| last.height);
        let rng = &mut self.rng;
        let from = match rng.below(4) {
            0 => PruneFrom::Oldest,
            1 => PruneFrom::After(Cursor(Bytes::copy_from_slice(
                &tip.minus(rng.between(0, 8)).0.to_be_bytes(),
            ))),
            _ => PruneFrom::Cursor,
        };
        let up_to = if rng.chance(20) { Height::MAX } else { tip.minus(rng.between(0, 8)) };
        let (limit, per_write) = (rng.between(1, 8) as usize, rng.between(1, 4) as usize);
        PruneWhat::Settled { from, up_to, limit, per_write }
    }

    pub(super) fn prune_undo(&mut self, model: &Model) -> Op {
        let tip = model.last_applied().map_or(self.base, |last| last.height);
        Op::PruneUndo { below: tip.plus(self.rng.between(0, 2)).minus(self.rng.between(0, 8)) }
    }
}
