//! The exact JSON of one of each kind: names, forms, and which fields are absent when.

use serde_json::{Value, json};

use crate::{memory::Memory, synthetic};

fn store() -> Memory {
    Memory::new(synthetic::chain())
}

/// The names of an object's fields, in alphabetical order.
fn names(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn receipt_before_byzantium_has_a_root_and_no_status() {
    let store = store();
    let block = store.block(1);
    let receipt = store.call("eth_getTransactionReceipt", json!([block.tx_index.entries[0].hash]));
    let contract = synthetic::sender().create(5);
    let mut expected = json!({
        "type": "0x0",
        "transactionHash": block.tx_index.entries[0].hash,
        "transactionIndex": "0x0",
        "blockHash": block.hash,
        "blockNumber": "0x1",
        "from": format!("{:#x}", synthetic::sender()),
        "to": null,
        "contractAddress": format!("{contract:#x}"),
        "cumulativeGasUsed": "0x5208",
        "gasUsed": "0x5208",
        "effectiveGasPrice": "0x3",
        "root": format!("0x{}", "77".repeat(32)),
        "logs": [{
            "address": format!("0x{}", "01".repeat(20)),
            "topics": [],
            "data": "0x64617461",
            "blockNumber": "0x1",
            "blockHash": block.hash,
            "blockTimestamp": "0xa",
            "transactionHash": block.tx_index.entries[0].hash,
            "transactionIndex": "0x0",
            "logIndex": "0x0",
            "removed": false,
        }],
    });
    expected["logsBloom"] = receipt["logsBloom"].clone();
    assert_eq!(receipt, expected);
    assert_eq!(receipt["logsBloom"].as_str().unwrap().len(), 514);
}

#[test]
fn receipt_from_byzantium_on_has_a_status_and_no_root() {
    let receipts = store().call("eth_getBlockReceipts", json!(["0x2"]));
    let status: Vec<_> = receipts.as_array().unwrap().iter().map(|receipt| &receipt["status"]).collect();
    assert_eq!(status, ["0x0", "0x1"]);
    assert!(receipts[0].get("root").is_none());
    assert_eq!(
        (&receipts[1]["gasUsed"], &receipts[1]["cumulativeGasUsed"]),
        (&json!("0x5208"), &json!("0xa410"))
    );
    assert_eq!(
        (&receipts[1]["to"], &receipts[1]["contractAddress"]),
        (&json!(format!("0x{}", "cc".repeat(20))), &Value::Null)
    );
}

#[test]
fn receipt_of_blobs_has_their_gas_and_price() {
    let receipts = store().call("eth_getBlockReceipts", json!(["0x6"]));
    assert_eq!((&receipts[0]["blobGasUsed"], &receipts[0]["type"]), (&json!("0x40000"), &json!("0x3")));
    // Prague has another update fraction than Cancun: e to the power of 20 / 5.
    assert_eq!(receipts[0]["blobGasPrice"], "0x36");
    assert_eq!(receipts[1]["type"], "0x4");
    assert!(receipts[1].get("blobGasUsed").is_none() && receipts[1].get("blobGasPrice").is_none());
}

#[test]
fn transaction_from_before_eip155_has_no_chain_id() {
    let transaction = store().call("eth_getTransactionByBlockNumberAndIndex", json!(["0x1", "0x0"]));
    let expected = [
        "blockHash",
        "blockNumber",
        "blockTimestamp",
        "from",
        "gas",
        "gasPrice",
        "hash",
        "input",
        "nonce",
        "r",
        "s",
        "to",
        "transactionIndex",
        "type",
        "v",
        "value",
    ];
    assert_eq!(names(&transaction), expected);
    assert!(["0x1b", "0x1c"].contains(&transaction["v"].as_str().unwrap()));
    assert_eq!((&transaction["to"], &transaction["input"]), (&Value::Null, &json!("0x6000")));
    assert_eq!((&transaction["type"], &transaction["blockTimestamp"]), (&json!("0x0"), &json!("0xa")));
}

#[test]
fn typed_transactions_have_parity_twice() {
    let store = store();
    let common = [
        "accessList",
        "blockHash",
        "blockNumber",
        "blockTimestamp",
        "chainId",
        "from",
        "gas",
        "gasPrice",
        "hash",
        "input",
        "nonce",
        "r",
        "s",
        "to",
        "transactionIndex",
        "type",
        "v",
        "value",
        "yParity",
    ];
    let fees: &[&str] = &["maxFeePerGas", "maxPriorityFeePerGas"];
    let blobs: &[&str] = &["maxFeePerGas", "maxPriorityFeePerGas", "maxFeePerBlobGas", "blobVersionedHashes"];
    let code: &[&str] = &["maxFeePerGas", "maxPriorityFeePerGas", "authorizationList"];
    for (block, index, kind, more) in [
        ("0x2", "0x1", "0x1", &[][..]),
        ("0x3", "0x0", "0x2", fees),
        ("0x5", "0x0", "0x3", blobs),
        ("0x6", "0x1", "0x4", code),
    ] {
        let transaction = store.call("eth_getTransactionByBlockNumberAndIndex", json!([block, index]));
        let mut expected = [&common, more].concat();
        expected.sort_unstable();
        assert_eq!(names(&transaction), expected, "type {kind}");
        assert_eq!((&transaction["type"], &transaction["chainId"]), (&json!(kind), &json!("0x7")));
        assert_eq!(transaction["v"], transaction["yParity"]);
    }
    let legacy = store.call("eth_getTransactionByBlockNumberAndIndex", json!(["0x2", "0x0"]));
    assert!(["0x31", "0x32"].contains(&legacy["v"].as_str().unwrap()) && legacy.get("yParity").is_none());
    assert_eq!(legacy["chainId"], "0x7");
}

#[test]
fn gas_price_is_what_was_paid() {
    let store = store();
    let price = |index: &str| {
        store.call("eth_getTransactionByBlockNumberAndIndex", json!(["0x3", index]))["gasPrice"].clone()
    };
    // The base fee and a tip of 7; and at most the greatest fee.
    assert_eq!([price("0x1"), price("0x0")], ["0x3b9aca07", "0x77359400"]);
}

#[test]
fn block_has_the_fields_of_its_fork() {
    let store = store();
    let always = [
        "difficulty",
        "extraData",
        "gasLimit",
        "gasUsed",
        "hash",
        "logsBloom",
        "miner",
        "mixHash",
        "nonce",
        "number",
        "parentHash",
        "receiptsRoot",
        "sha3Uncles",
        "size",
        "stateRoot",
        "timestamp",
        "transactions",
        "transactionsRoot",
        "uncles",
    ];
    let mut expected = always.to_vec();
    let by_fork: [&[&str]; 7] = [
        &[],
        &[],
        &[],
        &["baseFeePerGas"],
        &["withdrawals", "withdrawalsRoot"],
        &["blobGasUsed", "excessBlobGas", "parentBeaconBlockRoot"],
        &["requestsHash"],
    ];
    for (number, more) in by_fork.iter().enumerate() {
        expected.extend(*more);
        expected.sort_unstable();
        let block = store.call("eth_getBlockByNumber", json!([format!("{number:#x}"), false]));
        assert_eq!(names(&block), expected, "block {number}");
    }
    let block = store.call("eth_getBlockByNumber", json!(["0x4", false]));
    let address = format!("0x{}", "dd".repeat(20));
    let withdrawal = json!({ "index": "0x1", "validatorIndex": "0x2", "address": address, "amount": "0x3" });
    assert_eq!(block["withdrawals"], json!([withdrawal]));
    assert_eq!(block["nonce"], "0x0000000000000000");
}

#[test]
fn uncle_is_a_block_without_a_body() {
    let store = store();
    let uncle = store.call("eth_getUncleByBlockNumberAndIndex", json!(["0x1", "0x0"]));
    assert!(uncle.get("transactions").is_none() && uncle.get("withdrawals").is_none());
    assert_eq!((&uncle["uncles"], &uncle["extraData"]), (&json!([]), &json!("0x756e636c65")));
    let block = store.call("eth_getBlockByNumber", json!(["0x1", false]));
    assert_eq!(block["uncles"], json!([uncle["hash"]]));
    assert_eq!(store.call("eth_getUncleCountByBlockNumber", json!(["0x1"])), "0x1");
    let size = |value: &Value| u64::from_str_radix(&value["size"].as_str().unwrap()[2..], 16).unwrap();
    // Header, list prefix of three bytes, two empty lists.
    assert_eq!(
        size(&uncle),
        alloy_rlp::Encodable::length(
            &serde_json::from_value::<alloy_consensus::Header>(uncle.clone()).unwrap()
        ) as u64
            + 5
    );
}

#[test]
fn config_says_which_forks_are_in_force() {
    let (spec, blocks) = synthetic::chain();
    let at =
        |number: usize| Memory::new((spec.clone(), blocks[..=number].to_vec())).call("eth_config", json!([]));
    let before = at(3);
    assert_eq!(before["current"], Value::Null);
    assert_eq!([&before["next"]["activationTime"], &before["last"]["activationTime"]], [40, 60]);
    let cancun = at(5);
    let times = ["current", "next", "last"].map(|name| cancun[name]["activationTime"].clone());
    assert_eq!(times, [50, 60, 60]);
    let schedule = json!({ "target": 3, "max": 6, "baseFeeUpdateFraction": 3_338_477 });
    assert_eq!(
        (&cancun["current"]["blobSchedule"], &cancun["current"]["chainId"]),
        (&schedule, &json!("0x7"))
    );
    assert_eq!(names(&cancun["current"]["systemContracts"]), ["BEACON_ROOTS_ADDRESS"]);
    assert_eq!(cancun["current"]["precompiles"].as_object().unwrap().len(), 10);
    let prague = at(6);
    assert_eq!([&prague["next"], &prague["last"]], [&Value::Null, &Value::Null]);
    assert_eq!(prague["current"]["precompiles"].as_object().unwrap().len(), 17);
    assert_ne!(prague["current"]["forkId"], cancun["current"]["forkId"]);
    assert_eq!(prague["current"]["forkId"], cancun["next"]["forkId"]);
}
