//! Blocks with the figures of a real chain: 2 inputs and 2.2 outputs on average, and 70 % of inputs spend what was made in the
//! last 50 blocks. The same seed gives the same blocks.

use std::collections::VecDeque;

use bytes::Bytes;
use sapwood_types::{Block, BlockHash, Height, Input, OutPoint, Output, Tx, TxId};

/// Spends younger than this many blocks are "recent".
const RECENT_BLOCKS: usize = 50;
/// Of a hundred inputs, how many spend recent outputs.
const RECENT_PERCENT: u64 = 70;
/// How many inputs a transaction has, and of a hundred transactions how many have them. 1.98 on average.
const INPUTS: [(u64, usize); 5] = [(45, 1), (30, 2), (13, 3), (6, 4), (6, 5)];
/// How many outputs a transaction has, and of a hundred transactions how many have them. 2.2 on average.
const OUTPUTS: [(u64, usize); 5] = [(15, 1), (66, 2), (9, 3), (6, 4), (4, 6)];
/// Lengths of the common locking scripts: pay to witness key hash, key hash, script hash, taproot.
const SCRIPTS: [usize; 4] = [22, 25, 23, 34];

/// A small fast generator (SplitMix64). Its whole state is one number.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn pick(&mut self, table: &[(u64, usize)]) -> usize {
        let mut roll = self.next() % 100;
        for (share, value) in table {
            if roll < *share {
                return *value;
            }
            roll -= share;
        }
        table.last().map_or(1, |(_, value)| *value)
    }

    fn hash(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for chunk in bytes.chunks_exact_mut(8) {
            chunk.copy_from_slice(&self.next().to_be_bytes());
        }
        bytes
    }
}

/// Makes blocks, each following the one before.
pub(super) struct Workload {
    random: Random,
    txs_per_block: usize,
    next_height: Height,
    parent: BlockHash,
    recent: VecDeque<Vec<OutPoint>>,
    old: Vec<OutPoint>,
}

impl Workload {
    pub(super) fn new(txs_per_block: usize, seed: u64) -> Self {
        Self {
            random: Random(seed),
            txs_per_block,
            next_height: Height(1),
            parent: BlockHash::default(),
            recent: VecDeque::new(),
            old: Vec::new(),
        }
    }

    /// A block that only makes outputs, for the beginning.
    pub(super) fn funding_block(&mut self, txs: usize) -> Block {
        self.block(txs, false)
    }

    /// A block that spends and makes.
    pub(super) fn next_block(&mut self) -> Block {
        self.block(self.txs_per_block, true)
    }

    fn block(&mut self, count: usize, spend: bool) -> Block {
        let mut made = Vec::new();
        let txs = (0..count).map(|_| self.tx(spend, &mut made)).collect();
        self.recent.push_back(made);
        if self.recent.len() > RECENT_BLOCKS {
            self.old.extend(self.recent.pop_front().into_iter().flatten());
        }
        let hash = BlockHash(self.random.hash());
        let block = Block {
            height: self.next_height,
            hash,
            parent: self.parent,
            time: 1_700_000_000 + u64::from(self.next_height.0) * 600,
            txs,
        };
        self.parent = hash;
        self.next_height = self.next_height.next();
        block
    }

    fn tx(&mut self, spend: bool, made: &mut Vec<OutPoint>) -> Tx {
        let txid = TxId(self.random.hash());
        let wanted = if spend { self.random.pick(&INPUTS) } else { 0 };
        let inputs = (0..wanted).filter_map(|_| self.unspent()).map(Input::of).collect();
        let outputs: Vec<Output> = (0..self.random.pick(&OUTPUTS)).map(|_| self.output()).collect();
        made.extend((0..outputs.len() as u32).map(|vout| OutPoint::new(txid, vout)));
        Tx { txid, version: 2, locktime: 0, fee: None, size: 250, coinbase: false, inputs, outputs }
    }

    fn output(&mut self) -> Output {
        let length = SCRIPTS[self.random.below(SCRIPTS.len())];
        let script: Bytes = [self.random.hash(), self.random.hash()].concat()[..length].to_vec().into();
        Output::new(self.random.next() % 100_000_000, script)
    }

    fn unspent(&mut self) -> Option<OutPoint> {
        if self.random.next() % 100 < RECENT_PERCENT {
            let block = self.random.below(self.recent.len());
            if let Some(outputs) = self.recent.get_mut(block).filter(|outputs| !outputs.is_empty()) {
                let at = self.random.below(outputs.len());
                return Some(outputs.swap_remove(at));
            }
        }
        let at = self.random.below(self.old.len());
        if self.old.is_empty() { None } else { Some(self.old.swap_remove(at)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_the_figures_of_a_real_chain() {
        let mut workload = Workload::new(1000, 7);
        for _ in 0..60 {
            workload.funding_block(2000);
        }
        let blocks: Vec<Block> = (0..30).map(|_| workload.next_block()).collect();
        let txs: usize = blocks.iter().map(|block| block.txs.len()).sum();
        let count = |of: fn(&Tx) -> usize| {
            blocks.iter().flat_map(|block| &block.txs).map(of).sum::<usize>() as f64 / txs as f64
        };
        assert!((1.9..2.1).contains(&count(|tx| tx.inputs.len())));
        assert!((2.1..2.3).contains(&count(|tx| tx.outputs.len())));
    }

    #[test]
    fn nothing_is_spent_twice_and_the_same_seed_gives_the_same_blocks() {
        let blocks = |seed| {
            let mut workload = Workload::new(200, seed);
            workload.funding_block(3000);
            (0..60).map(|_| workload.next_block()).collect::<Vec<_>>()
        };
        let first = blocks(3);
        let mut spent = std::collections::HashSet::new();
        let inputs = first.iter().flat_map(|block| &block.txs).flat_map(|tx| &tx.inputs);
        assert!(inputs.map(|input| input.outpoint).all(|outpoint| spent.insert(outpoint)));
        assert_eq!(first, blocks(3));
        assert_ne!(first, blocks(4));
    }
}
