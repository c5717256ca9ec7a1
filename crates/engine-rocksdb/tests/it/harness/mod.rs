//! What the tests of crashes, full disks and damage share.
//!
//! - [`timeline`]: what happens to a store and what it must look like after each step; [`chain`]: one of the workloads.
//! - [`worker`]: the process that is killed; [`killer`]: the one that kills it and judges what is left.
//! - [`failing`]: writes that fail on purpose.
//! - [`raw`]: the same database without the store, to damage it.

pub(crate) mod chain;
pub(crate) mod failing;
pub(crate) mod killer;
pub(crate) mod raw;
pub(crate) mod timeline;
pub(crate) mod worker;

use std::sync::Arc;

use sapwood_engine_rocksdb::Options;
use sapwood_ledger::{AddressIndexing, Ledger, VerifyReport};

/// Buffers so small that the engine flushes and compacts all the time, caches so small that records are read back, and two cores for every
/// change, however small.
pub(crate) fn options() -> Options {
    Options::default()
        .ledger(|ledger| {
            ledger.record_cache_bytes = 64 << 10;
            ledger.mined_heights_bytes = 2 << 10;
            ledger.two_cores_from = 0;
            ledger.address_index = AddressIndexing { address: true, credential: true };
            ledger.utxo_hash = true;
            // These tests fill disks on purpose.
            ledger.disk_reserve_bytes = 0;
        })
        .engine(|engine| {
            engine.block_cache_bytes = 1 << 20;
            engine.write_buffer_bytes = 64 << 10;
        })
}

/// Has a store check itself.
pub(crate) async fn verify(store: &Ledger) -> VerifyReport {
    store.verify(Arc::new(|_, _| {})).await.unwrap()
}
