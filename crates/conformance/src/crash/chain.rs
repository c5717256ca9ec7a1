//! A chain in bulk: what a node does to its store, always with something to prune.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    model::Model,
    state_machine::{op::Op, rng::Rng},
};
use bytes::Bytes;
use sapwood_ledger::{ApplyOptions, CreateRequest, Cursor, PruneRequest, PruneWhat, RollbackMode};
use sapwood_rules::{Policy, PruneContext};
use sapwood_types::{
    AddressHash, Block, BlockHash, Height, Input, OutPoint, Output, Slot, Tx, TxId, TxRecord,
};

const FIRST: Height = Height(100);
/// With more coins than this, transactions spend more than they make.
const MANY_COINS: usize = 1200;

/// Makes operations that fit the model, nearly all of which succeed.
#[derive(Clone)]
pub struct Chain {
    rng: Rng,
    seed: u64,
    made: u64,
    /// Transactions that were made and may have to be mined again.
    txs: BTreeMap<TxId, Tx>,
}

impl Chain {
    /// Small enough that reorganisations reach the floor and records become due soon.
    pub const POLICY: Policy = Policy {
        retention: 8,
        reorg_window: 6,
        coinbase_maturity: 2,
        reassignment_delay: 4,
        unmined_retention: 3,
        parent_preservation: 5,
    };

    /// Makes the operations of a seed.
    pub fn new(seed: u64) -> Self {
        Chain { rng: Rng::new(seed), seed, made: 0, txs: BTreeMap::new() }
    }

    /// Makes the next operation, which fits the model.
    pub fn next(&mut self, model: &Model) -> Op {
        match self.rng.weighted(&[52, 16, 16, 8, 3, 3, 2]) {
            0 => self.block(model),
            1 => self.mempool(model),
            2 => self.prune(model),
            3 => self.roll_back(model),
            4 => Op::PruneUndo { below: tip(model).minus(self.rng.between(0, 8)) },
            5 => self.preserve(model),
            _ => Op::ExpirePreservations { height: tip(model), limit: 10 },
        }
    }

    fn hash(&mut self) -> [u8; 32] {
        self.made += 1;
        Rng::new(self.seed.rotate_left(23) ^ self.made).bytes()
    }

    fn outputs(&mut self, count: u32) -> Vec<Output> {
        let rng = &mut self.rng;
        let output = |_| {
            if rng.chance(5) {
                return Output::data(&b"data"[..]);
            }
            let owner = rng.below(16);
            Output {
                value: rng.below(1 << 40),
                script: Bytes::from(format!("the locking script of owner {owner}")),
                extra: Bytes::new(),
                credential: rng.chance(30).then_some(AddressHash([owner as u8; 28])),
                spendable: true,
            }
        };
        (0..count).map(output).collect()
    }

    fn tx(&mut self, inputs: Vec<OutPoint>, outputs: u32) -> Tx {
        let outputs = self.outputs(outputs);
        let tx = Tx {
            txid: TxId(self.hash()),
            version: 2,
            locktime: 0,
            fee: Some(self.rng.below(1000)),
            size: 250,
            coinbase: inputs.is_empty(),
            inputs: inputs.into_iter().map(Input::of).collect(),
            outputs,
            raw: Default::default(),
        };
        self.txs.insert(tx.txid, tx.clone());
        tx
    }

    /// A transaction that takes some of these coins away.
    fn spending(&mut self, coins: &mut Vec<OutPoint>) -> Option<Tx> {
        let many = coins.len() > MANY_COINS;
        let wanted = if many { self.rng.between(2, 5) } else { self.rng.between(1, 2) };
        let mut inputs = Vec::new();
        while inputs.len() < wanted as usize && !coins.is_empty() {
            let place = self.rng.below(coins.len() as u64) as usize;
            inputs.push(coins.swap_remove(place));
        }
        let outputs = match self.rng.below(100) {
            // More than one page.
            0 | 1 => self.rng.between(129, 300),
            _ if many => 1,
            _ => self.rng.between(1, 4),
        };
        if inputs.is_empty() { None } else { Some(self.tx(inputs, outputs)) }
    }

    fn block(&mut self, model: &Model) -> Op {
        let height = model.last_applied().map_or(FIRST, |last| last.height.next());
        let outputs = self.rng.between(4, 16);
        let mut txs = vec![self.tx(Vec::new(), outputs)];
        // Now and then a transaction wins against one that waits.
        let rival = if self.rng.chance(25) { self.held_by_unmined(model) } else { None };
        let loser = rival.map(|(_, loser)| loser);
        let ready = ready(model).into_iter().filter(|txid| Some(*txid) != loser).take(30);
        txs.extend(ready.filter_map(|txid| self.txs.get(&txid).cloned()));
        let mut coins = coins(model, height, |record| record.head.mined_at().is_some());
        txs.extend(rival.map(|(outpoint, _)| self.tx(vec![outpoint], 2)));
        for _ in 0..self.rng.between(5, 40) {
            let Some(tx) = self.spending(&mut coins) else { break };
            if self.rng.chance(30) {
                coins.extend(spendable(&tx));
            }
            txs.push(tx);
        }
        self.block_of(model, txs)
    }

