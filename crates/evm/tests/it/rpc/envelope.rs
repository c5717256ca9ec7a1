//! JSON-RPC 2.0: requests, batches, ids, errors and limits.

use std::sync::Arc;

use sapwood_evm::rpc::{ExtraMethods, Limits, Rpc, RpcError};
use serde_json::{Value, json, value::RawValue};

use crate::{memory::Memory, synthetic};

fn store() -> Memory {
    Memory::new(synthetic::chain())
}

fn handle(request: &str) -> String {
    String::from_utf8(Rpc::default().handle(&store(), request.as_bytes())).unwrap()
}

fn failure(request: &str) -> (Value, i64) {
    let response: Value = serde_json::from_str(&handle(request)).unwrap();
    assert_eq!(response["jsonrpc"], "2.0");
    (response["id"].clone(), response["error"]["code"].as_i64().unwrap())
}

#[test]
fn id_is_repeated_as_it_came() {
    for id in ["1", "\"a\\u0062c\"", "null", "-1.50e3", "123456789012345678901234567890"] {
        let request = format!(r#" {{"id":{id},"method":"eth_blockNumber","jsonrpc":"2.0","more":[]}}"#);
        assert_eq!(handle(&request), format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"0x6"}}"#));
    }
}

#[test]
fn notification_has_no_response() {
    let notification = r#"{"jsonrpc":"2.0","method":"eth_blockNumber"}"#;
    assert_eq!(handle(notification), "");
    assert_eq!(handle(&format!("[{notification},{notification}]")), "");
    let mixed =
        format!(r#"[{notification},{{"jsonrpc":"2.0","id":9,"method":"eth_chainId","params":null}}]"#);
    assert_eq!(handle(&mixed), r#"[{"jsonrpc":"2.0","id":9,"result":"0x7"}]"#);
}

#[test]
fn malformed_requests_get_the_code_of_their_fault() {
    for request in ["", "{", "[1,", "nonsense", "{}{}", "\u{0}", &"[".repeat(1000)] {
        assert_eq!(failure(request), (Value::Null, -32700), "{request:?}");
    }
    for request in ["[]", "1", "\"x\"", "null", r#"{"id":[],"jsonrpc":"2.0","method":"eth_chainId"}"#] {
        assert_eq!(failure(request), (Value::Null, -32600), "{request:?}");
    }
    for fields in
        [r#""method":"eth_chainId""#, r#""jsonrpc":"1.0","method":"eth_chainId""#, r#""jsonrpc":"2.0""#]
    {
        assert_eq!(failure(&format!(r#"{{"id":3,{fields}}}"#)), (json!(3), -32600), "{fields}");
    }
    assert_eq!(failure(r#"{"id":3,"jsonrpc":"2.0","method":7}"#), (json!(3), -32600));
    assert_eq!(failure(r#"{"id":3,"jsonrpc":"2.0","method":"eth_call"}"#), (json!(3), -32601));
    assert_eq!(failure(r#"{"id":3,"jsonrpc":"2.0","method":"eth_chainId","params":{}}"#), (json!(3), -32602));
    assert_eq!(
        failure(r#"{"id":3,"jsonrpc":"2.0","method":"eth_chainId","params":"x"}"#),
        (json!(3), -32602)
    );
}

#[test]
fn bad_parameters_are_errors_and_not_null() {
    let store = store();
    let hash = format!("0x{}", "00".repeat(32));
    for (method, params) in [
        ("eth_blockNumber", json!([1])),
        ("eth_getBlockByNumber", json!([])),
        ("eth_getBlockByNumber", json!(["0x1"])),
        ("eth_getBlockByNumber", json!(["0x1", "true"])),
        ("eth_getBlockByNumber", json!(["0x1", true, 1])),
        ("eth_getBlockByNumber", json!(["1", true])),
        ("eth_getBlockByNumber", json!([1, true])),
        ("eth_getBlockByNumber", json!(["0x01", true])),
        ("eth_getBlockByNumber", json!([hash, true])),
        ("eth_getBlockByNumber", json!(["newest", true])),
        ("eth_getBlockByHash", json!(["0x1", true])),
        ("eth_getBlockByHash", json!([&hash[2..], true])),
        ("eth_getBlockByHash", json!([hash.replace("00", "zz"), true])),
        ("eth_getTransactionByHash", json!([format!("{hash}00")])),
        ("eth_getTransactionByHash", json!([null])),
        ("eth_getTransactionByBlockNumberAndIndex", json!(["0x1"])),
        ("eth_getTransactionByBlockNumberAndIndex", json!(["0x1", 0])),
        ("eth_getBlockReceipts", json!([{ "blockHash": hash, "blockNumber": "0x1" }])),
        ("debug_getRawBlock", json!(["2"])),
        (
            "debug_getRawTransaction",
            json!(["1000000000000000000000000000000000000000000000000000000000000001"]),
        ),
    ] {
        assert_eq!(store.fail(method, params.clone()).0, -32602, "{method} {params}");
    }
    let (_, message) = store.fail("debug_getRawBlock", json!(["2"]));
    assert_eq!(message, "invalid argument 0: hex string without 0x prefix");
}

#[test]
fn batch_is_answered_in_order() {
    let request = json!([
        { "jsonrpc": "2.0", "id": 1, "method": "eth_blockNumber" },
        { "jsonrpc": "2.0", "id": 2, "method": "no_such_method" },
        7,
        { "jsonrpc": "2.0", "id": "x", "method": "eth_chainId", "params": [] },
    ]);
    let responses: Value = serde_json::from_str(&handle(&request.to_string())).unwrap();
    let ids: Vec<_> = responses.as_array().unwrap().iter().map(|response| response["id"].clone()).collect();
    assert_eq!(ids, [json!(1), json!(2), Value::Null, json!("x")]);
    assert_eq!([&responses[0]["result"], &responses[3]["result"]], ["0x6", "0x7"]);
    assert_eq!([&responses[1]["error"]["code"], &responses[2]["error"]["code"]], [-32601, -32600]);
}

#[test]
fn batch_has_a_limit() {
    let rpc = Rpc::new(Limits { batch: 2, ..Limits::default() });
    let one = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
    let handle = |count: usize| {
        let request = format!("[{}]", vec![one; count].join(","));
        serde_json::from_slice::<Value>(&rpc.handle(&store(), request.as_bytes())).unwrap()
    };
    assert_eq!(handle(2).as_array().unwrap().len(), 2);
    assert_eq!(handle(3)["error"]["code"], -32600);
}

#[test]
fn response_has_a_limit() {
    let store = store();
    let whole = store.respond("eth_getBlockByNumber", json!(["0x2", true]));
    let result = whole["result"].to_string().len();
    let within = |response_bytes| {
        let limits = Limits { response_bytes, ..Limits::default() };
        store.respond_within(limits, "eth_getBlockByNumber", json!(["0x2", true]))
    };
    assert_eq!(within(result), whole);
    assert_eq!(within(result - 1)["error"]["code"], -32005);
    let logs = |response_bytes| {
        let limits = Limits { response_bytes, ..Limits::default() };
        store.respond_within(limits, "eth_getLogs", json!([{ "fromBlock": "0x0", "toBlock": "latest" }]))
    };
    assert!(logs(1 << 20)["result"].is_array());
    assert_eq!(logs(1000)["error"]["code"], -32005);
}

#[test]
fn batch_shares_the_limit_of_the_response() {
    let store = store();
    let one = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["0x2",true]}"#;
    let single = Rpc::default().handle(&store, one.as_bytes()).len();
    let rpc = Rpc::new(Limits { response_bytes: 2 * single + 10, ..Limits::default() });
    let responses = rpc.handle(&store, format!("[{one},{one},{one}]").as_bytes());
    let responses: Value = serde_json::from_slice(&responses).unwrap();
    let failed: Vec<bool> =
        responses.as_array().unwrap().iter().map(|response| response.get("error").is_some()).collect();
    assert_eq!(failed, [false, false, true]);
}

#[test]
fn reading_has_a_limit_for_the_whole_batch() {
    let store = store();
    // A block and its index are two reads, each of less than the least that counts.
    let limits = Limits { read_bytes: 6 * 4096, ..Limits::default() };
    let one = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["0x2",true]}"#;
    let responses = Rpc::new(limits).handle(&store, format!("[{one},{one},{one},{one}]").as_bytes());
    let responses: Value = serde_json::from_slice(&responses).unwrap();
    let codes: Vec<_> =
        responses.as_array().unwrap().iter().map(|response| response["error"]["code"].clone()).collect();
    assert_eq!(codes, [Value::Null, Value::Null, Value::Null, json!(-32005)]);
    let logs =
        store.respond_within(limits, "eth_getLogs", json!([{ "fromBlock": "0x0", "toBlock": "latest" }]));
    assert_eq!(logs["error"]["code"], -32005);
    assert!(logs["error"]["message"].as_str().unwrap().contains("stopped at block"), "{logs}");
}

/// Methods beside Ethereum's.
struct Extra;

impl ExtraMethods for Extra {
    fn call(&self, method: &str, params: Option<&RawValue>) -> Option<Result<Value, RpcError>> {
        match method {
            "sapwood_echo" => {
                Some(Ok(params.map_or(Value::Null, |params| serde_json::from_str(params.get()).unwrap())))
            }
            "sapwood_fail" => Some(Err(RpcError::new(-32000, "not today"))),
            // One of Ethereum's own cannot be replaced.
            "eth_chainId" => Some(Ok(json!("0xbad"))),
            _ => None,
        }
    }
}

#[test]
fn extra_methods_are_called() {
    let rpc = Rpc::default().with_methods(Arc::new(Extra));
    let call = |method: &str, params: Value| {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        serde_json::from_slice::<Value>(&rpc.handle(&store(), request.to_string().as_bytes())).unwrap()
    };
    assert_eq!(call("sapwood_echo", json!({ "named": [1] }))["result"], json!({ "named": [1] }));
    assert_eq!(call("sapwood_fail", json!([]))["error"], json!({ "code": -32000, "message": "not today" }));
    assert_eq!(call("sapwood_other", json!([]))["error"]["code"], -32601);
    assert_eq!(call("eth_chainId", json!([]))["result"], "0x7");
}
