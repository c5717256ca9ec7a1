//! The vocabulary of Sapwood: heights, hashes, outputs, slots, records, blocks, and how each is written as bytes.
//!
//! **What lives here.** Plain data and its byte formats. **What may not.** Any storage engine, any chain library, any
//! decision about what may be deleted (that is `sapwood-rules`).
//!
//! # Layers
//! - [`height`], [`hash`], [`outpoint`]: the small values everything else is made of.
//! - [`tx`], [`block`]: what a chain source delivers.
//! - [`slot`], [`record`]: what the store keeps of a transaction, paged at [`PAGE_SIZE`] outputs.
//! - [`coin`]: what Bitcoin Core hashes of an unspent output.
//! - [`first_page`], [`header`], [`page`]: a record as it is stored, decoded part by part.
//! - [`view`]: what the rules look at, in either form of a record.
//! - [`tx_file`]: a whole transaction in a file of its own.
//! - [`undo`]: what is needed to take a block back.
//! - [`codec`]: the reader and writer every format is built from, and [`DecodeError`].
//!
//! # Correctness
//! What is stored on its own (a page, an undo record) starts with a version byte, which covers everything inside it. Each
//! value has exactly one encoding: integers are canonical, flags that mean nothing are refused, and trailing bytes are an
//! error. So two states are equal exactly if their bytes are, which the crash tests rely on. Formats are described byte by
//! byte in `docs/formats.md`.
//!
//! Hashes are held in the order in which people write them ("display order"). A chain source whose wire order differs, as
//! Bitcoin's does, turns them around at the edge, and nothing inside ever has to ask which way round a hash is.

pub mod block;
pub mod codec;
pub mod coin;
pub mod first_page;
pub mod hash;
pub mod header;
pub mod height;
pub mod outpoint;
pub mod page;
pub mod record;
pub mod slot;
pub mod tx;
pub mod tx_file;
pub mod undo;
pub mod view;

pub use block::{Block, BlockMark, BlockRules, ChainPoint};
pub use codec::DecodeError;
pub use first_page::{FirstPage, Scratch};
pub use hash::{AddressHash, BlockHash, TxId, UtxoHash};
pub use header::RecordHeader;
pub use height::Height;
pub use outpoint::{OutPoint, ParseOutPointError, Spender};
pub use page::{FurtherPage, PageSummary, PageView, Slots};
pub use record::{Blocks, External, MinedIn, Reassignment, TxHead, TxRecord};
pub use slot::Slot;
pub use tx::{Input, Output, OutputRef, PrevOutput, Tx, TxBody};
pub use undo::Undo;
pub use view::RecordView;

/// Outputs per page. A transaction with more is kept as several entries, so that spending one output of a huge
/// transaction rewrites a few kilobytes at most.
pub const PAGE_SIZE: u32 = 128;
