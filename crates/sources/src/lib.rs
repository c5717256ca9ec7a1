//! Chain sources: each turns a chain's own bytes into `sapwood-types`.
//!
//! **What lives here.** [`BlockSource`], what a follower of a chain needs of it; [`ReadAhead`], which reads blocks in order and
//! ahead of time from any source; [`bitcoin`], which reads block files and asks nodes; [`synthetic`], which makes a chain up. **What
//! may not.** Any store, any decision about what to do with a block, any check that is a node's business (proof of work,
//! scripts, amounts).
//!
//! # Layers
//! - [`source`]: the interface. [`ahead`]: reading in order. [`error`]: what can go wrong, with the fix. [`LazySource`]: a source
//!   that is opened when it is first asked.
//! - [`bitcoin::convert`]: bytes to blocks. Everything from outside passes through it.
//! - [`bitcoin::blk`]: the block files of a node. [`bitcoin::rpc`]: a running node.
//! - [`synthetic`]: no outside at all, for tests, benchmarks, simulations and the demo.
//!
//! # Correctness
//! A source is not trusted to be right or to hold still. A block is bound to its hash by what is computed from its own bytes.
//! Reading ahead checks that each block follows the one before, so a reorganisation in the middle of reading shows as
//! [`SourceError::ChainChanged`] and never as a chain that does not hang together. Bytes are decoded without `unsafe`, without
//! a panic, and with every length checked against what is there.

pub mod ahead;
pub mod bitcoin;
pub mod error;
mod lazy;
pub mod source;
pub mod synthetic;

pub use ahead::ReadAhead;
pub use error::SourceError;
pub use lazy::{LazySource, Open};
pub use source::{
    BlockSource, ChainPoint, Gap, RejectedBranch, SourceBlock, SourceHeader, SourceView, walk_parents,
};
