//! Reading from a snapshot.

use std::ops::ControlFlow;

use rocksdb::{Direction, ErrorKind, IteratorMode, ReadOptions, Snapshot};
use sapwood_ledger::engine::{DamagedRow, EachDamage, EachRow, EachValue, EngineError, Scan, Table, View};

use crate::{NUMBER_KEY, RocksEngine, columns::ADDRESS_PREFIX, damage, failed};

/// A read of at least this many rows is shared by two cores. Fewer are done sooner than a second one is woken.
const TWO_CORES_FROM: usize = 256;

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

    fn options_of(&self, scan: &Scan) -> ReadOptions {
        let mut options = self.options();
        options.fill_cache(scan.fill_cache);
        options.set_iterate_lower_bound(scan.from);
        if let Some(to) = scan.to {
            options.set_iterate_upper_bound(to);
        }
        options
    }
}

/// Whether a row is the engine's own. Views do not show it.
fn is_own(table: Table, key: &[u8]) -> bool {
    table == Table::Meta && key == NUMBER_KEY
}

impl View for RocksView<'_> {
    fn get_many(&self, table: Table, keys: &[&[u8]], each: &mut EachValue<'_>) -> Result<(), EngineError> {
        let read = |keys: &[&[u8]]| {
            let family = self.engine.family(table)?;
            Ok(self.engine.db().batched_multi_get_cf_opt(family, keys, keys.is_sorted(), &self.options()))
        };
        let (first, second) = match keys.len() {
            0 => return Ok(()),
            1..TWO_CORES_FROM => (read(keys), Ok(Vec::new())),
            length => {
                let (first, second) = keys.split_at(length / 2);
                rayon::join(|| read(first), || read(second))
            }
        };
        for (index, value) in first?.into_iter().chain(second?).enumerate() {
            match value {
                Ok(_) if is_own(table, keys[index]) => each(index, Ok(None)),
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
        let mut options = self.options_of(scan);
        if is_of_one_owner(scan) {
            // Files whose filter does not know the owner are not read.
            options.set_prefix_same_as_start(true);
        } else {
            options.set_total_order_seek(true);
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
            if !is_own(scan.table, key) && row(key, value).is_break() {
                return Ok(());
            }
            if scan.reverse { rows.prev() } else { rows.next() }
        }
        rows.status().map_err(failed("reading a range of rows"))
    }

    fn scan_past_damage(
        &self,
        scan: &Scan,
        row: &mut EachRow<'_>,
        damage: &mut EachDamage<'_>,
    ) -> Result<(), EngineError> {
        let (db, family) = (self.engine.db(), self.engine.family(scan.table)?);
        let mut options = self.options_of(scan);
        options.set_total_order_seek(true);
        let rows = db.raw_iterator_cf_opt(family, options);
        let row = &mut |key: &[u8], value: &[u8]| {
            if is_own(scan.table, key) { ControlFlow::Continue(()) } else { row(key, value) }
        };
        damage::scan((db, family, scan.table), rows, scan.from, row, damage)
    }
}

/// Whether a scan stays within the rows of one owner of the address table, so that its filters apply. Backward scans start behind the
/// owner's last row, where the filter of another owner would be asked.
fn is_of_one_owner(scan: &Scan) -> bool {
    let owner = scan.from.get(..ADDRESS_PREFIX);
    let ends_with_owner =
        |to: &[u8]| to.get(..ADDRESS_PREFIX) == owner || owner.is_some_and(|owner| follows(owner, to));
    scan.table == Table::Address && !scan.reverse && owner.is_some() && scan.to.is_some_and(ends_with_owner)
}

/// Whether `to` is the first key behind all that begin with `prefix`.
fn follows(prefix: &[u8], to: &[u8]) -> bool {
    let kept = prefix.len() - prefix.iter().rev().take_while(|byte| **byte == u8::MAX).count();
    let Some((last, start)) = prefix[..kept].split_last() else { return false };
    to.split_last().is_some_and(|(end, begin)| begin == start && *end == *last + 1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests: to panic is how they fail")]
mod tests {
    use rocksdb::statistics::Ticker;
    use sapwood_ledger::engine::{Engine, Maintenance, WriteSet};

    use super::*;
    use crate::{OpenMode, RocksOptions};

    const OWNER: [u8; ADDRESS_PREFIX] = [7; ADDRESS_PREFIX];

    fn after(owner: [u8; ADDRESS_PREFIX]) -> Vec<u8> {
        let mut key = owner.to_vec();
        *key.last_mut().unwrap() += 1;
        key
    }

    fn rows(engine: &RocksEngine, owner: [u8; ADDRESS_PREFIX], reverse: bool) -> Vec<Vec<u8>> {
        let to = after(owner);
        let scan = Scan { table: Table::Address, from: &owner, to: Some(&to), reverse, fill_cache: true };
        let mut found = Vec::new();
        let each = &mut |key: &[u8], _: &[u8]| {
            found.push(key.to_vec());
            ControlFlow::Continue(())
        };
        engine.view().unwrap().scan(&scan, each).unwrap();
        found
    }

    #[test]
    fn a_scan_of_an_absent_owner_is_answered_by_the_filter() {
        let directory = tempfile::tempdir().unwrap();
        let engine = RocksEngine::open(directory.path(), OpenMode::Create, &RocksOptions::default()).unwrap();
        let mut writes = WriteSet::default();
        writes.number = 1;
        let keys: Vec<Vec<u8>> = (0..40_u8).map(|n| [&OWNER[..], &[n]].concat()).collect();
        keys.iter().for_each(|key| writes.put(Table::Address, key, b""));
        // Rows of other owners on both sides, so that the range of the file does not answer.
        for first in [1, 200] {
            writes.put(Table::Address, &[[first; ADDRESS_PREFIX].to_vec(), vec![0]].concat(), b"");
        }
        engine.commit(&writes).unwrap();
        engine.maintain(Maintenance::Flush).unwrap();
        let blocks_read = || {
            let tickers = [Ticker::BlockCacheDataHit, Ticker::BlockCacheDataMiss];
            tickers.map(|ticker| engine.database.get_ticker_count(ticker)).iter().sum::<u64>()
        };
        let before = blocks_read();
        assert_eq!(rows(&engine, [9; ADDRESS_PREFIX], false), Vec::<Vec<u8>>::new());
        assert_eq!(blocks_read(), before, "a data block was read");
        // And one that is there is read as a whole, in both directions.
        assert_eq!(rows(&engine, OWNER, false), keys);
        assert!(blocks_read() > before, "nothing is counted");
        let mut backward = rows(&engine, OWNER, true);
        backward.reverse();
        assert_eq!(backward, keys);
    }

    #[test]
    fn rows_are_handed_out_in_the_order_of_their_keys_on_either_number_of_cores() {
        let directory = tempfile::tempdir().unwrap();
        let engine = RocksEngine::open(directory.path(), OpenMode::Create, &RocksOptions::default()).unwrap();
        let keys: Vec<[u8; 4]> = (0..2 * TWO_CORES_FROM as u32).map(u32::to_be_bytes).collect();
        let mut writes = WriteSet::new(1);
        // Every third row is there.
        keys.iter().step_by(3).for_each(|key| writes.put(Table::Tx, key, key));
        engine.commit(&writes).unwrap();
        let view = engine.view().unwrap();
        for count in [1, TWO_CORES_FROM - 1, TWO_CORES_FROM, TWO_CORES_FROM + 1, keys.len()] {
            let wanted: Vec<&[u8]> = keys[..count].iter().rev().map(|key| &key[..]).collect();
            let mut found = Vec::new();
            let each = &mut |index: usize, value: Result<Option<&[u8]>, DamagedRow>| {
                found.push((index, value.unwrap().map(<[u8]>::to_vec)));
            };
            view.get_many(Table::Tx, &wanted, each).unwrap();
            let row = |(index, key): (usize, &&[u8])| {
                let number = u32::from_be_bytes(<[u8; 4]>::try_from(*key).unwrap());
                (index, number.is_multiple_of(3).then(|| key.to_vec()))
            };
            assert_eq!(found, wanted.iter().enumerate().map(row).collect::<Vec<_>>(), "{count} rows");
        }
    }

    #[test]
    fn only_a_range_of_one_owner_uses_the_filter() {
        let to = after(OWNER);
        let second = after(to.clone().try_into().unwrap());
        let scan = |from, to, reverse| Scan { table: Table::Address, from, to, reverse, fill_cache: true };
        assert!(is_of_one_owner(&scan(&OWNER, Some(&to), false)));
        assert!(!is_of_one_owner(&scan(&OWNER, Some(&to), true)));
        assert!(!is_of_one_owner(&scan(&OWNER, None, false)));
        assert!(!is_of_one_owner(&scan(&OWNER[1..], Some(&to), false)));
        assert!(!is_of_one_owner(&scan(&OWNER, Some(&second), false)));
        assert!(!is_of_one_owner(&Scan { table: Table::Tx, ..scan(&OWNER, Some(&to), false) }));
        // The last byte that can be raised is an earlier one.
        let mut high = OWNER;
        high[20..].fill(u8::MAX);
        let mut next = OWNER[..20].to_vec();
        next[19] += 1;
        let scan = |from, to| Scan { table: Table::Address, from, to, reverse: false, fill_cache: true };
        assert!(is_of_one_owner(&scan(&high, Some(&next))));
        assert!(!is_of_one_owner(&scan(&[u8::MAX; ADDRESS_PREFIX], Some(&[1]))));
    }
}
