//! Random sequences of every operation, compared with the plain model after each step.
//!
//! `SAPWOOD_SEQUENCES` (2,000) and `SAPWOOD_STEPS` (60) say how much; `SAPWOOD_SEED` where to start.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex},
    thread::{self, ThreadId},
};

use async_trait::async_trait;
use sapwood_conformance::{Store, StoreFactory, state_machine};
use sapwood_engine_rocksdb::{OpenMode, Options, open_ledger};
use sapwood_ledger::AddressIndexing;
use sapwood_rules::Policy;
use tempfile::TempDir;

/// What ships allocates with it, and half of the time would go into allocating.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Makes stores in one temporary directory. A sequence is over before the next one of its thread begins, so each thread
/// clears away its last store.
struct Factory {
    directory: TempDir,
    last: Mutex<HashMap<ThreadId, PathBuf>>,
}

#[async_trait]
impl StoreFactory for Factory {
    async fn fresh(&self, policy: Policy) -> Arc<dyn Store> {
        let directory = tempfile::tempdir_in(&self.directory).expect("a directory").keep();
        let last = self.last.lock().expect("no panic").insert(thread::current().id(), directory.clone());
        if let Some(last) = last {
            std::fs::remove_dir_all(last).expect("the last store is closed");
        }
        Arc::new(open_ledger(&directory, OpenMode::Create, policy, options(&policy)).expect("a store"))
    }
}

/// Half of the sequences run with a cache that holds next to nothing: what is cached and what is read again must be the same. The
/// other half gives every change to two cores.
fn options(policy: &Policy) -> Options {
    let cached = policy.reorg_window.is_multiple_of(2);
    Options::default()
        .ledger(|ledger| {
            ledger.record_cache_bytes = if cached { 1 << 20 } else { 1 << 10 };
            ledger.mined_heights_bytes = if cached { 1 << 20 } else { 1 << 10 };
            ledger.two_cores_from = if cached { 0 } else { usize::MAX };
            ledger.address_index = AddressIndexing { address: true, credential: true };
            ledger.utxo_hash = true;
            // Each sequence has a thread of its own, and makes a hundred small calls a step.
            ledger.callers_thread = true;
        })
        .engine(|engine| {
            engine.block_cache_bytes = 1 << 20;
            engine.write_buffer_bytes = 1 << 20;
        })
}

/// A directory in memory where there is one: nothing here has to outlive the process, and each of many thousand stores is made and
/// removed again.
fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

#[test]
fn state_machine_agrees_with_the_model() {
    let factory = Factory { directory: directory(), last: Mutex::new(HashMap::new()) };
    state_machine::run(&factory).check();
}
