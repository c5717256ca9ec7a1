//! The suites on RocksDB: that of engines, and that of stores with records cached, with a cache that holds next to nothing, and with two
//! cores at work on every change. Nearly all changes of the suite are too small for a second core otherwise.

use std::sync::Arc;

use sapwood_conformance::{Ledgers, Places, conformance_suite, engine_suite};
use sapwood_engine_rocksdb::{OpenMode, RocksEngine, RocksOptions};
use sapwood_ledger::{AddressIndexing, LedgerOptions};
use sapwood_rules::Policy;
use tempfile::TempDir;

use crate::harness;

fn places() -> Places<TempDir> {
    let open = |directory: &TempDir| {
        let options = RocksOptions {
            block_cache_bytes: 1 << 20,
            write_buffer_bytes: 1 << 20,
            ..RocksOptions::default()
        };
        Ok(Arc::new(RocksEngine::open(directory.path(), OpenMode::Create, &options)?) as _)
    };
    Places::new(|| tempfile::tempdir().expect("a directory"), open)
}

fn cached(_: &Policy) -> LedgerOptions {
    LedgerOptions {
        record_cache_bytes: 1 << 20,
        mined_heights_bytes: 1 << 20,
        address_index: AddressIndexing { address: true, credential: true },
        utxo_hash: true,
        ..LedgerOptions::default()
    }
}

fn uncached(policy: &Policy) -> LedgerOptions {
    LedgerOptions { record_cache_bytes: 1 << 10, mined_heights_bytes: 1 << 10, ..cached(policy) }
}

fn two_cores(policy: &Policy) -> LedgerOptions {
    LedgerOptions { two_cores_from: 0, ..cached(policy) }
}

mod engine {
    use super::*;
    engine_suite!(harness::places());
}

mod cached {
    use super::*;
    conformance_suite!(Ledgers::new(places(), super::cached));
}

mod uncached {
    use super::*;
    conformance_suite!(Ledgers::new(places(), super::uncached));
}

mod two_cores {
    use super::*;
    conformance_suite!(Ledgers::new(places(), super::two_cores));
}
