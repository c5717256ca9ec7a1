//! What can be wrong with a file.

use std::{fmt, io, path::PathBuf};

use alloy_primitives::{B256, U256};

use crate::check::BlockError;

/// A file cannot be read, or not be imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} at byte {offset}: {fault}", path = path.display())]
pub struct ImportError {
    /// The file.
    pub path: PathBuf,
    /// The first byte of what is wrong; in a compressed file after decompression.
    pub offset: u64,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The system cannot read it, or it cannot be decompressed.
    #[error("{cause}")]
    Io {
        /// The kind of failure.
        kind: io::ErrorKind,
        /// What the system said.
        cause: String,
    },
    /// Not a file of a known format.
    #[error(
        "the file begins with {found:02x?}, so it is neither .era1 nor RLP blocks, compressed with zstd or not"
    )]
    UnknownFormat {
        /// Its first bytes.
        found: Vec<u8>,
    },
    /// The file ends too early.
    #[error("the file ends inside {what}: {needed} bytes needed, {found} left. Get it again")]
    Truncated {
        /// What is cut.
        what: &'static str,
        /// How long it should be.
        needed: u64,
        /// How much of it there is.
        found: u64,
    },
    /// Something longer than anything real.
    #[error("{what} of {length} bytes, where at most {limit} are read")]
    TooLong {
        /// What it is.
        what: &'static str,
        /// How long it is at least.
        length: u64,
        /// The limit.
        limit: u64,
    },
    /// Bytes that are not the RLP they should be.
    #[error("{what}: {cause}")]
    Rlp {
        /// What it should be.
        what: &'static str,
        /// What is wrong with it.
        cause: alloy_rlp::Error,
    },
    /// Data that snappy cannot decompress.
    #[error("{what} cannot be decompressed: {cause}")]
    Snappy {
        /// What it should be.
        what: &'static str,
        /// What snappy said.
        cause: String,
    },
    /// Another entry than the format has here.
    #[error("expected {expected}, found {found}; of the e2store formats only .era1 is read")]
    WrongEntry {
        /// What the format has here.
        expected: &'static str,
        /// What is there.
        found: EntryKind,
    },
    /// The reserved bytes of an entry are not 0.
    #[error("the reserved bytes of {entry} are {found:#06x}, not 0")]
    Reserved {
        /// The entry.
        entry: EntryKind,
        /// The bytes.
        found: u16,
    },
    /// An entry of another length than its kind has.
    #[error("{entry} has {found} bytes, not {expected}")]
    EntryLength {
        /// The entry.
        entry: EntryKind,
        /// How long it should be.
        expected: u64,
        /// How long it is.
        found: u64,
    },
    /// Something after the end.
    #[error("there is more after the end of {what}")]
    TrailingBytes {
        /// What should be last.
        what: &'static str,
    },
    /// More blocks than an era has.
    #[error("more than {limit} blocks in one .era1 file")]
    TooManyBlocks {
        /// How many there may be.
        limit: usize,
    },
    /// The total difficulty is not that of the block before plus the block's own.
    #[error("block {number}: the total difficulty should be {expected}, found {found}")]
    TotalDifficulty {
        /// The block.
        number: u64,
        /// What it should be.
        expected: U256,
        /// What it is.
        found: U256,
    },
    /// The headers are not those that the file was made of.
    #[error("the file commits to the headers with accumulator {expected}, found {found}. Get the file again")]
    Accumulator {
        /// The root in the file.
        expected: B256,
        /// The root of what was found.
        found: B256,
    },
    /// The index at the end of an era does not point at its blocks.
    #[error("the block index says {found} where {expected} is right ({what})")]
    Index {
        /// Which of its numbers.
        what: &'static str,
        /// What it should be.
        expected: i64,
        /// What it is.
        found: i64,
    },
    /// A receipts file that ends before the blocks do.
    #[error(
        "there are no receipts for block {number}: the file has one list for each block from block 1 to {last}"
    )]
    NoReceipts {
        /// The block.
        number: u64,
        /// The last block it has receipts for.
        last: u64,
    },
    /// A block that was imported before, and was another one.
    #[error("block {number} is stored as {expected}, here it is {found}: this is another chain")]
    OtherBlock {
        /// The block.
        number: u64,
        /// The hash of the stored one.
        expected: B256,
        /// The hash of this one.
        found: B256,
    },
    /// A block was refused.
    #[error(transparent)]
    Block(#[from] BlockError),
}

/// The kind of an e2store entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryKind(pub u16);

impl EntryKind {
    pub(crate) const VERSION: Self = Self(0x3265);
    pub(crate) const HEADER: Self = Self(3);
    pub(crate) const BODY: Self = Self(4);
    pub(crate) const RECEIPTS: Self = Self(5);
    pub(crate) const TOTAL_DIFFICULTY: Self = Self(6);
    pub(crate) const ACCUMULATOR: Self = Self(7);
    pub(crate) const INDEX: Self = Self(0x3266);

    /// Returns the name of the kind. `None` if no `.era1` file has it.
    pub(crate) fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::VERSION => "version",
            Self::HEADER => "header",
            Self::BODY => "body",
            Self::RECEIPTS => "receipts",
            Self::TOTAL_DIFFICULTY => "total difficulty",
            Self::ACCUMULATOR => "accumulator",
            Self::INDEX => "block index",
            _ => return None,
        })
    }
}

impl fmt::Display for EntryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} entry"),
            None => write!(f, "entry of type {:#06x}", self.0),
        }
    }
}
