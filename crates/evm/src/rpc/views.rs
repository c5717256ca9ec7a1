//! Blocks, transactions, receipts and logs as JSON.
//!
//! Headers, transactions and withdrawals are serialized by alloy; what belongs to their place in a block is added here. Names and forms are
//! those of the Ethereum execution API specification.

use alloy_consensus::{Eip658Value, Header, ReceiptEnvelope, Transaction as _, TxReceipt as _};
use alloy_eips::{eip4844::DATA_GAS_PER_BLOB, eip4895::Withdrawal};
use alloy_primitives::{Address, B256, Bloom, Bytes, U8, U64, U128};
use serde::Serialize;

use crate::{
    block::{BlockParts, ShapeError, Transaction},
    chain::ChainSpec,
    tx_index::{TxEntry, TxIndex},
};

/// A block.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BlockView<'a> {
    hash: B256,
    #[serde(flatten)]
    header: &'a Header,
    size: U64,
    #[serde(skip_serializing_if = "Option::is_none")]
    transactions: Option<Transactions<'a>>,
    uncles: Vec<B256>,
    #[serde(skip_serializing_if = "Option::is_none")]
    withdrawals: Option<Vec<Withdrawal>>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Transactions<'a> {
    Hashes(Vec<&'a B256>),
    Full(Vec<TransactionView>),
}

impl<'a> BlockView<'a> {
    /// A block with its transactions, or with their hashes only.
    pub(crate) fn new(parts: &'a BlockParts, index: &'a TxIndex, full: bool) -> Result<Self, ShapeError> {
        let transactions = if full {
            let all = index.entries.iter().enumerate();
            let all = all.filter_map(|(at, entry)| TransactionView::new(parts, at, entry));
            Transactions::Full(all.collect::<Result<_, _>>()?)
        } else {
            Transactions::Hashes(index.entries.iter().map(|entry| &entry.hash).collect())
        };
        Ok(Self {
            hash: parts.hash,
            header: &parts.header,
            size: U64::from(parts.rlp.len()),
            transactions: Some(transactions),
            uncles: parts.ommers.iter().map(alloy_primitives::keccak256).collect(),
            withdrawals: parts.decode_withdrawals()?,
        })
    }

    /// An uncle: of its block only the header is known, so the size is that of a block with nothing in it.
    pub(crate) fn uncle(header: &'a Header, hash: B256) -> Self {
        let payload_length = alloy_rlp::Encodable::length(header) + 2;
        let size = payload_length + alloy_rlp::length_of_length(payload_length);
        let uncles = Vec::new();
        Self { hash, header, size: U64::from(size), transactions: None, uncles, withdrawals: None }
    }
}

/// A transaction in a block.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TransactionView {
    #[serde(flatten)]
    transaction: Transaction,
    /// What was paid for gas, for types that do not say it themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    gas_price: Option<U128>,
    from: Address,
    block_hash: B256,
    block_number: U64,
    block_timestamp: U64,
    transaction_index: U64,
}

impl TransactionView {
    /// The transaction at an index. `None` behind the last one.
    pub(crate) fn new(parts: &BlockParts, index: usize, entry: &TxEntry) -> Option<Result<Self, ShapeError>> {
        let transaction = match parts.transaction(index)? {
            Ok(transaction) => transaction,
            Err(error) => return Some(Err(error)),
        };
        let paid = || U128::from(transaction.effective_gas_price(parts.header.base_fee_per_gas));
        Some(Ok(Self {
            gas_price: transaction.gas_price().is_none().then(paid),
            transaction,
            from: entry.sender,
            block_hash: parts.hash,
            block_number: U64::from(parts.header.number),
            block_timestamp: U64::from(parts.header.timestamp),
            transaction_index: U64::from(index),
        }))
    }
}

