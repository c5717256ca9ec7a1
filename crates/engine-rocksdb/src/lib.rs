//! An engine on RocksDB: one database in one directory.
//!
//! **What lives here.** Column families and their tuning, the lock of the directory, batches, snapshots, statistics, copies. **What may
//! not.** What keys and values mean; when a write is refused.
//!
//! # Correctness
//! A commit is one RocksDB batch over all column families, with the number of the commit in it, so after a crash both are there or neither.
//! With a write-ahead log that is RocksDB's promise; without one ([`Durability::CleanStopOnly`]) all families are flushed together.
//! A view is a RocksDB snapshot. What RocksDB drops of a damaged log is noticed when the database is opened: see `acknowledged`.
//!
//! The space of what was deleted comes back by itself, also when nothing is written any more: see `flusher`.

mod acknowledged;
mod columns;
mod damage;
mod flusher;
mod lock;
pub mod options;
mod stats;
mod view;
mod watch;

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rocksdb::{ColumnFamily, DB, ErrorKind, WriteBatch, WriteOptions, checkpoint::Checkpoint};
use sapwood_ledger::{
    Ledger, StoreError,
    engine::{
        Capabilities, DiskSpace, Engine, EngineError, EngineStats, EngineWrites, Maintenance, RowChange,
        Support, Table, View, WriteSet,
    },
};
use sapwood_rules::Policy;

use self::{acknowledged::Acknowledged, flusher::Flusher, view::RocksView, watch::Watch};
pub use self::{
    lock::OpenMode,
    options::{Durability, Options, RocksOptions},
};

/// Opens the ledger in a directory.
///
/// # Errors
/// Those of [`RocksEngine::open`] and [`Ledger::open`].
pub fn open_ledger(
    directory: &Path,
    mode: OpenMode,
    policy: Policy,
    options: Options,
) -> Result<Ledger, StoreError> {
    let Options { engine, mut ledger } = options;
    ledger.create = mode == OpenMode::Create;
    policy.validate().map_err(|error| StoreError::BadOption { problem: error.to_string() })?;
    ledger.validate()?;
    Ledger::open(Arc::new(RocksEngine::open(directory, mode, &engine)?), policy, ledger)
}

/// The row of [`Table::Meta`] that holds the number of the last commit. It is the engine's own, and no view shows it.
const NUMBER_KEY: &[u8] = b"write-number";
/// Bytes that RocksDB adds to each row of a batch.
const ROW_OVERHEAD: usize = 4;

/// An open database.
pub struct RocksEngine {
    /// Before the database: fields are dropped in order, and the database is closed by the last that has it.
    _flusher: Option<Flusher>,
    /// `None` if the database is open for reading only.
    watch: Option<Watch>,
    db: Arc<DB>,
    /// Held as long as the database is open, and released after it is closed: fields are dropped in order. `None` where there is no lock
    /// file, as on a copy that is only read.
    lock: Option<File>,
    directory: PathBuf,
    mode: OpenMode,
    durability: Durability,
    /// What the database was opened with; its counters are read through it.
    database: Arc<rocksdb::Options>,
    write_options: WriteOptions,
    position: AtomicU64,
    /// `None` if the database is open for reading only.
    acknowledged: Option<Acknowledged>,
    /// The last commit before this process opened the database, which was synced by then.
    synced: u64,
}

pub(crate) fn failed(doing: &'static str) -> impl Fn(rocksdb::Error) -> EngineError {
    move |error| EngineError::Failed { doing, cause: error.to_string() }
}

impl RocksEngine {
    /// Opens the database in `directory`.
    ///
    /// # Errors
    /// [`EngineError::Locked`] if another process has it open, [`EngineError::Absent`] if there is none and `mode` does not create one,
    /// [`EngineError::Damaged`] if a file of it is damaged or missing,
    /// [`EngineError::OptionOutOfRange`] for options that RocksDB would not survive.
    pub fn open(directory: &Path, mode: OpenMode, options: &RocksOptions) -> Result<Self, EngineError> {
        options.validate()?;
        let lock = mode.lock(directory)?;
        let database = Arc::new(columns::database_options(options, mode));
        let descriptors = columns::descriptors(options);
        let db = match mode {
            OpenMode::ReadOnly => DB::open_cf_descriptors_read_only(&database, directory, descriptors, false),
            OpenMode::Create | OpenMode::Existing => {
                DB::open_cf_descriptors(&database, directory, descriptors)
            }
        };
        let db = Arc::new(db.map_err(|error| open_error(directory, &error))?);
        let no_thread = |error: std::io::Error| EngineError::Failed {
            doing: "starting a thread of the database",
            cause: error.to_string(),
        };
        let (flusher, watch) = match mode {
            OpenMode::ReadOnly => (None, None),
            OpenMode::Create | OpenMode::Existing => {
                let flusher = Flusher::start(Arc::clone(&db), options.deletions_flushed_after);
                // Without a log RocksDB would flush before it stops all work, and the flush would wait for the commit.
                let limit = Some(options.stalled_commit_ended_after)
                    .filter(|_| options.durability != Durability::CleanStopOnly);
                let watch = Watch::start(Arc::clone(&db), Arc::clone(&database), limit);
                (Some(flusher.map_err(no_thread)?), Some(watch.map_err(no_thread)?))
            }
        };
        let mut write_options = WriteOptions::default();
        match options.durability {
            Durability::ProcessCrash => {}
            Durability::PowerLoss => write_options.set_sync(true),
            Durability::CleanStopOnly => write_options.disable_wal(true),
        }
        let mut engine = Self {
            _flusher: flusher,
            watch,
            db,
            lock,
            directory: directory.to_owned(),
            mode,
            durability: options.durability,
            database,
            write_options,
            position: AtomicU64::new(0),
            acknowledged: None,
            synced: 0,
        };
        let position = engine.stored_number()?;
        engine.position.store(position, Ordering::Relaxed);
        Acknowledged::check(directory, position)?;
        if mode != OpenMode::ReadOnly {
            let acknowledged = Acknowledged::open(directory)?;
            // What the log had was flushed while opening.
            acknowledged.note(position, position)?;
            (engine.acknowledged, engine.synced) = (Some(acknowledged), position);
        }
        options.log(directory, mode);
        Ok(engine)
    }