    fn block_of(&mut self, model: &Model, txs: Vec<Tx>) -> Op {
        let last = model.last_applied();
        let block = Block {
            height: last.map_or(FIRST, |last| last.height.next()),
            hash: BlockHash(self.hash()),
            parent: last.map_or(BlockHash::default(), |last| last.hash),
            time: 1_700_000_000 + self.made,
            txs,
        };
        Op::ApplyBlock { block: Arc::new(block), options: ApplyOptions::default() }
    }

    /// A block of about 200 KiB that no compression makes smaller.
    pub fn large_block(&mut self, model: &Model) -> Op {
        let txs = (0..10).map(|_| {
            let mut tx = self.tx(Vec::new(), 3);
            for output in tx.outputs.iter_mut().filter(|output| output.spendable) {
                output.extra = Bytes::copy_from_slice(&self.rng.bytes::<7000>());
            }
            tx
        });
        let txs = txs.collect();
        self.block_of(model, txs)
    }

    /// An output of a mined transaction that an unmined one holds, and which one.
    fn held_by_unmined(&mut self, model: &Model) -> Option<(OutPoint, TxId)> {
        let mined = model.records().values().filter(|record| record.head.mined_at().is_some());
        let held = mined.flat_map(|record| {
            (0..).zip(&record.slots).filter_map(|(vout, slot)| match slot {
                Slot::Spent { spender, child_mined_at: None } => Some((record.outpoint(vout), spender.child)),
                _ => None,
            })
        });
        self.rng.pick(&held.collect::<Vec<_>>())
    }

    fn mempool(&mut self, model: &Model) -> Op {
        let height = tip(model).next();
        let mut coins = coins(model, height, |_| true);
        let count = self.rng.between(2, 8);
        let txs = (0..count).filter_map(|_| self.spending(&mut coins));
        Op::Create { batch: txs.map(CreateRequest::unmined).collect(), height }
    }

    fn prune(&mut self, model: &Model) -> Op {
        let current = tip(model);
        let mut txids: Vec<TxId> = model.due(Height::MAX).into_iter().map(|due| due.txid).collect();
        txids.truncate(self.rng.between(1, 150) as usize);
        let retention = Self::POLICY.retention;
        let context = PruneContext { current, safe: Some(current), retention };
        let cursor = Cursor(Bytes::copy_from_slice(&self.rng.bytes::<36>()));
        let save_cursor = self.rng.chance(70).then_some(cursor);
        let check_children = self.rng.chance(50);
        Op::Prune {
            request: PruneRequest {
                what: PruneWhat::Records { txids, cursor: save_cursor },
                check_children,
                ..PruneRequest::records(vec![], context)
            },
        }
    }

    fn roll_back(&mut self, model: &Model) -> Op {
        let mode = if self.rng.chance(50) { RollbackMode::Node } else { RollbackMode::Follower };
        let floor = model.rollback_floor().unwrap_or_default();
        let height = tip(model).minus(self.rng.between(1, Self::POLICY.reorg_window)).max(floor);
        let above = model.undo(height.next());
        let target = above.and_then(|undo| undo.previous).map(|mark| (mark.height, mark.hash));
        // Without a block to go back to, ask for one that is not there: that is refused.
        Op::RollBack { target: target.or(Some((height, BlockHash::default()))), mode }
    }

    fn preserve(&mut self, model: &Model) -> Op {
        let stored: Vec<TxId> = model.records().keys().copied().collect();
        let txids = (0..5).filter_map(|_| self.rng.pick(&stored)).collect();
        Op::Preserve { txids, until: tip(model).plus(self.rng.between(0, 6)) }
    }
}

fn tip(model: &Model) -> Height {
    model.last_applied().map_or(FIRST, |last| last.height)
}

fn spendable(tx: &Tx) -> impl Iterator<Item = OutPoint> {
    let numbered = (0..).zip(&tx.outputs).filter(|(_, output)| output.spendable);
    numbered.map(|(vout, _)| OutPoint::new(tx.txid, vout))
}

/// Everything that can be spent at a height.
fn coins(model: &Model, height: Height, wanted: impl Fn(&TxRecord) -> bool) -> Vec<OutPoint> {
    let mut coins = Vec::new();
    for record in model.records().values() {
        let head = &record.head;
        let mature = head.spending_height.is_none_or(|from| from <= height);
        if mature && !head.is_conflicting() && wanted(record) {
            let unspent = (0..).zip(&record.slots).filter(|(_, slot)| slot.is_unspent());
            coins.extend(unspent.map(|(vout, _)| record.outpoint(vout)));
        }
    }
    coins
}

/// Unmined transactions that hold all they spend, all of it mined.
fn ready(model: &Model) -> Vec<TxId> {
    let held = |txid: TxId, outpoint: OutPoint| {
        model.records().get(&outpoint.txid).is_some_and(|parent| {
            let by = parent.slots.get(outpoint.vout as usize).and_then(Slot::spender);
            parent.head.mined_at().is_some() && by.is_some_and(|by| by.child == txid)
        })
    };
    let unmined = model.unmined().into_iter();
    unmined.filter(|tx| tx.inputs.iter().all(|input| held(tx.txid, *input))).map(|tx| tx.txid).collect()
}
