//! Commits: their numbers, and what is there after them.

use std::path::Path;

use sapwood_ledger::engine::{EngineError, Maintenance, Support, Table, WriteSet};

use super::rows::{all, commit, everything, get, rows};
use crate::EngineFactory;

/// There is nothing in a new place.
pub fn new_engine_has_no_rows_and_no_commits(factory: &dyn EngineFactory) {
    let place = factory.place();
    let engine = place.open().expect("an engine");
    assert_eq!(engine.position(), Ok(0));
    assert!(everything(&*engine).iter().all(|(_, rows)| rows.is_empty()), "a new engine has rows");
    assert_eq!(get(&*engine.view().expect("a view"), Table::Meta, b"key"), None);
    assert!(!engine.kind().is_empty() && !engine.place().is_empty());
    assert_eq!(engine.capabilities().write, Support::Yes);
}

/// Each commit has the number behind the last one. An empty one counts, too.
pub fn commits_are_numbered_without_gaps(factory: &dyn EngineFactory) {
    let place = factory.place();
    let engine = place.open().expect("an engine");
    for number in 1..=5 {
        commit(&*engine, |writes| {
            if number != 3 {
                writes.put(Table::Tx, &[number as u8], b"value");
            }
        });
        assert_eq!(engine.position(), Ok(number));
    }
    for number in [0, 1, 4, 5, 7, u64::MAX] {
        let refused = EngineError::WrongNumber { number, position: 5 };
        assert_eq!(engine.commit(&WriteSet::new(number)), Err(refused));
    }
    commit(&*engine, |_| ());
    assert_eq!(engine.position(), Ok(6));
}

/// A commit with a wrong number leaves every row as it was.
pub fn refused_commit_changes_nothing(factory: &dyn EngineFactory) {
    let place = factory.place();
    let engine = place.open().expect("an engine");
    commit(&*engine, |writes| Table::ALL.into_iter().for_each(|table| writes.put(table, b"key", b"value")));
    let before = everything(&*engine);
    let mut wrong = WriteSet::new(5);
    for table in Table::ALL {
        wrong.put(table, b"key", b"other");
        wrong.put(table, b"more", b"value");
        wrong.delete_range(table, b"a", b"z");
    }
    assert_eq!(engine.commit(&wrong), Err(EngineError::WrongNumber { number: 5, position: 1 }));
    assert_eq!(everything(&*engine), before);
}

/// Changes of one commit take effect in order.
pub fn later_changes_of_one_commit_win(factory: &dyn EngineFactory) {
    let place = factory.place();
    let engine = place.open().expect("an engine");
    commit(&*engine, |writes| {
        for key in [&b"a"[..], b"b", b"c", b"d"] {
            writes.put(Table::Tx, key, b"before");
        }
    });
    commit(&*engine, |writes| {
        writes.put(Table::Tx, b"a", b"first");
        writes.put(Table::Tx, b"a", b"second");
        writes.delete(Table::Tx, b"b");
        writes.put(Table::Tx, b"b", b"again");
        writes.put(Table::Tx, b"c", b"new");
        writes.delete(Table::Tx, b"c");
        writes.put(Table::Tx, b"e", b"new");
        writes.delete_range(Table::Tx, b"d", b"z");
        writes.put(Table::Tx, b"f", b"new");
    });
    let view = engine.view().expect("a view");
    assert_eq!(all(&*view, Table::Tx), rows(&[(b"a", b"second"), (b"b", b"again"), (b"f", b"new")]));
}

/// Deleting what is not there is fine, one by one and by range.
pub fn absent_rows_can_be_deleted(factory: &dyn EngineFactory) {
    let place = factory.place();
    let engine = place.open().expect("an engine");
    commit(&*engine, |writes| {
        writes.delete(Table::Due, b"absent");
        writes.delete_range(Table::Due, b"a", b"b");
        writes.put(Table::Due, b"c", b"");
        writes.delete(Table::Due, b"d");
    });
    assert_eq!(all(&*engine.view().expect("a view"), Table::Due), rows(&[(b"c", b"")]));
}

