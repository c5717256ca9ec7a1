//! What can go wrong between a chain and its follower.

use std::{fmt, io, path::PathBuf};

use sapwood_types::{BlockHash, Height};

use crate::{
    ChainPoint,
    bitcoin::{self, BitcoinError},
};

/// A source could not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// A file could not be read.
    #[error("{path}: {cause}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What kind of failure.
        kind: io::ErrorKind,
        /// What the system said.
        cause: String,
    },
    /// A block is not what it should be.
    #[error("the block {place} is bad: {cause}. Get it again from another node")]
    BadBlock {
        /// Where it came from.
        place: Place,
        /// Its hash, if it was known beforehand.
        hash: Option<BlockHash>,
        /// What is wrong with it.
        cause: Box<BlockFault>,
    },
    /// The source went over to another chain while it was read.
    #[error(
        "the chain changed while it was read: block {height} follows {parent}, but the block before was {before}. Look for \
         the fork point and read on from there"
    )]
    ChainChanged {
        /// The height at which it was noticed.
        height: Height,
        /// The parent of the block that was read there.
        parent: BlockHash,
        /// The block that was read before it.
        before: BlockHash,
    },
    /// A block of a synthetic chain is too old.
    #[error(
        "{point} is no longer remembered, only blocks from height {remembered_from} on: raise `remember`, or read along while \
         the chain grows"
    )]
    Forgotten {
        /// The block.
        point: ChainPoint,
        /// The lowest height that is remembered.
        remembered_from: Height,
    },
    /// Files or a node of Bitcoin cannot be read.
    #[error(transparent)]
    Bitcoin(#[from] BitcoinError),
    /// It is not known which applied block the source goes on from.
    #[error("the applied chain could not be read, so it is not known where the source goes on from: {cause}")]
    Applied {
        /// What is known of it.
        cause: String,
    },
    /// The caller asked to stop.
    #[error("stopped on request")]
    Interrupted,
    /// The background task that did the work ended abnormally.
    #[error("the task that read from the source ended abnormally: {cause}")]
    Task {
        /// What is known of it.
        cause: String,
    },
}

impl SourceError {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> SourceError {
        let path = path.into();
        move |error| SourceError::File { path, kind: error.kind(), cause: error.to_string() }
    }

    pub(crate) fn task(error: tokio::task::JoinError) -> SourceError {
        SourceError::Task { cause: error.to_string() }
    }
}

/// What is wrong with the bytes of a block, by chain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockFault {
    /// It is no block of Bitcoin.
    #[error(transparent)]
    Bitcoin(#[from] bitcoin::ConvertError),
}

/// Where a block came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a file.
    File {
        /// Which.
        path: PathBuf,
        /// The first byte of the block.
        offset: u64,
    },
    /// From a node.
    Node {
        /// Its address.
        url: String,
    },
    /// Known to the program.
    BuiltIn,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File { path, offset } => write!(f, "at byte {offset} of {}", path.display()),
            Place::Node { url } => write!(f, "from {url}"),
            Place::BuiltIn => f.write_str("that the program brings along"),
        }
    }
}
