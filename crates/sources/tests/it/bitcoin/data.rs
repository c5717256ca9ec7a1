//! The data these tests need, and what goes wrong with it.

use sapwood_sources::error::BlockFault;
use sapwood_sources::{SourceError, bitcoin::convert::ConvertError};

pub(crate) use sapwood_testing::data::{Files, bitcoin, first_blocks, hex, json, open, read, record};

/// What is wrong with a bad block.
pub(crate) fn cause(error: &SourceError) -> Option<ConvertError> {
    match error {
        SourceError::BadBlock { cause, .. } => match &**cause {
            BlockFault::Bitcoin(cause) => Some(cause.clone()),
        },
        _ => None,
    }
}
