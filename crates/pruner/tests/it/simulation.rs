//! Random schedules of everything that can happen to a pruner, most of them on rows in memory, which is fast, and some on RocksDB.
//!
//! `SAPWOOD_SCHEDULES` (400) says how many; `SAPWOOD_SEED` (1) where to start.

use std::sync::Arc;

use sapwood_conformance::{Places, simulation::schedules};
use sapwood_engine_memory::MemoryEngine;
use sapwood_engine_rocksdb::{OpenMode, RocksEngine};
use sapwood_ledger::LedgerOptions;

use crate::harness::store_options;

#[test]
fn simulation_on_rows_in_memory() {
    let memory = Places::new(MemoryEngine::new, |engine| Ok(Arc::new(engine.reopen())));
    let options = LedgerOptions { callers_thread: true, ..LedgerOptions::default() };
    schedules(&memory, &options, 90);
}

#[test]
fn simulation_on_rocksdb() {
    let rocksdb = Places::new(
        || tempfile::tempdir().unwrap(),
        |directory| {
            let engine = RocksEngine::open(directory.path(), OpenMode::Create, &store_options().engine)?;
            Ok(Arc::new(engine))
        },
    );
    schedules(&rocksdb, &store_options().ledger, 10);
}
