//! The suites and the state machine, on rows in memory.

use std::sync::Arc;

use sapwood_conformance::{Ledgers, Places, conformance_suite, engine_suite, state_machine};
use sapwood_engine_memory::MemoryEngine;
use sapwood_ledger::{AddressIndexing, LedgerOptions};
use sapwood_rules::Policy;

fn places() -> Places<MemoryEngine> {
    Places::new(MemoryEngine::new, |engine| Ok(Arc::new(engine.reopen())))
        .read_only(|engine| Ok(Arc::new(engine.reopen_read_only())))
        .damage(|engine, table, key| engine.break_row(table, key))
}

/// Both ways of every choice, depending on the case.
fn options(policy: &Policy) -> LedgerOptions {
    let cached = policy.reorg_window.is_multiple_of(2);
    LedgerOptions {
        record_cache_bytes: if cached { 1 << 20 } else { 1 << 10 },
        mined_heights_bytes: if cached { 1 << 20 } else { 1 << 10 },
        two_cores_from: if cached { 0 } else { usize::MAX },
        address_index: AddressIndexing { address: true, credential: true },
        utxo_hash: true,
        ..LedgerOptions::default()
    }
}

mod engine {
    use super::*;
    engine_suite!(places());
}

mod conformance {
    use super::*;
    conformance_suite!(Ledgers::new(places(), options));
}

#[test]
fn state_machine_agrees_with_the_model() {
    let on_this_thread = |policy: &Policy| LedgerOptions { callers_thread: true, ..options(policy) };
    state_machine::run(&Ledgers::new(places(), on_this_thread)).check();
}

/// The connection is lost at three of five commits. No operation, answer or error differs from those of the model.
#[test]
fn state_machine_on_an_unreliable_engine_agrees_with_the_model() {
    let unreliable = Places::new(MemoryEngine::unreliable, |engine| Ok(Arc::new(engine.reopen())));
    let on_this_thread = |policy: &Policy| LedgerOptions { callers_thread: true, ..options(policy) };
    state_machine::run_sequences(&Ledgers::new(unreliable, on_this_thread), 200, 40, 1).check();
}
