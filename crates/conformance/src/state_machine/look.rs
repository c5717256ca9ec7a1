//! What is looked at: everything a sequence ever mentioned, at heights and in pages that vary.

use std::collections::{BTreeMap, BTreeSet};

use sapwood_ledger::AddressKind;
use sapwood_rules::{Hold, PruneContext, safe_height};
use sapwood_types::{AddressHash, Height, OutPoint, Tx, TxId};

use super::{
    op::{Op, Plan, block_hash},
    rng::Rng,
};
use crate::model::Model;

/// Everything a sequence has mentioned so far.
#[derive(Clone, Debug, Default)]
pub struct Known {
    txids: BTreeSet<TxId>,
    outpoints: BTreeSet<OutPoint>,
    addresses: BTreeSet<(AddressKind, AddressHash)>,
    heights: BTreeSet<Height>,
    names: BTreeMap<String, String>,
}

impl Known {
    /// Takes note of what a step mentions.
    pub fn note(&mut self, plan: &Plan, op: &Op) {
        plan.txs().into_iter().for_each(|tx| self.note_tx(tx));
        for salt in plan.salts() {
            self.names.insert(block_hash(salt).to_string(), format!("b{salt}"));
        }
        match op {
            Op::ApplyBlock { block, .. } => self.note_height(block.height),
            Op::ApplyBlocks { blocks } => blocks.iter().for_each(|(block, _)| self.note_height(block.height)),
            Op::Reassign { batch, .. } => {
                for request in batch {
                    let script = AddressHash::of_script(&request.script);
                    self.addresses.insert((AddressKind::Address, script));
                    self.addresses.extend(request.credential.map(|hash| (AddressKind::Credential, hash)));
                }
            }
            _ => {}
        }
    }

    fn note_height(&mut self, height: Height) {
        self.heights.extend([height, height.minus(1), height.next()]);
    }

    fn note_tx(&mut self, tx: &Tx) {
        let number = self.names.values().filter(|name| name.starts_with('t')).count();
        self.names.entry(tx.txid.to_string()).or_insert(format!("t{number}"));
        // An id nobody has ever stored is looked at too.
        self.txids.extend(tx.inputs.iter().map(|input| input.outpoint.txid).chain([tx.txid]));
        let count = tx.outputs.len() as u32;
        for (vout, output) in (0..).zip(&tx.outputs) {
            if output.spendable {
                self.addresses.insert((AddressKind::Address, AddressHash::of_script(&output.script)));
                self.addresses.extend(output.credential.map(|hash| (AddressKind::Credential, hash)));
            }
            // Of a huge transaction the data outputs are all alike.
            if count < 16 || output.spendable || vout % 64 == 63 {
                self.outpoints.insert(OutPoint::new(tx.txid, vout));
            }
        }
        self.outpoints.insert(OutPoint::new(tx.txid, count));
    }

    /// Puts short names in the place of hashes.
    pub fn readable(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (hash, name) in &self.names {
            for wrapped in [format!("TxId({hash})"), format!("BlockHash({hash})"), hash.clone()] {
                text = text.replace(&wrapped, name);
            }
        }
        text
    }
}

/// How to look at a state.
#[derive(Clone, Debug)]
pub struct Look {
    /// Records asked for.
    pub txids: Vec<TxId>,
    /// Outputs asked for.
    pub outpoints: Vec<OutPoint>,
    /// Addresses and credentials asked for.
    pub addresses: Vec<(AddressKind, AddressHash)>,
    /// Heights whose undo records are asked for.
    pub heights: Vec<Height>,
    /// The height at which outputs are looked at.
    pub at: Height,
    /// A cutoff for old unmined transactions.
    pub cutoff: Height,
    /// Up to which height due records are listed.
    pub due_up_to: Height,
    /// By what records are judged.
    pub context: PruneContext,
    /// Entries on a page of each kind of listing.
    pub limits: Limits,
}

/// Entries on a page. Small pages take many calls, so each time only some listings have them.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "each is that of one listing")]
pub struct Limits {
    pub old_unmined: usize,
    pub unmined: usize,
    pub by_address: usize,
    pub due: usize,
}

impl Limits {
    fn new(rng: &mut Rng) -> Self {
        let mut limit = || if rng.chance(40) { rng.between(1, 6) as usize } else { 1000 };
        Limits { old_unmined: limit(), unmined: limit(), by_address: limit(), due: limit() }
    }
}

impl Look {
    /// A look at all that is known, varied by `seed`.
    pub fn new(known: &Known, model: &Model, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let tip = model.last_applied().map_or(Height(3), |last| last.height);
        let near = |rng: &mut Rng| tip.plus(rng.between(0, 4)).minus(rng.between(0, 6));
        Look {
            txids: known.txids.iter().copied().collect(),
            outpoints: known.outpoints.iter().copied().collect(),
            addresses: known.addresses.iter().copied().collect(),
            heights: heights(&mut rng, known, tip),
            at: near(&mut rng),
            cutoff: near(&mut rng),
            due_up_to: near(&mut rng),
            context: context(&mut rng, model),
            limits: Limits::new(&mut rng),
        }
    }
}

/// The heights around the last block, and now and then all there ever were: every one takes a call.
fn heights(rng: &mut Rng, known: &Known, tip: Height) -> Vec<Height> {
    let all = rng.chance(12);
    let near = |height: &Height| *height <= tip.next() && *height >= tip.minus(4);
    known.heights.iter().copied().filter(|height| all || near(height) || rng.chance(5)).collect()
}

/// Something to judge records by: mostly the chain as it is, sometimes a later height, sometimes with holds.
pub fn context(rng: &mut Rng, model: &Model) -> PruneContext {
    let tip = model.last_applied().map_or(Height(3), |last| last.height);
    let current = if rng.chance(60) { tip } else { tip.plus(rng.between(0, 8)).minus(rng.between(0, 4)) };
    let retention = if rng.chance(85) { model.policy().retention } else { rng.between(0, 7) };
    let holds: Vec<Hold> = (0..[0, 0, 0, 1, 2][rng.below(5) as usize]).map(|_| hold(rng, tip)).collect();
    PruneContext { current, safe: safe_height(current, &holds, 1000).height, retention }
}

fn hold(rng: &mut Rng, tip: Height) -> Hold {
    Hold {
        name: format!("hold {}", rng.below(10)),
        owner: "the state machine".into(),
        keep_from: rng.chance(85).then(|| tip.plus(rng.between(0, 6)).minus(rng.between(0, 6))),
        expires: rng.chance(20).then(|| u64::from(rng.between(990, 1010))),
        reason: "to see whether it is honoured".into(),
    }
}
