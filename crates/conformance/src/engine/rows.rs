//! Short words for what cases do with an engine.

use std::ops::ControlFlow;

use sapwood_ledger::engine::{Engine, Scan, Table, View, WriteSet};

/// A row.
pub(super) type Row = (Vec<u8>, Vec<u8>);

/// Commits changes under the next number.
pub(super) fn commit(engine: &dyn Engine, changes: impl FnOnce(&mut WriteSet)) {
    let mut writes = WriteSet::new(engine.position().expect("the position") + 1);
    changes(&mut writes);
    engine.commit(&writes).expect("a commit");
}

/// Reads rows by their keys, each of which must be readable.
pub(super) fn get_many(view: &dyn View, table: Table, keys: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
    let mut found = Vec::new();
    let mut next = 0;
    let each = &mut |index: usize, value: Result<Option<&[u8]>, _>| {
        assert_eq!(index, next, "values come in the order of their keys");
        next += 1;
        found.push(value.expect("a readable row").map(<[u8]>::to_vec));
    };
    view.get_many(table, keys, each).expect("reading rows");
    assert_eq!(found.len(), keys.len(), "each key is answered once");
    found
}

/// Reads one row.
pub(super) fn get(view: &dyn View, table: Table, key: &[u8]) -> Option<Vec<u8>> {
    get_many(view, table, &[key]).remove(0)
}

/// Reads a range of rows.
pub(super) fn scan(view: &dyn View, scan: &Scan<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    let collect = &mut |key: &[u8], value: &[u8]| {
        rows.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    view.scan(scan, collect).expect("reading a range of rows");
    rows
}

/// Reads a whole table.
pub(super) fn all(view: &dyn View, table: Table) -> Vec<Row> {
    scan(view, &Scan::all(table))
}

/// Reads all rows of all tables.
pub(super) fn everything(engine: &dyn Engine) -> Vec<(Table, Vec<Row>)> {
    let view = engine.view().expect("a view");
    Table::ALL.into_iter().map(|table| (table, all(&*view, table))).collect()
}

/// Turns literals into rows.
pub(super) fn rows(rows: &[(&[u8], &[u8])]) -> Vec<Row> {
    rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}
