//! The judge: knows everything that ever happened, and says what is needed. It shares no code with the rules.

use std::collections::{BTreeMap, BTreeSet};

use sapwood_rules::Policy;
use sapwood_types::{BlockHash, OutPoint, Tx, TxId};

use crate::state_machine::rng::Rng;

/// Everything that ever happened.
pub(super) struct History {
    pub(super) policy: Policy,
    /// Every transaction ever made.
    pub(super) txs: BTreeMap<TxId, Tx>,
    /// The blocks of the branch that counts, by height.
    pub(super) chain: BTreeMap<u32, (BlockHash, Vec<TxId>)>,
    /// The lowest height a rollback can reach.
    pub(super) floor: u32,
    /// The greatest height there ever was.
    pub(super) highest: u32,
    /// Transactions that lost, and when.
    pub(super) lost: BTreeMap<TxId, u32>,
    /// Up to which height somebody preserved a transaction.
    pub(super) preserved: BTreeMap<TxId, u32>,
    /// Up to which height each hold lets go; nothing if it lets nothing go.
    pub(super) holds: BTreeMap<String, Option<u32>>,
    /// Transactions whose record is known to be gone.
    pub(super) gone: BTreeSet<TxId>,
}

/// The branch that counts, as maps.
pub(super) struct View {
    pub(super) mined_at: BTreeMap<TxId, u32>,
    /// What transactions of the chain spend.
    pub(super) spent: BTreeMap<OutPoint, TxId>,
    /// What unmined transactions that have not lost spend.
    pub(super) claimed: BTreeMap<OutPoint, TxId>,
}

impl View {
    /// The height at which a transaction settled: the last of its own block and its spenders'. Nothing if an output is unspent.
    fn settled(&self, tx: &Tx) -> Option<u32> {
        let mut settled = *self.mined_at.get(&tx.txid)?;
        for outpoint in spendable(tx) {
            let spender = self.spent.get(&outpoint)?;
            settled = settled.max(self.mined_at[spender]);
        }
        Some(settled)
    }
}

pub(super) fn spendable(tx: &Tx) -> impl Iterator<Item = OutPoint> {
    let kept = (0..).zip(&tx.outputs).filter(|(_, output)| output.spendable);
    kept.map(|(vout, _)| OutPoint::new(tx.txid, vout))
}

impl History {
    pub(super) fn new(policy: Policy) -> Self {
        History {
            policy,
            txs: BTreeMap::new(),
            chain: BTreeMap::new(),
            floor: 0,
            highest: 0,
            lost: BTreeMap::new(),
            preserved: BTreeMap::new(),
            holds: BTreeMap::new(),
            gone: BTreeSet::new(),
        }
    }

    pub(super) fn tip(&self) -> Option<(u32, BlockHash)> {
        self.chain.last_key_value().map(|(height, (hash, _))| (*height, *hash))
    }

    pub(super) fn view(&self) -> View {
        let mut mined_at = BTreeMap::new();
        for (height, (_, txs)) in &self.chain {
            mined_at.extend(txs.iter().map(|txid| (*txid, *height)));
        }
        let (mut spent, mut claimed) = (BTreeMap::new(), BTreeMap::new());
        for tx in self.txs.values() {
            let spends = if mined_at.contains_key(&tx.txid) {
                &mut spent
            } else if self.lost.contains_key(&tx.txid) {
                continue;
            } else {
                &mut claimed
            };
            spends.extend(tx.inputs.iter().map(|input| (input.outpoint, tx.txid)));
        }
        View { mined_at, spent, claimed }
    }

    pub(super) fn is_waiting(&self, view: &View, txid: &TxId) -> bool {
        !view.mined_at.contains_key(txid) && !self.lost.contains_key(txid)
    }

    pub(super) fn applied(&mut self, height: u32, hash: BlockHash, txs: Vec<Tx>, losers: Vec<TxId>) {
        let first = self.chain.is_empty();
        for tx in &txs {
            self.lost.remove(&tx.txid);
            // What a block brings is there again, even if it was gone.
            self.gone.remove(&tx.txid);
        }
        for loser in losers {
            self.lost.entry(loser).or_insert(height);
        }
        self.chain.insert(height, (hash, txs.iter().map(|tx| tx.txid).collect()));
        self.txs.extend(txs.into_iter().map(|tx| (tx.txid, tx)));
        self.highest = self.highest.max(height);
        let window = height.saturating_sub(self.policy.reorg_window);
        self.floor = if first { height } else { self.floor.max(window) };
    }

    pub(super) fn rolled_back(&mut self, target: u32) {
        self.chain.retain(|height, _| *height <= target);
    }

