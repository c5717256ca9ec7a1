//! Random operations that often succeed and often fail.
//!
//! Each operation is tried out on a copy of the model first. Whether it should succeed is decided beforehand, and another one
//! of the same kind is made a few times until it does what was wanted; so both happen often for every kind, which random
//! arguments alone would never give.

mod blocks;
mod single;
mod txs;

use sapwood_rules::Policy;
use sapwood_types::{Height, Slot, Tx, TxId, TxRecord};

use super::{
    op::{Op, Plan, Step},
    rng::Rng,
};
use crate::model::Model;

/// Makes the steps of one sequence.
#[derive(Clone, Debug)]
pub struct Generator {
    rng: Rng,
    seed: u64,
    policy: Policy,
    /// Where the chain starts.
    base: Height,
    /// Every transaction this sequence has made. What they spend comes before them, so there are no circles.
    txs: Vec<Tx>,
    /// Blocks made so far.
    salt: u32,
    /// Blocks of another branch that still have to come after a rollback.
    branch: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Block,
    Run,
    Create,
    Spend,
    Unspend,
    SetMined,
    Mark,
    SetConflicting,
    Resolve,
    SetLocked,
    Freeze,
    Unfreeze,
    Reassign,
    Preserve,
    Expire,
    EndPreservations,
    Delete,
    RollBack,
    SetPolicy,
    Prune,
    PruneUndo,
}

const KINDS: [(Kind, u32); 21] = [
    (Kind::Block, 28),
    (Kind::Run, 6),
    (Kind::Create, 15),
    (Kind::Spend, 6),
    (Kind::Unspend, 4),
    (Kind::SetMined, 7),
    (Kind::Mark, 5),
    (Kind::SetConflicting, 6),
    (Kind::Resolve, 5),
    (Kind::SetLocked, 4),
    (Kind::Freeze, 4),
    (Kind::Unfreeze, 3),
    (Kind::Reassign, 3),
    (Kind::Preserve, 3),
    (Kind::Expire, 3),
    (Kind::EndPreservations, 2),
    (Kind::Delete, 4),
    (Kind::RollBack, 6),
    (Kind::SetPolicy, 2),
    (Kind::Prune, 11),
    (Kind::PruneUndo, 2),
];

/// How many of a hundred operations are meant to succeed.
const MEANT_TO_SUCCEED: u64 = 68;
const TRIES: u32 = 6;

