//! Real chains come out as they went in, and as others say they are.

use serde_json::{Value, json};

use super::agree;
use crate::{chains, memory::Memory};
use sapwood_testing::data;

fn ethtest() -> Option<Memory> {
    chains::ethtest_blocks().map(Memory::new)
}

#[test]
fn ethtest_comes_out_as_it_went_in() {
    if let Some(store) = ethtest() {
        agree::check(&store);
    }
}

#[test]
fn sepolia_comes_out_as_it_went_in() {
    if let Some(store) = chains::sepolia_blocks().map(Memory::new) {
        agree::check(&store);
    }
}

#[test]
fn ethtest_has_the_head_that_geth_wrote_down() {
    let Some(store) = ethtest() else { return };
    let head = data::json(&chains::ethtest("headblock.json").unwrap());
    for tag in ["latest", "safe", "finalized"] {
        let found = store.call("eth_getBlockByNumber", json!([tag, false]));
        for (name, value) in head.as_object().unwrap() {
            assert_eq!(found[name], *value, "{name}");
        }
    }
}

#[test]
fn ethtest_has_the_receipts_that_were_computed_elsewhere() {
    let Some(store) = ethtest() else { return };
    let lines = data::read(&chains::ethtest("geth-ethtest-receipts.jsonl.zst").unwrap());
    let lines: Vec<Value> =
        lines.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    assert_eq!(lines.len(), 600);
    for line in lines {
        let number = format!("{:#x}", line["number"].as_u64().unwrap());
        assert_eq!(store.call("debug_getRawReceipts", json!([number])), line["receipts"]);
        assert_eq!(store.call("debug_getRawReceipts", json!([line["hash"]])), line["receipts"]);
        let count = line["txs"].as_u64().unwrap();
        assert_eq!(
            store.call("eth_getBlockTransactionCountByNumber", json!([number])),
            format!("{count:#x}")
        );
    }
}

#[test]
fn ethtest_has_the_transactions_that_geth_wrote_down() {
    let Some(store) = ethtest() else { return };
    let info = data::json(&chains::ethtest("txinfo.json").unwrap());
    let mut checked = 0;
    for (kind, value) in info.as_object().unwrap() {
        let items = value.as_array().map_or_else(|| vec![value.clone()], Clone::clone);
        for item in items {
            checked += check_info(&store, kind, &item);
        }
    }
    // As many as the file has: every emitting transaction, deployment, transfer and withdrawal.
    let listed = |kind: &str| info[kind].as_array().map_or(0, Vec::len);
    let emitting: usize =
        ["tx-emit-legacy", "tx-emit-eip1559", "tx-emit-eip2930", "tx-emit-eip4844"].map(listed).iter().sum();
    assert!(emitting > 100 && checked >= emitting + 3, "{checked} of {emitting}");
}

/// Checks what the file says about one transaction, and returns how many there were to check.
fn check_info(store: &Memory, kind: &str, item: &Value) -> usize {
    if let Some(contract) = item.get("contract").filter(|_| item.get("block").is_some()) {
        let receipts = store.call("eth_getBlockReceipts", json!([item["block"]]));
        let receipts = receipts.as_array().unwrap();
        assert!(receipts.iter().any(|receipt| receipt["contractAddress"] == *contract), "{kind}");
        return 1;
    }
    let Some(hash) = item.get("txhash").or_else(|| item.get("authorizeTx")) else { return 0 };
    let transaction = store.call("eth_getTransactionByHash", json!([hash]));
    assert_eq!(transaction["hash"], *hash, "{kind}");
    if let Some(sender) = item.get("sender") {
        assert_eq!(transaction["from"], *sender, "{kind}");
    }
    if let Some(block) = item.get("block") {
        assert_eq!(transaction["blockNumber"], *block, "{kind}");
    }
    if let Some(index) = item.get("indexInBlock") {
        assert_eq!(transaction["transactionIndex"], format!("{:#x}", index.as_u64().unwrap()), "{kind}");
    }
    if let Some(topic) = item.get("logtopic0") {
        let filter =
            json!({ "fromBlock": "0x0", "toBlock": "latest", "topics": [topic, [item["logtopic1"]]] });
        let logs = store.call("eth_getLogs", json!([filter]));
        let logs = logs.as_array().unwrap();
        assert_eq!(logs.len(), 1, "{kind}");
        assert_eq!((&logs[0]["transactionHash"], &logs[0]["blockNumber"]), (hash, &item["block"]));
        assert_eq!(logs[0]["topics"], json!([topic, item["logtopic1"]]));
    }
    1
}

#[test]
fn ethtest_has_the_genesis_that_its_file_says() {
    let Some(store) = ethtest() else { return };
    let genesis = data::json(&chains::ethtest("genesis.json").unwrap());
    let block = store.call("eth_getBlockByNumber", json!(["0x0", true]));
    for same in ["extraData", "gasLimit", "difficulty", "mixHash", "timestamp"] {
        assert_eq!(block[same], genesis[same], "{same}");
    }
    assert_eq!((&block["transactions"], &block["uncles"]), (&json!([]), &json!([])));
    assert_eq!(store.call("eth_getBlockReceipts", json!(["0x0"])), json!([]));
    assert_eq!(store.call("debug_getRawReceipts", json!(["earliest"])), json!([]));
    assert_eq!(store.call("eth_chainId", json!([])), "0xc72dd9d5e883e");
    assert_eq!(store.call("net_version", json!([])), "3503995874084926");
}
