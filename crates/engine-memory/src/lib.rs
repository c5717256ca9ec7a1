//! An engine that keeps its rows in memory.
//!
//! **What lives here.** [`MemoryEngine`]: ordered tables with snapshots, and [`FailPoint`]s that make a commit fail or stop. Tests of the
//! ledger run on it in milliseconds, and every engine is compared with it. **What may not.** Anything about records; durability.
//!
//! # Correctness
//! Each row keeps the versions that a live view can still see, tagged with the number of the commit that wrote them. A view reads the newest
//! version up to its number. A commit takes the lock once, so a view sees all of it or nothing. Rows survive the engine: [`MemoryEngine::reopen`]
//! gives a second engine over the same rows, as a restart of the process would.

mod rows;

use std::{path::Path, sync::Arc};

use parking_lot::{Mutex, RwLock};
use sapwood_ledger::engine::{
    Capabilities, EachRow, EachValue, Engine, EngineError, EngineStats, Maintenance, RowChange, Scan,
    Support, Table, TableStats, View, WriteSet,
};

use self::rows::Rows;

/// Rows of a scan that are copied under one lock.
const SCAN_CHUNK: usize = 256;

/// What happens to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailPoint {
    /// Fails before anything is written.
    BeforeCommit,
    /// Fails after everything is written: the caller cannot know.
    AfterCommit,
}

/// An engine in memory.
#[derive(Default)]
pub struct MemoryEngine {
    rows: Arc<RwLock<Rows>>,
    fail_at: Mutex<Option<(u64, FailPoint)>>,
}

impl MemoryEngine {
    /// Creates an engine without rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the same rows again, as another process would after this one ended.
    pub fn reopen(&self) -> Self {
        Self { rows: Arc::clone(&self.rows), fail_at: Mutex::default() }
    }

    /// Makes the commit with this number fail.
    pub fn fail_at(&self, number: u64, point: FailPoint) {
        *self.fail_at.lock() = Some((number, point));
    }

    /// Replaces the value of a row, or deletes it, outside of any commit: damage for tests.
    pub fn damage(&self, table: Table, key: &[u8], value: Option<&[u8]>) {
        self.rows.write().overwrite(table, key, value);
    }

    fn fails(&self, number: u64, at: FailPoint) -> Result<(), EngineError> {
        match *self.fail_at.lock() {
            Some(point) if point == (number, at) => {
                Err(EngineError::Failed { doing: "committing", cause: format!("{at:?} of write {number}") })
            }
            _ => Ok(()),
        }
    }
}

impl Engine for MemoryEngine {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn place(&self) -> String {
        "memory".into()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { write: Support::Yes, backup: Support::No("its rows end with the process") }
    }

    fn position(&self) -> Result<u64, EngineError> {
        Ok(self.rows.read().position())
    }

    fn view(&self) -> Result<Box<dyn View + '_>, EngineError> {
        let number = self.rows.write().pin();
        Ok(Box::new(MemoryView { rows: &self.rows, number }))
    }

    fn commit(&self, writes: &WriteSet) -> Result<(), EngineError> {
        self.fails(writes.number, FailPoint::BeforeCommit)?;
        let mut rows = self.rows.write();
        let (number, position) = (writes.number, rows.position());
        if position.checked_add(1) != Some(number) {
            return Err(EngineError::WrongNumber { number, position });
        }
        for change in writes.iter() {
            match change {
                RowChange::Put { table, key, value } => rows.set(number, table, key, Some(value)),
                RowChange::Delete { table, key } => rows.set(number, table, key, None),
                RowChange::DeleteRange { table, from, to } => rows.delete_range(number, table, from, to),
            }
        }
        rows.committed(number);
        drop(rows);
        self.fails(number, FailPoint::AfterCommit)
    }

    fn stats(&self, table: Option<Table>) -> Result<EngineStats, EngineError> {
        let rows = self.rows.read();
        let wanted = Table::ALL.into_iter().filter(|each| table.is_none_or(|table| table == *each));
        let stats = |table| {
            let (rows, bytes) = rows.size(table);
            TableStats {
                table,
                disk_bytes: 0,
                memory_bytes: bytes,
                rows,
                details: Default::default(),
                text: String::new(),
            }
        };
        Ok(EngineStats { tables: wanted.map(stats).collect() })
    }

    fn maintain(&self, _: Maintenance) -> Result<(), EngineError> {
        Ok(())
    }

    fn backup(&self, _: &Path) -> Result<(), EngineError> {
        let reason = "its rows end with the process";
        Err(EngineError::Unsupported { what: "backup", kind: self.kind(), reason })
    }
}

/// The rows as of one commit. They stay until it is dropped.
struct MemoryView<'a> {
    rows: &'a RwLock<Rows>,
    number: u64,
}

impl Drop for MemoryView<'_> {
    fn drop(&mut self) {
        self.rows.write().unpin(self.number);
    }
}

