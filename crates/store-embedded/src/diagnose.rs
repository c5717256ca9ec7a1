//! Looking inside: the state's hash, the engine's figures, backups.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use rocksdb::{
    ColumnFamily, Direction, FlushOptions, IteratorMode, ReadOptions, checkpoint::Checkpoint,
    statistics::Ticker,
};
use sapwood_store::{
    Cursor, DiskRoom, EngineStats, EngineWrites, Page, StoreDiagnose, StoreError, UtxoProgress, UtxoSet,
    VerifyReport, WorkingSet, check_limit, digest::StateDigest, working_set::readable,
};
use sapwood_types::{DecodeError, Height, TxId, TxRecord};

use crate::{
    EmbeddedStore,
    columns::Column,
    engine::{Engine, corrupt, decode_extra, decode_master, engine_error},
    open::Access,
    options::Durability,
    read::Snapshot,
};

/// Figures of a column family that RocksDB keeps at hand.
const PROPERTIES: [(&str, &str); 12] = [
    ("keys_estimate", "rocksdb.estimate-num-keys"),
    ("live_data_bytes_estimate", "rocksdb.estimate-live-data-size"),
    ("sst_bytes", "rocksdb.total-sst-files-size"),
    ("live_sst_bytes", "rocksdb.live-sst-files-size"),
    ("memtable_bytes", "rocksdb.cur-size-all-mem-tables"),
    ("memtable_entries", "rocksdb.num-entries-active-mem-table"),
    ("immutable_memtables", "rocksdb.num-immutable-mem-table"),
    ("level0_files", "rocksdb.num-files-at-level0"),
    ("pending_compaction_bytes", "rocksdb.estimate-pending-compaction-bytes"),
    ("running_compactions", "rocksdb.num-running-compactions"),
    ("running_flushes", "rocksdb.num-running-flushes"),
    ("background_errors", "rocksdb.background-errors"),
];

/// What a key of the record family names.
pub(crate) enum RecordKey {
    Master(TxId),
    Extra(TxId, u32),
}

impl RecordKey {
    pub(crate) fn parse(key: &[u8]) -> Option<Self> {
        let (txid, number) = key.split_first_chunk::<32>()?;
        if number.is_empty() {
            return Some(RecordKey::Master(TxId(*txid)));
        }
        number.try_into().ok().map(|number| RecordKey::Extra(TxId(*txid), u32::from_be_bytes(number)))
    }
}

impl Engine {
    /// A hash of everything, taken while nobody writes.
    fn state_digest(&self) -> Result<[u8; 32], StoreError> {
        let writer = self.writer.lock();
        let state = writer.state.clone();
        let snapshot = self.db().snapshot();
        drop(writer);
        let options = || {
            let mut options = ReadOptions::default();
            options.set_snapshot(&snapshot);
            options.fill_cache(false);
            options
        };
        // Spenders are forgotten only at or below the floor. Unlike the height they are forgotten at, it depends neither on the
        // policy of the moment nor on how far the chain had got before it was rolled back.
        let mut digest = StateDigest::new(state.floor());
        for entry in self.db().iterator_cf_opt(self.column(Column::Tx)?, options(), IteratorMode::Start) {
            let (key, value) = entry.map_err(engine_error("reading all records"))?;
            match RecordKey::parse(&key) {
                Some(RecordKey::Master(txid)) => {
                    digest.master(&txid, decode_master(&txid, Bytes::from(value))?)
                }
                Some(RecordKey::Extra(txid, number)) => {
                    digest.extra(decode_extra(&txid, number, Bytes::from(value))?);
                }
                None => return Err(corrupt("a record's key", DecodeError::BadNumber { field: "key" })),
            }
        }
        let mut undo_heights = Vec::new();
        for entry in self.db().iterator_cf_opt(self.column(Column::Undo)?, options(), IteratorMode::Start) {
            let (key, _) = entry.map_err(engine_error("reading all undo records"))?;
            let height = key.as_ref().try_into().map(u32::from_be_bytes);
            undo_heights.extend(height.ok().map(Height));
        }
        Ok(digest.finish(
            state.last(),
            state.floor(),
            state.greatest_block_id,
            state.prune_cursor,
            undo_heights,
        ))
    }

