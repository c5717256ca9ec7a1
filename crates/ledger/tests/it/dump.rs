//! Dumps: round trips, and everything that can be wrong with a stream.

use std::{
    ops::ControlFlow,
    sync::Arc,
    task::{Context, Waker},
};

use sapwood_conformance::fixtures::{burn, child, coin, small};
use sapwood_engine_memory::{FailPoint, MemoryEngine};
use sapwood_ledger::{
    CreateRequest, EngineError, Ledger, LedgerOptions, StoreError,
    dump::{DumpError, DumpProblem, DumpProgress, DumpReader, Dumped, FORMAT_VERSION, LoadError},
    engine::{Engine, Scan, Table},
};
use sapwood_types::Height;

use crate::World;

fn go_on(_: DumpProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn options() -> LedgerOptions {
    LedgerOptions {
        utxo_hash: true,
        identity: Some("test network".into()),
        callers_thread: true,
        ..LedgerOptions::default()
    }
}

fn open(engine: &Arc<MemoryEngine>) -> Result<Ledger, StoreError> {
    Ledger::open(Arc::clone(engine) as _, small(), options())
}

async fn a_ledger() -> World {
    let engine = Arc::new(MemoryEngine::new());
    let world = World { ledger: open(&engine).unwrap(), engine };
    let (parent, wide) = (coin("parent", 2), coin("wide", 300));
    world.apply(1, vec![parent.clone(), wide.clone()]).await;
    world
        .apply(2, vec![burn("off", &[(&parent, 0), (&parent, 1)]), child("of wide", &[(&wide, 200)], 2)])
        .await;
    world.ledger.preserve(vec![wide.txid], Height(9)).await.unwrap();
    world.ledger.create(vec![CreateRequest::unmined(burn("waits", &[(&wide, 1)]))], Height(2)).await.unwrap();
    world.ledger.put_notes(vec![("note".into(), Some("text".into()))]).await.unwrap();
    world
}

fn dumped(ledger: &Ledger) -> (Dumped, Vec<u8>) {
    let mut bytes = Vec::new();
    let dumped = ledger.dump(&mut bytes, &go_on).unwrap();
    (dumped, bytes)
}

fn load_into(engine: &MemoryEngine, bytes: &[u8]) -> Result<Dumped, LoadError> {
    DumpReader::open(bytes)?.load(engine, &go_on)
}

fn check(bytes: &[u8]) -> Result<Dumped, LoadError> {
    DumpReader::open(bytes)?.check(&go_on)
}

fn load(bytes: &[u8]) -> (Arc<MemoryEngine>, Result<Dumped, LoadError>) {
    let engine = Arc::new(MemoryEngine::new());
    let loaded = load_into(&engine, bytes);
    (engine, loaded)
}

/// Every row of every table.
fn rows(engine: &MemoryEngine) -> Vec<(Table, Vec<u8>, Vec<u8>)> {
    let view = engine.view().unwrap();
    let mut rows = Vec::new();
    for table in Table::ALL {
        let collect = &mut |key: &[u8], value: &[u8]| {
            rows.push((table, key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        };
        view.scan(&Scan::all(table), collect).unwrap();
    }
    rows
}

#[tokio::test]
async fn dump_loads_into_an_empty_engine_with_every_row() {
    let world = a_ledger().await;
    let (dumped, bytes) = dumped(&world.ledger);
    assert_eq!(dumped.header.identity.as_deref(), Some("test network"));
    assert_eq!(dumped.header.number, world.engine.position().unwrap());
    assert_eq!((dumped.bytes, dumped.rows), (bytes.len() as u64, rows(&world.engine).len() as u64));
    assert_eq!(check(&bytes), Ok(dumped.clone()));
    let (engine, loaded) = load(&bytes);
    assert_eq!(loaded, Ok(dumped));
    assert_eq!(rows(&engine), rows(&world.engine));
    let again = World { ledger: open(&engine).unwrap(), engine };
    assert_eq!(again.ledger.state_digest().await, world.ledger.state_digest().await);
    assert_eq!(again.ledger.rolling_utxo_set().await, world.ledger.rolling_utxo_set().await);
    assert!(again.verify().await.is_clean());
    // It goes on from there as the other does.
    for world in [&world, &again] {
        world.apply(3, vec![coin("next", 1)]).await;
    }
    assert_eq!(again.ledger.state_digest().await, world.ledger.state_digest().await);
}

#[tokio::test]
async fn dump_is_of_one_commit() {
    let world = a_ledger().await;
    let (_, before) = dumped(&world.ledger);
    let mut bytes = Vec::new();
    let apply = |progress: DumpProgress| {
        // The first frame of rows is written: more is committed now.
        if progress.rows > 0 && world.engine.position().unwrap() < 20 {
            let notes = vec![("later".to_owned(), Some("text".into()))];
            let mut put = std::pin::pin!(world.ledger.put_notes(notes));
            assert!(put.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        }
        ControlFlow::Continue(())
    };
    world.ledger.dump(&mut bytes, &apply).unwrap();
    assert_eq!(bytes, before);
}

/// A dump that is cut short, has a bit flipped, or goes on behind its end is refused, and what it left opens as nothing.
#[tokio::test]
async fn changed_dump_is_refused_and_leaves_nothing_that_opens() {
    let world = a_ledger().await;
    let (_, bytes) = dumped(&world.ledger);
    let refused = |bytes: &[u8], what: &str| {
        let (engine, loaded) = load(bytes);
        let error = loaded.expect_err(what);
        let checked = check(bytes).expect_err(what);
        assert_eq!(checked, error, "{what}");
        if rows(&engine).is_empty() {
            return error;
        }
        let opened = open(&engine).err();
        assert_eq!(opened, Some(StoreError::HalfLoaded { place: "memory".into() }), "{what}");
        error
    };
    for end in (0..bytes.len()).step_by(7).chain([bytes.len() - 1]) {
        let error = refused(&bytes[..end], &format!("cut at {end}"));
        let cut = LoadError::Damaged { at: end as u64, problem: DumpProblem::CutShort };
        assert_eq!(error, cut, "cut at {end}");
    }
    for bit in (0..bytes.len() * 8).step_by(61) {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        refused(&flipped, &format!("bit {bit} flipped"));
    }
    let error = refused(&[&bytes[..], b"x"].concat(), "a byte more");
    let LoadError::Damaged { problem: DumpProblem::TrailingBytes, .. } = error else { panic!("{error:?}") };
    let mut newer = bytes.clone();
    newer[7] = FORMAT_VERSION + 1;
    let error = refused(&newer, "another version");
    assert_eq!(error, LoadError::UnknownVersion { found: FORMAT_VERSION + 1, known: FORMAT_VERSION });
    let error = refused(b"something else that is long enough", "another file");
    assert_eq!(error, LoadError::NotADump);
}

/// The frames of two dumps in one stream each have the right checksum.
#[tokio::test]
async fn frames_of_another_dump_are_refused() {
    let (one, other) = (a_ledger().await, a_ledger().await);
    other.apply(3, vec![coin("more", 1)]).await;
    let ((_, one), (_, other)) = (dumped(&one.ledger), dumped(&other.ledger));
    let first_frame = |bytes: &[u8]| {
        let length = u32::from_be_bytes(bytes[8..12].try_into().unwrap()) as usize;
        8 + 12 + length
    };
    let spliced = [&one[..first_frame(&one)], &other[first_frame(&other)..]].concat();
    let (engine, loaded) = load(&spliced);
    assert!(matches!(loaded, Err(LoadError::Damaged { problem: DumpProblem::Trailer, .. })), "{loaded:?}");
    assert!(open(&engine).is_err());
}

#[tokio::test]
async fn load_into_an_engine_with_rows_is_refused_and_changes_nothing() {
    let (world, other) = (a_ledger().await, World::new());
    let (_, bytes) = dumped(&world.ledger);
    let (before, position) = (rows(&other.engine), other.engine.position());
    let loaded = load_into(&other.engine, &bytes);
    assert_eq!(loaded, Err(LoadError::NotEmpty { place: "memory".into() }));
    assert_eq!((rows(&other.engine), other.engine.position()), (before, position));
}

/// The process ends before or after each commit of a load: what is there does not open, and the next load starts over.
#[tokio::test]
async fn load_killed_at_any_commit_starts_over() {
    let world = a_ledger().await;
    let (_, bytes) = dumped(&world.ledger);
    for point in [FailPoint::BeforeCommit, FailPoint::AfterCommit] {
        for number in 1..=3 {
            let engine = Arc::new(MemoryEngine::new());
            engine.fail_at(number, point);
            let failed = load_into(&engine, &bytes);
            assert!(matches!(failed, Err(LoadError::Store(StoreError::Engine(_)))), "{failed:?}");
            let engine = Arc::new(engine.reopen());
            let whole = point == FailPoint::AfterCommit && number == 3;
            let empty = point == FailPoint::BeforeCommit && number == 1;
            if whole {
                assert_eq!(rows(&engine), rows(&world.engine));
                open(&engine).unwrap();
                continue;
            }
            if !empty {
                assert!(matches!(open(&engine).err(), Some(StoreError::HalfLoaded { .. })));
            }
            load_into(&engine, &bytes).unwrap();
            assert_eq!(rows(&engine), rows(&world.engine));
            open(&engine).unwrap();
        }
    }
}

#[tokio::test]
async fn stopped_dump_and_load_say_so() {
    let world = a_ledger().await;
    let stop = |_: DumpProgress| ControlFlow::Break(());
    let stopped = world.ledger.dump(Vec::new(), &stop);
    assert!(matches!(stopped, Err(DumpError::Store(StoreError::Stopped { .. }))), "{stopped:?}");
    let (_, bytes) = dumped(&world.ledger);
    let engine = Arc::new(MemoryEngine::new());
    let stopped = DumpReader::open(&bytes[..]).unwrap().load(&*engine, &stop);
    assert!(matches!(stopped, Err(LoadError::Store(StoreError::Stopped { .. }))), "{stopped:?}");
    assert!(open(&engine).is_err());
}

/// A stream that cannot be written or read is an error of its own, not damage.
#[tokio::test]
async fn failing_streams_are_told_from_damage() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    impl std::io::Read for Full {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::ConnectionReset.into())
        }
    }
    let world = a_ledger().await;
    let failed = world.ledger.dump(Full, &go_on);
    assert!(matches!(failed, Err(DumpError::Write { .. })), "{failed:?}");
    let failed = DumpReader::open(Full).err();
    assert!(matches!(failed, Some(LoadError::Read { .. })), "{failed:?}");
}

/// A row that the engine finds damaged ends a dump: half of it must not pass for all.
#[tokio::test]
async fn damaged_row_ends_a_dump() {
    let world = a_ledger().await;
    world.engine.break_row(Table::Tx, &coin("wide", 300).txid.0);
    let failed = world.ledger.dump(Vec::new(), &go_on);
    let engine = DumpError::Store(StoreError::Engine(EngineError::Failed {
        doing: "reading a range of rows",
        cause: "a test made it unreadable".into(),
    }));
    assert_eq!(failed, Err(engine));
}
