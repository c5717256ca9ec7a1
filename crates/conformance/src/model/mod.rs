//! A plain store in memory: what `docs/operations-of-a-store.md` says, in the plainest way it can be said.
//!
//! **What lives here.** Whole records in one map, scans instead of indexes, everything worked out anew each time. **What may
//! not.** Anything of a real store: its transitions, its pages as they change, its indexes. The model was written from the
//! document alone, so that a mistake in the one is not a mistake in the other.
//!
//! # What it shares with a store
//! The types of `sapwood-types`, and these pure rules of `sapwood-rules`. A mistake in one of them would be in both, and a comparison
//! of the two would not show it:
//! - `check_record`, `check_slot` and `status`: may this output be spent, and how does it look;
//! - `judge` and `check_child`: the words and figures of a verdict;
//! - `Policy::validate`.
//!
//! They are proven elsewhere: by their own tests in `sapwood-rules`, with its readings and the timelines; by the cases of
//! [`crate::suite`], which say what must come out and ask neither; and, for what is deleted, by the random schedules of the
//! pruner, whose judge knows the whole history and shares no code with the rules.
//!
//! All else it has of its own: when a record settled ([`pruning::settled_since`]) and thereby what is due, when a transaction was mined,
//! who holds what, what an applied or taken-back block does, amounts, conflicts, listings, and which coins there are and how they
//! are hashed.
//!
//! # Layers
//! - this file: the state, who holds what, and all-or-nothing.
//! - [`spending`]: create, spend, unspend, lock, freeze, reassign, preserve, delete.
//! - [`mining`]: set mined, mark on longest chain.
//! - [`conflicts`]: losing and winning.
//! - [`blocks`]: apply and roll back.
//! - [`pruning`]: settled, due, judged, deleted.
//! - [`reading`]: every listing and look-up.
//! - [`utxo_set`]: the coins in figures.
//! - [`as_store`]: the model behind the traits of a store, so that whatever tests a store can test the model.
//!
//! # Correctness
//! An operation works on a copy of the state, which takes the place of the state only if the operation succeeds. There is
//! nothing else to get right.
//!
//! # What the model knows better
//! A store may forget who spent an output once the spender is deep enough ([`Slot::Settled`]). The model never forgets; it
//! notes which slots the store under test has forgotten ([`Model::agree_on_forgotten`]) and answers as if it had too. A slot
//! that the store had no right to forget is a difference.

pub mod as_store;
pub mod blocks;
pub mod conflicts;
pub mod mining;
pub mod pruning;
pub mod reading;
pub mod spending;
pub mod utxo_set;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use sapwood_ledger::{BatchError, BatchResult, Cursor};
use sapwood_rules::Policy;
use sapwood_types::{BlockMark, Height, OutPoint, Slot, Spender, TxId, TxRecord};

pub use as_store::{ModelStore, Models};
pub use blocks::{ModelUndo, Replaced, UndoTx};

/// Notes which slots of a record the store under test has forgotten the spenders of. Returns those that differ otherwise.
fn agree_on_slots(
    ours: &[Slot],
    theirs: &TxRecord,
    bound: Option<Height>,
    forgotten: &mut BTreeSet<OutPoint>,
) -> Vec<OutPoint> {
    let mut differing = Vec::new();
    for (vout, (our, their)) in (0..).zip(ours.iter().zip(&theirs.slots)) {
        let outpoint = OutPoint::new(theirs.txid, vout);
        match (our, their) {
            (our, their) if our == their => {
                forgotten.remove(&outpoint);
            }
            (Slot::Spent { child_mined_at: Some(our), .. }, Slot::Settled { child_mined_at: their })
                if our == their && Some(*their) <= bound =>
            {
                forgotten.insert(outpoint);
            }
            _ => differing.push(outpoint),
        }
    }
    differing
}

/// A store in memory.
#[derive(Clone, Debug)]
pub struct Model {
    policy: Policy,
    /// Shared between copies of the state until one of them changes: every operation works on a copy.
    records: BTreeMap<TxId, Arc<TxRecord>>,
    /// Spent slots that answer as [`Slot::Settled`].
    forgotten: BTreeSet<OutPoint>,
    /// The greatest height at or below which a spender may ever have been forgotten.
    forget_bound: Option<Height>,
    last: Option<BlockMark>,
    first_height: Option<Height>,
    floor: Option<Height>,
    undo: BTreeMap<Height, Arc<ModelUndo>>,
    greatest_block_id: u32,
    prune_cursor: Option<Cursor>,
    /// Spent outputs of records that were pruned.
    pruned_outputs: u64,
}

