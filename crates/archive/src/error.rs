//! Errors of the archive.

use std::io;

use sapwood_ledger::engine::EngineError;
use sapwood_types::{BlockHash, DecodeError, Height, TxId};

use crate::{BlobPtr, ClassError, Segment, prune::policy::PolicyError};

/// The archive could not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// The engine that holds the rows failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The arena file could not be read or written.
    #[error("{place}: {doing} failed: {cause}")]
    Io {
        /// The file.
        place: String,
        /// What was being done.
        doing: &'static str,
        /// The kind of error.
        kind: io::ErrorKind,
        /// The system's own message.
        cause: String,
    },
    /// The disk is full. Nothing was changed, reading and pruning go on, and writing can be tried again.
    #[error(
        "{place} is full: {cause}. Free some space, lower the target, or wait until pruning has made room"
    )]
    Full {
        /// The file.
        place: String,
        /// The system's own message.
        cause: String,
    },
    /// Another process has the arena open.
    #[error("{place} is in use by another process: stop it first, or choose another data directory")]
    Locked {
        /// The file.
        place: String,
    },
    /// The archive was opened for reading only.
    #[error("the archive in {place} is open for reading only: nothing is written")]
    ReadOnly {
        /// The file.
        place: String,
    },
    /// There is no archive, and none is made.
    #[error("there is no archive in {place}: name the right place, or create one")]
    Absent {
        /// The file.
        place: String,
    },
    /// There is an arena with data, but the engine has no rows that describe it.
    #[error(
        "{place} has {size} bytes, but {rows} has no rows that describe them: both belong together. \
         Restore the rows, or move the file away to begin an empty archive"
    )]
    RowsMissing {
        /// The file.
        place: String,
        /// Bytes of the file.
        size: u64,
        /// The place of the engine.
        rows: String,
    },
    /// There are rows, but no arena.
    #[error("{place} is missing or empty, but the rows in {rows} refer to it: restore the file")]
    ArenaMissing {
        /// The file.
        place: String,
        /// The place of the engine.
        rows: String,
    },
    /// The engine has rows of something else.
    #[error("{place} has rows, but not those of an archive: an archive needs an engine of its own")]
    ForeignRows {
        /// The place of the engine.
        place: String,
    },
    /// The arena belongs to other rows.
    #[error(
        "{place} belongs to another archive than the rows in {rows}: put the files of one archive together"
    )]
    OtherArena {
        /// The file.
        place: String,
        /// The place of the engine.
        rows: String,
    },
    /// A write failed in a way that leaves open what is on disk.
    #[error(
        "the archive refuses to write since a write failed ({cause}). What was acknowledged before is safe: \
         restart the process"
    )]
    Poisoned {
        /// The error of that write.
        cause: String,
    },
    /// A row is not what it should be.
    #[error("{row} is damaged: {cause}. Run verify; reading and pruning of everything else goes on")]
    DamagedRow {
        /// The row.
        row: String,
        /// Why.
        cause: String,
    },
    /// The bytes of a blob are not those that were written.
    #[error("the blob of {pointer} is damaged: its checksum is {found:08x} and should be {expected:08x}")]
    DamagedBlob {
        /// Where it lies.
        pointer: BlobPtr,
        /// The checksum that belongs to it.
        expected: u32,
        /// The checksum of what was read.
        found: u32,
    },
    /// A pointer names an owner that the region no longer has.
    #[error("{pointer} is stale: {found}")]
    StalePointer {
        /// The pointer.
        pointer: BlobPtr,
        /// What the allocation table has.
        found: String,
    },
    /// A region was given to 2³² owners.
    #[error("the region at {offset} has no generations left: it cannot be used again")]
    NoGenerations {
        /// Where it begins.
        offset: u64,
    },
    /// The arena cannot grow.
    #[error("the arena cannot grow past 2^63 bytes")]
    NoOffsets,
    /// An option cannot be.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// A policy cannot be.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// Pruning is disabled.
    #[error("pruning of the archive is disabled: enable it first")]
    Disabled,
    /// A prune is already running.
    #[error("the archive is being pruned: try again when this has ended")]
    Busy,
    /// There are too many of something whose number is bounded.
    #[error("{what}: {limit} are allowed. {hint}")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// How many are allowed.
        limit: u64,
        /// What to do.
        hint: &'static str,
    },
    /// An acknowledgement or a final block is not possible.
    #[error("{what} at block {height} is refused: {problem}")]
    BadHeight {
        /// What was reported.
        what: &'static str,
        /// The height.
        height: u64,
        /// Why it is refused.
        problem: String,
    },
}

impl ArchiveError {
    pub(crate) fn damaged(row: impl Into<String>) -> impl FnOnce(DecodeError) -> Self {
        move |cause| ArchiveError::DamagedRow { row: row.into(), cause: cause.to_string() }
    }
}

/// An option cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// The size classes.
    #[error(transparent)]
    Classes(#[from] ClassError),
    /// A block must be replaceable.
    #[error("a reorg window of 0 blocks cannot replace even one block: set it to at least 1")]
    NoWindow,
    /// Segments without bytes.
    #[error("a limit of 0 bytes for a segment refuses every block: set it to at least 1")]
    NoSegments,
}

/// Blocks could not be added or replaced. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// A block does not have the next height.
    #[error("block {found} does not follow block {head}, the last one archived: append block {} first", head.next())]
    WrongHeight {
        /// The last block.
        head: Height,
        /// The block given.
        found: Height,
    },
    /// A block has another parent than the last block.
    #[error(
        "block {height} has the parent {found}, but block {} is {expected}: replace that one first",
        height.minus(1)
    )]
    WrongParent {
        /// The block given.
        height: Height,
        /// The hash of the last block.
        expected: BlockHash,
        /// The parent given.
        found: BlockHash,
    },
    /// A block with this hash is archived at another height, or was.
    #[error("block {height} has the hash {hash}, which block {archived} has, too")]
    DuplicateHash {
        /// The block given.
        height: Height,
        /// Its hash.
        hash: BlockHash,
        /// The height that has the hash.
        archived: Height,
    },
    /// A block lists a transaction twice.
    #[error("block {height} lists transaction {txid} twice")]
    DuplicateTx {
        /// The block given.
        height: Height,
        /// The transaction.
        txid: TxId,
    },
    /// A reorg would replace blocks that are final.
    #[error("blocks above {fork} cannot be replaced: {floor} is the lowest block that a reorg can return to")]
    BelowFloor {
        /// The last common block.
        fork: Height,
        /// The finality floor.
        floor: Height,
    },
    /// A payload is larger than allowed.
    #[error(
        "the {segment} segment of block {height} has {len} bytes, {limit} are allowed: raise max_segment_bytes"
    )]
    SegmentTooLarge {
        /// The block.
        height: Height,
        /// The segment.
        segment: Segment,
        /// Bytes of the payload.
        len: u64,
        /// Bytes allowed.
        limit: u32,
    },
    /// The disk is almost full. Reading and pruning go on, and writing goes on when there is room.
    #[error(
        "{free} bytes of the disk are free, and {reserve} are kept in reserve: the archive does not write \
         until there is more room"
    )]
    NoRoom {
        /// Bytes free.
        free: u64,
        /// Bytes that have to stay free.
        reserve: u64,
    },
    /// Something else failed.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

impl From<EngineError> for AppendError {
    fn from(error: EngineError) -> Self {
        AppendError::Archive(error.into())
    }
}
