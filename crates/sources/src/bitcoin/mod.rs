//! Bitcoin.
//!
//! Hashes are turned around here and nowhere else: Bitcoin's wire has them last byte first, Sapwood holds them as people
//! write them.

pub mod address;
pub mod blk;
pub mod convert;
pub mod error;
pub(crate) mod merkle;
pub mod network;
pub mod rpc;
pub mod work;

pub use blk::{BlkOptions, BlkSource};
pub use convert::ConvertError;
pub use error::BitcoinError;
pub use network::Network;
pub use rpc::{Auth, RpcOptions, RpcSource};
