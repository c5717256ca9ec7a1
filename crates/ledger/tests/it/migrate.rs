//! Migrations from every older schema, interrupted at every commit.

use std::{ops::ControlFlow, sync::Arc};

use sapwood_conformance::fixtures::{burn, child, coin, context, small};
use sapwood_engine_memory::{FailPoint, MemoryEngine};
use sapwood_ledger::{
    Counts, CreateRequest, Ledger, LedgerOptions, PruneRequest, StoreError,
    engine::{Engine, Scan, Table},
};
use sapwood_types::{Height, Tx};

use crate::World;

const SCHEMA: u32 = 4;

fn meta(engine: &MemoryEngine, key: &[u8]) -> Option<Vec<u8>> {
    let mut found = None;
    let each = &mut |_, value: Result<Option<&[u8]>, _>| found = value.unwrap().map(<[u8]>::to_vec);
    engine.view().unwrap().get_many(Table::Meta, &[key], each).unwrap();
    found
}

fn keys(engine: &MemoryEngine, table: Table) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let collect = &mut |key: &[u8], _: &[u8]| {
        keys.push(key.to_vec());
        ControlFlow::Continue(())
    };
    engine.view().unwrap().scan(&Scan::all(table), collect).unwrap();
    keys
}

fn schema(engine: &MemoryEngine) -> u32 {
    u32::from_be_bytes(meta(engine, b"schema").unwrap().try_into().unwrap())
}

/// Makes a ledger what an older schema left behind: version 3 did not name its program, version 2 did not count what is retained and what
/// settled, version 1 did not count spent outputs.
fn make_older(engine: &MemoryEngine, to: u32) {
    let put = |key: &[u8], value: Option<&[u8]>| engine.damage(Table::Meta, key, value);
    put(b"schema", Some(&to.to_be_bytes()));
    put(b"written-by", None);
    if to < 3 {
        let state = meta(engine, b"state").unwrap();
        assert_eq!(
            (state[0], state[1] & 2),
            (3, 0),
            "the case itself: this version, and no cursor at the end"
        );
        // Counts of one byte each at the end: spent outputs, then three of what is retained.
        let (kept, counts) = state.split_at(state.len() - if to == 1 { 4 } else { 3 });
        assert!(counts.iter().all(|count| *count < 0x80), "the case itself: {counts:?}");
        put(b"state", Some(&[&[to as u8][..], &kept[1..]].concat()));
        let settled = keys(engine, Table::Meta).into_iter().filter(|key| key.starts_with(b"settled/"));
        settled.for_each(|key| put(&key, None));
    }
}

/// A ledger with records that are locked, preserved, wait for an unmined child or settled, and one of two pages. Nothing was pruned, so that
/// spent outputs can be counted from what is there.
async fn a_ledger() -> World {
    let world = World::new();
    let coins: Vec<Tx> = (0..6).map(|number| coin(&format!("coin {number}"), 2)).collect();
    let spend = |coin: &Tx| burn(&format!("{} off", coin.txid), &[(coin, 0), (coin, 1)]);
    let wide = coin("wide", 200);
    world.apply(1, [&coins[..], std::slice::from_ref(&wide)].concat()).await;
    world.apply(2, vec![spend(&coins[0])]).await;
    world.apply(3, vec![spend(&coins[1]), child("of wide", &[(&wide, 0), (&wide, 150)], 1)]).await;
    world.apply(4, vec![]).await;
    world.ledger.set_locked(vec![coins[2].txid], true).await.unwrap();
    world.ledger.preserve(vec![coins[3].txid, coins[4].txid], Height(50)).await.unwrap();
    world.ledger.create(vec![CreateRequest::unmined(spend(&coins[5]))], Height(4)).await.unwrap();
    world
}

/// Everything that a migration must leave as it is, or bring back.
#[derive(Debug, PartialEq)]
struct Seen {
    digest: [u8; 32],
    counts: Counts,
    settled: Vec<u64>,
}

impl Seen {
    async fn of(ledger: &Ledger) -> Self {
        let report = ledger.verify(Arc::new(|_, _| ())).await.unwrap();
        assert!(report.is_clean(), "{report}");
        let mut settled = Vec::new();
        for height in 0..6 {
            settled.push(ledger.settled_between(Height(height), Height(height)).await.unwrap());
        }
        let counts = ledger.counts().await.unwrap();
        Self { digest: ledger.state_digest().await.unwrap(), counts, settled }
    }
}

/// One row is read between two commits.
fn in_small_parts(engine: &Arc<MemoryEngine>) -> Result<Ledger, StoreError> {
    let options = LedgerOptions { migration_part_rows: 1, ..LedgerOptions::default() };
    Ledger::open(Arc::clone(engine) as _, small(), options)
}