    /// Returns the directory of the database.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn db(&self) -> &DB {
        &self.db
    }

    pub(crate) fn family(&self, table: Table) -> Result<&ColumnFamily, EngineError> {
        self.db.cf_handle(table.name()).ok_or_else(|| EngineError::Failed {
            doing: "looking for a column family",
            cause: format!("{} is missing", table.name()),
        })
    }

    /// Reads the number of the last commit. A database from before commits were numbered has none.
    fn stored_number(&self) -> Result<u64, EngineError> {
        let row = self.db.get_pinned_cf(self.family(Table::Meta)?, NUMBER_KEY).map_err(failed("reading"))?;
        let Some(row) = row else { return Ok(0) };
        let bytes = row.as_ref().try_into().map_err(|_| EngineError::Failed {
            doing: "reading the number of the last write",
            cause: format!("it has {} bytes, not 8", row.len()),
        })?;
        Ok(u64::from_be_bytes(bytes))
    }

    fn batch(&self, writes: &WriteSet) -> Result<WriteBatch, EngineError> {
        let mut families = [None; Table::ALL.len()];
        for table in Table::ALL {
            families[table as usize] = Some(self.family(table)?);
        }
        let family = |table: Table| families[table as usize].map_or_else(|| self.family(table), Ok);
        let rows = usize::try_from(writes.len()).unwrap_or(usize::MAX);
        let capacity = writes.bytes().saturating_add(rows.saturating_mul(ROW_OVERHEAD));
        let mut batch = WriteBatch::with_capacity_bytes(capacity);
        for change in writes.iter() {
            match change {
                RowChange::Put { table, key, value } => batch.put_cf(family(table)?, key, value),
                RowChange::Delete { table, key } => batch.delete_cf(family(table)?, key),
                RowChange::DeleteRange { table, from, to } => batch.delete_range_cf(family(table)?, from, to),
            }
        }
        batch.put_cf(family(Table::Meta)?, NUMBER_KEY, writes.number.to_be_bytes());
        Ok(batch)
    }

    /// Fails if the directory was deleted, moved or replaced.
    fn check_in_place(&self) -> Result<(), EngineError> {
        self.lock.as_ref().map_or(Ok(()), |lock| lock::check_in_place(lock, &self.directory))
    }

    fn stalled(&self) -> Option<EngineError> {
        let stall = self.watch.as_ref()?.stall()?;
        let free_bytes = self.disk_space().ok().flatten().map_or(0, |space| space.free_bytes);
        let seconds = stall.since.elapsed().as_secs();
        Some(EngineError::Stalled { place: self.place(), seconds, errors: stall.errors, free_bytes })
    }

    fn commit_error(&self, error: &rocksdb::Error) -> EngineError {
        match error.kind() {
            ErrorKind::ShutdownInProgress => {
                self.stalled().unwrap_or_else(|| failed("writing")(error.clone()))
            }
            ErrorKind::IOError if is_full(error) => {
                EngineError::Full { place: self.place(), cause: error.to_string() }
            }
            _ => EngineError::Failed { doing: "writing", cause: error.to_string() },
        }
    }
}

/// A database that is there, and of which a file is damaged or missing, is not opened by trying again.
fn open_error(directory: &Path, error: &rocksdb::Error) -> EngineError {
    // RocksDB tells a missing file from other I/O errors in its text only.
    let missing = error.kind() == ErrorKind::IOError && error.to_string().contains("No such file");
    if missing || error.kind() == ErrorKind::Corruption {
        return EngineError::Damaged { place: directory.display().to_string(), cause: error.to_string() };
    }
    failed("opening the database")(error.clone())
}

