//! A running node over its JSON-RPC.
//!
//! # Layers
//! - `auth`: the cookie file, or user and password.
//! - `client`: one call, with timeouts and retries.
//! - `error`: what can go wrong, with the fix.
//! - `source`: the calls behind [`BlockSource`](crate::BlockSource).
//!
//! # Correctness
//! The node is believed about which chain is the best, and about nothing else: blocks are checked against their hashes like
//! those of any source. Calls only read, so that a call whose answer was lost can be made again.
//!
//! # What it does not do
//! TLS: nodes do not speak it. For a node on another machine use a tunnel.

pub(crate) mod auth;
mod client;
mod error;
mod source;

pub use auth::Auth;
pub use client::{RpcClient, RpcOptions};
pub use error::RpcError;
pub use source::{NodeStatus, RpcSource};
