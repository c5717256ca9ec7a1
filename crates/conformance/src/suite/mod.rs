//! The conformance suite: what a store does, told by cases.
//!
//! Each case takes a [`StoreFactory`] and panics where the store does something else. The list of cases stands once, in
//! [`conformance_cases`](crate::conformance_cases); a test makes sure that no case is missing from it.

use std::{pin::Pin, sync::Arc};

use crate::Store;
use async_trait::async_trait;
use sapwood_rules::Policy;

pub mod address;
pub mod blocks;
pub mod concurrency;
pub mod conflicts;
pub mod create;
pub mod digest;
pub mod due;
pub mod freeze;
pub mod further_pages;
pub mod incidents;
pub mod mined;
pub mod paging;
pub mod preserve;
pub mod prune;
pub mod refused_blocks;
pub mod reopened;
pub mod reorg;
pub mod rollback;
pub mod runs;
pub mod spend;
pub mod timelines;
pub mod unmined;
pub mod utxo_set;

mod cases;
mod subject;

pub use subject::{Subject, all_pages, failures, only, refused_tx};

/// Runs one case. It is boxed and its store is a trait object, so that the suite is compiled once and not once for each backend.
pub fn run_case(case: Pin<Box<dyn Future<Output = ()> + '_>>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    runtime.expect("a runtime").block_on(case);
}

/// Makes places for stores to test.
pub trait StoreFactory: Send + Sync {
    /// Makes a place without a store. What it needs, for example a temporary directory, is removed with it.
    fn place(&self) -> Box<dyn StorePlace>;
}

/// A place for one store. It outlives the store.
#[async_trait]
pub trait StorePlace: Send + Sync {
    /// Opens the store that is there, or a new empty one, with this policy, both address indexes, and keeping the hash of the UTXO set. A store that was
    /// opened before is closed by then: its last reference is dropped.
    async fn open(&self, policy: Policy) -> Arc<dyn Store>;
}
