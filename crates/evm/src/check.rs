//! Checks on the way in: whether a block is the next one, and whether its parts are those that its header commits to.
//!
//! What lives here: roots, links and senders. Consensus rules (gas, fees, seals, state) are not checked: the archive keeps what a chain
//! decided, it does not decide.
//!
//! # Correctness
//! Every byte that is stored is covered by the header's hash: transactions, ommers, withdrawals and receipts through their roots, and the
//! RLP around them has one encoding. The hash of the execution layer's requests (EIP-7685) commits to data that is in no block, so there
//! is nothing to check it against. A block that fails changes nothing: the next one is still expected after the last good one.

use std::sync::Arc;

use alloy_consensus::{Transaction as _, TxReceipt as _};
use alloy_eips::BlockNumHash;
use alloy_primitives::{B256, Bloom, keccak256};
use alloy_trie::root::ordered_trie_root_encoded;
use bytes::Bytes;

use crate::{
    block::{BlockParts, Part, ShapeError, decode_receipt, envelope_type, split_receipts},
    chain::ChainSpec,
    sender::Recovery,
    tx_index::{TxEntry, TxIndex},
};

/// A block whose parts fit together, as the archive stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedBlock {
    /// Its number.
    pub number: u64,
    /// Its hash.
    pub hash: B256,
    /// The hash of the block before it.
    pub parent_hash: B256,
    /// Its Unix timestamp, in seconds.
    pub timestamp: u64,
    /// Segment 0: the RLP of the block.
    pub block: Bytes,
    /// Segment 1: the RLP list of its receipts. `None` if they were not given and are not known to be none.
    pub receipts: Option<Bytes>,
    /// Segment 2: its transactions and who sent them.
    pub tx_index: TxIndex,
}

/// Why a block is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// The bytes are not a block.
    #[error("not a block: {0}")]
    Shape(#[from] ShapeError),
    /// A part of a block is not what it should be.
    #[error("block {number}: {fault}")]
    Part {
        /// The block.
        number: u64,
        /// What is wrong with it.
        fault: ShapeError,
    },
    /// A block is missing, or comes twice.
    #[error("block {expected} expected, found block {found}: give the files in order and without gaps")]
    WrongNumber {
        /// The number after the last block.
        expected: u64,
        /// The number found.
        found: u64,
    },
    /// The block belongs to another chain.
    #[error(
        "block {number} has the parent {found}, but the block before it is {expected}: it belongs to another chain"
    )]
    WrongParent {
        /// The block.
        number: u64,
        /// The hash of the last block.
        expected: B256,
        /// The parent hash found.
        found: B256,
    },
    /// A part is not the one that the header commits to.
    #[error("block {number}: the header commits to {part} {expected}, found {found}. Get the file again")]
    WrongRoot {
        /// The block.
        number: u64,
        /// The part.
        part: Part,
        /// The root in the header.
        expected: B256,
        /// The root of what was found.
        found: B256,
    },
    /// The header's bloom filter is not that of the receipts.
    #[error("block {number}: the header's bloom filter is {expected}, that of the receipts is {found}")]
    WrongBloom {
        /// The block.
        number: u64,
        /// The filter in the header.
        expected: Box<Bloom>,
        /// The filter of the receipts.
        found: Box<Bloom>,
    },
    /// Only one of header and body has withdrawals.
    #[error("block {number}: {}", if *in_header { "withdrawals are missing" } else { "withdrawals before Shanghai" })]
    Withdrawals {
        /// The block.
        number: u64,
        /// Whether the header has a root of them.
        in_header: bool,
    },
    /// More or fewer receipts than transactions.
    #[error("block {number} has {expected} transactions, but {found} receipts")]
    ReceiptCount {
        /// The block.
        number: u64,
        /// How many transactions.
        expected: usize,
        /// How many receipts.
        found: usize,
    },
    /// A receipt of another type than its transaction.
    #[error("block {number}: transaction {index} has type {expected}, its receipt type {found}")]
    ReceiptType {
        /// The block.
        number: u64,
        /// The position of the transaction.
        index: usize,
        /// The transaction's type.
        expected: u8,
        /// The receipt's type.
        found: u8,
    },
    /// A transaction of another chain.
    #[error(
        "block {number}: transaction {index} is for chain {found}, not {expected}: take the genesis file of this chain"
    )]
    WrongChain {
        /// The block.
        number: u64,
        /// The position of the transaction.
        index: usize,
        /// The configured chain id.
        expected: u64,
        /// The transaction's chain id.
        found: u64,
    },
    /// A transaction that is not encoded the one right way.
    #[error(
        "block {number}: transaction {index} has the hash {expected}, but as it should be written {found}"
    )]
    NotCanonical {
        /// The block.
        number: u64,
        /// The position of the transaction.
        index: usize,
        /// The hash of its bytes.
        expected: B256,
        /// The hash of its contents.
        found: B256,
    },
    /// A signature that no key can have made.
    #[error("block {number}: transaction {index} has an impossible signature, so it has no sender")]
    NoSender {
        /// The block.
        number: u64,
        /// The position of the transaction.
        index: usize,
    },
}

/// Checks blocks one after another.
#[derive(Debug)]
pub struct Checker {
    spec: Arc<ChainSpec>,
    last: Option<BlockNumHash>,
    recovery: Recovery,
}

impl Checker {
    /// Creates a checker that expects the block after `last`, or with `None` takes any block as the first one.
    pub fn new(spec: Arc<ChainSpec>, last: Option<BlockNumHash>) -> Self {
        Self { spec, last, recovery: Recovery::default() }
    }

