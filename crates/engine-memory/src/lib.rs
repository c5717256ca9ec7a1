//! An engine that keeps its rows in memory.
//!
//! **What lives here.** [`MemoryEngine`]: ordered tables with snapshots, and [`FailPoint`]s that make a commit fail or stop. Tests of the
//! ledger run on it in milliseconds, and every engine is compared with it. **What may not.** Anything about records; durability.
//!
//! # Correctness
//! Each row keeps the versions that a live view can still see, tagged with the number of the commit that wrote them. A view reads the newest
//! version up to its number. A commit takes the lock once, so a view sees all of it or nothing. Rows survive the engine: [`MemoryEngine::reopen`]
//! gives a second engine over the same rows, as a restart of the process would.

mod faults;
mod rows;

use std::{ops::ControlFlow, path::Path, sync::Arc};

use parking_lot::RwLock;
use sapwood_ledger::engine::{
    Capabilities, DamagedRange, DamagedRow, EachDamage, EachRow, EachValue, Engine, EngineError, EngineStats,
    Maintenance, RowChange, Scan, Support, Table, TableStats, View, WriteSet,
};

pub use self::faults::FailPoint;
use self::{faults::Faults, rows::Rows};

/// Rows of a scan that are copied under one lock.
const SCAN_CHUNK: usize = 256;

/// An engine in memory.
#[derive(Default)]
pub struct MemoryEngine {
    rows: Arc<RwLock<Rows>>,
    faults: Faults,
    is_read_only: bool,
}

impl MemoryEngine {
    /// Creates an engine without rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an engine without rows whose connection is lost at three of five commits, as that of a server far away may be.
    pub fn unreliable() -> Self {
        Self { faults: Faults::unreliable(), ..Self::default() }
    }

    /// Opens the same rows again, as another process would after this one ended. No commit fails that was to fail.
    pub fn reopen(&self) -> Self {
        Self { rows: Arc::clone(&self.rows), faults: self.faults.reopened(), is_read_only: false }
    }

    /// Opens the same rows again for reading only.
    pub fn reopen_read_only(&self) -> Self {
        Self { is_read_only: true, ..self.reopen() }
    }

    /// Makes the commit with this number fail, however often it is attempted.
    pub fn fail_at(&self, number: u64, point: FailPoint) {
        let cause = format!("{point:?} of write {number}");
        self.fail_with(number, point, EngineError::Failed { doing: "committing", cause }, u32::MAX);
    }

    /// Makes the commit with this number fail with an error at the first `times` attempts.
    pub fn fail_with(&self, number: u64, point: FailPoint, error: EngineError, times: u32) {
        self.faults.plan(number, point, error, times);
    }

    /// Replaces the value of a row, or deletes it, outside of any commit: damage for tests.
    pub fn damage(&self, table: Table, key: &[u8], value: Option<&[u8]>) {
        self.rows.write().overwrite(table, key, value);
    }

    /// Makes a row unreadable, as a block with a wrong checksum would, until it is written again.
    pub fn break_row(&self, table: Table, key: &[u8]) {
        self.rows.write().break_row(table, key);
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
        let write = if self.is_read_only { Support::No("it is open for reading only") } else { Support::Yes };
        Capabilities { write, backup: Support::No("its rows end with the process") }
    }

    fn position(&self) -> Result<u64, EngineError> {
        Ok(self.rows.read().position())
    }

    fn view(&self) -> Result<Box<dyn View + '_>, EngineError> {
        let number = self.rows.write().pin();
        Ok(Box::new(MemoryView { rows: &self.rows, number }))
    }

    fn commit(&self, writes: &WriteSet) -> Result<(), EngineError> {
        if self.is_read_only {
            return Err(EngineError::ReadOnly { place: self.place() });
        }
        let attempt = self.faults.before(writes.number)?;
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
        attempt.after()
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
        for (index, value) in found.into_iter().enumerate() {
            match value {
                Ok(value) => each(index, Ok(value.as_deref())),
                Err(damaged) => each(index, Err(damaged)),
            }
        }
        Ok(())
    }

    fn scan(&self, scan: &Scan, row: &mut EachRow<'_>) -> Result<(), EngineError> {
        let mut failed = None;
        self.visit(scan, &mut |key, value| match value {
            Ok(value) => row(key, value),
            Err(damaged) => {
                failed = Some(damaged.cause.clone());
                ControlFlow::Break(())
            }
        });
        let doing = "reading a range of rows";
        failed.map_or(Ok(()), |cause| Err(EngineError::Failed { doing, cause }))
    }

    fn scan_past_damage(
        &self,
        scan: &Scan,
        row: &mut EachRow<'_>,
        damage: &mut EachDamage<'_>,
    ) -> Result<(), EngineError> {
        let (mut last, mut cause): (Option<Vec<u8>>, Option<String>) = (None, None);
        self.visit(scan, &mut |key, value| match value {
            Ok(value) => {
                if let Some(cause) = cause.take() {
                    damage(DamagedRange { after: last.take(), before: Some(key.to_vec()), cause });
                }
                last = Some(key.to_vec());
                row(key, value)
            }
            Err(damaged) => {
                cause.get_or_insert_with(|| damaged.cause.clone());
                ControlFlow::Continue(())
            }
        });
        if let Some(cause) = cause {
            damage(DamagedRange { after: last, before: None, cause });
        }
        Ok(())
    }
}

/// Called with a row that may be damaged. Breaks to end.
type EachRead<'a> = dyn FnMut(&[u8], Result<&[u8], &DamagedRow>) -> ControlFlow<()> + 'a;

impl MemoryView<'_> {
    /// Visits the rows of a range, a chunk at a time. `each` runs without the lock.
    fn visit(&self, scan: &Scan, each: &mut EachRead<'_>) {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let chunk = self.rows.read().range(self.number, scan, after.as_deref(), SCAN_CHUNK);
            for (key, value) in &chunk {
                if each(key, value.as_deref()).is_break() {
                    return;
                }
            }
            if chunk.len() < SCAN_CHUNK {
                return;
            }
            after = chunk.into_iter().next_back().map(|(key, _)| key);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests: to panic is how they fail")]
mod tests {
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