impl Model {
    /// An empty store.
    pub fn new(policy: Policy) -> Self {
        Model {
            policy,
            records: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            forget_bound: None,
            last: None,
            first_height: None,
            floor: None,
            undo: BTreeMap::new(),
            greatest_block_id: 0,
            prune_cursor: None,
            pruned_outputs: 0,
        }
    }

    /// How long things are kept.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Every record, with nothing forgotten.
    pub fn records(&self) -> &BTreeMap<TxId, Arc<TxRecord>> {
        &self.records
    }

    /// All or nothing: works on a copy, which replaces the state only if the work succeeds.
    fn attempt<T, E>(&mut self, work: impl FnOnce(&mut Model) -> Result<T, E>) -> Result<T, E> {
        let mut copy = self.clone();
        let done = work(&mut copy)?;
        *self = copy;
        Ok(done)
    }

    /// A batch in which each item stands alone, and sees what those before it did.
    fn each<I, T, E>(
        &mut self,
        items: Vec<I>,
        mut one: impl FnMut(&mut Model, I) -> Result<T, E>,
    ) -> BatchResult<Vec<T>, E> {
        let total = items.len();
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        for (number, item) in items.into_iter().enumerate() {
            match self.attempt(|model| one(model, item)) {
                Ok(result) => done.push(result),
                Err(error) => failed.push((number, error)),
            }
        }
        if failed.is_empty() { Ok(done) } else { Err(BatchError::Items { failed, total }) }
    }

    fn record(&self, txid: TxId) -> Option<&TxRecord> {
        self.records.get(&txid).map(Arc::as_ref)
    }

    /// For a record that is known to be there.
    fn present(&self, txid: TxId) -> &TxRecord {
        self.record(txid).expect("a record that was there a moment ago")
    }

    fn record_mut(&mut self, txid: TxId) -> Option<&mut TxRecord> {
        self.records.get_mut(&txid).map(Arc::make_mut)
    }

    fn present_mut(&mut self, txid: TxId) -> &mut TxRecord {
        self.record_mut(txid).expect("a record that was there a moment ago")
    }

    fn insert(&mut self, record: TxRecord) {
        self.remove(record.txid);
        self.records.insert(record.txid, Arc::new(record));
    }

    fn remove(&mut self, txid: TxId) {
        self.records.remove(&txid);
        self.forgotten.retain(|outpoint| outpoint.txid != txid);
    }

    /// The slot as a store that has forgotten the same spenders shows it.
    fn slot(&self, outpoint: OutPoint) -> Option<Slot> {
        let slot = *self.record(outpoint.txid)?.slots.get(outpoint.vout as usize)?;
        let forgotten = self.forgotten.contains(&outpoint);
        Some(match slot.child_mined_at() {
            Some(child_mined_at) if forgotten => Slot::Settled { child_mined_at },
            _ => slot,
        })
    }

    fn set_slot(&mut self, outpoint: OutPoint, slot: Slot) {
        self.forgotten.remove(&outpoint);
        self.present_mut(outpoint.txid).slots[outpoint.vout as usize] = slot;
    }

    fn mined_at(&self, txid: TxId) -> Option<Height> {
        self.record(txid)?
            .head
            .blocks
            .iter()
            .filter(|block| block.on_longest_chain)
            .map(|block| block.height)
            .max()
    }

    /// The inputs of a present transaction, numbered.
    fn inputs(&self, txid: TxId) -> Vec<(u32, OutPoint)> {
        (0..).zip(self.present(txid).body.inputs.iter().map(|input| input.outpoint)).collect()
    }

    /// Whether a present transaction holds the output its input names. Where the store has forgotten the spender, it is
    /// this one if it is mined where the spender was: a slot always knows its spender's height.
    fn holds(&self, child: TxId, vin: u32, outpoint: OutPoint) -> bool {
        match self.slot(outpoint) {
            Some(Slot::Spent { spender, .. }) => spender == Spender::new(child, vin),
            Some(Slot::Settled { child_mined_at }) => self.mined_at(child) == Some(child_mined_at),
            _ => false,
        }
    }

    /// All outputs a present transaction holds, by input.
    fn held(&self, child: TxId) -> Vec<(u32, OutPoint)> {
        let mut held = self.inputs(child);
        held.retain(|(vin, outpoint)| self.holds(child, *vin, *outpoint));
        held
    }

