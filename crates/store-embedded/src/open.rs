//! Opening: the lock, what the store was made with, and what an older one becomes.

use std::{
    fs::{File, TryLockError},
    path::Path,
};

use bytes::Bytes;
use rocksdb::{IteratorMode, ReadOptions, WriteBatch};
use sapwood_store::{AddressIndexing, StoreError, UtxoSet, changes::spent};
use sapwood_types::{DecodeError, MasterFront, OutputPage};

use crate::{
    columns::Column,
    diagnose::RecordKey,
    engine::{Engine, corrupt, engine_error},
    state::{IDENTITY_KEY, INDEXING_KEY, SCHEMA, SCHEMA_KEY, STATE_KEY, State},
};

const LOCK_FILE: &str = "sapwood.lock";
/// A file that every RocksDB database has.
const DATABASE_FILE: &str = "CURRENT";

/// What a store is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reading and writing. One that is not there is made.
    Create,
    /// Reading and writing what is there.
    Existing,
    /// Reading what is there. Nothing in the directory changes.
    Read,
}

impl Access {
    /// Takes the directory for this process. RocksDB has a lock of its own, but no error kind to tell it by. A reader shares the
    /// lock with other readers, and needs none where there is no lock file.
    pub(crate) fn lock(self, directory: &Path) -> Result<Option<File>, StoreError> {
        let failed = |error: std::io::Error| StoreError::Engine {
            doing: "locking the data directory",
            cause: format!("{}: {error}", directory.display()),
        };
        match self {
            Access::Create => std::fs::create_dir_all(directory).map_err(failed)?,
            Access::Existing | Access::Read if directory.join(DATABASE_FILE).exists() => {}
            Access::Existing | Access::Read => {
                return Err(StoreError::NoStore { directory: directory.to_owned() });
            }
        }
        let path = directory.join(LOCK_FILE);
        let file = match self {
            Access::Create | Access::Existing => {
                File::options().create(true).truncate(false).write(true).open(path).map_err(failed)?
            }
            Access::Read => match File::open(path) {
                Ok(file) => file,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(failed(error)),
            },
        };
        let locked = if self == Access::Read { file.try_lock_shared() } else { file.try_lock() };
        match locked {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Err(StoreError::Locked { directory: directory.to_owned() }),
            // A medium without locks has no writers either.
            Err(TryLockError::Error(_)) if self == Access::Read => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

fn missing(what: &'static str) -> StoreError {
    corrupt(format!("the {what}"), DecodeError::Inconsistent { what, problem: "it is missing" })
}

impl Engine {
    /// Checks what the store was made with, or notes it in a new one. An older store is migrated.
    pub(crate) fn check_schema(&mut self) -> Result<State, StoreError> {
        let indexing = self.options.address_index;
        let wanted = [u8::from(indexing.address) | u8::from(indexing.credential) << 1];
        let Some(schema) = self.get(Column::Meta, SCHEMA_KEY)? else {
            // Only what is empty may be taken for new: else a damaged store would be written over.
            if self.access != Access::Create || self.get(Column::Meta, STATE_KEY)?.is_some() {
                return Err(missing("schema version"));
            }
            let meta = self.column(Column::Meta)?;
            let mut batch = WriteBatch::default();
            batch.put_cf(meta, SCHEMA_KEY, SCHEMA.to_be_bytes());
            batch.put_cf(meta, INDEXING_KEY, wanted);
            batch.put_cf(meta, STATE_KEY, State::default().encode());
            if let Some(identity) = &self.options.identity {
                batch.put_cf(meta, IDENTITY_KEY, identity);
            }
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
        self.check_indexing(wanted)?;
        let state = self.get(Column::Meta, STATE_KEY)?.ok_or_else(|| missing("store's state"))?;
        let state = State::decode(state).map_err(|cause| corrupt("the store's state", cause))?;
        if found < SCHEMA { self.migrate(found, state) } else { Ok(state) }
    }

    /// The address indexes are those the store was made with. A reader takes what there is.
    fn check_indexing(&mut self, wanted: [u8; 1]) -> Result<(), StoreError> {
        let made_with = self.get(Column::Meta, INDEXING_KEY)?;
        if made_with.as_deref() == Some(&wanted) {
            return Ok(());
        }
        let made_with = made_with.and_then(|bytes| bytes.first().copied()).unwrap_or(0);
        let made_with = AddressIndexing { address: made_with & 1 != 0, credential: made_with & 2 != 0 };
        if self.access == Access::Read {
            self.options.address_index = made_with;
            return Ok(());
        }
        let problem = format!(
            "{} was made with address indexes {made_with:?}, but {:?} was asked for: use the same setting, or import into a new \
             directory",
            self.directory.display(),
            self.options.address_index
        );
        Err(StoreError::BadOption { problem })
    }

    /// Schema 1 did not count spent outputs: they are counted once, from the records that are there. A reader counts each time.
    fn migrate(&self, from: u32, mut state: State) -> Result<State, StoreError> {
        let directory = self.directory.display();
        tracing::info!(%directory, from, to = SCHEMA, "the store is of an older version: it is migrated");
        state.counts.spent = self.count_spent()?;
        if self.access != Access::Read {
            let meta = self.column(Column::Meta)?;
            let mut batch = WriteBatch::default();
            batch.put_cf(meta, SCHEMA_KEY, SCHEMA.to_be_bytes());
            batch.put_cf(meta, STATE_KEY, state.encode());
            self.write(batch)?;
        }
        tracing::info!(%directory, schema = SCHEMA, spent = state.counts.spent, "the store is migrated");
        Ok(state)
    }

    fn count_spent(&self) -> Result<u64, StoreError> {
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        options.set_total_order_seek(true);
        let mut total = 0_u64;
        for entry in self.db().iterator_cf_opt(self.column(Column::Tx)?, options, IteratorMode::Start) {
            let (key, value) = entry.map_err(engine_error("counting spent outputs"))?;
            // What cannot be read is left to `verify`, which names it.
            let spent = match RecordKey::parse(&key) {
                Some(RecordKey::Master(_)) => {
                    MasterFront::decode(&value).map_or(0, |page| spent(&page.slots))
                }
                Some(RecordKey::Extra(..)) => {
                    OutputPage::decode(Bytes::from(value)).map_or(0, |page| spent(&page.slots))
                }
                None => 0,
            };
            total = total.saturating_add_signed(spent);
        }
        Ok(total)
    }

    /// The store holds the network it is opened for. One that does not say which takes the one it is opened for.
    pub(crate) fn check_identity(&mut self) -> Result<(), StoreError> {
        let found = match self.get(Column::Meta, IDENTITY_KEY)? {
            Some(bytes) => Some(String::from_utf8(bytes.to_vec()).map_err(|_| {
                let problem = "it is not text";
                corrupt("the network's identity", DecodeError::Inconsistent { what: "identity", problem })
            })?),
            None => None,
        };
        match (found, self.options.identity.clone()) {
            (Some(found), Some(wanted)) if found != wanted => {
                Err(StoreError::OtherIdentity { directory: self.directory.clone(), found, wanted })
            }
            (None, Some(wanted)) if self.access != Access::Read => {
                let mut batch = WriteBatch::default();
                batch.put_cf(self.column(Column::Meta)?, IDENTITY_KEY, &wanted);
                self.write(batch)?;
                let directory = self.directory.display();
                tracing::info!(%directory, identity = %wanted, "the store did not say which network it holds: it does now");
                self.identity = Some(wanted);
                Ok(())
            }
            (found, _) => {
                self.identity = found;
                Ok(())
            }
        }
    }

    /// Says what the engine runs with, in one line.
    pub(crate) fn log_options(&self) {
        let options = &self.options;
        let mib = |bytes: u64| bytes >> 20;
        tracing::info!(
            directory = %self.directory.display(),
            identity = self.identity.as_deref().unwrap_or("not named"),
            access = ?self.access,
            block_cache_mib = mib(options.block_cache_bytes as u64),
            record_cache_mib = mib(options.record_cache_bytes),
            mined_heights_mib = mib(options.mined_heights_bytes),
            write_buffer_mib = mib(options.write_buffer_bytes as u64),
            write_buffers = options.write_buffers,
            background_jobs = options.effective_background_jobs(),
            max_open_files = options.max_open_files,
            compression = options.compression,
            durability = ?options.durability,
            address_index = options.address_index.address,
            credential_index = options.address_index.credential,
            utxo_hash = options.utxo_hash,
            disk_reserve_mib = mib(options.disk_reserve_bytes),
            "the store is open"
        );
    }
}
