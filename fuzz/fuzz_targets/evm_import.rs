//! Files of blocks from anywhere: the first byte says whether receipts follow in a file of their own, then how long the first file is.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use sapwood_evm::{
    ChainSpec,
    read::{Import, Origin, ReceiptsFile},
};
use serde_json::json;

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../crates/evm/tests/it/memory.rs"]
mod memory;

fuzz_target!(|data: &[u8]| {
    let Some((beside, data)) = data.split_first() else { return };
    let (blocks, receipts) = match (beside % 2, data.split_first_chunk::<4>()) {
        (1, Some((length, rest))) => {
            let Some(files) = rest.split_at_checked(u32::from_be_bytes(*length) as usize) else { return };
            (files.0, Some(files.1))
        }
        _ => (data, None),
    };
    let spec = Arc::new(ChainSpec::new(7, Default::default(), 0, None, Vec::new()).expect("no blobs"));
    let receipts = receipts.map(|bytes| ReceiptsFile::open(&Origin::memory("receipts", bytes.to_vec())));
    let Ok(receipts) = receipts.transpose() else { return };
    let import =
        Import::new(Arc::clone(&spec), None, vec![Origin::memory("blocks", blocks.to_vec())], receipts);
    let blocks: Vec<_> = import.map_while(Result::ok).collect();
    let Some(head) = blocks.last().map(|block| block.number) else { return };
    assert!(blocks.windows(2).all(|pair| pair[1].parent_hash == pair[0].hash));
    // What was accepted can be served.
    let store = memory::Memory::new((spec, blocks));
    let number = format!("{head:#x}");
    store.call("eth_getBlockByNumber", json!([number, true]));
    store.call("debug_getRawBlock", json!([number]));
    for (method, params) in [("eth_getBlockReceipts", json!([number])), ("eth_getLogs", json!([{}]))] {
        let response = store.respond(method, params);
        assert_ne!(response["error"]["code"], -32603, "{response}");
    }
});
