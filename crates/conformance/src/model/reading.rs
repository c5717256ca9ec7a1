//! Every look-up and every listing, whole.

use std::collections::BTreeMap;

use sapwood_ledger::{AddressKind, Counts, Order, UnminedTx, Utxo};
use sapwood_rules::{SpendStatus, spendability::status};
use sapwood_types::{AddressHash, BlockMark, Height, OutPoint, Slot, TxId, TxRecord, Undo};

use super::{
    Model, ModelUndo,
    blocks::Replaced,
    pruning::{retained, settled_since, spent_outputs},
};

impl Model {
    /// A record as the store under test shows it.
    pub fn get(&self, txid: TxId) -> Option<TxRecord> {
        let mut record = self.record(txid)?.clone();
        for (vout, slot) in (0..).zip(&mut record.slots) {
            *slot = self.slot(OutPoint::new(txid, vout)).expect("one of its slots");
        }
        Some(record)
    }

    /// An output, spent or not.
    pub fn output(&self, outpoint: OutPoint) -> Option<Utxo> {
        let record = self.record(outpoint.txid)?;
        let output = record.outputs.get(outpoint.vout as usize)?.clone()?;
        Some(Utxo {
            outpoint,
            output,
            slot: self.slot(outpoint)?,
            created_height: record.head.created_height,
            mined_at: self.mined_at(outpoint.txid),
            coinbase: record.head.coinbase,
        })
    }

    /// Outputs, spent or not.
    pub fn outputs(&self, outpoints: &[OutPoint]) -> Vec<Option<Utxo>> {
        outpoints.iter().map(|outpoint| self.output(*outpoint)).collect()
    }

    /// How outputs look at a height.
    pub fn spend_status(&self, outpoints: &[OutPoint], at: Height) -> Vec<SpendStatus> {
        let look = |outpoint: &OutPoint| match self.record(outpoint.txid) {
            Some(record) => status(&record.head, outpoint.vout, self.slot(*outpoint).as_ref(), at),
            None => SpendStatus::NotFound,
        };
        outpoints.iter().map(look).collect()
    }

    fn unmined_since(&self, txid: TxId) -> Option<Height> {
        let head = &self.record(txid)?.head;
        if self.mined_at(txid).is_some() { None } else { head.first_unmined.or(Some(head.created_height)) }
    }

    fn unmined_by_age(&self) -> Vec<(Height, TxId)> {
        let mut found: Vec<(Height, TxId)> =
            self.records.keys().filter_map(|txid| Some((self.unmined_since(*txid)?, *txid))).collect();
        found.sort();
        found
    }

    /// All transactions unmined since `cutoff` or before, oldest first.
    pub fn old_unmined(&self, cutoff: Height) -> Vec<(Height, TxId)> {
        self.unmined_by_age().into_iter().filter(|(since, _)| *since <= cutoff).collect()
    }

    /// All unmined transactions that are neither conflicting nor coinbase, oldest first.
    pub fn unmined(&self) -> Vec<UnminedTx> {
        let mut found = Vec::new();
        for (since, txid) in self.unmined_by_age() {
            let TxRecord { head, body, .. } = self.present(txid);
            if head.is_conflicting() || head.coinbase {
                continue;
            }
            found.push(UnminedTx {
                txid,
                since,
                fee: body.fee,
                size: body.size,
                inputs: body.inputs.iter().map(|input| input.outpoint).collect(),
                created_at: head.created_at,
                locked: head.locked,
                blocks: head.blocks.to_vec(),
            });
        }
        found
    }