    /// Why somebody needs the record of a transaction, if so.
    pub(super) fn needed(&self, view: &View, tx: &Tx) -> Option<String> {
        if self.is_waiting(view, &tx.txid) {
            return Some("it waits to be mined".into());
        }
        let mined_at = view.mined_at.get(&tx.txid)?;
        if *mined_at > self.floor {
            return Some(format!("its block {mined_at} can be taken back to {}", self.floor));
        }
        for outpoint in spendable(tx) {
            match view.spent.get(&outpoint) {
                None => return Some(format!("{outpoint} is a live coin")),
                Some(child) if view.mined_at[child] > self.floor => {
                    return Some(format!(
                        "its child {child} can be taken back and has to be validated again"
                    ));
                }
                Some(_) => {}
            }
        }
        None
    }

    /// Why the record of a transaction must not have been deleted just now, if so.
    fn too_early(&self, view: &View, tx: &Tx) -> Option<String> {
        let settled = self.lost.get(&tx.txid).copied().or_else(|| view.settled(tx));
        let Some(settled) = settled else { return Some("it is not settled".into()) };
        let due = settled + self.policy.retention;
        if due > self.highest {
            return Some(format!("it is due at {due}, and the chain was never above {}", self.highest));
        }
        if let Some(until) = self.preserved.get(&tx.txid).filter(|until| **until > self.highest) {
            return Some(format!("it is preserved until {until}"));
        }
        let mut holds = self.holds.iter();
        let holder = holds.find(|(_, lets_go)| lets_go.is_none_or(|lets_go| lets_go < due))?;
        Some(format!("it is due at {due}, and {holder:?} does not let go"))
    }

    /// Panics if something is gone that should be there.
    pub(super) fn judge(&mut self, stored: &BTreeSet<TxId>, when: &str) {
        let view = self.view();
        let mut newly = Vec::new();
        for tx in self.txs.values().filter(|tx| !stored.contains(&tx.txid)) {
            let why = self.needed(&view, tx);
            let newly_gone = !self.gone.contains(&tx.txid);
            let why = why.or_else(|| newly_gone.then(|| self.too_early(&view, tx)).flatten());
            if let Some(why) = why {
                panic!("{when}: transaction {} is gone, although {why}", tx.txid);
            }
            newly.push(tx.txid);
        }
        self.gone.extend(newly);
    }

    /// Whether the record of a transaction has to stay for ever, if nothing more happens.
    pub(super) fn stays(&self, view: &View, tx: &Tx) -> bool {
        self.is_waiting(view, &tx.txid)
            || (!self.lost.contains_key(&tx.txid)
                && spendable(tx).any(|outpoint| !view.spent.contains_key(&outpoint)))
    }

    /// Unspent outputs of the chain; those that an unmined transaction claims only if `claimed`.
    pub(super) fn coins(&self, view: &View, claimed: bool) -> Vec<OutPoint> {
        let mined = view.mined_at.keys().map(|txid| &self.txs[txid]);
        let free = |outpoint: &OutPoint| {
            !view.spent.contains_key(outpoint) && (claimed || !view.claimed.contains_key(outpoint))
        };
        mined.flat_map(spendable).filter(free).collect()
    }

    /// Transactions that wait, each after those it spends from, as far as their inputs are there.
    pub(super) fn ready(&self, view: &View, rng: &mut Rng, percent: u64, revive: bool) -> Vec<Tx> {
        let (mut taken, mut spent) = (Vec::<Tx>::new(), BTreeSet::new());
        let mut on_chain: BTreeSet<TxId> = view.mined_at.keys().copied().collect();
        loop {
            let candidates = self.txs.values().filter(|tx| {
                let wanted = self.is_waiting(view, &tx.txid) || (revive && self.lost.contains_key(&tx.txid));
                let there = |outpoint: &OutPoint| {
                    on_chain.contains(&outpoint.txid)
                        && !view.spent.contains_key(outpoint)
                        && !spent.contains(outpoint)
                };
                wanted && !on_chain.contains(&tx.txid) && tx.inputs.iter().all(|input| there(&input.outpoint))
            });
            // A transaction whose id divides by five is never mined.
            let candidates: Vec<Tx> = candidates.filter(|tx| tx.txid.0[0] % 5 != 0).cloned().collect();
            match rng.pick(&candidates) {
                Some(tx) if rng.chance(percent) => {
                    spent.extend(tx.inputs.iter().map(|input| input.outpoint));
                    on_chain.insert(tx.txid);
                    taken.push(tx);
                }
                _ => return taken,
            }
        }
    }
}
