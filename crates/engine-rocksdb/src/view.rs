//! Reading from a snapshot.

use rocksdb::{Direction, ErrorKind, IteratorMode, ReadOptions, Snapshot};
use sapwood_ledger::engine::{DamagedRow, EachRow, EachValue, EngineError, Scan, Table, View};

use crate::{RocksEngine, failed};

/// A RocksDB snapshot.
pub(crate) struct RocksView<'a> {
    engine: &'a RocksEngine,
    snapshot: Snapshot<'a>,
}

impl<'a> RocksView<'a> {
    pub(crate) fn new(engine: &'a RocksEngine) -> Self {
        Self { engine, snapshot: engine.db().snapshot() }
    }

    fn options(&self) -> ReadOptions {
        let mut options = ReadOptions::default();
        options.set_snapshot(&self.snapshot);
        options
    }
}

impl View for RocksView<'_> {
    fn get_many(&self, table: Table, keys: &[&[u8]], each: &mut EachValue<'_>) -> Result<(), EngineError> {
        if keys.is_empty() {
            return Ok(());
        }
        let family = self.engine.family(table)?;
        let found =
            self.engine.db().batched_multi_get_cf_opt(family, keys, keys.is_sorted(), &self.options());
        for (index, value) in found.into_iter().enumerate() {
            match value {
                Ok(value) => each(index, Ok(value.as_deref())),
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    each(index, Err(DamagedRow { cause: error.to_string() }));
                }
                Err(error) => return Err(failed("reading rows")(error)),
            }
        }
        Ok(())
    }

    fn scan(&self, scan: &Scan, row: &mut EachRow<'_>) -> Result<(), EngineError> {
        let mut options = self.options();
        options.fill_cache(scan.fill_cache);
        options.set_total_order_seek(true);
        options.set_iterate_lower_bound(scan.from);
        if let Some(to) = scan.to {
            options.set_iterate_upper_bound(to);
        }
        let mode = match (scan.reverse, scan.to) {
            (false, _) => IteratorMode::From(scan.from, Direction::Forward),
            (true, Some(to)) => IteratorMode::From(to, Direction::Reverse),
            (true, None) => IteratorMode::End,
        };
        let mut rows = self.engine.db().raw_iterator_cf_opt(self.engine.family(scan.table)?, options);
        match mode {
            IteratorMode::From(from, Direction::Forward) => rows.seek(from),
            // The upper bound is excluded by the iterator itself.
            IteratorMode::From(to, Direction::Reverse) => rows.seek_for_prev(to),
            IteratorMode::Start => rows.seek_to_first(),
            IteratorMode::End => rows.seek_to_last(),
        }
        while let Some((key, value)) = rows.item() {
            if row(key, value).is_break() {
                return Ok(());
            }
            if scan.reverse { rows.prev() } else { rows.next() }
        }
        rows.status().map_err(failed("reading a range of rows"))
    }
}
