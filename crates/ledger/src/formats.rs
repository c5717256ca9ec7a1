//! Decoders of rows that only the ledger itself reads, for fuzzing. Each returns the bytes as they are written today.

use bytes::Bytes;
use sapwood_types::DecodeError;

use crate::{
    dump,
    migrate::{self, Progress},
    state::State,
    utxo_entry,
};

/// Decodes the state row and encodes it again.
///
/// # Errors
/// Any byte that is never written.
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

/// Decodes the state row of an older schema and encodes it again.
///
/// # Errors
/// Any byte that no version ever wrote.
pub fn older_state(bytes: Bytes) -> Result<Vec<u8>, DecodeError> {
    migrate::transcode_state(bytes)
}

/// Decodes the progress of a migration and encodes it again.
///
/// # Errors
/// Any byte that is never written.
pub fn migration(bytes: Bytes) -> Result<Vec<u8>, DecodeError> {
    Progress::decode(bytes).map(|progress| progress.encode())
}

/// Decodes the content of a frame of a dump and encodes it again.
///
/// # Errors
/// Any byte that is never written.
pub fn dump_frame(bytes: Bytes) -> Result<Vec<u8>, DecodeError> {
    dump::transcode(bytes)
}
