//! Blocks and rollbacks.

use sapwood_ledger::{ApplyOptions, RollbackMode};
use sapwood_types::{BlockRules, Height, Input, OutPoint, Tx, TxId};

use super::{Generator, txs::Wish};
use crate::{
    model::Model,
    state_machine::op::{Link, Op, Plan, block_hash},
};

impl Generator {
    /// A block. One that is meant to succeed is put together transaction by transaction, leaving out what does not fit.
    pub(super) fn block(&mut self, model: &Model, succeed: bool) -> Plan {
        let link = if succeed || self.rng.chance(75) {
            Link::Next
        } else {
            [Link::TooLow, Link::TooHigh, Link::OtherParent][self.rng.below(3) as usize]
        };
        let block_id = self.rng.chance(8).then(|| self.block_id(model));
        let options = ApplyOptions {
            rules: BlockRules {
                allow_overwrite: self.rng.chance(15),
                subsidy: self.subsidy(),
                // As below.
                allow_no_outputs: self.salt.is_multiple_of(3),
                coinbase_maturity: self.salt.is_multiple_of(7).then_some(2),
            },
            block_id,
            // Now and then, and about half of the transactions are larger. Not by chance, so that old seeds mean what they did.
            bodies_above: self.salt.is_multiple_of(10).then_some(250),
        };
        let salt = self.salt;
        self.salt += 1;
        let first = self.base;
        let time = 1_700_000_000 + u64::from(salt);
        let plan = |txs: Vec<Tx>| Plan::Block { link, first, salt, time, txs, options };

        let mut after = model.clone();
        let mut txs: Vec<Tx> = Vec::new();
        for place in 0..self.rng.between(1, 6) {
            let known = self.txs.len();
            let candidates = self.candidates(&after, place == 0);
            let mut longer = txs.clone();
            longer.extend(candidates);
            let mut trial = model.clone();
            if plan(longer.clone()).resolve(model).on_model(&mut trial).is_ok() {
                after = trial;
                txs = longer;
            } else if succeed {
                self.txs.truncate(known);
            } else {
                txs = longer;
            }
        }
        plan(txs)
    }

    /// Blocks in a row, each on the one before. If it is meant to fail, any of them may; what comes after it must not be applied.
    pub(super) fn run(&mut self, model: &Model, succeed: bool) -> Plan {
        let length = self.rng.between(2, 4);
        let bad = self.rng.between(0, length - 1);
        let mut after = model.clone();
        let mut plans = Vec::new();
        for place in 0..length {
            let plan = self.block(&after, succeed || place != bad);
            plan.resolve(&after).on_model(&mut after);
            plans.push(plan);
        }
        Plan::Run(plans)
    }

    /// What a block may mint, where that is checked.
    fn subsidy(&mut self) -> Option<u64> {
        self.rng.chance(10).then(|| self.rng.below(1 << 20))
    }

    /// Transactions to put next into a block of which `after` is the state so far.
    fn candidates(&mut self, after: &Model, first: bool) -> Vec<Tx> {
        if first && self.rng.chance(75) {
            return vec![self.coinbase_for_block(after)];
        }
        match self.rng.weighted(&[45, 14, 30, 6, 5]) {
            0 => self.tx(after, Wish::MinedCoins).into_iter().collect(),
            1 => self.tx(after, Wish::Rival).into_iter().collect(),
            2 => self.known_with_ancestors(after),
            3 => self.tx(after, Wish::Anything).into_iter().collect(),
            // Any that was ever made: mined already, earlier in this block, pruned.
            _ => self.rng.pick(&self.txs.clone()).into_iter().collect(),
        }
    }

    fn coinbase_for_block(&mut self, after: &Model) -> Tx {
        let mut old: Vec<Tx> = self.txs.iter().filter(|tx| tx.coinbase).cloned().collect();
        let again = if self.txs.len() < 60 { 10 } else { 80 };
        // One that is mined already only now and then: it is refused unless it is fully spent.
        if !self.rng.chance(15) {
            old.retain(|tx| !after.records().contains_key(&tx.txid));
        }
        match self.rng.pick(&old) {
            Some(tx) if self.rng.chance(again) => tx,
            _ => self.coinbase(),
        }
    }

    /// An unmined transaction with all its unmined ancestors before it.
    fn known_with_ancestors(&mut self, after: &Model) -> Vec<Tx> {
        let unmined: Vec<TxId> = after.old_unmined(Height::MAX).into_iter().map(|(_, txid)| txid).collect();
        let Some(wanted) = self.rng.pick(&unmined) else { return Vec::new() };
        let mut needed = vec![wanted];
        let mut place = 0;
        while let Some(txid) = needed.get(place).copied() {
            place += 1;
            let inputs = after.records()[&txid].body.inputs.iter();
            let parents: Vec<TxId> = inputs.map(|input: &Input| input.outpoint.txid).collect();
            needed.extend(parents.into_iter().filter(|parent| unmined.contains(parent)));
        }
        // They were made parents first, so that is the order a block needs.
        self.txs.iter().filter(|tx| needed.contains(&tx.txid)).cloned().collect()
    }

    /// A block number: mostly a later one, now and then one that was given before.
    pub(super) fn block_id(&mut self, model: &Model) -> u32 {
        let greatest = model.greatest_block_id();
        if self.rng.chance(85) {
            greatest + self.rng.between(1, 4)
        } else {
            self.rng.between(1, greatest + 1)
        }
    }

    /// A rollback.
    pub(super) fn roll_back(&mut self, model: &Model, succeed: bool) -> Plan {
        let mode = if self.rng.chance(50) { RollbackMode::Node } else { RollbackMode::Follower };
        let tip = model.last_applied().map_or(self.base, |last| last.height);
        if !succeed && self.rng.chance(40) {
            let height = tip.plus(self.rng.between(0, 2)).minus(self.rng.between(0, 12));
            let target = Some((height, block_hash(self.rng.between(0, self.salt + 1))));
            return Plan::Fixed(Op::RollBack { target, mode });
        }
        if self.rng.chance(6) {
            return Plan::Fixed(Op::RollBack { target: None, mode });
        }
        let blocks = [0, 1, 1, 1, 2, 2, 3, 4, 9][self.rng.below(9) as usize];
        Plan::Back { blocks, right_hash: succeed || self.rng.chance(70), mode }
    }

    /// The output an input names, for requests about a transaction's own inputs.
    pub(super) fn input_of(&self, model: &Model, txid: TxId, vin: u32) -> Option<OutPoint> {
        model.records().get(&txid)?.body.inputs.get(vin as usize).map(|input| input.outpoint)
    }
}
