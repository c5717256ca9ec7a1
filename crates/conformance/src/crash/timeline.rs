//! What happens to a store, operation by operation, and what it must look like after each: a function of a workload and a seed.
//!
//! Two processes that know both agree on everything without a word. So the process that is killed and the one that judges
//! what it left behind need to exchange nothing but numbers.

use std::{collections::VecDeque, fmt, str::FromStr};

use crate::{
    model::Model,
    state_machine::{
        generate::Generator,
        op::{Op, Plan},
        outcome::Outcome,
    },
};
use sapwood_ledger::{PruneWhat, digest::StateDigest};
use sapwood_rules::Policy;
use sapwood_types::{Height, TxId};

use super::chain::Chain;

/// What kind of work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Every operation there is, on few records, a third of them refused: the state machine's sequences.
    EveryOperation,
    /// What a node does: blocks of dozens of transactions, a mempool, reorganisations, pruning. Enough bytes for the engine to
    /// flush and compact all the time.
    Chain,
    /// Nothing but blocks of large transactions, to fill a disk.
    Filling,
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Workload::EveryOperation => "every-operation",
            Workload::Chain => "chain",
            Workload::Filling => "filling",
        })
    }
}

impl FromStr for Workload {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Workload::EveryOperation, Workload::Chain, Workload::Filling];
        known.into_iter().find(|workload| workload.to_string() == text).ok_or_else(|| text.to_owned())
    }
}

/// A retention so long that no slot ever forgets its spender. What some operations do depends on whether it is forgotten, and
/// when that happens is the store's own affair, so the model could not foresee it. The chain workload asks nothing of the
/// kind, and has slots forgotten.
const NOTHING_IS_FORGOTTEN: u32 = 1_000_000;

#[derive(Clone)]
enum Source {
    EveryOperation(Box<Generator>),
    Chain(Box<Chain>),
    Filling(Box<Chain>),
}

impl Source {
    fn new(workload: Workload, seed: u64) -> Self {
        match workload {
            Workload::EveryOperation => Source::EveryOperation(Box::new(Generator::new(seed))),
            Workload::Chain => Source::Chain(Box::new(Chain::new(seed))),
            Workload::Filling => Source::Filling(Box::new(Chain::new(seed))),
        }
    }

    fn policy(&self) -> Policy {
        match self {
            Source::EveryOperation(generator) => {
                Policy { retention: NOTHING_IS_FORGOTTEN, ..generator.policy() }
            }
            Source::Chain(_) | Source::Filling(_) => Chain::POLICY,
        }
    }

    fn next(&mut self, model: &Model, number: u64) -> Op {
        match self {
            Source::EveryOperation(generator) => unforgetting(generator.next(model).plan, model, number),
            Source::Chain(chain) => chain.next(model),
            Source::Filling(chain) => chain.large_block(model),
        }
    }
}

/// The same operation, but policies keep the spenders, and records are judged by a retention that lets them go.
fn unforgetting(plan: Plan, model: &Model, number: u64) -> Op {
    let mut op = plan.resolve(model);
    match &mut op {
        Op::SetPolicy { policy } => policy.retention = NOTHING_IS_FORGOTTEN,
        Op::Prune { request } => {
            if request.context.retention == NOTHING_IS_FORGOTTEN {
                request.context.retention = 2 + (number % 5) as u32;
            }
            // All in one write: a kill leaves an operation done or not.
            if let PruneWhat::Settled { limit, per_write, .. } = &mut request.what {
                *per_write = *limit;
            }
        }
        _ => {}
    }
    op
}

/// The model, and how far it has got. Operations are numbered from 1; after operation `n` the timeline is at `n`.
pub struct Timeline {
    workload: Workload,
    seed: u64,
    source: Source,
    model: Model,
    at: u64,
    /// Blocks of a row that are still to come: here each is an operation of its own.
    row: VecDeque<Op>,
    /// The operation that led here, for messages.
    last: Option<Op>,
    /// The digest at each number that was asked for, so that looking back is cheap.
    digests: Vec<Option<[u8; 32]>>,
}

impl Timeline {
    /// An empty store.
    pub fn new(workload: Workload, seed: u64) -> Self {
        let source = Source::new(workload, seed);
        let model = Model::new(source.policy());
        Timeline {
            workload,
            seed,
            source,
            model,
            at: 0,
            row: VecDeque::new(),
            last: None,
            digests: Vec::new(),
        }
    }

    /// How many operations are done.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The state now.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The policy a store has to be opened with to go on from here. A store does not keep it.
    pub fn policy(&self) -> Policy {
        self.model.policy()
    }

    /// Does the next operation, and says what must come of it.
    pub fn step(&mut self) -> (Op, Outcome) {
        let op = self.next();
        let outcome = op.on_model(&mut self.model);
        self.at += 1;
        self.last = Some(op.clone());
        (op, outcome)
    }

    fn next(&mut self) -> Op {
        if let Some(op) = self.row.pop_front() {
            return op;
        }
        match self.source.next(&self.model, self.at) {
            Op::ApplyBlocks { blocks } => {
                let single = |(block, options)| Op::ApplyBlock { block, options };
                self.row.extend(blocks.into_iter().map(single));
                self.next()
            }
            op => op,
        }
    }

    /// Goes to just after operation `number`, forwards or back.
    pub fn go_to(&mut self, number: u64) {
        if number < self.at {
            let digests = std::mem::take(&mut self.digests);
            *self = Timeline { digests, ..Timeline::new(self.workload, self.seed) };
        }
        while self.at < number {
            self.step();
        }
    }

    /// The digest a store must have just after operation `number`.
    pub fn digest_at(&mut self, number: u64) -> [u8; 32] {
        let place = number as usize;
        if let Some(Some(known)) = self.digests.get(place) {
            return *known;
        }
        self.go_to(number);
        let digest = digest(&self.model);
        if self.digests.len() <= place {
            self.digests.resize(place + 1, None);
        }
        self.digests[place] = Some(digest);
        digest
    }

    /// Where the timeline is, in words.
    pub fn describe(&mut self, number: u64) -> String {
        self.go_to(number);
        let name = self.last.as_ref().map_or("nothing", Op::name);
        let (workload, seed, records) = (self.workload, self.seed, self.model.records().len());
        format!("operation {number} of {workload} with seed {seed} ({name}; {records} records after it)")
    }

    /// Ids of records that are there now.
    pub fn txids(&self) -> Vec<TxId> {
        self.model.records().keys().copied().collect()
    }
}

/// The digest of a store in the state of the model.
pub fn digest(model: &Model) -> [u8; 32] {
    let floor = model.rollback_floor();
    let mut digest = StateDigest::new(floor);
    for (txid, record) in model.records() {
        let (first, further) = record.to_pages();
        digest.first_page(txid, &first).unwrap();
        further.into_iter().for_each(|page| digest.further_page(page));
    }
    let end = model.last_applied().map_or(0, |last| last.height.0 + 1);
    let undo_heights = (0..end).map(Height).filter(|height| model.undo(*height).is_some());
    digest.finish(model.last_applied(), floor, model.greatest_block_id(), model.prune_cursor(), undo_heights)
}
