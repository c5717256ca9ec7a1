//! EVM blocks for the archive.
//!
//! What lives here: how blocks and receipts are read from files ([`read`]), checked ([`check`]) and encoded as the archive's segments
//! ([`block`], [`tx_index`]), what is fixed about a chain ([`chain`]), and the Ethereum JSON-RPC methods that need no state ([`rpc`]).
//! Where segments are kept is the archive's; how requests arrive is the server's.
//!
//! # Correctness
//! Blocks are stored as the bytes that the chain hashed. Nothing is re-encoded, so what comes out is what the header commits to.

pub mod block;
pub mod chain;
pub mod check;
pub mod read;
mod rlp;
pub mod rpc;
mod sender;
pub mod store;
pub mod tx_index;

pub use block::{BlockParts, Transaction};
pub use chain::{ChainSpec, Genesis};
pub use check::{BlockError, CheckedBlock, Checker};
pub use tx_index::{TxEntry, TxIndex};