/// RocksDB tells a full disk from other I/O errors in its text only.
fn is_full(error: &rocksdb::Error) -> bool {
    let text: &str = error.as_ref();
    text.contains("No space left on device") || text.contains("NoSpace")
}

/// A clean stop makes writes last, also if the machine goes down right after it. Without a log that takes a flush: RocksDB flushes when it is
/// closed, but does not wait until all of it is done.
impl Drop for RocksEngine {
    fn drop(&mut self) {
        let Some(acknowledged) = &self.acknowledged else { return };
        if let Err(error) = self.check_in_place() {
            tracing::error!(%error, "the store is closed");
            return;
        }
        let position = self.position.load(Ordering::Acquire);
        let stored = match self.durability {
            Durability::CleanStopOnly => self.flush(),
            Durability::ProcessCrash => self.db.flush_wal(true).map_err(failed("syncing the log")),
            Durability::PowerLoss => Ok(()),
        };
        let noted =
            stored.and_then(|()| acknowledged.note(position, position)).and_then(|()| acknowledged.sync());
        if let Err(error) = noted {
            tracing::error!(%error, directory = %self.directory.display(), "the last writes may not survive a power failure");
        }
    }
}

impl Engine for RocksEngine {
    fn kind(&self) -> &'static str {
        "rocksdb"
    }

    fn place(&self) -> String {
        self.directory.display().to_string()
    }

    fn capabilities(&self) -> Capabilities {
        const READ_ONLY: Support = Support::No("it is open for reading only");
        let support = if self.mode == OpenMode::ReadOnly { READ_ONLY } else { Support::Yes };
        Capabilities { write: support, backup: support }
    }

    fn position(&self) -> Result<u64, EngineError> {
        Ok(self.position.load(Ordering::Acquire))
    }

    fn view(&self) -> Result<Box<dyn View + '_>, EngineError> {
        Ok(Box::new(RocksView::new(self)))
    }

    fn commit(&self, writes: &WriteSet) -> Result<(), EngineError> {
        if self.mode == OpenMode::ReadOnly {
            return Err(EngineError::ReadOnly { place: self.place() });
        }
        let (number, position) = (writes.number, self.position.load(Ordering::Acquire));
        if position.checked_add(1) != Some(number) {
            return Err(EngineError::WrongNumber { number, position });
        }
        self.check_in_place()?;
        let batch = self.batch(writes)?;
        let write = || self.db.write_opt(batch, &self.write_options);
        let written = match &self.watch {
            Some(watch) => watch.over(write),
            None => write(),
        };
        written.map_err(|error| self.commit_error(&error))?;
        match (&self.acknowledged, self.durability) {
            (Some(acknowledged), Durability::ProcessCrash) => acknowledged.note(number, self.synced)?,
            (Some(acknowledged), Durability::PowerLoss) => acknowledged.note(number, number)?,
            (None, _) | (_, Durability::CleanStopOnly) => {}
        }
        self.position.store(number, Ordering::Release);
        Ok(())
    }

    fn check(&self) -> Result<(), EngineError> {
        self.check_in_place()?;
        self.stalled().map_or(Ok(()), Err)
    }

    fn stats(&self, table: Option<Table>) -> Result<EngineStats, EngineError> {
        let wanted = Table::ALL.into_iter().filter(|each| table.is_none_or(|table| table == *each));
        Ok(EngineStats { tables: wanted.map(|table| self.table_stats(table)).collect::<Result<_, _>>()? })
    }

    fn writes(&self) -> Option<EngineWrites> {
        Some(stats::writes(&self.database))
    }

    fn disk_space(&self) -> Result<Option<DiskSpace>, EngineError> {
        let found = rustix::fs::statvfs(&self.directory).map_err(|error| EngineError::Failed {
            doing: "measuring the room on the disk",
            cause: format!("{}: {error}", self.directory.display()),
        })?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Some(DiskSpace { free_bytes: bytes(found.f_bavail), total_bytes: bytes(found.f_blocks) }))
    }

    fn maintain(&self, work: Maintenance) -> Result<(), EngineError> {
        self.flush()?;
        match work {
            Maintenance::Flush => Ok(()),
            Maintenance::Settle => {
                let options = rocksdb::WaitForCompactOptions::default();
                self.db.wait_for_compact(&options).map_err(failed("waiting for compactions"))
            }
        }
    }

    fn backup(&self, directory: &Path) -> Result<(), EngineError> {
        if self.mode == OpenMode::ReadOnly {
            return Err(EngineError::ReadOnly { place: self.place() });
        }
        // Without a log a copy has only what has been flushed.
        if self.durability == Durability::CleanStopOnly {
            self.flush()?;
        }
        let checkpoint = Checkpoint::new(&self.db).map_err(failed("preparing a copy"))?;
        checkpoint.create_checkpoint(directory).map_err(failed("writing a copy"))
    }
}
