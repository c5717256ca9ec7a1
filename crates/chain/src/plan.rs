//! What a block will do, worked out from the block alone.
//!
//! A plan lists which transactions a block makes, which outputs it spends within itself, and which parents have to be read: each
//! once, and all in one go. It finds what is wrong with a block in itself before anything is read, and it can be printed.

use std::{collections::HashMap, fmt};

use foldhash::fast::RandomState;
use sapwood_types::{Block, BlockHash, Height, OutPoint, TxId};

/// Keyed at random: transaction ids are chosen by strangers.
type Map<K, V> = HashMap<K, V, RandomState>;

/// What a block will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The block's height.
    pub height: Height,
    /// Its hash.
    pub hash: BlockHash,
    /// How many transactions it has.
    pub transactions: usize,
    /// How many outputs it makes that can be spent.
    pub makes: usize,
    /// How many outputs it spends that it made itself.
    pub spends_inside: usize,
    /// How many outputs it spends of transactions before it.
    pub spends_outside: usize,
    /// The transactions before it that it spends from, in order, each once: what has to be read.
    pub parents: Vec<TxId>,
}

/// A block is wrong in itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("block {hash} at height {height}: {problem}")]
pub struct PlanError {
    /// The block.
    pub hash: BlockHash,
    /// Its height.
    pub height: Height,
    /// What is wrong with it.
    pub problem: Box<BlockProblem>,
}

/// What is wrong with a block in itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockProblem {
    /// It has no transactions.
    #[error("it has no transactions")]
    Empty,
    /// It has a transaction twice.
    #[error("it has transaction {txid} twice")]
    Twice {
        /// The transaction.
        txid: TxId,
    },
    /// Two of its inputs spend the same output.
    #[error("{outpoint} is spent twice: by transaction {first} and by {second}")]
    DoubleSpend {
        /// The output.
        outpoint: OutPoint,
        /// Who spends it first.
        first: TxId,
        /// Who spends it again.
        second: TxId,
    },
    /// A transaction spends from one that comes after it.
    #[error("transaction {txid} spends {outpoint}, which only a later transaction of the block makes")]
    OutOfOrder {
        /// The transaction.
        txid: TxId,
        /// What it spends.
        outpoint: OutPoint,
    },
    /// A transaction spends an output that an earlier one of the block does not have.
    #[error("transaction {txid} spends {outpoint}, but that transaction has only {outputs} outputs")]
    NoSuchOutput {
        /// The transaction.
        txid: TxId,
        /// What it spends.
        outpoint: OutPoint,
        /// How many outputs there are.
        outputs: usize,
    },
}

