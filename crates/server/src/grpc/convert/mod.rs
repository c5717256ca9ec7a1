//! Between the words of the wire and our own, in both directions.
//!
//! What comes in is read with `read`, which names the field that is wrong. What goes out is a plain `From`.

mod block;
mod problem;
mod pruner;
mod record;
mod request;
mod tx;

pub(crate) use block::applied;
pub(crate) use problem::{AsProblem, chain_problem, precondition, shortening, store_status};

use bytes::Bytes;
use sapwood_types::{Height, TxId};

/// A hash as it goes out.
pub(crate) fn bytes(hash: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(hash.as_ref())
}

/// Transaction ids as they go out.
pub(crate) fn txids(txids: &[TxId]) -> Vec<Bytes> {
    txids.iter().map(|txid| bytes(txid.0)).collect()
}

/// A height as it goes out, if it is known.
pub(crate) fn known(height: Option<Height>) -> Option<u32> {
    height.map(|height| height.0)
}
