//! Decoders of rows that only the archive itself reads, for fuzzing. Each returns the bytes as they are written.

use sapwood_types::{DecodeError, Height};

use crate::{
    arena::{Region, header},
    block::{BlockMeta, Identities},
    export::consumers::Ack,
    journal::Entry,
    prune::policy::StoredPolicy,
    state::State,
};

/// Decodes a block row and encodes it again.
///
/// # Errors
/// Any byte that is never written.
pub fn block(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    BlockMeta::decode(Height(1), bytes).map(|block| block.encode())
}

/// Decodes the identities of a block and encodes them again.
///
/// # Errors
/// Any byte that is never written.
pub fn identities(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    Identities::decode(bytes).map(|ids| ids.encode())
}

/// Decodes an entry of the allocation table and encodes it again.
///
/// # Errors
/// Any byte that is never written.
pub fn region(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    Region::decode(bytes).map(|region| region.encode().to_vec())
}

/// Decodes a journal entry and encodes it again.
///
/// # Errors
/// Any byte that is never written.
pub fn journal(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    Entry::decode(bytes).map(|entry| entry.encode())
}

/// Decodes the state row and encodes it again.
///
/// # Errors
/// Any byte that is never written.
pub fn state(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    State::decode(bytes).map(|state| state.encode())
}

/// Decodes the policy row and encodes it again.
///
/// # Errors
/// Any byte that is never written.
pub fn policy(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    StoredPolicy::decode(bytes).map(|policy| policy.encode())
}

/// Decodes the row of an export consumer and encodes it again.
///
/// # Errors
/// Any byte that is never written.
pub fn consumer(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    Ack::decode(bytes).map(|ack| ack.encode())
}

/// Decodes the beginning of an arena and encodes it again.
///
/// # Errors
/// Any byte that is never written.
pub fn arena_header(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    header::decode(bytes).map(|id| header::encode(&id).to_vec())
}
