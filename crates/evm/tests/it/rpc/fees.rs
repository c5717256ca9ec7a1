//! Fees: what is said of the next block is what the next block has.

use alloy_consensus::Header;
use sapwood_evm::BlockParts;
use serde_json::{Value, json};

use crate::{chains, memory::Memory, synthetic};

fn header(store: &Memory, number: u64) -> Header {
    BlockParts::split(&store.block(number).block).unwrap().header
}

#[test]
fn base_fees_of_ethtest_follow_from_the_block_before() {
    let Some((spec, blocks)) = chains::ethtest_blocks() else { return };
    let headers: Vec<_> =
        blocks.iter().map(|block| BlockParts::split(&block.block).unwrap().header).collect();
    for pair in headers.windows(2) {
        assert_eq!(spec.next_base_fee(&pair[0]), pair[1].base_fee_per_gas, "block {}", pair[1].number);
        let same = spec.blob_params(pair[0].timestamp) == spec.blob_params(pair[1].timestamp);
        if same {
            assert_eq!(spec.next_blob_fee(&pair[0]), spec.blob_fee(&pair[1]), "block {}", pair[1].number);
        }
    }
}

#[test]
fn base_fees_of_sepolia_follow_from_the_block_before() {
    let Some((spec, blocks)) = chains::sepolia_blocks() else { return };
    let headers: Vec<_> =
        blocks.iter().map(|block| BlockParts::split(&block.block).unwrap().header).collect();
    for pair in headers.windows(2) {
        assert_eq!(spec.next_base_fee(&pair[0]), pair[1].base_fee_per_gas, "block {}", pair[1].number);
    }
}

#[test]
fn fee_history_says_what_the_headers_say() {
    let store = Memory::new(synthetic::chain());
    let history = store.call("eth_feeHistory", json!(["0x5", "0x5", [0, 50, 100]]));
    let used = |transactions: f64| transactions * 21_000.0 / 16_777_216.0;
    let expected = json!({
        "oldestBlock": "0x1",
        // The last one by EIP-1559: 875,000,000 less an eighth of the share of gas that was not used.
        "baseFeePerGas": ["0x0", "0x0", "0x3b9aca00", "0x342770c0", "0x342770c0", "0x2da6b039"],
        "gasUsedRatio": [used(1.0), used(2.0), used(2.0), 0.0, used(1.0)],
        // By EIP-4844: e to the power of 20,000,000 / 3,338,477, and with one blob less than the target in excess.
        "baseFeePerBlobGas": ["0x0", "0x0", "0x0", "0x0", "0x18f", "0x180"],
        "blobGasUsedRatio": [0.0, 0.0, 0.0, 0.0, 2.0 / 6.0],
        // Tips in ascending order, at the share of the gas.
        "reward": [
            ["0x3", "0x3", "0x3"],
            ["0x4", "0x4", "0x5"],
            ["0x7", "0x7", "0x3b9aca00"],
            ["0x0", "0x0", "0x0"],
            ["0x1", "0x1", "0x1"],
        ],
    });
    assert_eq!(history, expected);
}

#[test]
fn fee_history_is_bounded() {
    let store = Memory::new(synthetic::chain());
    let oldest = |count: Value, newest: &str| {
        store.call("eth_feeHistory", json!([count, newest, []]))["oldestBlock"].clone()
    };
    assert_eq!(oldest(json!("0x3"), "latest"), "0x4");
    assert_eq!(oldest(json!(3), "pending"), "0x4");
    // Nothing is before block 0.
    assert_eq!(oldest(json!("0xffffffffffffffff"), "latest"), "0x0");
    let empty = store.call("eth_feeHistory", json!(["0x0", "latest", []]));
    assert_eq!((&empty["baseFeePerGas"], &empty["gasUsedRatio"]), (&json!([]), &json!([])));
    assert!(empty.get("reward").is_none());
    for params in [
        json!(["0x1", "0x7", []]),
        json!(["0x1", "latest", [50, 10]]),
        json!(["0x1", "latest", [101]]),
        json!(["0x1", "latest", [-1]]),
        json!(["0x1", "latest", ["50"]]),
        json!(["0x1", "latest", vec![50; 101]]),
        json!(["x", "latest", []]),
    ] {
        assert_eq!(store.fail("eth_feeHistory", params.clone()).0, -32602, "{params}");
    }
}

#[test]
fn current_fees_are_those_of_the_head() {
    let store = Memory::new(synthetic::chain());
    let spec = synthetic::chain().0;
    let head = header(&store, 6);
    let base_fee = format!("{:#x}", spec.next_base_fee(&head).unwrap());
    assert_eq!(store.call("eth_baseFee", json!([])), base_fee);
    assert_eq!(store.call("eth_blobBaseFee", json!([])), format!("{:#x}", spec.blob_fee(&head).unwrap()));
    let (spec, blocks) = synthetic::chain();
    let early = Memory::new((spec, blocks[..2].to_vec()));
    assert_eq!(early.call("eth_baseFee", json!([])), Value::Null);
    assert_eq!(early.call("eth_blobBaseFee", json!([])), Value::Null);
}