/// A receipt.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReceiptView {
    #[serde(rename = "type")]
    kind: U8,
    transaction_hash: B256,
    transaction_index: U64,
    block_hash: B256,
    block_number: U64,
    from: Address,
    to: Option<Address>,
    contract_address: Option<Address>,
    cumulative_gas_used: U64,
    gas_used: U64,
    effective_gas_price: U128,
    /// Before Byzantium.
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<B256>,
    /// From Byzantium on.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<U64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blob_gas_used: Option<U64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blob_gas_price: Option<U128>,
    logs_bloom: Bloom,
    logs: Vec<LogView>,
}

/// What a receipt does not say itself, but the receipts before it do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before {
    /// The gas that was used by the transactions before.
    pub(crate) gas: u64,
    /// How many logs they made.
    pub(crate) logs: usize,
}

impl ReceiptView {
    /// The receipt of a transaction of a block.
    pub(crate) fn new(
        spec: &ChainSpec,
        parts: &BlockParts,
        (index, entry): (usize, &TxEntry),
        transaction: &Transaction,
        receipt: &ReceiptEnvelope,
        before: Before,
    ) -> Self {
        let header = &parts.header;
        let place = Place::new(parts, index, entry);
        let logs = receipt.logs().iter().zip(before.logs..);
        let (root, status) = match receipt.status_or_post_state() {
            Eip658Value::PostState(root) => (Some(root), None),
            Eip658Value::Eip658(success) => (None, Some(U64::from(success))),
        };
        let blobs = transaction.blob_versioned_hashes().map(|hashes| hashes.len() as u64);
        Self {
            kind: U8::from(transaction.tx_type() as u8),
            transaction_hash: entry.hash,
            transaction_index: U64::from(index),
            block_hash: parts.hash,
            block_number: U64::from(header.number),
            from: entry.sender,
            to: transaction.to(),
            contract_address: transaction.is_create().then(|| entry.sender.create(transaction.nonce())),
            cumulative_gas_used: U64::from(receipt.cumulative_gas_used()),
            gas_used: U64::from(receipt.cumulative_gas_used().saturating_sub(before.gas)),
            effective_gas_price: U128::from(transaction.effective_gas_price(header.base_fee_per_gas)),
            root,
            status,
            blob_gas_used: blobs.map(|blobs| U64::from(blobs.saturating_mul(DATA_GAS_PER_BLOB))),
            blob_gas_price: blobs.and_then(|_| spec.blob_fee(header)).map(U128::from),
            logs_bloom: receipt.bloom(),
            logs: logs.map(|(log, at)| LogView::new(place, at, log)).collect(),
        }
    }
}

/// The transaction that logs belong to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    block_number: u64,
    block_hash: B256,
    block_timestamp: u64,
    transaction_hash: B256,
    transaction_index: usize,
}

impl Place {
    pub(crate) fn new(parts: &BlockParts, index: usize, entry: &TxEntry) -> Self {
        Self {
            block_number: parts.header.number,
            block_hash: parts.hash,
            block_timestamp: parts.header.timestamp,
            transaction_hash: entry.hash,
            transaction_index: index,
        }
    }
}

/// A log.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LogView {
    address: Address,
    topics: Vec<B256>,
    data: Bytes,
    block_number: U64,
    transaction_hash: B256,
    transaction_index: U64,
    block_hash: B256,
    block_timestamp: U64,
    log_index: U64,
    removed: bool,
}

impl LogView {
    /// A log of a transaction, by its position among the logs of the block.
    pub(crate) fn new(place: Place, index: usize, log: &alloy_primitives::Log) -> Self {
        Self {
            address: log.address,
            topics: log.topics().to_vec(),
            data: log.data.data.clone(),
            block_number: U64::from(place.block_number),
            transaction_hash: place.transaction_hash,
            transaction_index: U64::from(place.transaction_index),
            block_hash: place.block_hash,
            block_timestamp: U64::from(place.block_timestamp),
            log_index: U64::from(index),
            removed: false,
        }
    }
}