    /// Returns the last block that was accepted.
    pub fn last(&self) -> Option<BlockNumHash> {
        self.last
    }

    /// Checks a block and, if given, its receipts, and expects its child next.
    ///
    /// # Errors
    /// A block that is not the next one, or whose parts its header does not commit to. The checker then still expects the same block.
    pub fn check(&mut self, parts: &BlockParts, receipts: Option<Bytes>) -> Result<CheckedBlock, BlockError> {
        self.check_link(parts)?;
        let checked = self.check_parts(parts, receipts)?;
        self.last = Some(BlockNumHash { number: checked.number, hash: checked.hash });
        Ok(checked)
    }

    /// Checks that a block is the next one.
    pub(crate) fn check_link(&self, parts: &BlockParts) -> Result<(), BlockError> {
        let Some(last) = self.last else { return Ok(()) };
        let found = parts.header.number;
        match last.number.checked_add(1) {
            Some(expected) if expected == found => {}
            expected => {
                return Err(BlockError::WrongNumber { expected: expected.unwrap_or(u64::MAX), found });
            }
        }
        if parts.header.parent_hash == last.hash {
            return Ok(());
        }
        Err(BlockError::WrongParent { number: found, expected: last.hash, found: parts.header.parent_hash })
    }

    fn check_parts(&self, parts: &BlockParts, receipts: Option<Bytes>) -> Result<CheckedBlock, BlockError> {
        let header = &parts.header;
        let number = header.number;
        let root = |part, expected, found| match expected == found {
            true => Ok(()),
            false => Err(BlockError::WrongRoot { number, part, expected, found }),
        };
        let shape = |fault| BlockError::Part { number, fault };

        root(Part::Transactions, header.transactions_root, ordered_trie_root_encoded(&parts.transactions))?;
        root(Part::Ommers, header.ommers_hash, keccak256(&parts.ommers_rlp))?;
        (0..parts.ommers.len()).try_for_each(|index| match parts.ommer(index) {
            Some(Err(fault)) => Err(shape(fault)),
            _ => Ok(()),
        })?;
        match (header.withdrawals_root, &parts.withdrawals) {
            (Some(expected), Some(withdrawals)) => {
                root(Part::Withdrawals, expected, ordered_trie_root_encoded(withdrawals))?;
                parts.decode_withdrawals().map_err(shape)?;
            }
            (None, None) => {}
            (in_header, _) => {
                return Err(BlockError::Withdrawals { number, in_header: in_header.is_some() });
            }
        }
        let receipts = match receipts {
            Some(receipts) => Some(receipts),
            None => parts.transactions.is_empty().then_some(Bytes::from_static(&[0xc0])),
        };
        if let Some(receipts) = &receipts {
            check_receipts(parts, receipts)?;
        }
        let entries = parts.transactions.iter().enumerate();
        let entries = entries.map(|(index, bytes)| self.check_transaction(parts, index, bytes));
        let tx_index = TxIndex { entries: entries.collect::<Result<_, _>>()? };
        Ok(CheckedBlock {
            number,
            hash: parts.hash,
            parent_hash: header.parent_hash,
            timestamp: header.timestamp,
            block: parts.rlp.clone(),
            receipts,
            tx_index,
        })
    }

    fn check_transaction(
        &self,
        parts: &BlockParts,
        index: usize,
        bytes: &[u8],
    ) -> Result<TxEntry, BlockError> {
        let number = parts.header.number;
        let transaction = match parts.transaction(index) {
            Some(Ok(transaction)) => transaction,
            Some(Err(fault)) => return Err(BlockError::Part { number, fault }),
            None => return Err(BlockError::NoSender { number, index }),
        };
        if let Some(found) = transaction.chain_id().filter(|found| *found != self.spec.chain_id) {
            return Err(BlockError::WrongChain { number, index, expected: self.spec.chain_id, found });
        }
        let (hash, found) = (keccak256(bytes), *transaction.tx_hash());
        if hash != found {
            return Err(BlockError::NotCanonical { number, index, expected: hash, found });
        }
        let sender = self.recovery.sender(&transaction).ok_or(BlockError::NoSender { number, index })?;
        Ok(TxEntry { hash, sender })
    }
}

fn check_receipts(parts: &BlockParts, receipts: &Bytes) -> Result<(), BlockError> {
    let (header, number) = (&parts.header, parts.header.number);
    let shape = |fault| BlockError::Part { number, fault };
    let receipts = split_receipts(receipts).map_err(shape)?;
    let (expected, found) = (parts.transactions.len(), receipts.len());
    if expected != found {
        return Err(BlockError::ReceiptCount { number, expected, found });
    }
    let (expected, found) = (header.receipts_root, ordered_trie_root_encoded(&receipts));
    if expected != found {
        return Err(BlockError::WrongRoot { number, part: Part::Receipts, expected, found });
    }
    let mut bloom = Bloom::ZERO;
    for (index, (receipt, transaction)) in receipts.iter().zip(&parts.transactions).enumerate() {
        let (expected, found) = (envelope_type(transaction), envelope_type(receipt));
        if expected != found {
            return Err(BlockError::ReceiptType { number, index, expected, found });
        }
        bloom.accrue_bloom(&decode_receipt(receipt, index).map_err(shape)?.bloom());
    }
    if bloom != header.logs_bloom {
        let (expected, found) = (Box::new(header.logs_bloom), Box::new(bloom));
        return Err(BlockError::WrongBloom { number, expected, found });
    }
    Ok(())
}
