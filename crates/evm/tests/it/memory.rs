//! A store in memory for the methods to read from, with pruning.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use alloy_eips::BlockNumHash;
use alloy_primitives::B256;
use bytes::Bytes;
use sapwood_evm::{
    ChainSpec, CheckedBlock,
    rpc::{Limits, Rpc},
    store::{Bounds, EvmBlocks, Lookup, Segment, StoreError, Syncing, TxPlace},
};
use serde_json::{Value, json};

/// Blocks in memory.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    spec: Arc<ChainSpec>,
    blocks: BTreeMap<u64, CheckedBlock>,
    numbers: HashMap<B256, u64>,
    places: HashMap<B256, TxPlace>,
    /// The highest block that was pruned.
    boundary: Option<u64>,
    /// Transactions that wait for a block.
    pub(crate) queued: Vec<B256>,
    pub(crate) safe: Option<u64>,
    pub(crate) finalized: Option<u64>,
    pub(crate) retention_blocks: Option<u64>,
    pub(crate) syncing: Option<Syncing>,
}

impl Memory {
    pub(crate) fn new((spec, blocks): (Arc<ChainSpec>, Vec<CheckedBlock>)) -> Self {
        let mut store = Self {
            spec,
            blocks: BTreeMap::new(),
            numbers: HashMap::new(),
            places: HashMap::new(),
            boundary: None,
            queued: Vec::new(),
            safe: blocks.last().map(|block| block.number),
            finalized: blocks.last().map(|block| block.number),
            retention_blocks: None,
            syncing: None,
        };
        for block in blocks {
            let number = block.number;
            store.numbers.insert(block.hash, number);
            for (index, entry) in block.tx_index.entries.iter().enumerate() {
                store.places.insert(entry.hash, TxPlace { number, index });
            }
            store.blocks.insert(number, block);
        }
        store
    }

    /// Prunes all blocks up to `boundary`, but for block 0.
    pub(crate) fn prune(&mut self, boundary: u64) {
        self.blocks.retain(|number, _| *number == 0 || *number > boundary);
        self.boundary = Some(boundary);
    }

    /// Forgets all receipts.
    pub(crate) fn without_receipts(mut self) -> Self {
        self.blocks.values_mut().for_each(|block| block.receipts = None);
        self
    }

    /// Replaces a block by other bytes, and lets a further hash stand for it.
    pub(crate) fn replace(&mut self, number: u64, block: Bytes, hash: B256) {
        self.blocks.get_mut(&number).unwrap().block = block;
        self.numbers.insert(hash, number);
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = &CheckedBlock> {
        self.blocks.values()
    }

    pub(crate) fn block(&self, number: u64) -> &CheckedBlock {
        &self.blocks[&number]
    }

    /// Calls a method and returns the whole response.
    pub(crate) fn respond(&self, method: &str, params: Value) -> Value {
        self.respond_within(Limits::default(), method, params)
    }

    /// The same with limits.
    pub(crate) fn respond_within(&self, limits: Limits, method: &str, params: Value) -> Value {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let response = Rpc::new(limits).handle(self, request.to_string().as_bytes());
        serde_json::from_slice(&response).unwrap()
    }

    /// Calls a method that has to succeed.
    pub(crate) fn call(&self, method: &str, params: Value) -> Value {
        let mut response = self.respond(method, params.clone());
        assert!(response.get("error").is_none(), "{method} {params}: {response}");
        response["result"].take()
    }

    /// Calls a method that has to fail, and returns the code and the message.
    pub(crate) fn fail(&self, method: &str, params: Value) -> (i64, String) {
        let response = self.respond(method, params.clone());
        let error = &response["error"];
        assert!(response.get("result").is_none(), "{method} {params}: {response}");
        (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
    }

    fn earliest(&self) -> u64 {
        self.boundary.map_or_else(|| *self.blocks.keys().next().unwrap(), |boundary| boundary + 1)
    }

    fn lookup<T>(&self, number: u64, value: impl FnOnce(&CheckedBlock) -> T) -> Lookup<T> {
        match self.blocks.get(&number) {
            Some(block) => Lookup::Found(value(block)),
            None if Some(number) <= self.boundary => {
                Lookup::Pruned { requested: Some(number), earliest: self.earliest() }
            }
            None => Lookup::NotFound,
        }
    }
}

impl EvmBlocks for Memory {
    fn spec(&self) -> &ChainSpec {
        &self.spec
    }

    fn bounds(&self) -> Result<Option<Bounds>, StoreError> {
        Ok(self.blocks.values().next_back().map(|head| Bounds {
            head: BlockNumHash { number: head.number, hash: head.hash },
            earliest: self.earliest(),
            safe: self.safe,
            finalized: self.finalized,
            retention_blocks: self.retention_blocks,
            receipts: self.blocks.values().all(|block| block.receipts.is_some()),
            syncing: self.syncing,
        }))
    }

    fn segment(&self, number: u64, segment: Segment) -> Result<Lookup<Bytes>, StoreError> {
        Ok(self.lookup(number, |block| match segment {
            Segment::Block => block.block.clone(),
            Segment::Receipts => block.receipts.clone().unwrap_or_default(),
            Segment::TxIndex => block.tx_index.encode().into(),
        }))
    }

    fn number_of(&self, hash: &B256) -> Result<Lookup<u64>, StoreError> {
        let number = self.numbers.get(hash);
        Ok(number.map_or(Lookup::NotFound, |number| self.lookup(*number, |block| block.number)))
    }

    fn transaction(&self, hash: &B256) -> Result<Lookup<TxPlace>, StoreError> {
        if self.queued.contains(hash) {
            return Ok(Lookup::Pending);
        }
        let place = self.places.get(hash);
        Ok(place.map_or(Lookup::NotFound, |place| self.lookup(place.number, |_| *place)))
    }
}
