//! What a store answers with.

use std::fmt;

use bytes::Bytes;
use sapwood_rules::Verdict;
use sapwood_types::{BlockMark, External, Height, MinedIn, OutPoint, Output, Slot, TxId};

use crate::{ApplyError, StoreError};

/// One answer for each item asked for, in that order. One that needs a record that cannot be read is an error of its own
/// ([`StoreError::Corrupt`]) and keeps no other from being read.
pub type EachResult<T> = Result<Vec<Result<T, StoreError>>, StoreError>;

/// Where a listing goes on. Opaque to callers, stable while the store changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(pub Bytes);

/// Part of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The entries.
    pub items: Vec<T>,
    /// Records that belong here and cannot be read. Each is named once, and stands in the way of no other.
    pub unreadable: Vec<Unreadable>,
    /// Where it goes on. `None` at the end.
    pub next: Option<Cursor>,
}

impl<T> Page<T> {
    /// A page all of whose records can be read.
    pub fn new(items: Vec<T>, next: Option<Cursor>) -> Self {
        Self { items, unreadable: Vec::new(), next }
    }

    /// Adds what was found of a transaction, or notes that its record cannot be read.
    ///
    /// # Errors
    /// Any error that is not of this record alone.
    pub fn add(&mut self, txid: TxId, found: Result<Option<T>, StoreError>) -> Result<(), StoreError> {
        match found {
            Ok(found) => self.items.extend(found),
            Err(error) if error.is_of_one_record() => {
                if self.unreadable.last().is_none_or(|last| last.txid != txid) {
                    self.unreadable.push(Unreadable { txid, error: error.to_string() });
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// In which order a listing comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Order {
    /// Oldest first.
    #[cfg_attr(feature = "serde", serde(rename = "asc"))]
    Ascending,
    /// Newest first.
    #[cfg_attr(feature = "serde", serde(rename = "desc"))]
    Descending,
}

/// What the address index is asked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AddressKind {
    /// The hash of a locking script or address.
    Address,
    /// A payment credential.
    Credential,
}

/// An output that is not spent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Utxo {
    /// Which.
    pub outpoint: OutPoint,
    /// What it is.
    pub output: Output,
    /// Its state.
    pub slot: Slot,
    /// When its record was made.
    pub created_height: Height,
    /// When its transaction was mined, if it is.
    pub mined_at: Option<Height>,
    /// Whether it comes from a coinbase.
    pub coinbase: bool,
}

/// An unmined transaction, as block assembly wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnminedTx {
    /// Which.
    pub txid: TxId,
    /// Since when.
    pub since: Height,
    /// What it pays.
    pub fee: Option<u64>,
    /// Its size.
    pub size: u32,
    /// What it spends.
    pub inputs: Vec<OutPoint>,
    /// When it was seen, in milliseconds since 1970.
    pub created_at: u64,
    /// Whether it is locked.
    pub locked: bool,
    /// Blocks it is in, none of them on the longest chain.
    pub blocks: Vec<MinedIn>,
}

/// A block was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The block.
    pub block: BlockMark,
    /// How many transactions the store learned of.
    pub created: usize,
    /// How many it knew already, and are mined now.
    pub mined: usize,
    /// Unmined transactions that lost against the block, with their descendants.
    pub conflicting: Vec<TxId>,
}

/// What came of blocks that were to be applied one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedBlocks {
    /// Those that are applied, in order.
    pub applied: Vec<Applied>,
    /// Why the one after them is not. Nothing if all are applied.
    pub refused: Option<ApplyError>,
}

/// Blocks were taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolledBack {
    /// The last applied block now.
    pub last: Option<BlockMark>,
    /// How many blocks were taken back.
    pub blocks: u32,
    /// Transactions that are unmined again.
    pub unmined: Vec<TxId>,
    /// Transactions that were forgotten.
    pub forgotten: Vec<TxId>,
    /// Transactions that lost what they spend, with their descendants.
    pub conflicting: Vec<TxId>,
}

/// A record whose rule says it may go, by height.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueRecord {
    /// When it settled.
    pub settled_at: Height,
    /// Which.
    pub txid: TxId,
}

