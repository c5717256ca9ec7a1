//! All methods agree with each other and with what the headers commit to.
//!
//! What a client gets is decoded from JSON again and hashed: the result is the block's own hash and roots, so no field that a root
//! covers can be missing or wrong. This goes through alloy's types, not through the code that made the JSON.

use alloy_consensus::{
    Eip658Value, EthereumTxEnvelope, Header, Receipt, ReceiptEnvelope, ReceiptWithBloom, TxEip4844,
};
use alloy_eips::{eip2718::Encodable2718, eip4895::Withdrawal};
use alloy_primitives::{Address, B256, Bloom, Bytes, Log, U64, U256, keccak256};
use alloy_trie::root::ordered_trie_root_encoded;
use serde_json::{Value, json};

use crate::memory::Memory;

/// Decodes a field.
fn field<T: serde::de::DeserializeOwned>(value: &Value, name: &str) -> T {
    serde_json::from_value(value[name].clone()).unwrap_or_else(|error| panic!("{name} of {value}: {error}"))
}

/// Checks every method for every block of a store.
pub(crate) fn check(store: &Memory) {
    let mut all_logs = Vec::new();
    for block in store.blocks() {
        let number = format!("{:#x}", block.number);
        all_logs.extend(check_block(store, &number, block.hash));
    }
    let head = store.blocks().last().unwrap();
    assert_eq!(store.call("eth_blockNumber", json!([])), format!("{:#x}", head.number));
    let first = store.blocks().next().unwrap().number;
    let range =
        |from: u64, to: u64| json!([{ "fromBlock": format!("{from:#x}"), "toBlock": format!("{to:#x}") }]);
    assert_eq!(store.call("eth_getLogs", range(first, head.number)), Value::from(all_logs));
}

/// Checks one block and returns its logs.
fn check_block(store: &Memory, number: &str, hash: B256) -> Vec<Value> {
    let full = store.call("eth_getBlockByNumber", json!([number, true]));
    assert_eq!(full, store.call("eth_getBlockByHash", json!([hash, true])));
    let header: Header = serde_json::from_value(full.clone()).unwrap();
    assert_eq!((header.hash_slow(), field::<B256>(&full, "hash")), (hash, hash));

    let raw: Bytes = serde_json::from_value(store.call("debug_getRawBlock", json!([number]))).unwrap();
    let raw_header: Bytes = serde_json::from_value(store.call("debug_getRawHeader", json!([hash]))).unwrap();
    assert_eq!(keccak256(&raw_header), hash);
    assert_eq!(field::<U64>(&full, "size").to::<usize>(), raw.len());
    assert!(raw[3..].starts_with(&raw_header));

    let ommers: Vec<B256> = field(&full, "uncles");
    for by in [("Number", json!(number)), ("Hash", json!(hash))] {
        let name = |name: &str| name.replace("Number", by.0);
        let count = |method: &str| store.call(&name(method), json!([by.1]));
        assert_eq!(count("eth_getUncleCountByBlockNumber"), format!("{:#x}", ommers.len()));
        let transactions = full["transactions"].as_array().unwrap();
        assert_eq!(count("eth_getBlockTransactionCountByNumber"), format!("{:#x}", transactions.len()));
        for (index, expected) in transactions.iter().enumerate() {
            let params = json!([by.1, format!("{index:#x}")]);
            assert_eq!(store.call(&name("eth_getTransactionByBlockNumberAndIndex"), params), *expected);
        }
        for (index, expected) in ommers.iter().enumerate() {
            let params = json!([by.1, format!("{index:#x}")]);
            let uncle = store.call(&name("eth_getUncleByBlockNumberAndIndex"), params);
            let header: Header = serde_json::from_value(uncle.clone()).unwrap();
            assert_eq!((header.hash_slow(), field::<B256>(&uncle, "hash")), (*expected, *expected));
        }
        let behind = json!([by.1, format!("{:#x}", transactions.len())]);
        assert_eq!(store.call(&name("eth_getTransactionByBlockNumberAndIndex"), behind), Value::Null);
    }
    match header.withdrawals_root {
        None => assert!(full.get("withdrawals").is_none()),
        Some(root) => {
            let withdrawals: Vec<Withdrawal> = field(&full, "withdrawals");
            let withdrawals: Vec<_> = withdrawals.iter().map(alloy_rlp::encode).collect();
            assert_eq!(ordered_trie_root_encoded(&withdrawals), root);
        }
    }
    check_transactions(store, number, &full, &header);
    check_receipts(store, number, &full, &header)
}

