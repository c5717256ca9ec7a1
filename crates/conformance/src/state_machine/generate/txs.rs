//! Transactions.

use bytes::Bytes;
use sapwood_types::{AddressHash, Input, OutPoint, Output, PrevOutput, Slot, Tx, TxId, TxRecord};

use super::{Generator, never_stored};
use crate::{model::Model, state_machine::rng::Rng};

/// More transactions than this one sequence does not make: it comes back to those it has.
const MOST_TXS: usize = 72;
/// With so many records stored, new ones are made half as often.
const MANY_RECORDS: usize = 22;

const SCRIPTS: [&[u8]; 4] = [b"alice", b"bob", b"carol", b""];
const CREDENTIALS: [AddressHash; 2] = [AddressHash([0xc1; 28]), AddressHash([0xc2; 28])];

/// What a transaction should spend.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// Unspent outputs of anything.
    Coins,
    /// Unspent outputs of mined transactions.
    MinedCoins,
    /// An output that an unmined transaction holds.
    Rival,
    /// Whatever there is or is not.
    Anything,
}

impl Generator {
    /// A transaction to store or mine: a new one, or one of old that is not stored.
    pub(super) fn tx(&mut self, model: &Model, wish: Wish) -> Option<Tx> {
        let full = self.txs.len() >= MOST_TXS;
        let crowded = model.records().len() > MANY_RECORDS && self.rng.chance(50);
        if full || crowded || self.rng.chance(12) {
            let absent: Vec<Tx> =
                self.txs.iter().filter(|tx| !model.records().contains_key(&tx.txid)).cloned().collect();
            // One that is remembered must not come back, which is worth trying.
            let pruned: Vec<Tx> = absent.iter().filter(|tx| model.is_remembered(tx)).cloned().collect();
            let from = if self.rng.chance(25) && !pruned.is_empty() { pruned } else { absent };
            if full || !from.is_empty() {
                return self.rng.pick(&from);
            }
        }
        Some(self.new_tx(model, wish))
    }

    /// A new transaction that spends.
    pub(super) fn new_tx(&mut self, model: &Model, wish: Wish) -> Tx {
        let wanted = [1, 1, 1, 2, 2, 3][self.rng.below(6) as usize];
        let mut inputs: Vec<OutPoint> = Vec::new();
        for _ in 0..wanted {
            let wish = if self.rng.chance(4) { Wish::Anything } else { wish };
            let Some(outpoint) = self.outpoint(model, wish) else { continue };
            // Twice the same is wrong, so it has to happen, but seldom.
            if !inputs.contains(&outpoint) || self.rng.chance(5) {
                inputs.push(outpoint);
            }
        }
        self.push_tx(false, inputs)
    }

    /// A new coinbase.
    pub(super) fn coinbase(&mut self) -> Tx {
        self.push_tx(true, Vec::new())
    }

    fn push_tx(&mut self, coinbase: bool, inputs: Vec<OutPoint>) -> Tx {
        let number = self.txs.len() as u64;
        let txid = TxId(Rng::new(self.seed.rotate_left(17) ^ number << 1).bytes());
        let previous = |rng: &mut Rng| {
            rng.chance(20).then(|| PrevOutput {
                value: rng.below(9),
                script: rng.chance(70).then(|| Bytes::from_static(b"before")),
            })
        };
        let rng = &mut self.rng;
        let inputs = inputs.into_iter().map(|outpoint| Input { outpoint, previous: previous(rng) }).collect();
        let tx = Tx {
            txid,
            version: rng.between(1, 2),
            locktime: rng.between(0, 1),
            fee: rng.chance(60).then(|| rng.below(500)),
            size: rng.between(60, 400),
            coinbase,
            inputs,
            outputs: outputs(rng),
            raw: Default::default(),
        };
        self.txs.push(tx.clone());
        tx
    }

    /// An output to spend.
    pub(super) fn outpoint(&mut self, model: &Model, wish: Wish) -> Option<OutPoint> {
        let unmined = |slot: &Slot| matches!(slot, Slot::Spent { child_mined_at: None, .. });
        let mined = |record: &TxRecord| record.head.mined_at().is_some();
        // A loser's output, a locked or an immature one is refused: all right if it happens now and then.
        let (loser, locked, young) = (self.rng.chance(8), self.rng.chance(8), self.rng.chance(8));
        let next = model.last_applied().map_or(self.base, |last| last.height.next());
        let free = |record: &TxRecord| {
            (loser || !record.head.is_conflicting())
                && (locked || !record.head.locked)
                && (young || record.head.spending_height.is_none_or(|from| from <= next))
        };
        let fitting = |wanted: &dyn Fn(&TxRecord, &Slot) -> bool| -> Vec<OutPoint> {
            let slots = model.records().values().flat_map(|record| {
                (0..)
                    .zip(&record.slots)
                    .map(move |(vout, slot)| (record.as_ref(), record.outpoint(vout), slot))
            });
            slots.filter(|(record, _, slot)| wanted(record, slot)).map(|(_, outpoint, _)| outpoint).collect()
        };
        let fitting = match wish {
            Wish::Coins => fitting(&|record, slot| slot.is_unspent() && free(record)),
            Wish::MinedCoins => fitting(&|record, slot| slot.is_unspent() && free(record) && mined(record)),
            Wish::Rival => fitting(&|record, slot| unmined(slot) && free(record)),
            Wish::Anything => Vec::new(),
        };
        if wish == Wish::Anything { self.any_outpoint() } else { self.rng.pick(&fitting) }
    }

    /// Any output, of a stored transaction or not, now and then one that does not exist.
    pub(super) fn any_outpoint(&mut self) -> Option<OutPoint> {
        if self.rng.chance(12) || self.txs.is_empty() {
            return Some(OutPoint::new(never_stored(self.rng.below(2)), 0));
        }
        let place = self.rng.below(self.txs.len() as u64) as usize;
        let tx = &self.txs[place];
        let beyond = u64::from(self.rng.chance(10));
        let vout = self.rng.below(tx.outputs.len() as u64 + beyond) as u32;
        Some(OutPoint::new(tx.txid, vout))
    }
}

fn outputs(rng: &mut Rng) -> Vec<Output> {
    if rng.chance(1) {
        return Vec::new();
    }
    if rng.chance(1) && rng.chance(60) {
        return huge(rng);
    }
    let count = [1, 1, 1, 1, 2, 2, 2, 3][rng.below(8) as usize];
    (0..count).map(|_| if rng.chance(12) { Output::data(&b"data"[..]) } else { output(rng) }).collect()
}

/// More than one page, of which few outputs can be spent: only then is it ever fully spent.
fn huge(rng: &mut Rng) -> Vec<Output> {
    let count = rng.between(129, 260);
    let spendable = |vout: u32| [0, 127, 128, count - 1].contains(&vout);
    let made = |vout| if spendable(vout) { output(rng) } else { Output::data(&b"data"[..]) };
    (0..count).map(made).collect()
}

fn output(rng: &mut Rng) -> Output {
    let script = Bytes::from_static(SCRIPTS[rng.weighted(&[6, 6, 6, 1])]);
    Output {
        value: rng.below(1000),
        script,
        extra: if rng.chance(10) { Bytes::from_static(b"extra") } else { Bytes::new() },
        credential: if rng.chance(25) { rng.pick(&CREDENTIALS) } else { None },
        spendable: true,
    }
}

/// A new owner for a reassigned output.
pub(super) fn new_owner(rng: &mut Rng) -> (Bytes, Option<AddressHash>) {
    let owner = output(rng);
    (owner.script, owner.credential)
}