    fn records(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<TxRecord>, StoreError> {
        check_limit(limit)?;
        let snapshot = Snapshot::new(self);
        let mut options = ReadOptions::default();
        snapshot.pin(&mut options);
        options.fill_cache(false);
        options.set_total_order_seek(true);
        // Behind the further pages of the last record shown.
        let from = after.map(|cursor| [&cursor.0[..], &[0xff; 5]].concat()).unwrap_or_default();
        let mode = IteratorMode::From(&from, Direction::Forward);
        let (mut txids, mut more) = (Vec::new(), false);
        for entry in self.db().iterator_cf_opt(self.column(Column::Tx)?, options, mode) {
            let (key, _) = entry.map_err(engine_error("listing all records"))?;
            match RecordKey::parse(&key) {
                Some(RecordKey::Master(_)) if txids.len() == limit => {
                    more = true;
                    break;
                }
                Some(RecordKey::Master(txid)) => txids.push(txid),
                Some(RecordKey::Extra(..)) => {}
                None => return Err(corrupt("a record's key", DecodeError::BadNumber { field: "key" })),
            }
        }
        let next = txids.last().filter(|_| more).map(|txid| Cursor(Bytes::copy_from_slice(&txid.0)));
        let mut set = WorkingSet::new(&snapshot);
        readable(set.load_all_pages(&txids))?;
        let mut page = Page::new(Vec::with_capacity(txids.len()), next);
        for txid in txids {
            page.add(txid, set.record(txid))?;
        }
        Ok(page)
    }

    fn engine_stats(&self, part: Option<&str>) -> Result<Vec<EngineStats>, StoreError> {
        let wanted: Vec<Column> =
            Column::ALL.into_iter().filter(|column| part.is_none_or(|part| part == column.name())).collect();
        if wanted.is_empty() {
            let names: Vec<&str> = Column::ALL.into_iter().map(Column::name).collect();
            let problem = format!(
                "there is no part {:?}: the parts are {}",
                part.unwrap_or_default(),
                names.join(", ")
            );
            return Err(StoreError::BadOption { problem });
        }
        wanted.into_iter().map(|column| self.column_stats(column)).collect()
    }

    fn column_stats(&self, column: Column) -> Result<EngineStats, StoreError> {
        let family = self.column(column)?;
        let mut figures = BTreeMap::new();
        for (name, property) in PROPERTIES {
            let value =
                self.db().property_int_value_cf(family, property).map_err(engine_error("reading figures"))?;
            figures.extend(value.map(|value| (name.to_owned(), value)));
        }
        let text =
            self.db().property_value_cf(family, "rocksdb.stats").map_err(engine_error("reading figures"))?;
        Ok(EngineStats { part: column.name().to_owned(), figures, text: text.unwrap_or_default() })
    }

    /// What the engine wrote since it was opened, by its own counters.
    fn engine_writes(&self) -> EngineWrites {
        let count = |ticker| self.database.get_ticker_count(ticker);
        EngineWrites {
            applied_bytes: count(Ticker::BytesWritten),
            log_bytes: count(Ticker::WalFileBytes),
            log_syncs: count(Ticker::WalFileSynced),
            flush_bytes: count(Ticker::FlushWriteBytes),
            compaction_bytes: count(Ticker::CompactWriteBytes),
            compaction_read_bytes: count(Ticker::CompactReadBytes),
        }
    }

    fn disk_room(&self) -> Result<DiskRoom, StoreError> {
        let found = rustix::fs::statvfs(&self.directory).map_err(|error| StoreError::Engine {
            doing: "asking for the room on the disk",
            cause: format!("{}: {error}", self.directory.display()),
        })?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(DiskRoom {
            free_bytes: bytes(found.f_bavail),
            total_bytes: bytes(found.f_blocks),
            reserve_bytes: self.options.disk_reserve_bytes,
        })
    }

    /// Refuses to take more in while the disk is nearly full. What the disk does not tell stops nothing.
    pub(crate) fn check_room(&self) -> Result<(), StoreError> {
        if self.options.disk_reserve_bytes == 0 {
            return Ok(());
        }
        match self.disk_room() {
            Ok(room) if room.is_short() => Err(StoreError::NoRoom {
                directory: self.directory.clone(),
                free_bytes: room.free_bytes,
                reserve_bytes: room.reserve_bytes,
            }),
            _ => Ok(()),
        }
    }

    pub(crate) fn settle_disk(&self) -> Result<(), StoreError> {
        self.flush()?;
        let options = rocksdb::WaitForCompactOptions::default();
        self.db().wait_for_compact(&options).map_err(engine_error("waiting for compactions"))
    }

    /// Writes out all that is only in memory. While others write there may be something again when it returns.
    ///
    /// RocksDB's own wait for a flush of several families at once can end before the flush does: it seems to wait for each family by
    /// another one's memtable. So it is asked whether anything is left.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        let families =
            Column::ALL.into_iter().map(|column| self.column(column)).collect::<Result<Vec<_>, _>>()?;
        // All in one go: without a log, a crash between one family's flush and another's would tear them apart.
        self.db().flush_cfs_opt(&families, &FlushOptions::default()).map_err(engine_error("flushing"))?;
        let waiting = |family: &ColumnFamily| {
            let immutable = self.db().property_int_value_cf(family, "rocksdb.num-immutable-mem-table");
            immutable.map(|number| number.unwrap_or(0) > 0).map_err(engine_error("reading figures"))
        };
        for family in families {
            while waiting(family)? {
                self.check_engine()?;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// Whether the engine has given up writing in the background.
    fn check_engine(&self) -> Result<(), StoreError> {
        let errors = self.db().property_int_value("rocksdb.background-errors");
        match errors.map_err(engine_error("reading figures"))? {
            Some(1..) => {
                Err(StoreError::Engine { doing: "flushing", cause: "it failed in the background".into() })
            }
            _ => Ok(()),
        }
    }

    fn checkpoint(&self, directory: &Path) -> Result<(), StoreError> {
        if directory.exists() {
            let problem =
                format!("{} exists already: a copy is written to a new directory", directory.display());
            return Err(StoreError::BadOption { problem });
        }
        if self.access == Access::Read {
            return Err(StoreError::ReadOnly { directory: self.directory.clone() });
        }
        let without_log = self.options.durability == Durability::CleanStopOnly;
        // Without a log the copy is what has been flushed, and that has to be all.
        let _no_writes = without_log.then(|| self.writer.lock());
        if without_log {
            self.flush()?;
        }
        let checkpoint = Checkpoint::new(self.db()).map_err(engine_error("preparing a copy"))?;
        checkpoint.create_checkpoint(directory).map_err(engine_error("writing a copy"))
    }
}

#[async_trait]
impl StoreDiagnose for EmbeddedStore {
    async fn state_digest(&self) -> Result<[u8; 32], StoreError> {
        self.run(Engine::state_digest).await?
    }

    async fn records(&self, after: Option<Cursor>, limit: usize) -> Result<Page<TxRecord>, StoreError> {
        self.run(move |engine| engine.records(after.as_ref(), limit)).await?
    }

    async fn verify(
        &self,
        progress: Arc<dyn Fn(u64, u64) + Send + Sync>,
    ) -> Result<VerifyReport, StoreError> {
        self.run(move |engine| engine.verify(progress.as_ref())).await?
    }

    async fn writable(&self) -> Result<(), StoreError> {
        self.engine.check_poison()
    }

    async fn utxo_set(&self, with_hash: bool, progress: UtxoProgress) -> Result<UtxoSet, StoreError> {
        self.counted_utxo_set(with_hash, progress).await
    }

    fn engine_kind(&self) -> &'static str {
        "rocksdb"
    }

    async fn engine_stats(&self, part: Option<String>) -> Result<Vec<EngineStats>, StoreError> {
        self.run(move |engine| engine.engine_stats(part.as_deref())).await?
    }

    async fn engine_writes(&self) -> Result<Option<EngineWrites>, StoreError> {
        Ok(Some(self.engine.engine_writes()))
    }

    async fn disk_room(&self) -> Result<Option<DiskRoom>, StoreError> {
        self.run(|engine| engine.disk_room().map(Some)).await?
    }

    async fn checkpoint(&self, directory: &Path) -> Result<(), StoreError> {
        let directory = directory.to_owned();
        self.run(move |engine| engine.checkpoint(&directory)).await?
    }
}
