//! Statistics, and waiting for background work.

use std::{collections::BTreeMap, time::Duration};

use rocksdb::{ColumnFamily, FlushOptions, Options, statistics::Ticker};
use sapwood_ledger::engine::{EngineError, EngineWrites, Table, TableStats};

use crate::{RocksEngine, failed};

const ROWS: &str = "rocksdb.estimate-num-keys";
const DISK: &str = "rocksdb.total-sst-files-size";
const MEMORY: &str = "rocksdb.cur-size-all-mem-tables";
const IMMUTABLE: &str = "rocksdb.num-immutable-mem-table";

/// Properties of a column family that RocksDB keeps in memory, with the names they are shown under.
const DETAILS: [(&str, &str); 9] = [
    ("live_data_bytes_estimate", "rocksdb.estimate-live-data-size"),
    ("live_sst_bytes", "rocksdb.live-sst-files-size"),
    ("memtable_entries", "rocksdb.num-entries-active-mem-table"),
    ("immutable_memtables", IMMUTABLE),
    ("level0_files", "rocksdb.num-files-at-level0"),
    ("pending_compaction_bytes", "rocksdb.estimate-pending-compaction-bytes"),
    ("running_compactions", "rocksdb.num-running-compactions"),
    ("running_flushes", "rocksdb.num-running-flushes"),
    ("background_errors", "rocksdb.background-errors"),
];

/// Reads the counters of a database.
pub(crate) fn writes(database: &Options) -> EngineWrites {
    let count = |ticker| database.get_ticker_count(ticker);
    EngineWrites {
        applied_bytes: count(Ticker::BytesWritten),
        log_bytes: count(Ticker::WalFileBytes),
        log_syncs: count(Ticker::WalFileSynced),
        flush_bytes: count(Ticker::FlushWriteBytes),
        compaction_bytes: count(Ticker::CompactWriteBytes),
        compaction_read_bytes: count(Ticker::CompactReadBytes),
    }
}

impl RocksEngine {
    pub(crate) fn table_stats(&self, table: Table) -> Result<TableStats, EngineError> {
        let family = self.family(table)?;
        let mut details = BTreeMap::new();
        for (name, property) in DETAILS {
            details.extend(self.property(family, property)?.map(|value| (name.to_owned(), value)));
        }
        let text =
            self.db().property_value_cf(family, "rocksdb.stats").map_err(failed("reading statistics"))?;
        Ok(TableStats {
            table,
            disk_bytes: self.property(family, DISK)?.unwrap_or(0),
            memory_bytes: self.property(family, MEMORY)?.unwrap_or(0),
            rows: self.property(family, ROWS)?.unwrap_or(0),
            details,
            text: text.unwrap_or_default(),
        })
    }

    fn property(&self, family: &ColumnFamily, name: &str) -> Result<Option<u64>, EngineError> {
        self.db().property_int_value_cf(family, name).map_err(failed("reading statistics"))
    }

    /// Writes out all that is only in memory. While others write there may be something again when it returns.
    ///
    /// RocksDB's own wait for a flush of several families at once can end before the flush does: it seems to wait for each family by
    /// another one's memtable. So it is asked whether anything is left.
    pub(crate) fn flush(&self) -> Result<(), EngineError> {
        let families =
            Table::ALL.into_iter().map(|table| self.family(table)).collect::<Result<Vec<_>, _>>()?;
        // All in one go: without a log, a crash between one family's flush and another's would tear them apart.
        self.db().flush_cfs_opt(&families, &FlushOptions::default()).map_err(failed("flushing"))?;
        for family in families {
            while self.property(family, IMMUTABLE)?.unwrap_or(0) > 0 {
                self.check_background()?;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// Fails if the engine has given up writing in the background.
    fn check_background(&self) -> Result<(), EngineError> {
        let errors = self.db().property_int_value("rocksdb.background-errors");
        match errors.map_err(failed("reading statistics"))? {
            Some(1..) => {
                Err(EngineError::Failed { doing: "flushing", cause: "it failed in the background".into() })
            }
            _ => Ok(()),
        }
    }
}