/// A range has its first key in it and its end not.
pub fn range_ends_before_its_end(factory: &dyn EngineFactory) {
    let place = factory.place();
    let engine = place.open().expect("an engine");
    let keys: [&[u8]; 6] = [b"", b"a", b"aa", b"b", b"b\0", &[0xff; 40]];
    for table in Table::ALL {
        commit(&*engine, |writes| keys.iter().for_each(|key| writes.put(table, key, key)));
        commit(&*engine, |writes| writes.delete_range(table, b"a", b"b"));
        let left = rows(&[(b"", b""), (b"b", b"b"), (b"b\0", b"b\0"), (&[0xff; 40], &[0xff; 40])]);
        assert_eq!(all(&*engine.view().expect("a view"), table), left, "{}", table.name());
        commit(&*engine, |writes| writes.delete_range(table, b"", &[0xff; 41]));
        assert_eq!(all(&*engine.view().expect("a view"), table), [], "{}", table.name());
    }
}

/// The same key in each table is a row of its own.
pub fn tables_are_apart(factory: &dyn EngineFactory) {
    let place = factory.place();
    let engine = place.open().expect("an engine");
    commit(&*engine, |writes| {
        Table::ALL.into_iter().for_each(|table| writes.put(table, b"key", table.name().as_bytes()));
    });
    commit(&*engine, |writes| {
        writes.delete(Table::Tx, b"key");
        writes.delete_range(Table::Undo, b"a", b"z");
    });
    for (table, found) in everything(&*engine) {
        let expected = match table {
            Table::Tx | Table::Undo => vec![],
            _ => rows(&[(b"key", table.name().as_bytes())]),
        };
        assert_eq!(found, expected, "{}", table.name());
    }
}

/// Empty keys and values, and values of megabytes, come back as they were.
pub fn rows_of_any_size_come_back(factory: &dyn EngineFactory) {
    let place = factory.place();
    let engine = place.open().expect("an engine");
    let large: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    let long_key = [7; 500];
    commit(&*engine, |writes| {
        writes.put(Table::Meta, b"", b"of the empty key");
        writes.put(Table::Meta, b"empty", b"");
        writes.put(Table::Meta, &long_key, &large);
    });
    drop(engine);
    let engine = place.open().expect("the same engine");
    let view = engine.view().expect("a view");
    assert_eq!(get(&*view, Table::Meta, b"").as_deref(), Some(&b"of the empty key"[..]));
    assert_eq!(get(&*view, Table::Meta, b"empty").as_deref(), Some(&b""[..]));
    assert_eq!(get(&*view, Table::Meta, &long_key), Some(large));
}

/// Statistics list each table once, or the one that is asked for.
pub fn stats_name_every_table(factory: &dyn EngineFactory) {
    let place = factory.place();
    let engine = place.open().expect("an engine");
    commit(&*engine, |writes| {
        (0..100_u8).for_each(|key| writes.put(Table::Tx, &[key], &[key; 100]));
    });
    let listed: Vec<Table> =
        engine.stats(None).expect("stats").tables.iter().map(|stats| stats.table).collect();
    assert_eq!(listed, Table::ALL);
    for table in Table::ALL {
        let stats = engine.stats(Some(table)).expect("stats").tables;
        let [stats] = &stats[..] else { panic!("{} tables for one", stats.len()) };
        assert_eq!(stats.table, table);
        let bytes = stats.disk_bytes + stats.memory_bytes;
        if table == Table::Tx {
            assert!(stats.rows > 0 && bytes > 0, "{stats:?}");
        }
    }
}

/// Flushing and compacting leave all rows as they are, and what comes after is written on top.
pub fn background_work_changes_no_row(factory: &dyn EngineFactory) {
    let place = factory.place();
    let engine = place.open().expect("an engine");
    for round in 0..4_u8 {
        commit(&*engine, |writes| {
            for key in 0..200_u8 {
                match (key + round) % 3 {
                    0 => writes.delete(Table::Tx, &[key]),
                    _ => writes.put(Table::Tx, &[key], &[round; 50]),
                }
            }
            writes.delete_range(Table::Tx, &[100], &[100 + 10 * round]);
        });
        let before = everything(&*engine);
        engine
            .maintain(if round % 2 == 0 { Maintenance::Flush } else { Maintenance::Settle })
            .expect("maintenance");
        assert_eq!(everything(&*engine), before, "round {round}");
    }
}

/// What an engine says it cannot do it refuses, with the reason.
pub fn missing_capabilities_are_refused_with_a_reason(factory: &dyn EngineFactory) {
    let place = factory.place();
    let engine = place.open().expect("an engine");
    if let Support::No(expected) = engine.capabilities().backup {
        let refused = engine.backup(Path::new("/nonexistent/copy"));
        let Err(EngineError::Unsupported { reason, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(reason, expected);
    }
}
