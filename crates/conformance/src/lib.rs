//! What every engine and every ledger over it must pass.
//!
//! **What lives here.** The [suite of engines](engine): commits, views, scans, damage. The [suite of stores](suite), which tells stores apart that
//! behave differently: one case for each promise of `docs/operations-of-a-store.md`, for each incident in public trackers that a store can
//! show, and for the timelines of safe deletion. A plain [model] of a store and the [state machine](state_machine) that compares a
//! store with it, or two stores with each other. Processes that are [killed](crash), and, with the feature `simulation`, random schedules
//! of a pruner. **What may not.** Any engine: an engine's tests use this crate, never the other way round.
//!
//! # How an engine gets all of it
//! ```ignore
//! fn places() -> Places<TempDir> {
//!     Places::new(|| tempfile::tempdir().unwrap(), |directory| Ok(Arc::new(MyEngine::open(directory.path())?)))
//! }
//!
//! mod engine {
//!     sapwood_conformance::engine_suite!(places());
//! }
//!
//! mod conformance {
//!     sapwood_conformance::conformance_suite!(Ledgers::new(places(), |policy| LedgerOptions { .. }));
//! }
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

pub mod crash;
pub mod engine;
pub mod fixtures;
pub mod model;
mod places;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod state_machine;
pub mod store;
pub mod suite;

pub use places::{EngineFactory, Ledgers, Opened, Place, Places};
pub use store::Store;
pub use suite::{StoreFactory, StorePlace};
