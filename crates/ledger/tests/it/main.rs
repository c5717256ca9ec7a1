//! The ledger on the memory engine: the conformance suite, the state machine, damage and failing commits.
#![allow(clippy::unwrap_used, reason = "tests: to panic is how they fail")]

mod child_check;
mod commits;
mod dump;
mod migrate;
mod preservations;
mod round_trips;
mod suite;

use std::sync::Arc;

use sapwood_conformance::fixtures::{block_hash, small};
use sapwood_engine_memory::MemoryEngine;
use sapwood_ledger::{ApplyOptions, Ledger, LedgerOptions, VerifyReport};
use sapwood_types::{Block, Height, Tx};

/// A ledger, and the engine it is on.
struct World {
    engine: Arc<MemoryEngine>,
    ledger: Ledger,
}

impl World {
    fn new() -> Self {
        Self::on(Arc::new(MemoryEngine::new()))
    }

    fn on(engine: Arc<MemoryEngine>) -> Self {
        let ledger = Ledger::open(Arc::clone(&engine) as _, small(), LedgerOptions::default()).unwrap();
        Self { engine, ledger }
    }

    async fn apply(&self, height: u32, txs: Vec<Tx>) {
        self.ledger.apply_block(block(height, txs), ApplyOptions::default()).await.unwrap();
    }

    async fn verify(&self) -> VerifyReport {
        self.ledger.verify(Arc::new(|_, _| ())).await.unwrap()
    }
}

fn block(height: u32, txs: Vec<Tx>) -> Arc<Block> {
    Arc::new(Block {
        height: Height(height),
        hash: block_hash(&height.to_string()),
        parent: block_hash(&(height - 1).to_string()),
        time: 0,
        txs,
    })
}
