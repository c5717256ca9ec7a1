//! What is pruned, pending, unknown or named by a tag.

use std::sync::Arc;

use alloy_primitives::B256;
use bytes::Bytes;
use sapwood_evm::{
    ChainSpec,
    rpc::Rpc,
    store::{Bounds, EvmBlocks, Lookup, Segment, StoreError, Syncing, TxPlace},
};
use serde_json::{Value, json};

use crate::{memory::Memory, synthetic};

fn store() -> Memory {
    Memory::new(synthetic::chain())
}

/// All calls that ask for block 2 of the synthetic chain or something in it.
fn calls_for_block_2(store: &Memory) -> Vec<(&'static str, Value)> {
    let block = store.block(2);
    let (hash, transaction) = (block.hash, block.tx_index.entries[1].hash);
    vec![
        ("eth_getBlockByNumber", json!(["0x2", false])),
        ("eth_getBlockByHash", json!([hash, true])),
        ("eth_getBlockTransactionCountByNumber", json!(["0x2"])),
        ("eth_getBlockTransactionCountByHash", json!([hash])),
        ("eth_getUncleCountByBlockNumber", json!(["0x2"])),
        ("eth_getUncleCountByBlockHash", json!([hash])),
        ("eth_getUncleByBlockNumberAndIndex", json!(["0x2", "0x0"])),
        ("eth_getUncleByBlockHashAndIndex", json!([hash, "0x0"])),
        ("eth_getTransactionByHash", json!([transaction])),
        ("eth_getTransactionByBlockNumberAndIndex", json!(["0x2", "0x0"])),
        ("eth_getTransactionByBlockHashAndIndex", json!([hash, "0x0"])),
        ("eth_getTransactionReceipt", json!([transaction])),
        ("eth_getBlockReceipts", json!(["0x2"])),
        ("eth_getBlockReceipts", json!([hash])),
        ("debug_getRawBlock", json!(["0x2"])),
        ("debug_getRawHeader", json!([hash])),
        ("debug_getRawReceipts", json!(["0x2"])),
        ("debug_getRawTransaction", json!([transaction])),
        ("eth_getLogs", json!([{ "blockHash": hash }])),
        ("eth_getLogs", json!([{ "fromBlock": "0x2", "toBlock": "latest" }])),
        ("eth_feeHistory", json!(["0x1", "0x2", []])),
    ]
}

#[test]
fn pruned_is_an_error_with_both_numbers() {
    let mut store = store();
    let calls = calls_for_block_2(&store);
    for (method, params) in &calls {
        store.call(method, params.clone());
    }
    store.prune(3);
    for (method, params) in calls {
        let response = store.respond(method, params);
        let expected = json!({
            "code": 4444,
            "message": "pruned history unavailable: requested 2, earliest available 4",
            "data": { "requested": 2, "earliest": 4 },
        });
        assert_eq!(response["error"], expected, "{method}");
    }
}

#[test]
fn range_that_touches_pruned_blocks_is_an_error() {
    let mut store = store();
    store.prune(3);
    let logs =
        |from: &str, to: &str| store.respond("eth_getLogs", json!([{ "fromBlock": from, "toBlock": to }]));
    for (from, to, requested) in
        [("0x3", "0x4", 3), ("0x0", "latest", 0), ("0x0", "0x0", 0), ("0x1", "0x2", 1)]
    {
        assert_eq!(
            logs(from, to)["error"]["data"],
            json!({ "requested": requested, "earliest": 4 }),
            "{from}-{to}"
        );
    }
    assert!(logs("0x4", "latest")["result"].is_array());
    assert!(logs("earliest", "latest")["result"].is_array());
    let (code, _) = store.fail("eth_feeHistory", json!(["0x400", "latest", []]));
    assert_eq!(code, 4444);
    store.call("eth_feeHistory", json!(["0x3", "latest", []]));
}

#[test]
fn genesis_is_never_pruned() {
    let mut store = store();
    let before = store.call("eth_getBlockByNumber", json!(["0x0", true]));
    store.prune(5);
    assert_eq!(store.call("eth_getBlockByNumber", json!(["0x0", true])), before);
    assert_eq!(store.call("eth_getBlockByHash", json!([before["hash"], true])), before);
    assert_eq!(store.call("eth_getBlockReceipts", json!(["0x0"])), json!([]));
}

