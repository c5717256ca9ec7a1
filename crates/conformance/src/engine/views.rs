//! Views: one commit each, whatever comes later.

use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use sapwood_ledger::engine::{Maintenance, Scan, Table};

use super::rows::{all, commit, get, get_many};
use crate::EngineFactory;

/// What a view showed it goes on showing: rows that are overwritten, deleted, and deleted by range since, and none that came.
pub fn view_does_not_change_under_later_commits(factory: &dyn EngineFactory) {
    let place = factory.place();
    let engine = place.open().expect("an engine");
    for table in Table::ALL {
        commit(&*engine, |writes| {
            for key in [&b"a"[..], b"b", b"c", b"d"] {
                writes.put(table, key, b"before");
            }
        });
        let view = engine.view().expect("a view");
        let before = all(&*view, table);
        commit(&*engine, |writes| {
            writes.put(table, b"a", b"after");
            writes.delete(table, b"b");
            writes.delete_range(table, b"c", b"d");
            writes.put(table, b"e", b"new");
        });
        engine.maintain(Maintenance::Settle).expect("maintenance");
        commit(&*engine, |writes| writes.delete_range(table, b"a", b"z"));
        assert_eq!(all(&*view, table), before, "{}", table.name());
        let value = Some(b"before".to_vec());
        let found = get_many(&*view, table, &[b"a", b"b", b"c", b"e"]);
        assert_eq!(found, [value.clone(), value.clone(), value, None], "{}", table.name());
        assert_eq!(all(&*engine.view().expect("a view"), table), []);
    }
}

/// A view of each of many commits shows that one.
pub fn views_of_every_commit_stay_apart(factory: &dyn EngineFactory) {
    let place = factory.place();
    let engine = place.open().expect("an engine");
    let mut views = Vec::new();
    for number in 0..30_u8 {
        commit(&*engine, |writes| {
            writes.put(Table::Meta, b"number", &[number]);
            writes.put(Table::Tx, &[number], b"");
            writes.delete(Table::Tx, &[number.wrapping_sub(3)]);
        });
        views.push((number, engine.view().expect("a view")));
    }
    // In another order than they were taken in.
    views.sort_by_key(|(number, _)| number % 7);
    while let Some((number, view)) = views.pop() {
        assert_eq!(get(&*view, Table::Meta, b"number"), Some(vec![number]));
        let expected: Vec<Vec<u8>> = (number.saturating_sub(2)..=number).map(|key| vec![key]).collect();
        let found: Vec<Vec<u8>> = all(&*view, Table::Tx).into_iter().map(|(key, _)| key).collect();
        assert_eq!(found, expected, "view {number}");
    }
}

/// A commit between two reads of a view, and within a scan of it, on the same thread: neither waits for the other.
pub fn view_and_commit_do_not_wait_for_each_other(factory: &dyn EngineFactory) {
    let place = factory.place();
    let engine = place.open().expect("an engine");
    commit(&*engine, |writes| (0..50_u8).for_each(|key| writes.put(Table::Tx, &[key], b"before")));
    let view = engine.view().expect("a view");
    let mut seen = 0;
    let committing = &mut |key: &[u8], value: &[u8]| {
        assert_eq!(value, b"before");
        commit(&*engine, |writes| {
            writes.put(Table::Tx, key, b"after");
            writes.delete(Table::Tx, &[49 - key[0]]);
        });
        seen += 1;
        ControlFlow::Continue(())
    };
    view.scan(&Scan::all(Table::Tx), committing).expect("a scan");
    assert_eq!(seen, 50);
    let mut reads = 0;
    let reading = &mut |_: usize, _: Result<Option<&[u8]>, _>| {
        commit(&*engine, |writes| writes.put(Table::Meta, b"key", b"value"));
        assert_eq!(get(&*view, Table::Meta, b"key"), None);
        reads += 1;
    };
    view.get_many(Table::Tx, &[b"\0", b"\x01"], reading).expect("reading");
    assert_eq!(reads, 2);
}

/// Two rows of one commit are read together or not at all, 10,000 times while it commits.
pub fn readers_see_whole_commits_only(factory: &dyn EngineFactory) {
    const READS: usize = 10_000;
    const COMMITS: u64 = 100;
    let place = factory.place();
    let engine = place.open().expect("an engine");
    // Far apart: an engine that spreads rows has them in different places.
    let keys: [&[u8]; 2] = [&[0; 32], &[0xff; 32]];
    let write = |number: u64| {
        commit(&*engine, |writes| {
            keys.iter().for_each(|key| writes.put(Table::Tx, key, &number.to_be_bytes()));
            writes.put(Table::Meta, b"number", &number.to_be_bytes());
        });
    };
    write(0);
    let (stop, committed) = (AtomicBool::new(false), AtomicU64::new(0));
    let read = || {
        let (mut last, mut reads) = (0, 0);
        while reads < READS / 2 || committed.load(Ordering::Relaxed) < COMMITS {
            reads += 1;
            let view = engine.view().expect("a view");
            let found = get_many(&*view, Table::Tx, &keys);
            let meta = get(&*view, Table::Meta, b"number");
            assert!(found[0] == found[1] && found[0] == meta, "half of a commit: {found:?}, {meta:?}");
            let number =
                meta.and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes).expect("a number");
            assert!(number >= last, "a later view shows an earlier commit: {number} after {last}");
            last = number;
        }
        last
    };
    let seen = thread::scope(|scope| {
        let readers = [scope.spawn(read), scope.spawn(read)];
        let writer = scope.spawn(|| {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                number += 1;
                write(number);
                committed.store(number, Ordering::Relaxed);
            }
        });
        let seen = readers.map(|reader| reader.join());
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("the writer");
        seen.map(|seen| seen.expect("a reader"))
    });
    assert!(seen.iter().any(|last| *last > 0), "nothing was committed meanwhile");
}
