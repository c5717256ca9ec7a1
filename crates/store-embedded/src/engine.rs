//! The open database: reading pages, writing batches, refusing to go on after a failed write.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use rocksdb::{ColumnFamily, DB, ErrorKind, Options, ReadOptions, WriteBatch, WriteOptions};
use sapwood_rules::Policy;
use sapwood_store::{StoreError, UtxoSet, working_set::PageKey};
use sapwood_types::{DecodeError, MasterPage, OutputPage, StoredMaster, TxId};

use crate::{
    beside::beside,
    cache::RecordCache,
    columns::{self, Column},
    due_start::DueStart,
    gate::Gate,
    keys,
    mined::MinedHeights,
    open::Access,
    options::{Durability, EmbeddedOptions},
    state::State,
    watch::Watches,
    writer::Writer,
};

pub(crate) struct Engine {
    db: DB,
    /// Held as long as the database is open, and given back after it is closed: fields are dropped in order. `None` where there is no
    /// lock file, as on a copy that is only read.
    _lock: Option<File>,
    pub(crate) directory: PathBuf,
    pub(crate) options: EmbeddedOptions,
    pub(crate) access: Access,
    /// The network it holds, as it was named when the store was made. `None` if it was never named.
    pub(crate) identity: Option<String>,
    /// What the database was opened with; its counters are asked through it.
    pub(crate) database: Options,
    pub(crate) policy: RwLock<Policy>,
    /// Whoever holds this is the one writer.
    pub(crate) writer: Mutex<Writer>,
    /// Makes pruning wait for blocks.
    pub(crate) gate: Gate,
    /// The state as of the last write, for readers.
    pub(crate) published: RwLock<State>,
    /// The UTXO set as of the last write, for readers.
    pub(crate) published_utxo_set: RwLock<Option<UtxoSet>>,
    pub(crate) watches: Watches,
    pub(crate) due_start: DueStart,
    /// Changed by the writer only.
    pub(crate) mined: RwLock<MinedHeights>,
    poison: RwLock<Option<String>>,
    write_options: WriteOptions,
}

/// Without a log a clean stop is what makes writes last. RocksDB flushes when it is closed, but does not wait until all of it is done.
impl Drop for Engine {
    fn drop(&mut self) {
        if self.options.durability == Durability::CleanStopOnly
            && self.check_poison().is_ok()
            && let Err(error) = self.flush()
        {
            tracing::error!(%error, directory = %self.directory.display(), "what was written last is lost");
        }
    }
}

pub(crate) fn engine_error(doing: &'static str) -> impl Fn(rocksdb::Error) -> StoreError {
    move |error| StoreError::Engine { doing, cause: error.to_string() }
}

pub(crate) fn corrupt(what: impl Into<String>, cause: DecodeError) -> StoreError {
    StoreError::Corrupt { what: what.into(), cause }
}

/// A record that lies where the engine finds damage.
fn damaged(txid: &TxId, error: &rocksdb::Error) -> StoreError {
    tracing::error!(%txid, %error, "the engine finds a record damaged");
    let problem = "the storage engine finds damage where it lies";
    corrupt(format!("transaction {txid}"), DecodeError::Inconsistent { what: "record", problem })
}

pub(crate) fn decode_master(txid: &TxId, bytes: Bytes) -> Result<MasterPage, StoreError> {
    MasterPage::decode(bytes).map_err(|cause| corrupt(format!("transaction {txid}"), cause))
}

pub(crate) fn decode_extra(txid: &TxId, number: u32, bytes: Bytes) -> Result<OutputPage, StoreError> {
    OutputPage::decode(bytes).map_err(|cause| corrupt(format!("page {number} of transaction {txid}"), cause))
}

impl Engine {
    pub(crate) fn open(
        directory: &Path,
        policy: Policy,
        options: EmbeddedOptions,
        access: Access,
    ) -> Result<Self, StoreError> {
        policy.validate().map_err(|error| StoreError::BadOption { problem: error.to_string() })?;
        options.validate()?;
        let lock = access.lock(directory)?;
        let database = columns::database_options(&options, access);
        let descriptors = columns::descriptors(&options);
        let db = match access {
            Access::Read => DB::open_cf_descriptors_read_only(&database, directory, descriptors, false),
            Access::Create | Access::Existing => DB::open_cf_descriptors(&database, directory, descriptors),
        };
        let db = db.map_err(engine_error("opening the database"))?;
        let mut write_options = WriteOptions::default();
        match options.durability {
            Durability::ProcessCrash => {}
            Durability::PowerLoss => write_options.set_sync(true),
            Durability::CleanStopOnly => write_options.disable_wal(true),
        }
        let cache = RecordCache::new(options.record_cache_bytes);
        let mined = RwLock::new(MinedHeights::new(options.mined_heights_bytes));
        let mut engine = Engine {
            db,
            _lock: lock,
            directory: directory.to_owned(),
            options,
            access,
            identity: None,
            database,
            policy: RwLock::new(policy),
            writer: Mutex::new(Writer::new(State::default(), cache)),
            gate: Gate::default(),
            published: RwLock::default(),
            published_utxo_set: RwLock::default(),
            watches: Watches::default(),
            due_start: DueStart::default(),
            mined,
            poison: RwLock::default(),
            write_options,
        };
        let state = engine.check_schema()?;
        engine.check_identity()?;
        let rolling = engine.stored_utxo_set(state.last())?;
        engine.publish_utxo_set(&rolling);
        engine.writer.get_mut().rolling = rolling;
        engine.writer.get_mut().state = state.clone();
        *engine.published.get_mut() = state;
        engine.log_options();
        Ok(engine)
    }

