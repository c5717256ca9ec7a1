//! A block out of transactions.

use std::sync::Arc;

use bitcoin::{
    CompactTarget, TxMerkleNode,
    block::{Header, Version},
    hashes::Hash,
};
use sapwood_types::{Block, BlockHash, Height, Tx, TxId};

use super::{
    archive::time_at,
    chain::{SyntheticChain, Undo},
    coins::Taken,
    maker::{coins_of, subsidy},
    mempool::Fate,
    options::SyntheticOptions,
};
use crate::bitcoin::{merkle, network};

/// How many inputs a transaction has, and of a hundred transactions how many have them. 1.98 on average.
const INPUTS: [(u64, usize); 5] = [(45, 1), (30, 2), (13, 3), (6, 4), (6, 5)];
/// How many outputs a transaction has, and of a hundred transactions how many have them. 2.2 on average.
const OUTPUTS: [(u64, usize); 5] = [(15, 1), (66, 2), (9, 3), (6, 4), (4, 6)];
/// Inputs of a consolidation, and outputs of a payment to many: the latter always fill more than one page.
const CONSOLIDATION: (u32, u32) = (20, 200);
const BATCH: (u32, u32) = (130, 600);
/// Inputs of a payment to many: enough that there is something for everybody.
const BATCH_INPUTS: usize = 3;
/// An input without a script is 34 bytes of a body: this many are above 32 KiB.
const BIG: (u32, u32) = (1_000, 1_400);
/// A gathering of inputs takes no more than this part of all there are.
const GATHERED: u64 = 8;
/// Transactions in a block that only makes outputs.
const FIRST_TXS: u32 = 5_000;
/// How likely a block spends a coinbase that has matured.
const SPEND_COINBASE: f64 = 0.9;
/// What headers claim as their target. Nobody checks.
const BITS: u32 = 0x207f_ffff;

/// A block in the making.
struct Draft {
    height: u32,
    txs: Vec<Tx>,
    /// What they spend, one after the other.
    spends: Vec<Taken>,
    fees: u64,
    /// Unmined transactions that lost against one of them.
    losers: Vec<TxId>,
}

impl Draft {
    fn new(height: u32, room: u32) -> Self {
        let txs = Vec::with_capacity(room as usize + 1);
        Self { height, txs, spends: Vec::with_capacity(2 * room as usize), fees: 0, losers: Vec::new() }
    }

    fn add(&mut self, tx: Tx, spends: impl IntoIterator<Item = Taken>) {
        self.fees += tx.fee.unwrap_or(0);
        self.txs.push(tx);
        self.spends.extend(spends);
    }
}

impl SyntheticChain {
    /// Makes the next block. Returns it and the unmined transactions that lost against it.
    pub(super) fn make_block(&mut self) -> (Arc<Block>, Vec<TxId>) {
        // The coinbase takes a place.
        let room = self.options.txs_per_block - 1;
        let mut draft = Draft::new(self.next_height(), room);
        self.mine_unmined(&mut draft, room);
        let mut coinbase = self.mature_coinbase(draft.height);
        while (draft.txs.len() as u32) < room {
            let Some((tx, spends)) = self.fresh(coinbase.take()) else { break };
            coins_of(&tx).for_each(|coin| self.coins.make(coin));
            draft.add(tx, spends);
        }
        // No room for anybody to spend it.
        coinbase.into_iter().for_each(|coinbase| self.coins.give_back(coinbase));
        self.end(draft)
    }

    /// Makes a block that only makes outputs, as long as there are not enough.
    pub(super) fn make_first_block(&mut self) -> Arc<Block> {
        let mut draft = Draft::new(self.next_height(), FIRST_TXS);
        for number in 0..FIRST_TXS {
            if self.coins.count() >= self.options.first_outputs {
                break;
            }
            let recipients = self.random.pick(&OUTPUTS);
            let tx = self.maker.first(number, recipients, &mut self.random);
            coins_of(&tx).for_each(|coin| self.coins.make(coin));
            draft.add(tx, []);
        }
        self.end(draft).0
    }

