//! A block and its receipts taken apart, without checking anything about them but their shape.
//!
//! What lives here: where the parts of a block's RLP lie. Whether they fit together is `check`.

use alloy_consensus::{EthereumTxEnvelope, Header, ReceiptEnvelope, TxEip4844, TxType};
use alloy_eips::{eip2718::Decodable2718, eip4895::Withdrawal};
use alloy_primitives::{B256, keccak256};
use alloy_rlp::Decodable;
use bytes::Bytes;

use crate::rlp;

/// A signed transaction of a block: blob transactions have no blobs there.
pub type Transaction = EthereumTxEnvelope<TxEip4844>;

/// Why bytes are not a block, or not the receipts of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// RLP of another shape.
    #[error("{part}: {cause}")]
    Rlp {
        /// The part of the block.
        part: Part,
        /// What is wrong with it.
        cause: alloy_rlp::Error,
    },
    /// Items after the last one that a block has.
    #[error("{part}: {left} bytes after its end")]
    TrailingBytes {
        /// The part of the block.
        part: Part,
        /// How many bytes.
        left: usize,
    },
    /// A transaction or receipt of a type that this program does not know.
    #[error("{part} has the unknown type {found:#04x}")]
    UnknownType {
        /// The transaction or receipt.
        part: Part,
        /// The type byte.
        found: u8,
    },
}

/// A part of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The block as a whole.
    Block,
    /// Its header.
    Header,
    /// The list of transactions.
    Transactions,
    /// One transaction, by its position.
    Transaction(usize),
    /// The list of ommers (uncles).
    Ommers,
    /// The list of withdrawals.
    Withdrawals,
    /// The list of receipts.
    Receipts,
    /// One receipt, by its position.
    Receipt(usize),
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Part::Block => f.write_str("block"),
            Part::Header => f.write_str("header"),
            Part::Transactions => f.write_str("transactions"),
            Part::Transaction(index) => write!(f, "transaction {index}"),
            Part::Ommers => f.write_str("ommers"),
            Part::Withdrawals => f.write_str("withdrawals"),
            Part::Receipts => f.write_str("receipts"),
            Part::Receipt(index) => write!(f, "receipt {index}"),
        }
    }
}

impl Part {
    pub(crate) fn rlp(self) -> impl FnOnce(alloy_rlp::Error) -> ShapeError {
        move |cause| ShapeError::Rlp { part: self, cause }
    }
}

/// The parts of a block. All of them share the memory of the block's bytes.
#[derive(Clone, Debug)]
pub struct BlockParts {
    /// The decoded header.
    pub header: Header,
    /// The hash of the header, which is the hash of the block.
    pub hash: B256,
    /// The RLP of the header.
    pub header_rlp: Bytes,
    /// The EIP-2718 bytes of each transaction.
    pub transactions: Vec<Bytes>,
    /// The RLP of the list of ommers.
    pub ommers_rlp: Bytes,
    /// The RLP of each ommer's header.
    pub ommers: Vec<Bytes>,
    /// The RLP of each withdrawal. `None` in a block from before Shanghai.
    pub withdrawals: Option<Vec<Bytes>>,
    /// The RLP of the block.
    pub rlp: Bytes,
}

impl BlockParts {
    /// Takes the RLP of a block apart.
    ///
    /// # Errors
    /// Anything but one list of header, transactions, ommers and, from Shanghai on, withdrawals. Transactions and ommers are not decoded.
    pub fn split(block: &Bytes) -> Result<Self, ShapeError> {
        let mut body = rlp::only_list(block).map_err(Part::Block.rlp())?.payload;
        let header_rlp = rlp::list(&mut body).map_err(Part::Header.rlp())?.raw;
        let header = decode_all::<Header>(header_rlp, Part::Header)?;
        let transactions = rlp::list(&mut body).map_err(Part::Transactions.rlp())?.payload;
        let transactions = rlp::envelopes(block, transactions).map_err(Part::Transactions.rlp())?;
        let ommers = rlp::list(&mut body).map_err(Part::Ommers.rlp())?;
        let withdrawals = match body {
            [] => None,
            _ => Some(rlp::list(&mut body).map_err(Part::Withdrawals.rlp())?.payload),
        };
        if !body.is_empty() {
            return Err(ShapeError::TrailingBytes { part: Part::Block, left: body.len() });
        }
        Ok(Self {
            hash: keccak256(header_rlp),
            header,
            header_rlp: block.slice_ref(header_rlp),
            transactions,
            ommers_rlp: block.slice_ref(ommers.raw),
            ommers: lists(block, ommers.payload, Part::Ommers)?,
            withdrawals: withdrawals.map(|payload| lists(block, payload, Part::Withdrawals)).transpose()?,
            rlp: block.clone(),
        })
    }

