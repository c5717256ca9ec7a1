//! Reading by key and by range.

use std::ops::ControlFlow;

use sapwood_ledger::engine::{Maintenance, Scan, Table, View};

use super::rows::{Row, all, commit, get_many, scan};
use crate::{EngineFactory, state_machine::rng::Rng};

/// Values come in the order of the keys, whatever that is, with absent and repeated ones.
pub fn get_many_answers_in_the_order_of_the_keys(factory: &dyn EngineFactory) {
    let place = factory.place();
    let engine = place.open().expect("an engine");
    commit(&*engine, |writes| {
        for key in [&b"a"[..], b"b", b"c"] {
            writes.put(Table::Tx, key, key);
        }
    });
    let view = engine.view().expect("a view");
    let value = |key: &[u8]| Some(key.to_vec());
    let found = get_many(&*view, Table::Tx, &[b"c", b"absent", b"a", b"c", b"", b"b"]);
    assert_eq!(found, [value(b"c"), None, value(b"a"), value(b"c"), None, value(b"b")]);
    assert_eq!(get_many(&*view, Table::Tx, &[b"a", b"b", b"c"]), [value(b"a"), value(b"b"), value(b"c")]);
    assert_eq!(get_many(&*view, Table::Due, &[b"a"]), [None]);
    assert_eq!(get_many(&*view, Table::Tx, &[]), []);
}

/// Thousands at once, in the order of a block: none at all.
pub fn get_many_of_thousands_in_any_order(factory: &dyn EngineFactory) {
    let place = factory.place();
    let engine = place.open().expect("an engine");
    let mut rng = Rng::new(5);
    let keys: Vec<[u8; 32]> = (0..6_000).map(|_| rng.bytes()).collect();
    // Half of them are there, some of those in files and the others in memory.
    for part in keys[..3_000].chunks(1_000) {
        commit(&*engine, |writes| part.iter().for_each(|key| writes.put(Table::Tx, key, &key[..4])));
        engine.maintain(Maintenance::Flush).expect("a flush");
    }
    let asked: Vec<&[u8]> = keys.iter().rev().map(|key| &key[..]).collect();
    let found = get_many(&*engine.view().expect("a view"), Table::Tx, &asked);
    for (index, (key, value)) in asked.iter().zip(found).enumerate() {
        assert_eq!(value, (index >= 3_000).then(|| key[..4].to_vec()), "key {index}");
    }
}

/// Keys whose order by bytes is not that of lengths or numbers.
const KEYS: [&[u8]; 9] = [b"", b"\0", b"\0\0", b"\x01", b"a", b"a\0", b"a\xff", b"b", b"\xff\xff"];

fn with_keys(factory: &dyn EngineFactory, check: impl Fn(&dyn View, Table)) {
    let place = factory.place();
    let engine = place.open().expect("an engine");
    for table in Table::ALL {
        commit(&*engine, |writes| KEYS.iter().rev().for_each(|key| writes.put(table, key, b"value")));
        check(&*engine.view().expect("a view"), table);
    }
}

fn keys(found: Vec<Row>) -> Vec<Vec<u8>> {
    found.into_iter().map(|(key, _)| key).collect()
}

/// Ascending and descending order of bytes.
pub fn scan_goes_by_bytes_in_both_directions(factory: &dyn EngineFactory) {
    with_keys(factory, |view, table| {
        assert_eq!(keys(all(view, table)), KEYS, "{}", table.name());
        let reverse = scan(view, &Scan { reverse: true, fill_cache: true, ..Scan::all(table) });
        assert_eq!(keys(reverse), KEYS.into_iter().rev().collect::<Vec<_>>(), "{}", table.name());
    });
}

/// Every pair of bounds, in both directions.
pub fn scan_includes_its_start_and_excludes_its_end(factory: &dyn EngineFactory) {
    with_keys(factory, |view, table| {
        let bounds = KEYS.into_iter().chain([&b"aa"[..], b"\xff\xff\xff"]);
        for from in bounds.clone() {
            for to in bounds.clone().map(Some).chain([None]) {
                let mut expected: Vec<&[u8]> =
                    KEYS.into_iter().filter(|key| *key >= from && to.is_none_or(|to| *key < to)).collect();
                let range = Scan { table, from, to, reverse: false, fill_cache: true };
                assert_eq!(keys(scan(view, &range)), expected, "{range:?}");
                expected.reverse();
                let range = Scan { reverse: true, ..range };
                assert_eq!(keys(scan(view, &range)), expected, "{range:?}");
            }
        }
    });
}

