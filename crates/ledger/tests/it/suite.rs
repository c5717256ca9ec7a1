//! The conformance suite and the state machine.

use std::sync::Arc;

use async_trait::async_trait;
use sapwood_conformance::{Store, StoreFactory, conformance_suite, state_machine};
use sapwood_engine_memory::MemoryEngine;
use sapwood_ledger::{AddressIndexing, Ledger, LedgerOptions};
use sapwood_rules::Policy;

struct Factory {
    callers_thread: bool,
}

#[async_trait]
impl StoreFactory for Factory {
    async fn fresh(&self, policy: Policy) -> Arc<dyn Store> {
        // Both ways of every choice, depending on the case.
        let cached = policy.reorg_window.is_multiple_of(2);
        let options = LedgerOptions {
            record_cache_bytes: if cached { 1 << 20 } else { 1 << 10 },
            mined_heights_bytes: if cached { 1 << 20 } else { 1 << 10 },
            two_cores_from: if cached { 0 } else { usize::MAX },
            address_index: AddressIndexing { address: true, credential: true },
            utxo_hash: true,
            callers_thread: self.callers_thread,
            ..LedgerOptions::default()
        };
        Arc::new(Ledger::open(Arc::new(MemoryEngine::new()), policy, options).unwrap())
    }
}

mod conformance {
    use super::*;
    conformance_suite!(Factory { callers_thread: false });
}

#[test]
fn state_machine_agrees_with_the_model() {
    state_machine::run(&Factory { callers_thread: true }).check();
}
