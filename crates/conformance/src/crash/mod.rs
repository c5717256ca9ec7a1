//! Processes that are killed and writes that fail, on any engine.
//!
//! # Layers
//! - [`timeline`]: what happens to a ledger and what it must look like after each step; [`chain`]: one of the workloads.
//! - [`worker`]: the process that is killed; [`killer`]: the one that kills it and judges what is left.
//! - [`failing`]: writes that fail on purpose.
//!
//! # How an engine gets it
//! It implements [`Durable`] and has an ignored test that calls [`worker::work`]: the killer starts the test binary again with that test.
//!
//! # Correctness
//! Both processes make the same operations from a workload and a seed, so they need to exchange nothing but numbers. What the worker said before
//! it was killed is heard after it: what it acknowledged has to be there, and of what it had begun all or nothing.

pub mod chain;
pub mod failing;
pub mod killer;
pub mod timeline;
pub mod worker;

use std::{path::Path, sync::Arc};

use sapwood_ledger::{AddressIndexing, Faults, Ledger, LedgerOptions, StoreError};
use sapwood_rules::Policy;

/// An engine with its settings, whose rows outlive the process.
pub trait Durable {
    /// Opens the ledger in a directory, or makes one.
    fn open(
        &self,
        directory: &Path,
        policy: Policy,
        faults: Option<Arc<dyn Faults>>,
    ) -> Result<Ledger, StoreError>;

    /// Writes the settings as text in one line. The worker makes the same of it.
    fn settings(&self) -> String;

    /// Whether every acknowledged write survives the end of the process. If not, an earlier moment may be found, but never half of a write.
    fn keeps_acknowledged(&self) -> bool {
        true
    }

    /// Measures in bytes what is left to be replayed in a directory that no process has open.
    fn log_bytes(&self, _: &Path) -> u64 {
        0
    }
}

/// Options with caches so small that records are read back, and two cores for every change, however small.
pub fn ledger_options() -> LedgerOptions {
    LedgerOptions {
        record_cache_bytes: 64 << 10,
        mined_heights_bytes: 2 << 10,
        two_cores_from: 0,
        address_index: AddressIndexing { address: true, credential: true },
        utxo_hash: true,
        // Some tests fill disks on purpose.
        disk_reserve_bytes: 0,
        ..LedgerOptions::default()
    }
}