    /// Decodes the transaction at `index`. `None` behind the last one.
    ///
    /// # Errors
    /// An unknown type, or bytes that are not a transaction of their type.
    pub fn transaction(&self, index: usize) -> Option<Result<Transaction, ShapeError>> {
        self.transactions.get(index).map(|bytes| decode_transaction(bytes, index))
    }

    /// Decodes the ommer at `index` and hashes it. `None` behind the last one.
    ///
    /// # Errors
    /// Bytes that are not a header.
    pub fn ommer(&self, index: usize) -> Option<Result<(Header, B256), ShapeError>> {
        let bytes = self.ommers.get(index)?;
        Some(decode_all(bytes, Part::Ommers).map(|header| (header, keccak256(bytes))))
    }

    /// Decodes the withdrawals. `None` in a block from before Shanghai.
    ///
    /// # Errors
    /// Bytes that are not a withdrawal.
    pub fn decode_withdrawals(&self) -> Result<Option<Vec<Withdrawal>>, ShapeError> {
        let decode = |bytes: &Bytes| decode_all(bytes, Part::Withdrawals);
        self.withdrawals.as_ref().map(|all| all.iter().map(decode).collect()).transpose()
    }
}

/// Splits the RLP of a block's receipts into the EIP-2718 bytes of each.
///
/// # Errors
/// Anything but one list.
pub fn split_receipts(receipts: &Bytes) -> Result<Vec<Bytes>, ShapeError> {
    let list = rlp::only_list(receipts).map_err(Part::Receipts.rlp())?;
    rlp::envelopes(receipts, list.payload).map_err(Part::Receipts.rlp())
}

/// Decodes the EIP-2718 bytes of the receipt at `index`.
///
/// # Errors
/// An unknown type, or bytes that are not a receipt of their type.
pub fn decode_receipt(bytes: &[u8], index: usize) -> Result<ReceiptEnvelope, ShapeError> {
    let part = Part::Receipt(index);
    known_type(bytes, part)?;
    ReceiptEnvelope::decode_2718_exact(bytes).map_err(|error| part.rlp()(error.into()))
}

/// Returns the type byte of a transaction or receipt: 0 for a legacy one.
pub(crate) fn envelope_type(bytes: &[u8]) -> u8 {
    match bytes.first() {
        Some(first) if *first < 0x80 => *first,
        _ => 0,
    }
}

fn decode_transaction(bytes: &[u8], index: usize) -> Result<Transaction, ShapeError> {
    let part = Part::Transaction(index);
    known_type(bytes, part)?;
    Transaction::decode_2718_exact(bytes).map_err(|error| part.rlp()(error.into()))
}

fn known_type(bytes: &[u8], part: Part) -> Result<(), ShapeError> {
    let found = envelope_type(bytes);
    TxType::try_from(found).map(|_| ()).map_err(|_| ShapeError::UnknownType { part, found })
}

/// Decodes one value that takes all of `bytes`.
pub(crate) fn decode_all<T: Decodable>(mut bytes: &[u8], part: Part) -> Result<T, ShapeError> {
    let value = T::decode(&mut bytes).map_err(part.rlp())?;
    match bytes.len() {
        0 => Ok(value),
        left => Err(ShapeError::TrailingBytes { part, left }),
    }
}

fn lists(source: &Bytes, mut payload: &[u8], part: Part) -> Result<Vec<Bytes>, ShapeError> {
    let mut found = Vec::new();
    while !payload.is_empty() {
        let next = rlp::list(&mut payload).map_err(part.rlp())?;
        // See `rlp::envelopes`.
        if next.payload.len() < 4 {
            return Err(part.rlp()(alloy_rlp::Error::InputTooShort));
        }
        found.push(source.slice_ref(next.raw));
    }
    Ok(found)
}