fn check_transactions(store: &Memory, number: &str, block: &Value, header: &Header) {
    let full = block["transactions"].as_array().unwrap();
    let envelopes = full.iter().map(|transaction| {
        serde_json::from_value::<EthereumTxEnvelope<TxEip4844>>(transaction.clone()).unwrap().encoded_2718()
    });
    let envelopes: Vec<_> = envelopes.collect();
    assert_eq!(ordered_trie_root_encoded(&envelopes), header.transactions_root);
    let hashes = store.call("eth_getBlockByNumber", json!([number, false]));
    assert_eq!(hashes["transactions"], Value::from_iter(full.iter().map(|full| full["hash"].clone())));
    for (index, (transaction, bytes)) in full.iter().zip(&envelopes).enumerate() {
        let hash = json!([keccak256(bytes)]);
        assert_eq!(transaction["hash"], hash[0]);
        assert_eq!(store.call("eth_getTransactionByHash", hash.clone()), *transaction);
        let raw: Bytes = serde_json::from_value(store.call("debug_getRawTransaction", hash)).unwrap();
        assert_eq!(raw, bytes[..]);
        assert_eq!(transaction["blockHash"], block["hash"]);
        assert_eq!(transaction["blockNumber"], block["number"]);
        assert_eq!(transaction["blockTimestamp"], block["timestamp"]);
        assert_eq!(transaction["transactionIndex"], format!("{index:#x}"));
        let price: U256 = field(transaction, "gasPrice");
        let tip = price.checked_sub(U256::from(header.base_fee_per_gas.unwrap_or(0))).unwrap();
        let at_most: Option<U256> = field(transaction, "maxPriorityFeePerGas");
        assert!(at_most.is_none_or(|most| tip <= most));
        let at_most: Option<U256> = field(transaction, "maxFeePerGas");
        assert!(at_most.is_none_or(|most| price <= most));
    }
}

/// Checks the receipts of a block and returns their logs.
fn check_receipts(store: &Memory, number: &str, block: &Value, header: &Header) -> Vec<Value> {
    let receipts = store.call("eth_getBlockReceipts", json!([number]));
    assert_eq!(receipts, store.call("eth_getBlockReceipts", json!([{ "blockHash": block["hash"] }])));
    let receipts = receipts.as_array().unwrap();
    let transactions = block["transactions"].as_array().unwrap();
    assert_eq!(receipts.len(), transactions.len());
    let mut logs = Vec::new();
    let mut gas = 0;
    for (receipt, transaction) in receipts.iter().zip(transactions) {
        let hash = json!([transaction["hash"]]);
        assert_eq!(store.call("eth_getTransactionReceipt", hash), *receipt);
        for (of_receipt, of_transaction) in [
            ("transactionHash", "hash"),
            ("transactionIndex", "transactionIndex"),
            ("blockHash", "blockHash"),
            ("blockNumber", "blockNumber"),
            ("from", "from"),
            ("to", "to"),
            ("type", "type"),
            ("effectiveGasPrice", "gasPrice"),
        ] {
            assert_eq!(receipt[of_receipt], transaction[of_transaction], "{of_receipt} of {receipt}");
        }
        gas += field::<U64>(receipt, "gasUsed").to::<u64>();
        assert_eq!(field::<U64>(receipt, "cumulativeGasUsed").to::<u64>(), gas);
        let from: Address = field(receipt, "from");
        let nonce: U64 = field(transaction, "nonce");
        let created = transaction["to"].is_null().then(|| from.create(nonce.to()));
        assert_eq!(field::<Option<Address>>(receipt, "contractAddress"), created);
        let blobs = transaction["blobVersionedHashes"].as_array().map(|hashes| U64::from(hashes.len() << 17));
        assert_eq!(field::<Option<U64>>(receipt, "blobGasUsed"), blobs);
        assert_eq!(receipt.get("blobGasPrice").is_some(), blobs.is_some());
        for log in receipt["logs"].as_array().unwrap() {
            assert_eq!(log["logIndex"], format!("{:#x}", logs.len()));
            assert_eq!((&log["removed"], &log["blockTimestamp"]), (&json!(false), &block["timestamp"]));
            for same in ["transactionHash", "transactionIndex", "blockHash", "blockNumber"] {
                assert_eq!(log[same], receipt[same]);
            }
            logs.push(log.clone());
        }
    }
    assert_eq!(gas, header.gas_used);
    let envelopes: Vec<_> = receipts.iter().map(consensus_receipt).collect();
    assert_eq!(ordered_trie_root_encoded(&envelopes), header.receipts_root);
    let raw = store.call("debug_getRawReceipts", json!([number]));
    assert_eq!(serde_json::from_value::<Vec<Bytes>>(raw).unwrap(), envelopes);
    assert_eq!(store.call("eth_getLogs", json!([{ "blockHash": block["hash"] }])), Value::from(logs.clone()));
    logs
}

/// The EIP-2718 bytes of a receipt, put together from its JSON.
fn consensus_receipt(receipt: &Value) -> Vec<u8> {
    let status = match receipt.get("root") {
        Some(_) => Eip658Value::PostState(field(receipt, "root")),
        None => Eip658Value::Eip658(field::<U64>(receipt, "status") == U64::from(1)),
    };
    let logs = receipt["logs"].as_array().unwrap().iter();
    let logs =
        logs.map(|log| Log::new_unchecked(field(log, "address"), field(log, "topics"), field(log, "data")));
    let cumulative_gas_used = field::<U64>(receipt, "cumulativeGasUsed").to();
    let inner = ReceiptWithBloom {
        receipt: Receipt { status, cumulative_gas_used, logs: logs.collect() },
        logs_bloom: field::<Bloom>(receipt, "logsBloom"),
    };
    let envelope = match receipt["type"].as_str().unwrap() {
        "0x0" => ReceiptEnvelope::Legacy(inner),
        "0x1" => ReceiptEnvelope::Eip2930(inner),
        "0x2" => ReceiptEnvelope::Eip1559(inner),
        "0x3" => ReceiptEnvelope::Eip4844(inner),
        "0x4" => ReceiptEnvelope::Eip7702(inner),
        other => panic!("type {other}"),
    };
    envelope.encoded_2718()
}

#[test]
fn synthetic_chain_comes_out_as_it_went_in() {
    check(&Memory::new(crate::synthetic::chain()));
}
