//! The open database: reading pages, writing batches, refusing to go on after a failed write.

use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use rocksdb::{ColumnFamily, DB, ReadOptions, WriteBatch, WriteOptions};
use sapwood_rules::Policy;
use sapwood_store::{AddressIndexing, StoreError, UtxoSet, working_set::PageKey};
use sapwood_types::{DecodeError, MasterPage, OutputPage, StoredMaster, TxId};

use crate::{
    beside::beside,
    cache::RecordCache,
    columns::{self, Column},
    due_start::DueStart,
    gate::Gate,
    keys,
    mined::MinedHeights,
    options::{Durability, EmbeddedOptions},
    state::{INDEXING_KEY, SCHEMA, SCHEMA_KEY, STATE_KEY, State},
    watch::Watches,
    writer::Writer,
};

const LOCK_FILE: &str = "sapwood.lock";

pub(crate) struct Engine {
    db: DB,
    /// Held as long as the database is open, and given back after it is closed: fields are dropped in order.
    _lock: File,
    pub(crate) directory: PathBuf,
    pub(crate) options: EmbeddedOptions,
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
    ) -> Result<Self, StoreError> {
        policy.validate().map_err(|error| StoreError::BadOption { problem: error.to_string() })?;
        let lock = take_lock(directory)?;
        let descriptors = columns::descriptors(&options);
        let db = DB::open_cf_descriptors(&columns::database_options(&options), directory, descriptors)
            .map_err(engine_error("opening the database"))?;
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
        let rolling = engine.stored_utxo_set(state.last())?;
        engine.publish_utxo_set(&rolling);
        engine.writer.get_mut().rolling = rolling;
        engine.writer.get_mut().state = state.clone();
        *engine.published.get_mut() = state;
        Ok(engine)
    }

    /// Checks what the store was made with, or notes it in a new one.
    fn check_schema(&self) -> Result<State, StoreError> {
        let meta = self.column(Column::Meta)?;
        let indexing = self.options.address_index;
        let wanted = [u8::from(indexing.address) | u8::from(indexing.credential) << 1];
        let Some(schema) = self.get(Column::Meta, SCHEMA_KEY)? else {
            // Only what is empty may be taken for new: else a damaged store would be written over.
            if self.get(Column::Meta, STATE_KEY)?.is_some() {
                let missing = DecodeError::Inconsistent { what: "schema version", problem: "it is missing" };
                return Err(corrupt("the schema version", missing));
            }
            let mut batch = WriteBatch::default();
            batch.put_cf(meta, SCHEMA_KEY, SCHEMA.to_be_bytes());
            batch.put_cf(meta, INDEXING_KEY, wanted);
            batch.put_cf(meta, STATE_KEY, State::default().encode());
            if self.options.utxo_hash {
                self.put_utxo_set(&mut batch, Some(&UtxoSet::empty(true)))?;
            }
            self.write(batch)?;
            return Ok(State::default());
        };
        let found =
            schema.as_ref().try_into().map(u32::from_be_bytes).map_err(|_| {
                corrupt("the schema version", DecodeError::BadNumber { field: "schema version" })
            })?;
        if found == 0 {
            // No program ever wrote it: whatever made it so may have damaged more.
            let cause = DecodeError::UnknownValue { field: "schema version", value: 0 };
            return Err(corrupt("the schema version", cause));
        }
        if found > SCHEMA {
            let directory = self.directory.clone();
            return Err(StoreError::NewerSchema { directory, found, known: SCHEMA });
        }
        let made_with = self.get(Column::Meta, INDEXING_KEY)?;
        if made_with.as_deref() != Some(&wanted) {
            let made_with = made_with.and_then(|bytes| bytes.first().copied()).unwrap_or(0);
            let made_with = AddressIndexing { address: made_with & 1 != 0, credential: made_with & 2 != 0 };
            let problem = format!(
                "{} was made with address indexes {made_with:?}, but {indexing:?} was asked for: use the same setting, or \
                 import into a new directory",
                self.directory.display()
            );
            return Err(StoreError::BadOption { problem });
        }
        let state = self.get(Column::Meta, STATE_KEY)?.ok_or_else(|| {
            corrupt(
                "the store's state",
                DecodeError::Inconsistent { what: "state", problem: "it is missing" },
            )
        })?;
        State::decode(state).map_err(|cause| corrupt("the store's state", cause))
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
        if txids.is_empty() {
            return Ok(());
        }
        let keys = txids.iter().map(|txid| &txid.0);
        let column = self.column(Column::Tx)?;
        let found = self.db.batched_multi_get_cf_opt(column, keys, txids.is_sorted(), options);
        for (txid, value) in txids.iter().zip(found) {
            let value = value.map_err(engine_error("reading records"))?;
            page(txid, value.as_deref())?;
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
            let value = value.map_err(engine_error("reading pages"))?;
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

    /// Refuses if an earlier write failed.
    pub(crate) fn check_poison(&self) -> Result<(), StoreError> {
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

/// Takes the directory for this process. RocksDB has a lock of its own, but no error kind to tell it by.
fn take_lock(directory: &Path) -> Result<File, StoreError> {
    let failed = |error: std::io::Error| StoreError::Engine {
        doing: "locking the data directory",
        cause: format!("{}: {error}", directory.display()),
    };
    std::fs::create_dir_all(directory).map_err(failed)?;
    let path = directory.join(LOCK_FILE);
    let file = File::options().create(true).truncate(false).write(true).open(path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { directory: directory.to_owned() }),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}
