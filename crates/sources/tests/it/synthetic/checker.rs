//! What a chain must be, written down once more and independently: with Bitcoin's own library for ids, roots and hashes.

use std::collections::{HashMap, HashSet};

use bitcoin::{
    Amount, CompactTarget, ScriptBuf, Sequence, Transaction, TxIn, TxMerkleNode, TxOut, Txid, Witness,
    absolute::LockTime, hashes::Hash, transaction::Version,
};
use sapwood_sources::synthetic::{Outcome, Step};
use sapwood_types::{Block, BlockHash, Height, OutPoint, Tx, TxId};

#[derive(Clone, Copy)]
struct Unspent {
    value: u64,
    height: Height,
    coinbase: bool,
}

#[derive(Default)]
struct Undo {
    hash: BlockHash,
    made: Vec<OutPoint>,
    spent: Vec<(OutPoint, Unspent)>,
    txids: Vec<TxId>,
}

/// Follows a chain and fails where it is wrong.
#[derive(Default)]
pub(crate) struct Checker {
    maturity: u32,
    unspent: HashMap<OutPoint, Unspent>,
    mined: HashSet<TxId>,
    blocks: Vec<Undo>,
}

impl Checker {
    pub(crate) fn new(maturity: u32) -> Self {
        Self { maturity, ..Self::default() }
    }

    pub(crate) fn tip(&self) -> Option<(Height, BlockHash)> {
        let last = self.blocks.last()?;
        Some((Height(self.blocks.len() as u32 - 1), last.hash))
    }

    pub(crate) fn step(&mut self, step: &Step, beginning: bool) {
        if let Outcome::Reorganised { fork, lost, made } = &step.outcome {
            assert!(made.len() > lost.len(), "the winning branch is longer");
            assert!(!lost.is_empty());
            for block in lost {
                assert_eq!(self.tip(), Some((block.height, block.hash)), "newest first");
                self.take_back();
            }
            assert_eq!(self.tip(), Some((fork.height, fork.hash)));
        }
        for block in step.blocks() {
            self.block(block, beginning);
        }
    }

    pub(crate) fn take_back(&mut self) {
        let undo = self.blocks.pop().unwrap();
        undo.spent.into_iter().for_each(|(outpoint, was)| {
            self.unspent.insert(outpoint, was);
        });
        undo.made.iter().for_each(|outpoint| {
            self.unspent.remove(outpoint);
        });
        undo.txids.iter().for_each(|txid| assert!(self.mined.remove(txid)));
    }

    fn block(&mut self, block: &Block, beginning: bool) {
        let height = Height(self.blocks.len() as u32);
        assert_eq!(block.height, height);
        assert_eq!(block.parent, self.tip().map_or(BlockHash::default(), |(_, hash)| hash));
        assert_eq!(block.time, 1_700_000_000 + 600 * u64::from(height.0));
        assert_eq!(block.hash, hash(block), "block {height} has the hash of its content");
        self.blocks.push(Undo { hash: block.hash, ..Undo::default() });

        let (coinbase, others) = block.txs.split_first().unwrap();
        let fees: u64 = others.iter().map(|tx| self.tx(tx, height, beginning)).sum();
        assert!(coinbase.coinbase && coinbase.inputs.is_empty());
        let reward: u64 = coinbase.outputs.iter().map(|output| output.value).sum();
        assert_eq!(reward, 5_000_000_000 + fees, "the coinbase takes subsidy and fees");
        self.make(coinbase, height);
    }

    /// Checks a transaction and returns its fee.
    fn tx(&mut self, tx: &Tx, height: Height, beginning: bool) -> u64 {
        assert!(!tx.coinbase);
        assert_eq!(tx.inputs.is_empty(), beginning, "only the first blocks make outputs out of nothing");
        assert_eq!(tx.txid, id(&library(tx)));
        let mut brought = 0;
        for input in &tx.inputs {
            let outpoint = input.outpoint;
            let Some(spent) = self.unspent.remove(&outpoint) else {
                panic!("block {height}: {} spends {outpoint}, which is not there", tx.txid)
            };
            let age = height.above(spent.height);
            assert!(
                !spent.coinbase || age >= self.maturity,
                "{} spends a coinbase {age} blocks old",
                tx.txid
            );
            brought += spent.value;
            self.blocks.last_mut().unwrap().spent.push((outpoint, spent));
        }
        self.make(tx, height);
        let paid: u64 = tx.outputs.iter().map(|output| output.value).sum();
        if beginning {
            return 0;
        }
        assert!(brought >= paid, "{} pays {paid} out of {brought}", tx.txid);
        assert_eq!(tx.fee, Some(brought - paid));
        brought - paid
    }

    fn make(&mut self, tx: &Tx, height: Height) {
        let undo = self.blocks.last_mut().unwrap();
        assert!(self.mined.insert(tx.txid), "{} is mined twice", tx.txid);
        undo.txids.push(tx.txid);
        assert!(tx.outputs.iter().any(|output| output.spendable));
        for (vout, output) in (0..).zip(&tx.outputs) {
            let script = ScriptBuf::from_bytes(output.script.to_vec());
            assert_eq!(output.spendable, !script.is_op_return());
            if !output.spendable {
                assert_eq!(output.value, 0);
                continue;
            }
            assert!(script.is_p2wpkh() || script.is_p2pkh() || script.is_p2sh() || script.is_p2tr());
            let outpoint = OutPoint::new(tx.txid, vout);
            undo.made.push(outpoint);
            let made = Unspent { value: output.value, height, coinbase: tx.coinbase };
            assert!(self.unspent.insert(outpoint, made).is_none());
        }
    }
}

fn reversed(mut bytes: [u8; 32]) -> [u8; 32] {
    bytes.reverse();
    bytes
}

/// A transaction in the form of the library.
fn library(tx: &Tx) -> Transaction {
    let of = |outpoint: &OutPoint| TxIn {
        previous_output: bitcoin::OutPoint::new(
            Txid::from_byte_array(reversed(outpoint.txid.0)),
            outpoint.vout,
        ),
        script_sig: ScriptBuf::new(),
        sequence: Sequence::MAX,
        witness: Witness::new(),
    };
    let output = |output: &sapwood_types::Output| TxOut {
        value: Amount::from_sat(output.value),
        script_pubkey: ScriptBuf::from_bytes(output.script.to_vec()),
    };
    Transaction {
        version: Version(tx.version as i32),
        lock_time: LockTime::from_consensus(tx.locktime),
        input: tx.inputs.iter().map(|input| of(&input.outpoint)).collect(),
        output: tx.outputs.iter().map(output).collect(),
    }
}

fn id(tx: &Transaction) -> TxId {
    TxId(reversed(tx.compute_txid().to_byte_array()))
}

fn hash(block: &Block) -> BlockHash {
    let ids = block.txs.iter().map(|tx| Txid::from_byte_array(reversed(tx.txid.0)).to_raw_hash());
    let root = bitcoin::merkle_tree::calculate_root(ids).unwrap();
    let header = bitcoin::block::Header {
        version: bitcoin::block::Version::TWO,
        prev_blockhash: bitcoin::BlockHash::from_byte_array(reversed(block.parent.0)),
        merkle_root: TxMerkleNode::from_raw_hash(root),
        time: block.time as u32,
        bits: CompactTarget::from_consensus(0x207f_ffff),
        nonce: 0,
    };
    BlockHash(reversed(header.block_hash().to_byte_array()))
}
