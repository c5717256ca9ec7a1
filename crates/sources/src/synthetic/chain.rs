//! One step after another.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use sapwood_types::{Block, BlockHash, Height, Tx, TxId};

use super::{
    archive::Archive,
    coins::{Coins, Origin, Taken},
    maker::{self, Maker},
    mempool::{Fate, Mempool, Unmined},
    options::{OptionsError, SyntheticOptions},
    random::Random,
};
use crate::{ChainPoint, SourceError, SourceHeader};

/// Of the double spends, how many show both transactions before one is mined.
const RIVAL_SEEN: f64 = 0.5;
/// Of what a reorganisation took back and its new branch does not mine, how much loses against a rival, and how much is never
/// mined. The rest is mined a little later.
const LOST_LOSES: f64 = 0.2;
const LOST_NEVER: f64 = 0.2;

/// What happened in one step, in this order.
#[derive(Clone, Debug)]
pub struct Step {
    /// Unmined transactions that everybody forgets, children before parents. What they spent may be spent by others now.
    pub expired: Vec<TxId>,
    /// Unmined transactions that were seen before the blocks of this step, parents before children.
    pub seen: Vec<Seen>,
    /// How the chain went on.
    pub outcome: Outcome,
    /// Unmined transactions that have lost: a block has a rival, or what they spend is gone. With their descendants.
    /// The coinbases of blocks that were taken back go without saying.
    pub losers: Vec<TxId>,
}

/// A transaction that was seen before it was mined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The transaction.
    pub tx: Tx,
    /// The unmined transaction seen before that spends the same output, if there is one. As things
    /// stand, a block will mine this one.
    pub rival_of: Option<TxId>,
}

/// How the chain went on.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// By one block.
    Extended(Arc<Block>),
    /// Another branch won.
    Reorganised {
        /// The last block that both branches have.
        fork: ChainPoint,
        /// The blocks that were taken back, newest first.
        lost: Vec<Arc<Block>>,
        /// The blocks after the fork, oldest first. One more than were taken back.
        made: Vec<Arc<Block>>,
    },
}

impl Step {
    /// The blocks that became part of the best chain, oldest first.
    pub fn blocks(&self) -> &[Arc<Block>] {
        match &self.outcome {
            Outcome::Extended(block) => std::slice::from_ref(block),
            Outcome::Reorganised { made, .. } => made,
        }
    }
}

/// What is needed to take a block back.
pub(super) struct Undo {
    pub(super) block: Arc<Block>,
    /// What its transactions spent, one after the other.
    pub(super) spends: Vec<Taken>,
}

/// A chain that is made up as it goes. The first block has height 0 and no parent.
pub struct SyntheticChain {
    pub(super) options: SyntheticOptions,
    pub(super) random: Random,
    pub(super) maker: Maker,
    pub(super) coins: Coins,
    pub(super) mempool: Mempool,
    pub(super) archive: Archive,
    /// The newest blocks, oldest first.
    pub(super) undo: VecDeque<Undo>,
    /// How many blocks were made, on all branches.
    pub(super) blocks_made: u64,
    /// The last block that only made outputs to begin with, once there are enough. Never taken back.
    began_at: Option<Height>,
}

impl SyntheticChain {
    /// A chain without any block so far.
    pub fn new(options: SyntheticOptions) -> Result<Self, OptionsError> {
        options.validate()?;
        Ok(Self {
            random: Random::new(options.seed),
            maker: Maker::new(&options),
            coins: Coins::new(options.remember),
            mempool: Mempool::new(options.coinbase_maturity),
            archive: Archive::new(options.remember),
            undo: VecDeque::new(),
            blocks_made: 0,
            began_at: None,
            options,
        })
    }

    /// What the chain looks like.
    pub fn options(&self) -> &SyntheticOptions {
        &self.options
    }

    /// Whether the next step still makes outputs to begin with.
    pub fn is_beginning(&self) -> bool {
        self.began_at.is_none()
    }

    /// The last block that made outputs to begin with: after it, every transaction but the coinbase spends something.
    pub fn began_at(&self) -> Option<Height> {
        self.began_at
    }

    /// How many mined outputs can be spent and are not held by an unmined transaction.
    pub fn spendable_outputs(&self) -> u64 {
        self.coins.count()
    }

    /// How many transactions were seen and wait to be mined or forgotten.
    pub fn unmined(&self) -> usize {
        self.mempool.len()
    }