impl Generator {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let base = Height([0, 0, 1, 5, 100][rng.below(5) as usize]);
        let policy = random_policy(&mut rng);
        Generator { rng, seed, policy, base, txs: Vec::new(), salt: 0, branch: 0 }
    }

    /// The policy the sequence starts with.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// The next step.
    pub fn next(&mut self, model: &Model) -> Step {
        let look = self.rng.number();
        let kind = if self.branch > 0 && self.rng.chance(80) {
            Kind::Block
        } else {
            KINDS[self.rng.weighted(&KINDS.map(|(_, weight)| weight))].0
        };
        let succeed = self.rng.chance(MEANT_TO_SUCCEED);
        let known = self.txs.len();
        let mut tries = TRIES;
        loop {
            let plan = self.make(kind, model, succeed);
            tries -= 1;
            let op = plan.resolve(model);
            let outcome = op.on_model(&mut model.clone());
            if outcome.is_ok() == succeed || tries == 0 {
                self.note_branch(&op, outcome.is_ok(), model);
                return Step { plan, look };
            }
            self.txs.truncate(known);
        }
    }

    /// After a rollback the other branch has to come.
    fn note_branch(&mut self, op: &Op, done: bool, model: &Model) {
        let tip = model.last_applied().map_or(0, |last| last.height.0);
        match op {
            Op::ApplyBlock { .. } if done => self.branch = self.branch.saturating_sub(1),
            Op::ApplyBlocks { blocks } if done => {
                self.branch = self.branch.saturating_sub(blocks.len() as u32);
            }
            Op::RollBack { target: Some((target, _)), .. } if done => {
                self.branch = tip.saturating_sub(target.0) + 1;
            }
            _ => {}
        }
    }

    fn make(&mut self, kind: Kind, model: &Model, succeed: bool) -> Plan {
        match kind {
            Kind::Block => self.block(model, succeed),
            Kind::Run => self.run(model, succeed),
            Kind::RollBack => self.roll_back(model, succeed),
            Kind::Create => Plan::Fixed(self.create(model)),
            Kind::Spend => Plan::Fixed(self.spend(model)),
            Kind::Unspend => Plan::Fixed(self.unspend(model)),
            Kind::SetMined => Plan::Fixed(self.set_mined(model)),
            Kind::Mark => Plan::Fixed(self.mark(model)),
            Kind::SetConflicting => Plan::Fixed(self.set_conflicting(model)),
            Kind::Resolve => Plan::Fixed(self.resolve(model)),
            Kind::SetLocked => Plan::Fixed(self.set_locked(model)),
            Kind::Freeze => Plan::Fixed(self.freeze(model)),
            Kind::Unfreeze => Plan::Fixed(self.unfreeze(model)),
            Kind::Reassign => Plan::Fixed(self.reassign(model)),
            Kind::Preserve => Plan::Fixed(self.preserve(model)),
            Kind::Expire => Plan::Fixed(self.expire(model)),
            Kind::EndPreservations => Plan::Fixed(self.end_preservations(model)),
            Kind::Delete => Plan::Fixed(self.delete(model)),
            Kind::SetPolicy => Plan::Fixed(self.set_policy(succeed)),
            Kind::Prune => Plan::Fixed(self.prune(model)),
            Kind::PruneUndo => Plan::Fixed(self.prune_undo(model)),
        }
    }

    /// A height for an operation: mostly that of the next block.
    fn height(&mut self, model: &Model) -> Height {
        let next = model.last_applied().map_or(self.base, |last| last.height.next());
        match self.rng.below(10) {
            0 => next.plus(self.rng.between(0, 4)),
            1 => next.minus(self.rng.between(0, 5)),
            2 => next.minus(1),
            _ => next,
        }
    }

    /// Ids of up to `most` records for which `wanted` holds, now and then of any other.
    fn some(&mut self, model: &Model, most: u32, wanted: impl Fn(&TxRecord) -> bool) -> Vec<TxId> {
        let stored: Vec<TxId> = model.records().keys().copied().collect();
        let fitting: Vec<TxId> =
            model.records().values().filter(|record| wanted(record)).map(|record| record.txid).collect();
        let count = self.rng.between(1, most);
        (0..count).filter_map(|_| self.one_of(&fitting, &stored)).collect()
    }

    /// One that fits, now and then another, now and then any id at all.
    fn one_of(&mut self, fitting: &[TxId], stored: &[TxId]) -> Option<TxId> {
        let picked = match self.rng.weighted(&[85, 11, 4]) {
            0 => self.rng.pick(fitting).or_else(|| self.rng.pick(stored)),
            1 => self.rng.pick(stored),
            _ => None,
        };
        picked.or_else(|| self.any_id())
    }

    /// The id of any transaction, stored or not.
    fn any_id(&mut self) -> Option<TxId> {
        if self.rng.chance(15) || self.txs.is_empty() {
            return Some(never_stored(self.rng.below(2)));
        }
        let place = self.rng.below(self.txs.len() as u64) as usize;
        Some(self.txs[place].txid)
    }
}

/// An id that no transaction of any sequence has.
fn never_stored(number: u64) -> TxId {
    TxId([0xee + number as u8; 32])
}

fn random_policy(rng: &mut Rng) -> Policy {
    let retention = rng.between(3, 6);
    Policy {
        retention: if rng.chance(8) { 0 } else { retention },
        reorg_window: rng.between(2, retention),
        coinbase_maturity: 2,
        reassignment_delay: 4,
        unmined_retention: 2,
        parent_preservation: 5,
    }
}

fn holds_all(model: &Model, record: &TxRecord) -> bool {
    (0..).zip(&record.body.inputs).all(|(vin, input)| {
        let slot = model.output(input.outpoint).map(|utxo| utxo.slot);
        slot.and_then(|slot| slot.spender()).is_some_and(|by| (by.child, by.vin) == (record.txid, vin))
    })
}

fn has_unspent(record: &TxRecord) -> bool {
    record.slots.contains(&Slot::Unspent)
}
