//! Decoders of rows that only the ledger itself reads, for fuzzing. Each returns the bytes as they are written today.

use bytes::Bytes;
use sapwood_types::DecodeError;

use crate::{state::State, utxo_entry};

/// Decodes the state row and encodes it again.
///
/// # Errors
/// Any byte that no version ever wrote.
pub fn state(bytes: Bytes) -> Result<Vec<u8>, DecodeError> {
    State::decode(bytes).map(|state| state.encode())
}

/// Decodes the row of the UTXO set and encodes it again.
///
/// # Errors
/// Any byte that is never written.
pub fn utxo_set(bytes: Bytes) -> Result<Vec<u8>, DecodeError> {
    utxo_entry::decode(bytes).map(|set| utxo_entry::encode(&set).unwrap_or_default())
}