impl Plan {
    /// Plans a block.
    pub fn of(block: &Block) -> Result<Plan, PlanError> {
        let Block { height, hash, .. } = *block;
        let wrong = |problem| PlanError { hash, height, problem: Box::new(problem) };
        if block.txs.is_empty() {
            return Err(wrong(BlockProblem::Empty));
        }
        let mut places: Map<TxId, usize> =
            Map::with_capacity_and_hasher(block.txs.len(), RandomState::default());
        for (place, tx) in block.txs.iter().enumerate() {
            if places.insert(tx.txid, place).is_some() {
                return Err(wrong(BlockProblem::Twice { txid: tx.txid }));
            }
        }
        let inputs = block.txs.iter().map(|tx| tx.inputs.len()).sum();
        let mut spent: Map<OutPoint, TxId> = Map::with_capacity_and_hasher(inputs, RandomState::default());
        let mut parents = Vec::with_capacity(inputs);
        let mut spends_inside = 0;
        for (place, tx) in block.txs.iter().enumerate() {
            let txid = tx.txid;
            for outpoint in tx.inputs.iter().map(|input| input.outpoint) {
                if let Some(first) = spent.insert(outpoint, txid) {
                    return Err(wrong(BlockProblem::DoubleSpend { outpoint, first, second: txid }));
                }
                match places.get(&outpoint.txid) {
                    None => parents.push(outpoint.txid),
                    Some(made) if *made >= place => {
                        return Err(wrong(BlockProblem::OutOfOrder { txid, outpoint }));
                    }
                    Some(made) => {
                        let outputs = block.txs[*made].outputs.len();
                        if outpoint.vout as usize >= outputs {
                            return Err(wrong(BlockProblem::NoSuchOutput { txid, outpoint, outputs }));
                        }
                        spends_inside += 1;
                    }
                }
            }
        }
        let spends_outside = parents.len();
        parents.sort_unstable();
        parents.dedup();
        let makes = block.txs.iter().flat_map(|tx| &tx.outputs).filter(|output| output.spendable).count();
        let transactions = block.txs.len();
        Ok(Plan { height, hash, transactions, makes, spends_inside, spends_outside, parents })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "block {} ({})", self.height, self.hash)?;
        writeln!(f, "  {} transactions make {} outputs", self.transactions, self.makes)?;
        writeln!(f, "  {} outputs are spent that the block made itself", self.spends_inside)?;
        writeln!(
            f,
            "  {} outputs are spent of {} transactions before it",
            self.spends_outside,
            self.parents.len()
        )?;
        for parent in &self.parents {
            writeln!(f, "    read {parent}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sapwood_types::{Input, Output, Tx};

    use super::*;

    fn tx(id: u8, inputs: &[(u8, u32)]) -> Tx {
        Tx {
            txid: TxId([id; 32]),
            version: 1,
            locktime: 0,
            fee: None,
            size: 100,
            coinbase: false,
            inputs: inputs
                .iter()
                .map(|(of, vout)| Input::of(OutPoint::new(TxId([*of; 32]), *vout)))
                .collect(),
            outputs: vec![Output::new(1, &b"owner"[..]), Output::data(&b"data"[..])],
            raw: Default::default(),
        }
    }

    fn block(txs: Vec<Tx>) -> Block {
        Block { height: Height(7), hash: BlockHash([9; 32]), parent: BlockHash([8; 32]), time: 0, txs }
    }

    #[test]
    fn parents_are_read_once_and_spends_inside_not_at_all() {
        let plan = Plan::of(&block(vec![tx(10, &[(2, 0), (1, 0)]), tx(11, &[(10, 0), (1, 1)])])).unwrap();
        assert_eq!((plan.transactions, plan.makes, plan.spends_inside, plan.spends_outside), (2, 2, 1, 3));
        assert_eq!(plan.parents, [TxId([1; 32]), TxId([2; 32])]);
        let printed = plan.to_string();
        assert!(printed.contains("3 outputs are spent of 2 transactions before it"), "{printed}");
        assert_eq!(printed.matches("read ").count(), 2);
    }

    #[test]
    fn what_is_wrong_with_a_block_in_itself_is_named() {
        let (hash, height) = (BlockHash([9; 32]), Height(7));
        let id = |id: u8| TxId([id; 32]);
        let cases = [
            (vec![], BlockProblem::Empty),
            (vec![tx(1, &[]), tx(1, &[])], BlockProblem::Twice { txid: id(1) }),
            (
                vec![tx(2, &[(1, 0)]), tx(3, &[(1, 0)])],
                BlockProblem::DoubleSpend { outpoint: OutPoint::new(id(1), 0), first: id(2), second: id(3) },
            ),
            (
                vec![tx(2, &[(3, 0)]), tx(3, &[])],
                BlockProblem::OutOfOrder { txid: id(2), outpoint: OutPoint::new(id(3), 0) },
            ),
            (
                vec![tx(2, &[(2, 0)])],
                BlockProblem::OutOfOrder { txid: id(2), outpoint: OutPoint::new(id(2), 0) },
            ),
            (
                vec![tx(2, &[]), tx(3, &[(2, 2)])],
                BlockProblem::NoSuchOutput { txid: id(3), outpoint: OutPoint::new(id(2), 2), outputs: 2 },
            ),
        ];
        for (txs, problem) in cases {
            assert_eq!(Plan::of(&block(txs)), Err(PlanError { hash, height, problem: Box::new(problem) }));
        }
    }
}