#[test]
fn earliest_is_the_oldest_kept_block() {
    let mut store = store();
    let earliest =
        |store: &Memory| store.call("eth_getBlockByNumber", json!(["earliest", false]))["number"].clone();
    assert_eq!(earliest(&store), "0x0");
    store.prune(3);
    assert_eq!(earliest(&store), "0x4");
}

#[test]
fn tags_name_blocks() {
    let mut store = store();
    (store.safe, store.finalized) = (Some(5), Some(4));
    let number = |tag: &str| store.call("eth_getBlockByNumber", json!([tag, false]))["number"].clone();
    assert_eq!([number("latest"), number("safe"), number("finalized")], ["0x6", "0x5", "0x4"]);
    assert_eq!(number("pending"), Value::Null);
    let logs = |to: &str| store.call("eth_getLogs", json!([{ "fromBlock": "0x4", "toBlock": to }]));
    assert_eq!(logs("finalized"), json!([]));
    assert_eq!(logs("latest").as_array().unwrap().len(), 6);
    (store.safe, store.finalized) = (None, None);
    for tag in ["safe", "finalized"] {
        let expected = (-39001, format!("{tag} block not found"));
        assert_eq!(store.fail("eth_getBlockByNumber", json!([tag, false])), expected);
    }
}

#[test]
fn unknown_and_pending_are_null() {
    let mut store = store();
    store.queued = vec![B256::repeat_byte(0xee)];
    for hash in [B256::repeat_byte(0xee), B256::ZERO] {
        for method in ["eth_getTransactionByHash", "eth_getTransactionReceipt", "debug_getRawTransaction"] {
            assert_eq!(store.call(method, json!([hash])), Value::Null, "{method}");
        }
    }
    for (method, params) in [
        ("eth_getBlockByNumber", json!(["0x7", true])),
        ("eth_getBlockByNumber", json!(["0xffffffffffffffff", true])),
        ("eth_getBlockByHash", json!([B256::ZERO, true])),
        ("eth_getBlockTransactionCountByNumber", json!(["0x7"])),
        ("eth_getUncleByBlockNumberAndIndex", json!(["0x2", "0x0"])),
        ("eth_getUncleByBlockNumberAndIndex", json!(["0x1", "0x1"])),
        ("eth_getTransactionByBlockNumberAndIndex", json!(["0x2", "0x2"])),
        ("eth_getTransactionByBlockNumberAndIndex", json!(["0x2", "0xffffffffffffffff"])),
        ("eth_getBlockReceipts", json!(["0x7"])),
        ("eth_getBlockReceipts", json!([B256::ZERO])),
        ("eth_getBlockReceipts", json!(["pending"])),
        ("debug_getRawBlock", json!(["0x7"])),
        ("debug_getRawHeader", json!(["0x7"])),
        ("debug_getRawReceipts", json!(["0x7"])),
    ] {
        assert_eq!(store.call(method, params.clone()), Value::Null, "{method} {params}");
    }
}

#[test]
fn receipts_that_were_not_stored_are_not_null() {
    let store = store().without_receipts();
    let hash = store.block(2).tx_index.entries[0].hash;
    for (method, params) in [
        ("eth_getTransactionReceipt", json!([hash])),
        ("eth_getBlockReceipts", json!(["0x2"])),
        ("debug_getRawReceipts", json!(["0x2"])),
        ("eth_getLogs", json!([{ "fromBlock": "0x2", "toBlock": "0x2" }])),
    ] {
        let (code, message) = store.fail(method, params);
        assert_eq!(code, -32002, "{method}");
        assert!(message.contains("receipts of block 2 are not stored"), "{message}");
    }
    store.call("eth_getTransactionByHash", json!([hash]));
}

#[test]
fn empty_store_says_so() {
    let store = Memory::new((Arc::new(ChainSpec::new(1, B256::ZERO, 0, None, vec![]).unwrap()), vec![]));
    assert_eq!(store.call("eth_chainId", json!([])), "0x1");
    for (method, params) in
        [("eth_blockNumber", json!([])), ("eth_getBlockByNumber", json!(["latest", true]))]
    {
        assert_eq!(store.fail(method, params), (-32002, "no block has been stored yet".to_owned()));
    }
}