    /// All outputs that are unspent or frozen, of records that are not conflicting, by address and by credential, oldest first.
    pub fn address_index(&self) -> BTreeMap<(AddressKind, AddressHash), Vec<Utxo>> {
        let mut index: BTreeMap<_, Vec<Utxo>> = BTreeMap::new();
        for record in self.records.values().filter(|record| !record.head.is_conflicting()) {
            for (vout, slot) in (0..).zip(&record.slots) {
                let Some(output) = &record.outputs[vout as usize] else { continue };
                if !matches!(slot, Slot::Unspent | Slot::Frozen) {
                    continue;
                }
                let address = (AddressKind::Address, AddressHash::of_script(&output.script));
                let credential = output.credential.map(|hash| (AddressKind::Credential, hash));
                for key in [address].into_iter().chain(credential) {
                    index.entry(key).or_default().extend(self.output(record.outpoint(vout)));
                }
            }
        }
        for listed in index.values_mut() {
            listed.sort_by_key(|utxo| (utxo.created_height, utxo.outpoint));
        }
        index
    }

    /// What the index lists of one address or credential.
    pub fn by_address(&self, kind: AddressKind, hash: AddressHash, order: Order) -> Vec<Utxo> {
        let mut found = self.address_index().remove(&(kind, hash)).unwrap_or_default();
        if order == Order::Descending {
            found.reverse();
        }
        found
    }

    /// How much there is.
    pub fn counts(&self) -> Counts {
        let slots = self.records.values().flat_map(|record| &record.slots);
        Counts {
            records: self.records.len() as u64,
            unspent: slots.filter(|slot| matches!(slot, Slot::Unspent | Slot::Frozen)).count() as u64,
            unmined: self.unmined_by_age().len() as u64,
            spent: self.pruned_outputs
                + self.records.values().map(|record| spent_outputs(record)).sum::<u64>(),
            locked: self.count(|record| retained(record) == Some("locked")),
            preserved: self.count(|record| retained(record) == Some("preserved")),
            child_unmined: self.count(|record| retained(record) == Some("child unmined")),
        }
    }

    fn count(&self, of: impl Fn(&TxRecord) -> bool) -> u64 {
        self.records.values().filter(|record| of(record)).count() as u64
    }

    /// How many records settled from one height to another, both included.
    pub fn settled_between(&self, from: Height, to: Height) -> u64 {
        self.count(|record| settled_since(record).is_some_and(|at| from <= at && at <= to))
    }

    /// The last applied block.
    pub fn last_applied(&self) -> Option<BlockMark> {
        self.last
    }

    /// The lowest height a rollback can reach.
    pub fn rollback_floor(&self) -> Option<Height> {
        self.floor
    }

    /// The first applied height.
    pub fn first_height(&self) -> Option<Height> {
        self.first_height
    }

    /// How many slots answer as if their spender were forgotten.
    pub fn forgotten(&self) -> usize {
        self.forgotten.len()
    }

    /// The greatest height at or below which spenders may have been forgotten.
    pub fn forget_bound(&self) -> Option<Height> {
        self.forget_bound
    }

    /// The greatest block number given so far.
    pub fn greatest_block_id(&self) -> u32 {
        self.greatest_block_id
    }

    /// The heights of the blocks that wrote over records.
    pub fn heights_with_replaced(&self) -> Vec<Height> {
        let wrote_over = |undo: &ModelUndo| undo.txs.iter().any(|tx| tx.replaced.is_some());
        self.undo.iter().filter(|(_, undo)| wrote_over(undo)).map(|(height, _)| *height).collect()
    }

    /// How to take back the block at a height.
    pub fn undo(&self, height: Height) -> Option<Undo> {
        self.undo.get(&height).map(|undo| undo.as_undo())
    }
}

impl ModelUndo {
    fn as_undo(&self) -> Undo {
        let txids = |known: bool| {
            let txs = self.txs.iter().filter(move |tx| tx.known == known);
            txs.map(|tx| tx.txid).collect()
        };
        let replaced = self.txs.iter().filter_map(|tx| tx.replaced.as_ref());
        Undo {
            block: self.block,
            previous: self.previous,
            created: txids(false),
            mined: txids(true),
            replaced: replaced.map(|Replaced { record, .. }| record.clone()).collect(),
        }
    }
}
