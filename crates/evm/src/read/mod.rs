//! Blocks and receipts from files.
//!
//! | file | what is in it |
//! |---|---|
//! | `.era1` | e2store entries with snappy-compressed headers, bodies and receipts, and an accumulator over them |
//! | `chain.rlp` | blocks, one RLP list behind another |
//! | receipts | one RLP list for each block, from block 1 on |
//!
//! Any of them may be compressed with zstd. The format is recognised by the first bytes, not by the name.
//!
//! # Correctness
//! One block is in memory at a time, however long the file. A length is compared with a limit before anything is allocated, and memory
//! grows with the bytes that are there, not with those that are promised. Every error names the file and the byte; in a compressed
//! file the byte after decompression.

mod blocks;
mod e2store;
mod era1;
mod error;
mod import;
mod input;
mod receipts;
mod rlp_items;

pub use blocks::{BlockFile, RawBlock};
pub use error::{EntryKind, Fault, ImportError};
pub use import::Import;
pub use input::Origin;
pub use receipts::ReceiptsFile;

/// The longest block, header or receipts list that is read, in bytes.
///
/// EIP-7934 caps a block at 10 MiB. A byte of log data costs 8 gas, so 64 MiB of receipts are those of a block of 500 million gas.
pub const MAX_ITEM_BYTES: u64 = 64 << 20;