#[test]
fn capabilities_say_what_is_kept() {
    let mut store = store();
    let head = json!({ "number": "0x6", "hash": store.block(6).hash });
    let disabled = json!({ "disabled": true });
    let all = json!({ "disabled": false, "oldestBlock": "0x0" });
    let expected = json!({
        "head": head, "state": disabled, "stateproofs": disabled, "tx": all, "logs": all, "receipts": all, "blocks": all,
    });
    assert_eq!(store.call("eth_capabilities", json!([])), expected);

    store.prune(3);
    store.retention_blocks = Some(300);
    let window = json!({
        "disabled": false, "oldestBlock": "0x4", "deleteStrategy": { "type": "window", "retentionBlocks": "0x12c" },
    });
    let found = store.call("eth_capabilities", json!([]));
    assert_eq!(["tx", "logs", "receipts", "blocks"].map(|name| &found[name]), [&window; 4]);

    let found = store.without_receipts().call("eth_capabilities", json!([]));
    assert_eq!([&found["logs"], &found["receipts"], &found["blocks"]], [&disabled, &disabled, &window]);
}

#[test]
fn syncing_says_how_far() {
    let mut store = store();
    assert_eq!(store.call("eth_syncing", json!([])), false);
    store.syncing = Some(Syncing { starting: 1, highest: 255 });
    let expected = json!({ "startingBlock": "0x1", "currentBlock": "0x6", "highestBlock": "0xff" });
    assert_eq!(store.call("eth_syncing", json!([])), expected);
}

#[test]
fn block_that_was_replaced_meanwhile_is_not_found_by_its_old_hash() {
    let mut store = store();
    let old = B256::repeat_byte(0xaa);
    store.replace(3, store.block(3).block.clone(), old);
    assert_eq!(store.call("eth_getBlockByHash", json!([old, true])), Value::Null);
    assert_eq!(store.call("eth_getBlockReceipts", json!([old])), Value::Null);
}

#[test]
fn unreadable_block_is_an_error_of_its_own() {
    let mut store = store();
    store.replace(3, Bytes::from_static(b"nonsense"), B256::ZERO);
    let (code, message) = store.fail("eth_getBlockByNumber", json!(["0x3", true]));
    assert_eq!(code, -32603);
    assert!(message.starts_with("the stored block 3 cannot be read: "), "{message}");
    store.replace(3, store.block(4).block.clone(), B256::ZERO);
    let expected = (-32603, "the stored block 3 cannot be read: it has the bytes of block 4".to_owned());
    assert_eq!(store.fail("eth_getBlockByNumber", json!(["0x3", true])), expected);
    store.call("eth_getBlockByNumber", json!(["0x2", true]));
}

/// A store whose disk fails, but that knows what it pruned.
struct Broken(ChainSpec);

impl EvmBlocks for Broken {
    fn spec(&self) -> &ChainSpec {
        &self.0
    }

    fn bounds(&self) -> Result<Option<Bounds>, StoreError> {
        Err("disk on fire".into())
    }

    fn segment(&self, _: u64, _: Segment) -> Result<Lookup<Bytes>, StoreError> {
        Err("disk on fire".into())
    }

    fn number_of(&self, _: &B256) -> Result<Lookup<u64>, StoreError> {
        Ok(Lookup::Pruned { requested: None, earliest: 9 })
    }

    fn transaction(&self, _: &B256) -> Result<Lookup<TxPlace>, StoreError> {
        Err("disk on fire".into())
    }
}

#[test]
fn failing_store_is_an_internal_error() {
    let store = Broken(ChainSpec::clone(&synthetic::chain().0));
    let call = |method: &str, params: Value| {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let response = Rpc::default().handle(&store, request.to_string().as_bytes());
        serde_json::from_slice::<Value>(&response).unwrap()["error"].clone()
    };
    let expected = json!({ "code": -32603, "message": "the archive cannot be read: disk on fire" });
    assert_eq!(call("eth_blockNumber", json!([])), expected);
    assert_eq!(call("eth_getBlockByNumber", json!(["0x1", true])), expected);
    assert_eq!(call("eth_getTransactionByHash", json!([B256::ZERO])), expected);
    // The number of a pruned block may be forgotten.
    let expected = json!({
        "code": 4444,
        "message": "pruned history unavailable: earliest available 9",
        "data": { "requested": null, "earliest": 9 },
    });
    assert_eq!(call("eth_getBlockByHash", json!([B256::ZERO, true])), expected);
}
