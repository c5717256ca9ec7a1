//! The arena: one file of regions, each of a fixed size class, that are freed and used again.
//!
//! **What lives here.** Pointers, size classes, the state of a region, the free lists, and who is reading. **What may
//! not.** Blocks, budgets, and what a payload means.
//!
//! # Correctness
//! - A region has one size class for as long as the arena exists. Regions do not overlap, because a new one begins
//!   where the arena ends.
//! - Each time a region gets a new owner its generation rises by one. A pointer names the generation, so a pointer of
//!   an earlier owner matches nothing: it reads nothing and frees nothing.
//! - A region goes Used → Quarantine → Free → Used. It enters quarantine in the commit that deletes the last reference
//!   to it, together with a journal entry. It becomes free in the commit that deletes the journal entry, and only once
//!   no reader is left that began before the reference was deleted. Only free regions are written.
//! - Bytes are written before the commit that refers to them, into a region that no committed row says is used. A crash
//!   in between leaves the region as it was: free, or behind the end.

pub(crate) mod class;
pub(crate) mod header;
#[cfg(test)]
mod model;
pub(crate) mod pointer;
pub(crate) mod readers;
pub(crate) mod region;
pub(crate) mod space;

pub use class::{ClassError, Classes};
pub use pointer::{BlobPtr, Piece};
pub use region::{Region, RegionState};

/// The arena grows by whole pages of this many bytes.
pub const PAGE: u64 = 64 << 10;
