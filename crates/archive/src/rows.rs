//! Reading rows through a view.

use std::ops::ControlFlow;

use bytes::Bytes;
use sapwood_ledger::engine::{Scan, Table, View};

use crate::{error::ArchiveError, keys::Kind};

/// Names a row in messages.
pub(crate) fn name(table: Table, key: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut name = format!("row {}/", table.name());
    match std::str::from_utf8(key) {
        Ok(text) if text.starts_with("archive/") => name.push_str(text),
        _ => key.iter().for_each(|byte| _ = write!(name, "{byte:02x}")),
    }
    name
}

/// Reads rows in the order of their keys. `None` for those that are absent. A row that the engine finds damaged is an
/// error for its key.
pub(crate) fn get_many(
    view: &dyn View,
    table: Table,
    keys: &[&[u8]],
) -> Result<Vec<Result<Option<Bytes>, ArchiveError>>, ArchiveError> {
    let mut found = Vec::with_capacity(keys.len());
    view.get_many(table, keys, &mut |index, value| {
        found.push(match value {
            Ok(value) => Ok(value.map(Bytes::copy_from_slice)),
            Err(damaged) => Err(ArchiveError::DamagedRow {
                row: keys.get(index).map(|key| name(table, key)).unwrap_or_default(),
                cause: damaged.cause,
            }),
        });
    })?;
    Ok(found)
}

/// Reads a row. `None` if it is absent.
pub(crate) fn get(view: &dyn View, table: Table, key: &[u8]) -> Result<Option<Bytes>, ArchiveError> {
    get_many(view, table, &[key])?.pop().unwrap_or(Ok(None))
}

/// Calls `each` with key and value of every row of a range until it breaks or fails.
pub(crate) fn scan(
    view: &dyn View,
    range: &Scan<'_>,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, ArchiveError>,
) -> Result<(), ArchiveError> {
    let mut failed = Ok(());
    view.scan(range, &mut |key, value| match each(key, value) {
        Ok(flow) => flow,
        Err(error) => {
            failed = Err(error);
            ControlFlow::Break(())
        }
    })?;
    failed
}

/// Calls `each` with key and value of every row of a kind.
pub(crate) fn scan_all(
    view: &dyn View,
    kind: &Kind,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    let range =
        Scan { table: kind.table, from: kind.from, to: Some(kind.to), reverse: false, fill_cache: false };
    scan(view, &range, |key, value| each(key, value).map(ControlFlow::Continue))
}
