//! Random sequences of every operation: compared with the plain model after each step, and with a ledger on rows in memory.
//!
//! `SAPWOOD_SEQUENCES` (2,000, side by side 300) and `SAPWOOD_STEPS` (60) say how much; `SAPWOOD_SEED` where to start.

use std::sync::Arc;

use sapwood_conformance::{Ledgers, Places, state_machine};
use sapwood_engine_memory::MemoryEngine;
use sapwood_engine_rocksdb::{OpenMode, RocksEngine, RocksOptions};
use sapwood_ledger::{AddressIndexing, LedgerOptions};
use sapwood_rules::Policy;
use tempfile::TempDir;

/// What ships allocates with it, and half of the time would go into allocating.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Half of the sequences run with a cache that holds next to nothing: what is cached and what is read again must be the same. The
/// other half gives every change to two cores.
fn options(policy: &Policy) -> LedgerOptions {
    let cached = policy.reorg_window.is_multiple_of(2);
    LedgerOptions {
        record_cache_bytes: if cached { 1 << 20 } else { 1 << 10 },
        mined_heights_bytes: if cached { 1 << 20 } else { 1 << 10 },
        two_cores_from: if cached { 0 } else { usize::MAX },
        address_index: AddressIndexing { address: true, credential: true },
        utxo_hash: true,
        // Each sequence has a thread of its own, and makes a hundred small calls a step.
        callers_thread: true,
        ..LedgerOptions::default()
    }
}

/// The other way of each choice.
fn other_options(policy: &Policy) -> LedgerOptions {
    options(&Policy { reorg_window: policy.reorg_window + 1, ..*policy })
}

/// A directory in memory where there is one: nothing here has to outlive the process, and each of many thousand stores is made and
/// removed again.
fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

fn rocksdb() -> Places<TempDir> {
    Places::new(directory, |directory| {
        let options = RocksOptions {
            block_cache_bytes: 1 << 20,
            write_buffer_bytes: 1 << 20,
            ..RocksOptions::default()
        };
        Ok(Arc::new(RocksEngine::open(directory.path(), OpenMode::Create, &options)?))
    })
}

fn memory() -> Places<MemoryEngine> {
    Places::new(MemoryEngine::new, |engine| Ok(Arc::new(engine.reopen())))
}

#[test]
fn state_machine_agrees_with_the_model() {
    state_machine::run(&Ledgers::new(rocksdb(), options)).check();
}

/// The same operations on RocksDB and in memory, with different caches: state and error are the same after each step.
#[test]
fn state_machine_side_by_side_on_two_engines_agrees() {
    let (one, other) = (Ledgers::new(memory(), options), Ledgers::new(rocksdb(), other_options));
    state_machine::run_side_by_side(&one, &other).check();
}