impl View for MemoryView<'_> {
    fn get_many(&self, table: Table, keys: &[&[u8]], each: &mut EachValue<'_>) -> Result<(), EngineError> {
        // Values are shared, not copied, and `each` runs without the lock: it may read again.
        let found: Vec<_> = {
            let rows = self.rows.read();
            keys.iter().map(|key| rows.get(self.number, table, key)).collect()
        };
        for (index, value) in found.iter().enumerate() {
            each(index, Ok(value.as_deref()));
        }
        Ok(())
    }

    fn scan(&self, scan: &Scan, row: &mut EachRow<'_>) -> Result<(), EngineError> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let chunk = self.rows.read().range(self.number, scan, after.as_deref(), SCAN_CHUNK);
            for (key, value) in &chunk {
                if row(key, value).is_break() {
                    return Ok(());
                }
            }
            if chunk.len() < SCAN_CHUNK {
                return Ok(());
            }
            after = chunk.into_iter().next_back().map(|(key, _)| key);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests: to panic is how they fail")]
mod tests {
    use std::ops::ControlFlow;

    use super::*;

    fn put(number: u64, key: &[u8], value: &[u8]) -> WriteSet {
        let mut writes = WriteSet::new(number);
        writes.put(Table::Tx, key, value);
        writes
    }

    fn get(view: &dyn View, key: &[u8]) -> Option<Vec<u8>> {
        let mut found = None;
        view.get_many(Table::Tx, &[key], &mut |_, value| found = value.unwrap().map(<[u8]>::to_vec)).unwrap();
        found
    }

    fn keys(view: &dyn View, scan: &Scan) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let collect = &mut |key: &[u8], _: &[u8]| {
            keys.push(key.to_vec());
            ControlFlow::Continue(())
        };
        view.scan(scan, collect).unwrap();
        keys
    }

    #[test]
    fn view_does_not_change_under_later_commits() {
        let engine = MemoryEngine::new();
        engine.commit(&put(1, b"a", b"one")).unwrap();
        let before = engine.view().unwrap();
        engine.commit(&put(2, b"a", b"two")).unwrap();
        let mut range = WriteSet::new(3);
        range.delete_range(Table::Tx, b"a", b"b");
        engine.commit(&range).unwrap();
        assert_eq!(get(&*before, b"a"), Some(b"one".to_vec()));
        assert_eq!(keys(&*before, &Scan::all(Table::Tx)), [b"a"]);
        assert_eq!(get(&*engine.view().unwrap(), b"a"), None);
        drop(before);
        engine.commit(&put(4, b"b", b"")).unwrap();
        assert_eq!(engine.stats(Some(Table::Tx)).unwrap().tables[0].rows, 1, "old versions are dropped");
    }

    #[test]
    fn commit_that_does_not_follow_the_last_is_refused() {
        let engine = MemoryEngine::new();
        engine.commit(&put(1, b"a", b"one")).unwrap();
        for number in [0, 1, 3, u64::MAX] {
            let refused = EngineError::WrongNumber { number, position: 1 };
            assert_eq!(engine.commit(&put(number, b"a", b"two")), Err(refused));
        }
        assert_eq!(get(&*engine.view().unwrap(), b"a"), Some(b"one".to_vec()));
    }

    #[test]
    fn scan_keeps_to_its_range_and_order_across_chunks() {
        let engine = MemoryEngine::new();
        let mut writes = WriteSet::new(1);
        let all: Vec<[u8; 2]> = (0..700_u16).map(u16::to_be_bytes).collect();
        all.iter().for_each(|key| writes.put(Table::Due, key, key));
        engine.commit(&writes).unwrap();
        let view = engine.view().unwrap();
        let (from, to) = (3_u16.to_be_bytes(), 650_u16.to_be_bytes());
        let scan =
            |reverse| Scan { table: Table::Due, from: &from, to: Some(&to), reverse, fill_cache: true };
        let expected: Vec<Vec<u8>> = all[3..650].iter().map(|key| key.to_vec()).collect();
        assert_eq!(keys(&*view, &scan(false)), expected);
        assert_eq!(keys(&*view, &scan(true)), expected.into_iter().rev().collect::<Vec<_>>());
        assert_eq!(keys(&*view, &Scan::all(Table::Due)).len(), 700);
    }

    #[test]
    fn failed_commit_leaves_what_its_point_says() {
        for (point, written) in [(FailPoint::BeforeCommit, None), (FailPoint::AfterCommit, Some(b"one"))] {
            let engine = MemoryEngine::new();
            engine.fail_at(1, point);
            engine.commit(&put(1, b"a", b"one")).unwrap_err();
            let again = engine.reopen();
            assert_eq!(get(&*again.view().unwrap(), b"a").as_deref(), written.map(|value| &value[..]));
            assert_eq!(again.position(), Ok(u64::from(written.is_some())));
        }
    }
}