#[tokio::test]
async fn older_schema_is_migrated_when_opened_and_counts_once() {
    for from in 1..SCHEMA {
        let World { engine, ledger } = a_ledger().await;
        let expected = Seen::of(&ledger).await;
        drop(ledger);
        make_older(&engine, from);
        let ledger = Ledger::open(Arc::clone(&engine) as _, small(), LedgerOptions::default()).unwrap();
        assert_eq!(Seen::of(&ledger).await, expected, "from {from}");
        assert_eq!((schema(&engine), meta(&engine, b"migration")), (SCHEMA, None));
        assert!(meta(&engine, b"written-by").is_some());
        let position = engine.position().unwrap();
        let again = Arc::new(engine.reopen());
        assert_eq!(Seen::of(&in_small_parts(&again).unwrap()).await, expected, "from {from}");
        assert_eq!(again.position().unwrap(), position, "a second open writes nothing");
    }
}

/// The process ends before or after each commit of the migration, at every open again: what is done stays done.
#[tokio::test]
async fn migration_killed_at_every_commit_is_resumed_to_the_same_end() {
    for from in 1..SCHEMA {
        for point in [FailPoint::BeforeCommit, FailPoint::AfterCommit] {
            let World { mut engine, ledger } = a_ledger().await;
            let expected = Seen::of(&ledger).await;
            drop(ledger);
            make_older(&engine, from);
            let mut kills = 0;
            let ledger = loop {
                // After a commit each process gets one further; before, each gets only as far as the next one is let.
                let number =
                    engine.position().unwrap() + if point == FailPoint::BeforeCommit { 2 } else { 1 };
                engine.fail_at(number, point);
                match in_small_parts(&engine) {
                    Ok(ledger) => break ledger,
                    Err(StoreError::Engine(_)) => kills += 1,
                    Err(error) => panic!("from {from}, {point:?}, kill {kills}: {error}"),
                }
                engine = Arc::new(engine.reopen());
                // From the first commit on neither an older program nor a reader takes it for whole.
                if engine.position().unwrap() > 0 && meta(&engine, b"migration").is_some() {
                    assert_eq!(schema(&engine), SCHEMA);
                    let reader = Arc::new(engine.reopen_read_only());
                    let refused = Ledger::open(reader, small(), LedgerOptions::default()).err();
                    assert!(matches!(refused, Some(StoreError::OlderSchema { .. })), "{refused:?}");
                }
            };
            assert!(kills >= 2 + 12 * u32::from(from < 3), "only {kills} kills from {from}");
            assert_eq!(Seen::of(&ledger).await, expected, "from {from}, {point:?}");
            assert_eq!((schema(&engine), meta(&engine, b"migration")), (SCHEMA, None));
        }
    }
}

#[tokio::test]
async fn migration_that_cannot_write_leaves_the_older_store() {
    for from in 1..SCHEMA {
        let World { engine, .. } = a_ledger().await;
        make_older(&engine, from);
        let before = (meta(&engine, b"state"), engine.position().unwrap());
        engine.fail_at(before.1 + 1, FailPoint::BeforeCommit);
        assert!(matches!(in_small_parts(&engine).err(), Some(StoreError::Engine(_))));
        assert_eq!((meta(&engine, b"state"), engine.position().unwrap()), before);
        assert_eq!((schema(&engine), meta(&engine, b"migration")), (from, None));
    }
}

#[tokio::test]
async fn reader_of_an_older_schema_is_told_to_open_it_for_writing() {
    for from in 1..SCHEMA {
        let World { engine, .. } = a_ledger().await;
        make_older(&engine, from);
        let reader = Arc::new(engine.reopen_read_only());
        let error = Ledger::open(reader, small(), LedgerOptions::default()).err().unwrap();
        assert_eq!(error, StoreError::OlderSchema { place: "memory".into(), found: from, known: SCHEMA });
        let text = error.to_string();
        for part in [&format!("schema version {from}"), "reading only", "sapwood upgrade"] {
            assert!(text.contains(part), "{part:?} is missing: {text}");
        }
        assert_eq!(schema(&engine), from);
    }
}

