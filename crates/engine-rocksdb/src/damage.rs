//! Scanning past damaged files.
//!
//! A RocksDB iterator ends at the first block whose checksum does not match, and seeking into that block fails again. RocksDB has no call that tells
//! where the next block begins. But its estimate of a range's size changes where a block of any file begins, so that place can be searched for:
//! the scan goes on there, or at the next such place.
//!
//! # Correctness
//! Blocks are skipped one at a time, and only where seeking fails, so every row outside of damaged blocks is visited. Where the index
//! of a file is damaged, too, no block of it can be found, and the scan goes on behind the file.

use rocksdb::{ColumnFamily, DB, DBRawIterator, ErrorKind, Range};
use sapwood_ledger::engine::{DamagedRange, EachDamage, EachRow, EngineError, Table};

use crate::failed;

/// Keys that blocks are searched by are no longer than this. All keys are shorter.
const LONGEST_KEY: usize = 128;

/// Visits all rows from the first key on, in ascending order, and tells of each damaged range once the row behind it is known.
pub(crate) fn scan(
    (db, family, table): (&DB, &ColumnFamily, Table),
    mut rows: DBRawIterator<'_>,
    from: &[u8],
    row: &mut EachRow<'_>,
    damage: &mut EachDamage<'_>,
) -> Result<(), EngineError> {
    let (mut last, mut cause): (Option<Vec<u8>>, Option<String>) = (None, None);
    let (mut at, mut small_steps) = (from.to_vec(), 0);
    rows.seek(from);
    loop {
        while let Some((key, value)) = rows.item() {
            if let Some(cause) = cause.take() {
                damage(DamagedRange { after: last.take(), before: Some(key.to_vec()), cause });
            }
            if row(key, value).is_break() {
                return Ok(());
            }
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
            rows.next();
        }
        match rows.status() {
            Ok(()) => break,
            Err(error) if error.kind() == ErrorKind::Corruption => {
                cause.get_or_insert_with(|| error.to_string());
            }
            Err(error) => return Err(failed("reading a range of rows")(error)),
        }
        if let Some(last) = last.as_ref().filter(|last| **last > at) {
            at.clone_from(last);
        }
        let mut next = if small_steps < 2 { next_block(db, family, &at) } else { None };
        if next.is_none() {
            next = behind_file(db, table, &at)?;
        }
        let Some(next) = next else { break };
        // Where an index cannot be read, every step is the smallest there is.
        small_steps = if next == successor(&at) { small_steps + 1 } else { 0 };
        at = next;
        rows.seek(&at);
    }
    if let Some(cause) = cause {
        damage(DamagedRange { after: last, before: None, cause });
    }
    Ok(())
}

/// Returns the lowest key above `at` at which a block begins, or a file has ended. `None` if there is none.
fn next_block(db: &DB, family: &ColumnFamily, at: &[u8]) -> Option<Vec<u8>> {
    let bytes_up_to = |key: &[u8]| db.get_approximate_sizes_cf(family, &[Range::new(at, key)]);
    lowest(at, |key| bytes_up_to(key).iter().any(|bytes| *bytes > 0))
}

/// Returns the lowest key above `at` for which `is_behind` holds, which holds for all keys above that, too. `None` if it holds for none.
fn lowest(at: &[u8], is_behind: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    if !is_behind(&[u8::MAX; LONGEST_KEY]) {
        return None;
    }
    // The greatest key for which it does not hold, one byte after the other.
    let candidates: [u8; 256] = std::array::from_fn(|byte| byte as u8);
    let mut key = Vec::new();
    while key.len() < LONGEST_KEY {
        let holds = |byte: u8| {
            let next = [&key[..], &[byte]].concat();
            next[..] > *at && is_behind(&next)
        };
        match candidates.partition_point(|byte| !holds(*byte)) {
            0 => break,
            count => key.push(candidates[count - 1]),
        }
    }
    Some(successor(&key))
}

/// Returns the lowest key behind a file that has `at` in its range. `None` if there is no such file.
fn behind_file(db: &DB, table: Table, at: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
    let files = db.live_files().map_err(failed("listing the files of the database"))?;
    let ends = files.into_iter().filter(|file| file.column_family_name == table.name());
    let ends = ends.filter_map(|file| file.end_key).filter(|end| end.as_slice() >= at);
    Ok(ends.min().map(|end| successor(&end)))
}

/// Returns the lowest key above another.
fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_lowest_key_behind_a_place_is_found(
            at in prop::collection::vec(any::<u8>(), 0..40),
            end in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let found = lowest(&at, |key| key > &end[..]);
            prop_assert_eq!(found, Some(successor(&at.clone().max(end))));
        }
    }

    #[test]
    fn nothing_is_found_behind_the_last_place() {
        assert_eq!(lowest(b"a", |_| false), None);
    }
}
