//! What is fixed about a chain: its id, its first block, and when which rules came into force.
//!
//! What lives here: [`ChainSpec`], which is stored in the archive, and how it comes out of a `genesis.json`. What a fork means for a
//! fee is `fees`; blocks and files are elsewhere.

mod fees;
mod forks;
mod genesis;
mod spec;

pub use forks::{Activation, BlobSchedule, Fork};
pub use genesis::{Genesis, GenesisError};
pub use spec::{ChainSpec, SpecError};
