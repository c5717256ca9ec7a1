//! The block files of a node: `blk*.dat`.
//!
//! # Layers
//! - `files`: which files there are and the key over them.
//! - [`scan`]: the records of one file.
//! - `index`: the headers of all blocks and which chain is the best.
//! - `report`: what to read and what was found.
//! - [`order`]: all blocks as they lie in the files.
//! - [`source`]: all of it behind [`BlockSource`](crate::BlockSource).
//!
//! # Correctness
//! Opening reads headers only. The last record of each file is read in full, because the node may still be writing it or may
//! have died over it; if it is not whole it does not count yet. Any other block is checked when it is read, and if it
//! lies in the files more than once, the next copy is tried before giving up.

mod files;
mod index;
pub mod order;
mod report;
pub mod scan;
pub mod source;

pub use index::{Location, Orphan};
pub use order::{FileOrder, RawBlock};
pub use report::{BlkOptions, BlkReport, FileNote, ScanProgress};
pub use scan::{Leftovers, Record, Scanner};
pub use source::BlkSource;
