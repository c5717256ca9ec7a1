//! Log filters.

use alloy_primitives::B256;
use proptest::{collection::vec, option, prelude::*};
use sapwood_evm::rpc::Limits;
use serde_json::{Value, json};

use crate::{memory::Memory, synthetic};

fn store() -> Memory {
    Memory::new(synthetic::chain())
}

#[test]
fn bad_filters_are_refused() {
    let store = store();
    let hash = B256::ZERO;
    for filter in [
        json!({ "fromBlock": "0x4", "toBlock": "0x3" }),
        json!({ "fromBlock": "0x1", "toBlock": "0x7" }),
        json!({ "fromBlock": "0x7" }),
        json!({ "fromBlock": "pending" }),
        json!({ "fromBlock": 1 }),
        json!({ "blockHash": hash, "fromBlock": "0x1" }),
        json!({ "blockHash": hash, "toBlock": "0x1" }),
        json!({ "blockHash": "0x1" }),
        json!({ "address": "0x12" }),
        json!({ "address": [hash] }),
        json!({ "topics": "0x1" }),
        json!({ "topics": [["0x1"]] }),
        json!({ "topics": [null, null, null, null, null] }),
        json!("latest"),
    ] {
        assert_eq!(store.fail("eth_getLogs", json!([filter])).0, -32602, "{filter}");
    }
    assert_eq!(store.fail("eth_getLogs", json!([])).0, -32602);
    assert_eq!(
        store.fail("eth_getLogs", json!([{ "blockHash": hash }])),
        (-32000, "unknown block".to_owned())
    );
}

#[test]
fn range_has_a_limit() {
    let store = store();
    let logs = |from: &str, to: &str| {
        let limits = Limits { log_blocks: 3, ..Limits::default() };
        store.respond_within(limits, "eth_getLogs", json!([{ "fromBlock": from, "toBlock": to }]))
    };
    assert!(logs("0x1", "0x3")["result"].is_array());
    let error = &logs("0x1", "0x4")["error"];
    assert_eq!(error["code"], -32005);
    assert!(error["message"].as_str().unwrap().contains("retry with the range 1-3"), "{error}");
}

#[test]
fn without_a_range_the_newest_block_is_searched() {
    let store = store();
    let newest = store.call("eth_getLogs", json!([{ "fromBlock": "latest", "toBlock": "latest" }]));
    assert_eq!(newest.as_array().unwrap().len(), 4);
    assert_eq!(store.call("eth_getLogs", json!([{}])), newest);
    assert_eq!(
        store.call("eth_getLogs", json!([{ "fromBlock": null, "address": null, "topics": null }])),
        newest
    );
}

#[test]
fn wildcard_needs_the_position_to_be_there() {
    let store = store();
    let count = |topics: Value| {
        let logs = store.call("eth_getLogs", json!([{ "fromBlock": "0x0", "topics": topics }]));
        logs.as_array().unwrap().len()
    };
    // The logs that have at least this number of topics.
    let wild = [
        json!([]),
        json!([null]),
        json!([null, []]),
        json!([[], null, null]),
        json!([null, null, null, null]),
    ];
    assert_eq!(wild.map(count), [11, 9, 3, 1, 1]);
}

/// A condition on topics, as a model: `None` is any.
type Condition = Option<Vec<u8>>;

fn word(byte: u8) -> String {
    format!("{}", B256::repeat_byte(byte))
}

fn address(byte: u8) -> String {
    format!("0x{}", format!("{byte:02x}").repeat(20))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn filter_finds_what_a_plain_search_finds(
        addresses in option::of(vec(0..4_u8, 0..3)),
        topics in vec(option::of(vec(0..5_u8, 0..3)), 0..4),
        from in 0..7_u64, length in 0..7_u64,
    ) {
        let store = store();
        let to = (from + length).min(6);
        let all = store.call("eth_getLogs", json!([{ "fromBlock": format!("{from:#x}"), "toBlock": format!("{to:#x}") }]));
        let matches = |log: &&Value| {
            let found: Vec<_> = log["topics"].as_array().unwrap().iter().map(|topic| topic.as_str().unwrap()).collect();
            let is_address = |wanted: &u8| log["address"].as_str() == Some(&address(*wanted));
            let any = |wanted: &Condition, topic: &str| {
                wanted.as_ref().is_none_or(|any| any.is_empty() || any.iter().any(|wanted| word(*wanted) == topic))
            };
            addresses.as_ref().is_none_or(|any| any.is_empty() || any.iter().any(is_address))
                && topics.len() <= found.len()
                && topics.iter().zip(found).all(|(wanted, topic)| any(wanted, topic))
        };
        let expected: Vec<Value> = all.as_array().unwrap().iter().filter(matches).cloned().collect();
        let topics: Vec<Value> = topics.iter().map(|any| match any {
            None => Value::Null,
            // One topic may stand without a list.
            Some(any) if any.len() == 1 => json!(word(any[0])),
            Some(any) => any.iter().map(|topic| json!(word(*topic))).collect(),
        }).collect();
        let mut filter = json!({ "fromBlock": format!("{from:#x}"), "toBlock": format!("{to:#x}"), "topics": topics });
        if let Some(any) = addresses {
            filter["address"] = match any[..] {
                [one] => json!(address(one)),
                _ => any.iter().map(|one| json!(address(*one))).collect(),
            };
        }
        prop_assert_eq!(store.call("eth_getLogs", json!([filter])), Value::from(expected));
    }
}
