//! A JSON-RPC request from anywhere.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sapwood_evm::{
    Genesis,
    read::{Import, Origin},
    rpc::{Limits, Rpc},
};
use serde::Deserialize;
use serde_json::value::RawValue;

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../crates/evm/tests/it/memory.rs"]
mod memory;

static STORE: LazyLock<memory::Memory> = LazyLock::new(|| {
    let genesis = Genesis::parse(include_bytes!("../seeds/evm_genesis/synthetic")).expect("a genesis file");
    let era = &include_bytes!("../seeds/evm_import/era1")[1..];
    let spec = std::sync::Arc::new(genesis.spec);
    let import = Import::new(spec.clone(), None, vec![Origin::memory("era1", era)], None);
    let mut blocks = vec![genesis.block];
    blocks.extend(import.map(|block| block.expect("a block")));
    let mut store = memory::Memory::new((spec, blocks));
    store.prune(1);
    store
});

#[derive(Deserialize)]
struct Response<'a> {
    jsonrpc: &'a str,
    /// As the client sent it: it may be a number that fits into nothing.
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<Failure>,
}

#[derive(Deserialize)]
struct Failure {
    code: i64,
}

fuzz_target!(|data: &[u8]| {
    let limits = Limits { response_bytes: 1 << 16, ..Limits::default() };
    let response = Rpc::new(limits).handle(&*STORE, data);
    // Not much longer than it may be: errors and ids come on top.
    assert!(response.len() < (1 << 17) + data.len() * 200);
    let all: Vec<Response<'_>> = match response.first() {
        None => return,
        Some(b'[') => serde_json::from_slice(&response).expect("a list of responses"),
        Some(_) => vec![serde_json::from_slice(&response).expect("a response")],
    };
    for one in all {
        assert_eq!(one.jsonrpc, "2.0");
        assert!(!one.id.get().is_empty());
        assert!(one.error.is_none() || one.result.is_none());
        // Nothing that a client sends is an internal error.
        assert!(one.error.is_none_or(|error| error.code != -32603));
    }
});
