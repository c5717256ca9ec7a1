//! The seam between the ledger and what stores its rows.
//!
//! **What lives here.** [`Engine`] and [`View`], the tables, and the [`WriteSet`] that one commit consists of. **What may not.** Keys and
//! values mean nothing here: they are opaque bytes, and keys compare as bytes. An engine knows no transactions, outputs or heights.
//!
//! # Correctness
//! - A commit is all or nothing, also after a crash, and what it wrote is in every [`View`] taken after it returned.
//! - Commits are numbered without gaps. An engine refuses a number that does not follow its [`position`](Engine::position), so a write that
//!   was prepared against another state cannot be committed.
//! - A view never changes, and does not make a commit wait.

mod error;
mod stats;
mod write_set;

use std::{ops::ControlFlow, path::Path};

pub use self::{
    error::{DamagedRange, DamagedRow, EngineError},
    stats::{DiskSpace, EngineStats, EngineWrites, TableStats},
    write_set::{RowChange, WriteSet},
};

/// A table of rows, ordered by key. `docs/formats.md` describes the keys and values of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// Records by transaction id: point reads and writes.
    Tx,
    /// Settled records by height: written at one end, read and deleted at the other.
    Due,
    /// Unmined and preserved records by height: small.
    Pending,
    /// Unspent outputs by address or credential: prefix scans.
    Address,
    /// Undo records by height: sequential.
    Undo,
    /// State, schema, notes: a few rows.
    Meta,
}

impl Table {
    /// All tables.
    pub const ALL: [Table; 6] =
        [Table::Tx, Table::Due, Table::Pending, Table::Address, Table::Undo, Table::Meta];

    /// Returns the name used in stats and messages.
    pub fn name(self) -> &'static str {
        match self {
            Table::Tx => "tx",
            Table::Due => "due",
            Table::Pending => "pending",
            Table::Address => "address",
            Table::Undo => "undo",
            Table::Meta => "meta",
        }
    }
}

/// Stores rows for one ledger.
///
/// Calls block. The ledger has one writer, which is the only caller of [`commit`](Self::commit); views are used from any thread.
pub trait Engine: Send + Sync + 'static {
    /// Names the kind of engine: `rocksdb`, `memory`.
    fn kind(&self) -> &'static str;

    /// Names the place of the rows in messages: a directory, or a URL without credentials.
    fn place(&self) -> String;

    /// Tells what this engine can do besides the required.
    fn capabilities(&self) -> Capabilities;

    /// Returns the number of the last commit, 0 if there was none.
    ///
    /// # Errors
    /// [`EngineError::Fenced`] or [`EngineError::NotLeader`] if this process was the writer and another one is now: the last commit may be the
    /// other's.
    fn position(&self) -> Result<u64, EngineError>;

    /// Takes a view of the rows as of the last commit.
    fn view(&self) -> Result<Box<dyn View + '_>, EngineError>;

    /// Writes a write set: all of it or nothing.
    ///
    /// # Errors
    /// [`EngineError::WrongNumber`] if its number is not [`position`](Self::position) + 1. After [`EngineError::Unavailable`] nothing was written, and
    /// after [`EngineError::OutcomeUnknown`] either all or nothing was: `position` tells which, and the same write set may be committed again. After any
    /// other error but `WrongNumber` and [`EngineError::ReadOnly`], the caller must open the engine again before it commits.
    fn commit(&self, writes: &WriteSet) -> Result<(), EngineError>;

    /// Tells whether commits can be made. Reads and waits for nothing that a commit may wait for.
    ///
    /// # Errors
    /// What a commit would fail with, or waits for.
    fn check(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Collects statistics. `table` limits the table stats to one table; with `None` all are listed.
    fn stats(&self, table: Option<Table>) -> Result<EngineStats, EngineError>;

    /// Counts bytes written since the engine was opened. Cheap, unlike [`stats`](Self::stats). `None` if this is not counted.
    fn writes(&self) -> Option<EngineWrites> {
        None
    }

    /// Measures the disk that holds the rows. `None` if there is no such disk.
    fn disk_space(&self) -> Result<Option<DiskSpace>, EngineError> {
        Ok(None)
    }

    /// Does background work now and waits for it.
    fn maintain(&self, work: Maintenance) -> Result<(), EngineError>;

    /// Writes a consistent copy to a new directory while the engine is in use.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] where [`Capabilities::backup`] is absent.
    fn backup(&self, directory: &Path) -> Result<(), EngineError>;
}

/// Called with the index of a key and its value. `None` if there is no such row.
pub type EachValue<'a> = dyn FnMut(usize, Result<Option<&[u8]>, DamagedRow>) + 'a;

/// Called with key and value of a row. Breaks to end a scan.
pub type EachRow<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// Called with a part of a range that cannot be read.
pub type EachDamage<'a> = dyn FnMut(DamagedRange) + 'a;

/// Reads rows as of one commit.
pub trait View: Send + Sync {
    /// Reads rows and calls `each` with the index of its key and the value, in the order of the keys. The value is `None` if there is no such
    /// row. A row that the engine finds damaged is reported for its key only.
    fn get_many(&self, table: Table, keys: &[&[u8]], each: &mut EachValue<'_>) -> Result<(), EngineError>;

    /// Calls `row` with key and value of each row of a range, until it breaks. Fails at the first row that the engine finds damaged.
    fn scan(&self, scan: &Scan, row: &mut EachRow<'_>) -> Result<(), EngineError>;

    /// Scans in ascending order, and goes on behind damage: calls `damage` with each part of the range that cannot be read. Slow there. An
    /// engine that finds no damage itself has no such part.
    fn scan_past_damage(
        &self,
        scan: &Scan,
        row: &mut EachRow<'_>,
        _damage: &mut EachDamage<'_>,
    ) -> Result<(), EngineError> {
        self.scan(scan, row)
    }
}

/// A range of a table, in key order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan<'a> {
    /// The table.
    pub table: Table,
    /// The lowest key, included.
    pub from: &'a [u8],
    /// The end of the range, excluded. `None` for the end of the table.
    pub to: Option<&'a [u8]>,
    /// Highest key first.
    pub reverse: bool,
    /// Whether rows that are read may displace others from the engine's cache. `false` for scans of whole tables.
    pub fill_cache: bool,
}

impl Scan<'_> {
    /// Scans a whole table in ascending order, past the cache.
    pub fn all(table: Table) -> Self {
        Scan { table, from: &[], to: None, reverse: false, fill_cache: false }
    }
}

/// Work that an engine does in the background anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maintenance {
    /// Write to disk all that is only in memory.
    Flush,
    /// Flush, and wait until no compaction is in flight.
    Settle,
}

/// What an engine can do besides the required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Commits.
    pub write: Support,
    /// Online copies by [`Engine::backup`].
    pub backup: Support,
}

/// Whether an engine has a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It has.
    Yes,
    /// It has not, for this reason.
    No(&'static str),
}

impl Support {
    /// Whether the capability is there.
    pub fn is_yes(self) -> bool {
        self == Support::Yes
    }
}
