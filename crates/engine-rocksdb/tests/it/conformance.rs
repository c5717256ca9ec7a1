//! The conformance suite on RocksDB: with records cached, with a cache that holds next to nothing, and with two cores at
//! work on every change. Nearly all changes of the suite are too small for a
//! second core otherwise.

use std::sync::Arc;

use async_trait::async_trait;
use sapwood_conformance::{Store, StoreFactory, conformance_suite};
use sapwood_engine_rocksdb::{OpenMode, Options, open_ledger};
use sapwood_ledger::AddressIndexing;
use sapwood_rules::Policy;
use tempfile::TempDir;

/// Makes stores in a directory that lives as long as the case.
struct Factory {
    directory: TempDir,
    record_cache_bytes: u64,
    two_cores_from: usize,
}

impl Factory {
    fn new(record_cache_bytes: u64) -> Self {
        let two_cores_from = Options::default().ledger.two_cores_from;
        Self { directory: tempfile::tempdir().expect("a directory"), record_cache_bytes, two_cores_from }
    }
}

#[async_trait]
impl StoreFactory for Factory {
    async fn fresh(&self, policy: Policy) -> Arc<dyn Store> {
        let directory = tempfile::tempdir_in(&self.directory).expect("a directory").keep();
        let options = Options::default()
            .ledger(|ledger| {
                ledger.record_cache_bytes = self.record_cache_bytes;
                ledger.mined_heights_bytes = self.record_cache_bytes;
                ledger.two_cores_from = self.two_cores_from;
                ledger.address_index = AddressIndexing { address: true, credential: true };
                ledger.utxo_hash = true;
            })
            .engine(|engine| {
                engine.block_cache_bytes = 1 << 20;
                engine.write_buffer_bytes = 1 << 20;
            });
        Arc::new(open_ledger(&directory, OpenMode::Create, policy, options).expect("a store"))
    }
}

mod cached {
    use super::*;
    conformance_suite!(Factory::new(1 << 20));
}

mod uncached {
    use super::*;
    conformance_suite!(Factory::new(1 << 10));
}

mod two_cores {
    use super::*;
    conformance_suite!(Factory { two_cores_from: 0, ..Factory::new(1 << 20) });
}