    /// The script of a repeated address. The address of rank 0 is paid most often.
    pub fn address(&self, rank: u32) -> Option<Bytes> {
        (rank < self.options.addresses).then(|| maker::address(self.options.seed, rank))
    }

    /// The last block of the best chain.
    pub fn tip(&self) -> Option<ChainPoint> {
        self.archive.tip()
    }

    /// The block of the best chain at a height.
    pub fn hash_at(&self, height: Height) -> Option<BlockHash> {
        self.archive.hash_at(height)
    }

    /// What is known of a block. Blocks off the best chain are forgotten with their height; those on it never.
    pub fn header(&self, hash: &BlockHash) -> Option<SourceHeader> {
        self.archive.header(hash)
    }

    /// A block of any branch. An error says so if it is no longer remembered.
    pub fn block(&self, hash: &BlockHash) -> Result<Option<Arc<Block>>, SourceError> {
        self.archive.block(hash)
    }

    /// How many blocks are remembered as a whole, on the best chain or not.
    pub fn remembered(&self) -> usize {
        self.archive.remembered()
    }

    /// The chain goes on.
    pub fn step(&mut self) -> Step {
        if self.is_beginning() {
            let block = self.make_first_block();
            if self.coins.count() >= self.options.first_outputs {
                self.began_at = Some(block.height);
            }
            let outcome = Outcome::Extended(block);
            return Step { expired: Vec::new(), seen: Vec::new(), outcome, losers: Vec::new() };
        }
        let next = self.next_height();
        let expired = self.mempool.expire(next, &mut self.coins);
        let mut seen = Vec::new();
        for _ in 0..self.options.unmined_per_block {
            self.see(next, &mut seen);
        }
        let (outcome, losers) = self.go_on();
        Step { expired, seen, outcome, losers }
    }

    fn go_on(&mut self) -> (Outcome, Vec<TxId>) {
        if self.options.reorg_probability > 0.0 && self.random.chance(self.options.reorg_probability) {
            let depth = self.random.between(1, self.options.max_reorg_depth).min(self.can_take_back());
            if let Some(tip) = self.tip().filter(|_| depth > 0) {
                return self.reorganise(tip.height.minus(depth), depth);
            }
        }
        let (block, losers) = self.make_block();
        (Outcome::Extended(block), losers)
    }

    /// An unmined transaction is seen, maybe with a rival.
    fn see(&mut self, next: u32, seen: &mut Vec<Seen>) {
        let child = self.random.chance(self.options.children);
        let parent = if child { self.mempool.free_output(&mut self.random) } else { None };
        let Some((tx, spends)) = self.fresh(parent) else { return };
        let fate = self.fate(next, &spends);
        let rival = match &fate {
            Fate::Loses { rival, .. } if self.random.chance(RIVAL_SEEN) => Some(rival.as_ref().clone()),
            _ => None,
        };
        seen.push(Seen { tx: tx.clone(), rival_of: None });
        seen.extend(rival.map(|rival| Seen { tx: rival, rival_of: Some(tx.txid) }));
        self.mempool.insert(Unmined::new(tx, spends, fate, next.saturating_add(self.options.expire_after)));
    }

    /// What becomes of a transaction that was just seen.
    fn fate(&mut self, next: u32, spends: &[Taken]) -> Fate {
        let SyntheticOptions { late, never, double_spends, .. } = self.options;
        let soon = next.saturating_add(self.random.between(0, self.options.delay - 1));
        let roll = self.random.fraction();
        if roll < late {
            let (soonest, latest) = self.options.late_blocks;
            return Fate::Mined { at: next.saturating_add(self.random.between(soonest, latest)) };
        }
        if roll < late + never {
            return Fate::Never;
        }
        if roll < late + never + double_spends { self.loses(soon, spends) } else { Fate::Mined { at: soon } }
    }

    /// It loses, if somebody else can spend what it spends.
    fn loses(&mut self, at: u32, spends: &[Taken]) -> Fate {
        match spends {
            [first, ..] if first.origin != Origin::Unmined => {
                let rival = Box::new(self.maker.pay(&[*first], 1, false, &mut self.random));
                Fate::Loses { at, rival }
            }
            _ => Fate::Mined { at },
        }
    }

