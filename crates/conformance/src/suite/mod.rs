//! The conformance suite: what a store does, told by cases.
//!
//! Each case takes a [`StoreFactory`] and panics where the store does something else. The list of cases stands once, in
//! [`conformance_cases`](crate::conformance_cases); a test makes sure that no case is missing from it.

use async_trait::async_trait;
use sapwood_rules::Policy;
use sapwood_store::Store;

pub mod address;
pub mod blocks;
pub mod concurrency;
pub mod conflicts;
pub mod create;
pub mod digest;
pub mod due;
pub mod freeze;
pub mod incidents;
pub mod mined;
pub mod paging;
pub mod preserve;
pub mod prune;
pub mod refused_blocks;
pub mod reorg;
pub mod rollback;
pub mod spend;
pub mod timelines;
pub mod unmined;
pub mod utxo_set;

mod cases;
mod subject;

pub use subject::{Subject, all_pages, failures, only, refused_tx};

/// Makes stores to test.
#[async_trait]
pub trait StoreFactory: Send + Sync {
    /// The store. It may wrap what it needs to live in, for example a temporary directory.
    type Store: Store + 'static;

    /// A new empty store with this policy, with both address indexes on, and keeping the hash of the UTXO set.
    async fn fresh(&self, policy: Policy) -> Self::Store;
}
