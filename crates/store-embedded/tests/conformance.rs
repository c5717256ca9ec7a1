//! The conformance suite on the embedded store: once with records cached, once with a cache that holds next to nothing.
#![allow(clippy::expect_used, reason = "tests: to panic is how they fail")]

use std::sync::Arc;

use async_trait::async_trait;
use sapwood_conformance::{StoreFactory, conformance_suite};
use sapwood_rules::Policy;
use sapwood_store::{AddressIndexing, Store};
use sapwood_store_embedded::{EmbeddedOptions, EmbeddedStore};
use tempfile::TempDir;

/// Makes stores in a directory that lives as long as the case.
struct Factory {
    directory: TempDir,
    record_cache_bytes: u64,
}

impl Factory {
    fn new(record_cache_bytes: u64) -> Self {
        Self { directory: tempfile::tempdir().expect("a directory"), record_cache_bytes }
    }
}

#[async_trait]
impl StoreFactory for Factory {
    async fn fresh(&self, policy: Policy) -> Arc<dyn Store> {
        let directory = tempfile::tempdir_in(&self.directory).expect("a directory").keep();
        let options = EmbeddedOptions {
            record_cache_bytes: self.record_cache_bytes,
            mined_heights_bytes: self.record_cache_bytes,
            block_cache_bytes: 1 << 20,
            write_buffer_bytes: 1 << 20,
            address_index: AddressIndexing { address: true, credential: true },
            utxo_hash: true,
            ..EmbeddedOptions::default()
        };
        Arc::new(EmbeddedStore::open(&directory, policy, options).expect("a store"))
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