    /// Another branch from a height on wins, one block longer than what it takes back.
    fn reorganise(&mut self, fork: Height, depth: u32) -> (Outcome, Vec<TxId>) {
        let (lost, mut losers) = self.take_back(fork);
        let mut made = Vec::with_capacity(depth as usize + 1);
        for _ in 0..=depth {
            let (block, lost) = self.make_block();
            made.push(block);
            losers.extend(lost);
        }
        let hash = self.hash_at(fork).unwrap_or_default();
        (Outcome::Reorganised { fork: ChainPoint::new(fork, hash), lost, made }, losers)
    }

    /// How many blocks can be taken back.
    fn can_take_back(&self) -> u32 {
        match (self.tip(), self.began_at) {
            (Some(tip), Some(began_at)) => tip.height.above(began_at).min(self.undo.len() as u32),
            _ => 0,
        }
    }

    /// Takes back the blocks above a height. Returns them, newest first, and the transactions that lost what they spend.
    fn take_back(&mut self, fork: Height) -> (Vec<Arc<Block>>, Vec<TxId>) {
        let depth = self.tip().map_or(0, |tip| tip.height.above(fork)) as usize;
        let taken_back = self.undo.split_off(self.undo.len() - depth.min(self.undo.len()));
        self.archive.cut_above(fork.0);
        self.coins.cut_above(fork.0);
        let waiting: Vec<Unmined> = self.mempool.drain().collect();
        let (mut losers, mut gone) = (Vec::new(), HashSet::new());
        for Undo { block, spends } in &taken_back {
            let mut spends = spends.as_slice();
            for tx in &block.txs {
                let Some((own, others)) = spends.split_at_checked(tx.inputs.len()) else { break };
                spends = others;
                if tx.coinbase {
                    gone.insert(tx.txid);
                    continue;
                }
                let fate = self.fate_of_lost(fork.0, depth as u32, own);
                let expires = fork.plus(depth as u32).plus(self.options.expire_after).0;
                self.unmine(
                    Unmined::new(tx.clone(), own.to_vec(), fate, expires),
                    fork.0,
                    &mut gone,
                    &mut losers,
                );
            }
        }
        for entry in waiting {
            let again = Unmined::new(entry.tx, entry.spends, entry.fate, entry.expires);
            self.unmine(again, fork.0, &mut gone, &mut losers);
        }
        (taken_back.into_iter().rev().map(|undo| undo.block).collect(), losers)
    }

    /// A transaction waits again, on a chain that ends at `fork`; or it is gone, with the coinbase it descends from.
    fn unmine(&mut self, mut entry: Unmined, fork: u32, gone: &mut HashSet<TxId>, losers: &mut Vec<TxId>) {
        let lost = entry.spends.iter().any(|spent| gone.contains(&spent.coin.outpoint().txid));
        for spent in &mut entry.spends {
            if !spent.origin.is_mined_by(fork) {
                spent.origin = Origin::Unmined;
            }
        }
        if lost {
            gone.insert(entry.tx.txid);
            losers.push(entry.tx.txid);
            // Nobody holds these outputs now: its parents, where they wait again, count all theirs as free.
            entry.spends.into_iter().for_each(|spent| self.coins.give_back(spent));
        } else {
            self.mempool.insert(entry);
        }
    }

    /// What becomes of a transaction that a reorganisation took back.
    fn fate_of_lost(&mut self, fork: u32, depth: u32, spends: &[Taken]) -> Fate {
        let again = fork + self.random.between(1, depth + 1);
        if self.random.chance(self.options.mined_again) {
            return Fate::Mined { at: again };
        }
        let roll = self.random.fraction();
        let rival_can_win = spends.first().is_some_and(|first| first.origin.is_mined_by(fork));
        if roll < LOST_NEVER {
            Fate::Never
        } else if roll < LOST_NEVER + LOST_LOSES && rival_can_win {
            self.loses(again, spends)
        } else {
            Fate::Mined { at: again.saturating_add(self.options.delay) }
        }
    }

    /// Takes a block and all after it off the best chain, which then goes on from the block before. Returns whether that was
    /// possible: it is for blocks that are remembered, except those that made the outputs to begin with.
    pub fn reject(&mut self, hash: &BlockHash) -> bool {
        let Some(header) = self.header(hash) else { return false };
        if !header.on_best_chain {
            // No branch that lost ever wins again.
            return true;
        }
        let deep = self.tip().map_or(0, |tip| tip.height.above(header.height)) + 1;
        let possible = deep <= self.can_take_back();
        if possible {
            self.take_back(header.height.minus(1));
        }
        possible
    }

    pub(super) fn next_height(&self) -> u32 {
        self.tip().map_or(0, |tip| tip.height.next().0)
    }
}