    pub(crate) fn db(&self) -> &DB {
        &self.db
    }

    pub(crate) fn column(&self, column: Column) -> Result<&ColumnFamily, StoreError> {
        self.db.cf_handle(column.name()).ok_or_else(|| StoreError::Engine {
            doing: "looking for a column family",
            cause: format!("{} is missing", column.name()),
        })
    }

    pub(crate) fn get(&self, column: Column, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let found = self.db.get_pinned_cf(self.column(column)?, key).map_err(engine_error("reading"))?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    /// First pages of these transactions as they are stored, read in one go and handed on in the order asked for.
    pub(crate) fn read_raw_masters(
        &self,
        txids: &[TxId],
        options: &ReadOptions,
        mut page: impl FnMut(&TxId, Option<&[u8]>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.read_each_master(txids, options, |txid, bytes| page(txid, bytes?))
    }

    /// Like [`read_raw_masters`](Self::read_raw_masters), but a page that the engine finds damaged is handed on as that, and does not
    /// keep the others from being read.
    pub(crate) fn read_each_master(
        &self,
        txids: &[TxId],
        options: &ReadOptions,
        mut page: impl FnMut(&TxId, Result<Option<&[u8]>, StoreError>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        if txids.is_empty() {
            return Ok(());
        }
        let keys = txids.iter().map(|txid| &txid.0);
        let column = self.column(Column::Tx)?;
        let found = self.db.batched_multi_get_cf_opt(column, keys, txids.is_sorted(), options);
        for (txid, value) in txids.iter().zip(found) {
            match &value {
                Ok(value) => page(txid, Ok(value.as_deref()))?,
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    page(txid, Err(damaged(txid, error)))?;
                }
                Err(error) => return Err(engine_error("reading records")(error.clone())),
            }
        }
        Ok(())
    }

    /// First pages of these transactions, read in one go.
    pub(crate) fn read_masters(
        &self,
        txids: &[TxId],
        options: &ReadOptions,
    ) -> Result<Vec<Option<StoredMaster>>, StoreError> {
        let mut pages = Vec::with_capacity(txids.len());
        self.read_raw_masters(txids, options, |_, bytes| {
            pages.push(bytes.map(StoredMaster::new));
            Ok(())
        })?;
        Ok(pages)
    }

    /// Like [`read_masters`](Self::read_masters), by two cores if there are many.
    pub(crate) fn read_many_masters(&self, txids: &[TxId]) -> Result<Vec<Option<StoredMaster>>, StoreError> {
        let read = |txids| self.read_masters(txids, &ReadOptions::default());
        let (first, second) = txids.split_at(txids.len() / 2);
        let (first, second) = beside(self.is_large(txids.len()), || read(first), || read(second));
        let mut pages = first?;
        pages.append(&mut second?);
        Ok(pages)
    }

    /// Further pages, read in one go.
    pub(crate) fn read_extras(
        &self,
        pages: &[PageKey],
        options: &ReadOptions,
    ) -> Result<Vec<Option<OutputPage>>, StoreError> {
        if pages.is_empty() {
            return Ok(Vec::new());
        }
        let column = self.column(Column::Tx)?;
        let keys: Vec<[u8; 36]> = pages.iter().map(|(txid, number)| keys::page(txid, *number)).collect();
        let found = self.db.batched_multi_get_cf_opt(column, &keys, pages.is_sorted(), options);
        let page = |((txid, number), value): (&PageKey, Result<Option<rocksdb::DBPinnableSlice>, _>)| {
            let value = value.map_err(|error: rocksdb::Error| match error.kind() {
                ErrorKind::Corruption => damaged(txid, &error),
                _ => engine_error("reading pages")(error),
            })?;
            value.map(|bytes| decode_extra(txid, *number, Bytes::copy_from_slice(&bytes))).transpose()
        };
        pages.iter().zip(found).map(page).collect()
    }

    /// Whether so many records are worth a second core.
    pub(crate) fn is_large(&self, records: usize) -> bool {
        records >= self.options.two_cores_from
    }

    /// Calls the seam for tests.
    pub(crate) fn reached(&self, point: &'static str) -> Result<(), StoreError> {
        match &self.options.faults {
            None => Ok(()),
            Some(faults) => faults.reached(point).map_err(|cause| StoreError::Engine { doing: point, cause }),
        }
    }

    /// Refuses if an earlier write failed, or the store is open for reading only.
    pub(crate) fn check_poison(&self) -> Result<(), StoreError> {
        if self.access == Access::Read {
            return Err(StoreError::ReadOnly { directory: self.directory.clone() });
        }
        match self.poison.read().clone() {
            None => Ok(()),
            Some(cause) => Err(StoreError::Poisoned { cause }),
        }
    }

    /// Writes a batch: all of it or nothing. A failure poisons the store, because what the engine holds in memory and what is on
    /// disk may differ from then on.
    pub(crate) fn write(&self, batch: WriteBatch) -> Result<(), StoreError> {
        self.check_poison()?;
        if let Some(faults) = &self.options.faults {
            faults.writing(batch.data());
        }
        let written = self
            .reached("before-write")
            .and_then(|()| self.db.write_opt(batch, &self.write_options).map_err(engine_error("writing")))
            .and_then(|()| self.reached("after-write"));
        if let Err(error) = &written {
            self.poison(&error.to_string());
        }
        written
    }

    /// Refuses all further writes.
    pub(crate) fn poison(&self, cause: &str) {
        self.poison.write().get_or_insert_with(|| cause.to_owned());
    }
}
