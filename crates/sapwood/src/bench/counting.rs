//! An engine that counts what the ledger asks of it.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use sapwood_ledger::engine::{
    Capabilities, DiskSpace, EachRow, EachValue, Engine, EngineError, EngineStats, EngineWrites, Maintenance,
    Scan, Table, View, WriteSet,
};

/// What was asked of an engine so far.
#[derive(Debug, Default)]
pub(super) struct Asked {
    rows_written: AtomicU64,
    bytes_written: AtomicU64,
    records_read: AtomicU64,
}

/// What was asked of an engine up to some moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AskedSoFar {
    /// Rows that were put or deleted.
    pub(super) rows_written: u64,
    /// Bytes of these rows.
    pub(super) bytes_written: u64,
    /// Records that were looked for, found or not.
    pub(super) records_read: u64,
}

impl Asked {
    pub(super) fn so_far(&self) -> AskedSoFar {
        AskedSoFar {
            rows_written: self.rows_written.load(Ordering::Relaxed),
            bytes_written: self.bytes_written.load(Ordering::Relaxed),
            records_read: self.records_read.load(Ordering::Relaxed),
        }
    }
}

impl AskedSoFar {
    /// Returns what was asked since an earlier moment.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            rows_written: self.rows_written - earlier.rows_written,
            bytes_written: self.bytes_written - earlier.bytes_written,
            records_read: self.records_read - earlier.records_read,
        }
    }
}

/// Counts what goes through to another engine.
pub(super) struct CountingEngine<E> {
    pub(super) engine: E,
    pub(super) asked: Arc<Asked>,
}

impl<E: Engine> Engine for CountingEngine<E> {
    fn kind(&self) -> &'static str {
        self.engine.kind()
    }

    fn place(&self) -> String {
        self.engine.place()
    }

    fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    fn position(&self) -> Result<u64, EngineError> {
        self.engine.position()
    }

    fn view(&self) -> Result<Box<dyn View + '_>, EngineError> {
        Ok(Box::new(CountingView { view: self.engine.view()?, asked: &self.asked }))
    }

    fn commit(&self, writes: &WriteSet) -> Result<(), EngineError> {
        self.asked.rows_written.fetch_add(writes.len(), Ordering::Relaxed);
        self.asked.bytes_written.fetch_add(writes.bytes() as u64, Ordering::Relaxed);
        self.engine.commit(writes)
    }

    fn stats(&self, table: Option<Table>) -> Result<EngineStats, EngineError> {
        self.engine.stats(table)
    }

    fn writes(&self) -> Option<EngineWrites> {
        self.engine.writes()
    }

    fn disk_space(&self) -> Result<Option<DiskSpace>, EngineError> {
        self.engine.disk_space()
    }

    fn maintain(&self, work: Maintenance) -> Result<(), EngineError> {
        self.engine.maintain(work)
    }

    fn backup(&self, directory: &Path) -> Result<(), EngineError> {
        self.engine.backup(directory)
    }
}

struct CountingView<'a> {
    view: Box<dyn View + 'a>,
    asked: &'a Asked,
}

impl View for CountingView<'_> {
    fn get_many(&self, table: Table, keys: &[&[u8]], each: &mut EachValue<'_>) -> Result<(), EngineError> {
        if table == Table::Tx {
            self.asked.records_read.fetch_add(keys.len() as u64, Ordering::Relaxed);
        }
        self.view.get_many(table, keys, each)
    }

    fn scan(&self, scan: &Scan, row: &mut EachRow<'_>) -> Result<(), EngineError> {
        self.view.scan(scan, row)
    }
}
