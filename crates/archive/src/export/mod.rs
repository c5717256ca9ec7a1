//! Export: consumers pull blocks in chunks and say how far they got.
//!
//! **What lives here.** The head, chunks by cursor, acknowledgements. **What may not.** Any wire format.
//!
//! # Correctness
//! A response has chunks of one block. The first chunk begins at the cursor, each next one where the one before ended,
//! and the segment changes only at the end of a payload. The next cursor is the place behind the last byte. A cursor
//! that is repeated gives the same bytes, unless the block was replaced or pruned in between. A response always gets
//! further, so a consumer never waits at a place without bytes.

mod chunks;
pub(crate) mod consumers;

use bytes::Bytes;
use sapwood_types::Height;

pub use self::consumers::Consumer;
use crate::error::ArchiveError;

/// Bytes of one response at most, whatever was asked for.
pub const MAX_RESPONSE: u32 = 1_500_000;

/// A place in the export: before the byte at `byte_offset` of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Cursor {
    /// The block.
    pub block: u64,
    /// The segment: 0 block, 1 receipts, 2 transaction index.
    pub segment: u8,
    /// The byte of the payload. Its length is the place behind its end.
    pub byte_offset: u32,
}

impl Cursor {
    /// The beginning of a block.
    pub fn at(block: u64) -> Self {
        Self { block, segment: 0, byte_offset: 0 }
    }
}

/// A part of a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The block.
    pub block: u64,
    /// The segment.
    pub segment: u8,
    /// Where it begins in the payload.
    pub start: u32,
    /// Its bytes. Only the first chunk of a response can be empty.
    pub bytes: Bytes,
    /// The length of the whole payload.
    pub payload_len: u32,
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Parts of one block, in order. Empty if the cursor is behind the newest block.
    pub chunks: Vec<Chunk>,
    /// Where to go on. `None` if the archive is empty and there was no cursor.
    pub next_cursor: Option<Cursor>,
}

/// The newest block, and what may still change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ExportHead {
    /// The newest block.
    pub height: Height,
    /// The lowest block that a reorg can return to: what was exported above it may be replaced. `None` if any block may
    /// be.
    pub floor: Option<Height>,
}

/// An export request was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// No bytes were asked for.
    #[error("max_bytes is 0: ask for 1 to {MAX_RESPONSE}")]
    Limit,
    /// The block is pruned.
    #[error("block {block} is pruned: the oldest block that can be exported is {}", boundary.next())]
    Pruned {
        /// The block of the cursor.
        block: u64,
        /// Blocks at or below it are pruned. Go on at the next one.
        boundary: Height,
        /// The oldest block that is kept. `None` if there is none.
        earliest: Option<Height>,
    },
    /// There is no such segment.
    #[error("segment {segment} does not exist: there are 0, 1 and 2")]
    BadSegment {
        /// The segment of the cursor.
        segment: u8,
    },
    /// The cursor lies behind the end of the payload.
    #[error(
        "byte {byte_offset} lies behind the end of segment {segment} of block {block}, which has {len} bytes"
    )]
    OffsetPastEnd {
        /// The block of the cursor.
        block: u64,
        /// The segment of the cursor.
        segment: u8,
        /// The byte of the cursor.
        byte_offset: u32,
        /// The length of the payload.
        len: u32,
    },
    /// The archive never had the block, though it has later ones.
    #[error(
        "block {block} is not in the archive{}",
        next.map(|next| format!(": go on at block {next}")).unwrap_or_default()
    )]
    Missing {
        /// The block of the cursor.
        block: u64,
        /// The next block that is there.
        next: Option<Height>,
    },
    /// Something else failed.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}
