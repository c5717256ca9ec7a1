//! What every store must pass.
//!
//! **What lives here.** The conformance suite, which tells stores apart that behave differently: one case for each promise of
//! `docs/operations-of-a-store.md`, for each incident in public trackers that a store can show, and for the timelines of
//! safe deletion. Beside it a plain model of a store and the state machine that runs both. **What may not.** Any backend:
//! a backend's tests use this crate, never the other way round.
//!
//! # How a backend gets all of it
//! ```ignore
//! struct Factory;
//!
//! #[async_trait]
//! impl sapwood_conformance::StoreFactory for Factory {
//!     async fn fresh(&self, policy: Policy) -> Arc<dyn Store> {
//!         Arc::new(MyStore::in_a_temporary_directory(policy).await)
//!     }
//! }
//!
//! sapwood_conformance::conformance_suite!(Factory);
//! ```
//!
//! # Correctness
//! A case cannot pass by doing nothing: it compares whole answers and whole errors, and a [`Subject`](suite::Subject) that is dropped without
//! [`sound`](suite::Subject::sound) fails its case. `sound` has the store verify itself and then asks it about every
//! record that it lists.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test library: to panic is how it says that a store is wrong"
)]

pub mod fixtures;
pub mod model;
pub mod state_machine;
pub mod store;
pub mod suite;

pub use store::Store;
pub use suite::StoreFactory;