#[tokio::test]
async fn newer_schema_is_refused_and_its_program_is_named() {
    let World { engine, .. } = a_ledger().await;
    engine.damage(Table::Meta, b"schema", Some(&(SCHEMA + 1).to_be_bytes()));
    for (name, part) in [(Some("sapwood 9.1.0"), "written by sapwood 9.1.0"), (None, "newer program")] {
        engine.damage(Table::Meta, b"written-by", name.map(str::as_bytes));
        let error = Ledger::open(Arc::clone(&engine) as _, small(), LedgerOptions::default()).err().unwrap();
        let (place, written_by) = ("memory".to_owned(), name.map(str::to_owned));
        let expected = StoreError::NewerSchema { place, found: SCHEMA + 1, known: SCHEMA, written_by };
        assert_eq!(error, expected);
        assert!(error.to_string().contains(part), "{error}");
    }
}

/// What is refused for another reason is not migrated first.
#[tokio::test]
async fn refused_open_does_not_migrate() {
    let World { engine, .. } = a_ledger().await;
    let named = |name: &str| LedgerOptions { identity: Some(name.into()), ..LedgerOptions::default() };
    drop(Ledger::open(Arc::clone(&engine) as _, small(), named("mainnet")).unwrap());
    make_older(&engine, 2);
    let before = engine.position().unwrap();
    let error = Ledger::open(Arc::clone(&engine) as _, small(), named("regtest")).err();
    assert!(matches!(error, Some(StoreError::OtherIdentity { .. })), "{error:?}");
    assert_eq!((engine.position().unwrap(), schema(&engine)), (before, 2));
}

/// One damaged record is left to `verify`; the store is migrated without it.
#[tokio::test]
async fn damaged_record_does_not_keep_a_store_from_being_migrated() {
    for from in 1..3 {
        let World { engine, ledger } = a_ledger().await;
        let expected = Seen::of(&ledger).await.counts;
        drop(ledger);
        let settled = coin("coin 0", 2).txid;
        engine.damage(Table::Tx, &settled.0, Some(b"not a record"));
        make_older(&engine, from);
        let ledger = in_small_parts(&engine).unwrap();
        assert_eq!(schema(&engine), SCHEMA);
        assert_eq!(ledger.counts().await.unwrap().locked, expected.locked);
        let report = ledger.verify(Arc::new(|_, _| ())).await.unwrap();
        let name = settled.to_string();
        assert!(report.problems.iter().any(|problem| problem.contains(&name)), "{report}");
    }
}

/// The result of a step is held against what was there all along. If they differ, the store is refused until it is restored.
#[tokio::test]
async fn migration_whose_result_contradicts_the_index_is_refused() {
    let World { engine, .. } = a_ledger().await;
    make_older(&engine, 2);
    let due = keys(&engine, Table::Due);
    engine.damage(Table::Due, &due[0], None);
    for _ in 0..2 {
        let error = in_small_parts(&engine).err().unwrap();
        let StoreError::Migration { version: 3, problem, .. } = &error else { panic!("{error:?}") };
        assert!(problem.contains("not listed as due"), "{problem}");
        assert!(meta(&engine, b"migration").is_some(), "it does not look whole");
    }
    engine.damage(Table::Due, &due[0], Some(b""));
    let stray = [&2_u32.to_be_bytes()[..], &[7; 32]].concat();
    engine.damage(Table::Due, &stray, Some(b""));
    let error = in_small_parts(&engine).err().unwrap();
    assert!(error.to_string().contains("not counted as settled"), "{error}");
    engine.damage(Table::Due, &stray, None);
    in_small_parts(&engine).unwrap();
}

/// erigon 23593: an upgrade came with a shorter default, and deleted history that the directory was made to keep. Here opening deletes no row.
#[tokio::test]
async fn erigon_23593_migration_keeps_every_record_and_note() {
    let World { engine, ledger } = a_ledger().await;
    ledger.put_notes(vec![("pruner/policy".into(), Some("a promise".into()))]).await.unwrap();
    drop(ledger);
    make_older(&engine, 1);
    let before: Vec<_> = Table::ALL.into_iter().map(|table| keys(&engine, table)).collect();
    let shorter = sapwood_rules::Policy { retention: 5, ..small() };
    let ledger = Ledger::open(Arc::clone(&engine) as _, shorter, LedgerOptions::default()).unwrap();
    for (table, before) in Table::ALL.into_iter().zip(before) {
        let now = keys(&engine, table);
        assert!(before.iter().all(|key| now.contains(key)), "a row of {} is missing", table.name());
    }
    assert_eq!(ledger.note("pruner/policy").await.unwrap().as_deref(), Some(&b"a promise"[..]));
    // The records that settled are still prunable by rule, and only by rule.
    let request = PruneRequest::records(vec![coin("coin 0", 2).txid], context(4, small().retention, &[]));
    assert!(!ledger.prune(request).await.unwrap().judged[0].verdict.may_go());
}