/// A record and its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Which.
    pub txid: TxId,
    /// May it go?
    pub verdict: Verdict,
    /// Where its body lives, if not in the record: that has to go first.
    pub external: Option<External>,
    /// How many bytes its pages have.
    pub bytes: u64,
}

/// What came of pruning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneOutcome {
    /// Each record looked at with its verdict, in the order of the list or as asked for. Those that may go are deleted, unless it was a
    /// dry run. Records of a write that was not done are left out.
    pub judged: Vec<Judged>,
    /// How many of them, from the first on, are done with. Behind them a write was not done, and the others come again.
    pub done: usize,
    /// Where the list goes on. `None` at its end, and for records asked for by id.
    pub next: Option<Cursor>,
    /// Why not every write was done. `None` if all were.
    pub stopped_by: Option<StoreError>,
}

/// A record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Unreadable {
    /// The id of its transaction.
    pub txid: TxId,
    /// What is wrong with it.
    pub error: String,
}

/// What came of ending preservations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Entries of the list that were worked off. Fewer than were asked for: none is left whose record can be read.
    pub worked_off: usize,
    /// Records that cannot be read. They stay in the list and stand in the way of no other.
    pub unreadable: Vec<Unreadable>,
}

/// What came of dropping undo records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UndoDropped {
    /// How many were dropped.
    pub dropped: u64,
    /// Where to go on. `None` at the end.
    pub next: Option<Height>,
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Stored transactions.
    pub records: u64,
    /// Outputs that are unspent or frozen.
    pub unspent: u64,
    /// Stored transactions that are not mined on the longest chain.
    pub unmined: u64,
    /// Outputs that a stored or pruned transaction spends. Pruning leaves it as it is, a rollback undoes what its blocks added.
    pub spent: u64,
    /// Stored transactions that are retained because they are locked. Each transaction is counted under one reason at most, the one
    /// that [`judge`](crate::Ledger::judge) gives.
    pub locked: u64,
    /// Stored transactions that are retained because they are preserved.
    pub preserved: u64,
    /// Stored transactions that are retained because a transaction that spends from them is unmined; all their outputs are spent. A
    /// frozen output beyond the first 128 counts as spent here.
    pub child_unmined: u64,
}

impl Counts {
    /// Outputs that were ever created: those that are unspent or frozen, and those that are spent. Outputs that can never be spent
    /// are not kept and not counted.
    pub fn created(&self) -> u64 {
        self.unspent.saturating_add(self.spent)
    }
}

/// The room on the disk that holds the store, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DiskRoom {
    /// Bytes this process may still write.
    pub free_bytes: u64,
    /// The size of the file system in bytes.
    pub total_bytes: u64,
    /// Bytes that have to stay free: with less, no block is applied. 0 if that is turned off.
    pub reserve_bytes: u64,
}

impl DiskRoom {
    /// Whether less is free than has to be.
    pub fn is_short(&self) -> bool {
        self.free_bytes < self.reserve_bytes
    }
}

/// What `verify` found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// How many records were read.
    pub records: u64,
    /// How many index entries were read.
    pub index_entries: u64,
    /// What is broken, each with the record or entry it is about. Bounded: see `more`.
    pub problems: Vec<String>,
    /// How many more problems were found than are listed. Some kinds are not looked for any more once the list is full.
    pub more: u64,
}

impl VerifyReport {
    /// Whether nothing is broken.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty() && self.more == 0
    }

    const LISTED: usize = 1000;

    /// Whether further problems are only counted.
    pub fn is_full(&self) -> bool {
        self.problems.len() >= Self::LISTED
    }

    /// Notes a problem; beyond a thousand they are only counted.
    pub fn problem(&mut self, text: impl Into<String>) {
        if self.is_full() { self.more += 1 } else { self.problems.push(text.into()) }
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} records and {} index entries read", self.records, self.index_entries)?;
        if self.is_clean() {
            return write!(f, "nothing is broken");
        }
        for problem in &self.problems {
            writeln!(f, "broken: {problem}")?;
        }
        let found = self.problems.len() as u64 + self.more;
        if self.is_full() {
            write!(f, "at least {found} problems")
        } else {
            write!(f, "{found} problems in all")
        }
    }
}