    /// Changes the blocks of a present transaction and tells the outputs it holds.
    fn change_blocks(&mut self, txid: TxId, change: impl FnOnce(&mut sapwood_types::Blocks)) {
        let held = self.held(txid);
        change(&mut self.present_mut(txid).head.blocks);
        let child_mined_at = self.mined_at(txid);
        for (vin, outpoint) in held {
            let slot = Slot::Spent { spender: Spender::new(txid, vin), child_mined_at };
            // A forgotten spender stays forgotten where nothing changes.
            if self.present(outpoint.txid).slots[outpoint.vout as usize] != slot {
                self.set_slot(outpoint, slot);
            }
        }
    }

    /// Notes that a transaction was found unmined at a height.
    fn found_unmined(&mut self, txid: TxId, height: Height) {
        if self.mined_at(txid).is_none() {
            let first = &mut self.present_mut(txid).head.first_unmined;
            *first = Some(first.map_or(height, |before| before.min(height)));
        }
    }

    /// Every output a transaction holds is unspent again.
    fn give_back(&mut self, txid: TxId) {
        for (_, outpoint) in self.held(txid) {
            self.set_slot(outpoint, Slot::Unspent);
        }
    }

    fn list_with_parents(&mut self, txid: TxId) {
        for (_, outpoint) in self.inputs(txid) {
            if let Some(parent) = self.record_mut(outpoint.txid)
                && !parent.head.conflicting_children.contains(&txid)
            {
                parent.head.conflicting_children.push(txid);
            }
        }
    }

    fn unlist_with_parents(&mut self, txid: TxId) {
        for (_, outpoint) in self.inputs(txid) {
            if let Some(parent) = self.record_mut(outpoint.txid) {
                parent.head.conflicting_children.retain(|child| *child != txid);
            }
        }
    }

    /// A spender at or below `last − max(retention, window)` may be forgotten from now on. There is no such height while the
    /// chain is shorter than that.
    fn note_forget_bound(&mut self) {
        let depth = self.policy.retention.max(self.policy.reorg_window);
        let bound = self.last.and_then(|last| last.height.0.checked_sub(depth)).map(Height);
        self.forget_bound = self.forget_bound.max(bound);
    }

    /// Takes over which spenders the store under test has forgotten, looking at its version of a record. Returns the slots
    /// that differ otherwise: forgotten without the right to be, or simply other ones.
    pub fn agree_on_forgotten(&mut self, theirs: &TxRecord) -> Vec<OutPoint> {
        let Some(ours) = self.records.get(&theirs.txid) else { return Vec::new() };
        agree_on_slots(&ours.slots, theirs, self.forget_bound, &mut self.forgotten)
    }

    /// The same for the records that the block at a height wrote over, looking at the store's version of them. Between two blocks in a
    /// row nobody can look, and once it is written over a record shows nowhere else.
    pub fn agree_on_replaced(&mut self, height: Height, theirs: &[TxRecord]) {
        let Some(undo) = self.undo.get_mut(&height) else { return };
        let ours = Arc::make_mut(undo).txs.iter_mut().filter_map(|tx| tx.replaced.as_mut());
        for (Replaced { record, forgotten }, theirs) in ours.zip(theirs) {
            agree_on_slots(&record.slots, theirs, self.forget_bound, forgotten);
        }
    }

    /// Forgets the spenders another model of the same store has forgotten, where this one has them too.
    pub fn forget_as(&mut self, other: &Model) {
        for outpoint in &other.forgotten {
            let record = self.records.get(&outpoint.txid);
            let slot = record.and_then(|record| record.slots.get(outpoint.vout as usize));
            if slot.is_some_and(|slot| slot.child_mined_at().is_some()) {
                self.forgotten.insert(*outpoint);
            }
        }
    }

    /// Whether a present parent remembers this transaction, which is not present, as mined. A store does not notice if it
    /// is told that this one has lost anyway.
    pub fn is_remembered(&self, tx: &sapwood_types::Tx) -> bool {
        !self.records.contains_key(&tx.txid)
            && tx.inputs.iter().any(|input| {
                let parent = self.record(input.outpoint.txid);
                let slot = parent.and_then(|parent| parent.slots.get(input.outpoint.vout as usize));
                slot.and_then(Slot::spender).is_some_and(|by| by.child == tx.txid)
            })
    }
}