/// An empty table, and ranges that end where they begin or before.
pub fn scan_of_nothing_calls_nothing(factory: &dyn EngineFactory) {
    let place = factory.place();
    let engine = place.open().expect("an engine");
    commit(&*engine, |writes| writes.put(Table::Tx, b"m", b"value"));
    let view = engine.view().expect("a view");
    for reverse in [false, true] {
        assert_eq!(scan(&*view, &Scan { reverse, ..Scan::all(Table::Due) }), []);
        for (from, to) in [(&b"m"[..], &b"m"[..]), (b"n", b"m"), (b"", b""), (b"a", b"b"), (b"x", b"z")] {
            let range = Scan { table: Table::Tx, from, to: Some(to), reverse, fill_cache: false };
            assert_eq!(scan(&*view, &range), [], "{range:?}");
        }
    }
}

/// A scan that breaks calls nothing further.
pub fn scan_ends_when_told(factory: &dyn EngineFactory) {
    let place = factory.place();
    let engine = place.open().expect("an engine");
    commit(&*engine, |writes| {
        (0..1_000_u16).for_each(|key| writes.put(Table::Undo, &key.to_be_bytes(), b""));
    });
    let view = engine.view().expect("a view");
    for reverse in [false, true] {
        for wanted in [1, 2, 255, 256, 257, 999, 1_000] {
            let mut seen = 0;
            let until = &mut |_: &[u8], _: &[u8]| {
                seen += 1;
                if seen == wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            view.scan(&Scan { reverse, ..Scan::all(Table::Undo) }, until).expect("a scan");
            assert_eq!(seen, wanted);
        }
    }
}

/// The address table has rows of many owners, with keys that begin alike. Scans stay with one, or go over all of them.
pub fn scan_goes_over_the_rows_of_many_owners(factory: &dyn EngineFactory) {
    let place = factory.place();
    let engine = place.open().expect("an engine");
    // As the ledger has them: a kind, a hash of 28 bytes, 40 bytes of height and output.
    let owners: Vec<[u8; 29]> = [0_u8, 1, 0x7f, 0xfe, 0xff].map(|byte| [byte; 29]).to_vec();
    let key = |owner: &[u8; 29], number: u8| [&owner[..], &[number; 40]].concat();
    let mut expected = Vec::new();
    for (part, owner) in owners.iter().enumerate() {
        commit(&*engine, |writes| {
            for number in [0, 1, 0xff] {
                writes.put(Table::Address, &key(owner, number), &[part as u8]);
                expected.push((key(owner, number), vec![part as u8]));
            }
        });
        engine.maintain(Maintenance::Flush).expect("a flush");
    }
    let view = engine.view().expect("a view");
    assert_eq!(all(&*view, Table::Address), expected);
    for reverse in [false, true] {
        let in_order = |mut rows: Vec<Row>| {
            if reverse {
                rows.reverse();
            }
            rows
        };
        for (part, owner) in owners.iter().enumerate() {
            let after = owners.get(part + 1).map(|next| &next[..]);
            let own = expected[3 * part..3 * part + 3].to_vec();
            let range = Scan { table: Table::Address, from: owner, to: after, reverse, fill_cache: true };
            assert_eq!(scan(&*view, &range), in_order(own.clone()), "{range:?}");
            let second = key(owner, 1);
            let range = Scan { from: &second, ..range };
            assert_eq!(scan(&*view, &range), in_order(own[1..].to_vec()), "{range:?}");
            let range = Scan { from: owner, to: Some(&second), ..range };
            assert_eq!(scan(&*view, &range), in_order(own[..1].to_vec()), "{range:?}");
        }
        let (from, to) = (key(&owners[1], 1), key(&owners[3], 1));
        let range = Scan { table: Table::Address, from: &from, to: Some(&to), reverse, fill_cache: false };
        assert_eq!(scan(&*view, &range), in_order(expected[4..10].to_vec()), "{range:?}");
    }
}

/// Rows that were deleted in memory, in files, one by one and by range.
pub fn scan_does_not_show_deleted_rows(factory: &dyn EngineFactory) {
    let place = factory.place();
    let engine = place.open().expect("an engine");
    for table in Table::ALL {
        commit(&*engine, |writes| (0..=9_u8).for_each(|key| writes.put(table, &[key], &[key])));
        engine.maintain(Maintenance::Flush).expect("a flush");
        commit(&*engine, |writes| {
            writes.delete(table, &[0]);
            writes.delete(table, &[5]);
            writes.delete_range(table, &[7], &[9]);
        });
        let left: Vec<Row> = [1, 2, 3, 4, 6, 9_u8].map(|key| (vec![key], vec![key])).to_vec();
        let view = engine.view().expect("a view");
        assert_eq!(all(&*view, table), left, "{}", table.name());
        let reverse = scan(&*view, &Scan { reverse: true, ..Scan::all(table) });
        assert_eq!(reverse, left.into_iter().rev().collect::<Vec<_>>(), "{}", table.name());
        assert_eq!(get_many(&*view, table, &[&[7], &[9], &[0]]), [None, Some(vec![9]), None]);
    }
    assert_eq!(all(&*engine.view().expect("a view"), Table::Meta).len(), 6);
}