    fn mine_unmined(&mut self, draft: &mut Draft, room: u32) {
        for number in self.mempool.due(draft.height) {
            // What does not fit in comes next time. Children have greater numbers, so none comes before its parents.
            if draft.txs.len() as u32 >= room {
                self.mempool.put_off(number, draft.height + 1);
                continue;
            }
            match self.mempool.fate(number) {
                Some(Fate::Mined { .. }) => {
                    let Some(mined) = self.mempool.mine(number, draft.height) else { continue };
                    mined.free_coins().for_each(|coin| self.coins.make(coin));
                    draft.add(mined.tx, mined.spends);
                }
                Some(Fate::Loses { .. }) => match self.mempool.beat(number, &mut self.coins) {
                    Some((rival, spent, losers)) => {
                        coins_of(&rival).for_each(|coin| self.coins.make(coin));
                        draft.add(rival, [spent]);
                        draft.losers.extend(losers);
                    }
                    None => self.mempool.put_off(number, draft.height + 1),
                },
                // It has lost meanwhile.
                Some(Fate::Never) | None => {}
            }
        }
    }

    fn mature_coinbase(&mut self, height: u32) -> Option<Taken> {
        let up_to = height.checked_sub(self.options.coinbase_maturity)?;
        self.random
            .chance(SPEND_COINBASE)
            .then(|| self.coins.take_coinbase(up_to, &mut self.random))
            .flatten()
    }

    /// A transaction that spends `first` and mined coins. Nothing if there is nothing to spend.
    pub(super) fn fresh(&mut self, first: Option<Taken>) -> Option<(Tx, Vec<Taken>)> {
        let (inputs, outputs) = self.shape();
        let mut spends: Vec<Taken> = Vec::with_capacity(inputs);
        spends.extend(first);
        while spends.len() < inputs
            && let Some(taken) = self.coins.take(&mut self.random)
        {
            spends.push(taken);
        }
        if spends.is_empty() {
            return None;
        }
        let crowded = self.coins.count() >= self.options.most_outputs;
        let outputs = if crowded { outputs.min(spends.len()) } else { outputs };
        let data = self.random.chance(self.options.data);
        let tx = self.maker.pay(&spends, outputs, data, &mut self.random);
        Some((tx, spends))
    }

    /// How many inputs and outputs a transaction has.
    fn shape(&mut self) -> (usize, usize) {
        let SyntheticOptions { big, consolidations, batches, .. } = self.options;
        let roll = self.random.fraction();
        let special = if roll < big {
            self.gathered(BIG).map(|inputs| (inputs, 1))
        } else if roll < big + consolidations {
            self.gathered(CONSOLIDATION).map(|inputs| (inputs, 1))
        } else if roll < big + consolidations + batches {
            Some((BATCH_INPUTS, self.random.between(BATCH.0, BATCH.1) as usize))
        } else {
            None
        };
        special.unwrap_or_else(|| (self.random.pick(&INPUTS), self.random.pick(&OUTPUTS)))
    }

    /// How many inputs to gather, if there are enough.
    fn gathered(&mut self, (least, most): (u32, u32)) -> Option<usize> {
        let enough = u32::try_from(self.coins.count() / GATHERED).unwrap_or(u32::MAX);
        (enough >= least).then(|| self.random.between(least, most.min(enough)) as usize)
    }

    /// Adds the coinbase and the header, and makes the block the last one.
    fn end(&mut self, draft: Draft) -> (Arc<Block>, Vec<TxId>) {
        let Draft { height, mut txs, spends, fees, losers } = draft;
        let reward = subsidy(Height(height)) + fees;
        let coinbase = self.maker.coinbase(height, self.blocks_made, reward, &mut self.random);
        self.blocks_made += 1;
        if let Some(coin) = coins_of(&coinbase).next() {
            self.coins.end_block(coin);
        }
        txs.insert(0, coinbase);
        let height = Height(height);
        let parent = self.archive.tip().map_or(BlockHash::default(), |tip| tip.hash);
        let time = time_at(height);
        let block = Arc::new(Block { height, hash: hash(&parent, &txs, time), parent, time, txs });
        self.archive.add(&block);
        self.undo.push_back(Undo { block: block.clone(), spends });
        if self.undo.len() > self.options.remember as usize {
            self.undo.pop_front();
        }
        (block, losers)
    }
}

fn hash(parent: &BlockHash, txs: &[Tx], time: u64) -> BlockHash {
    let wire = |mut bytes: [u8; 32]| {
        bytes.reverse();
        bytes
    };
    let root = merkle::root(txs.iter().map(|tx| wire(tx.txid.0)).collect());
    let header = Header {
        version: Version::TWO,
        prev_blockhash: bitcoin::BlockHash::from_byte_array(wire(parent.0)),
        merkle_root: TxMerkleNode::from_byte_array(root.hash),
        // Enough for four million blocks; then it begins anew.
        time: time as u32,
        bits: CompactTarget::from_consensus(BITS),
        nonce: 0,
    };
    network::block_hash(header.block_hash())
}
