//! Dumps between engines: RocksDB to memory and back.

use std::{ops::ControlFlow, path::Path, sync::Arc};

use sapwood_conformance::crash::timeline::{Timeline, Workload};
use sapwood_engine_memory::MemoryEngine;
use sapwood_engine_rocksdb::{OpenMode, RocksEngine, open_ledger};
use sapwood_ledger::{
    Ledger, StoreError, UtxoSet,
    dump::{DumpProgress, DumpReader, Dumped, LoadError},
    engine::Engine,
};

use crate::harness::{options, raw::Raw, verify};

fn go_on(_: DumpProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn engine(directory: &Path) -> RocksEngine {
    RocksEngine::open(directory, OpenMode::Create, &options().engine).unwrap()
}

fn load(engine: &dyn Engine, bytes: &[u8]) -> Result<Dumped, LoadError> {
    DumpReader::open(bytes)?.load(engine, &go_on)
}

fn dumped(ledger: &Ledger) -> Vec<u8> {
    let mut bytes = Vec::new();
    ledger.dump(&mut bytes, &go_on).unwrap();
    bytes
}

/// The state's digest, and the UTXO set with its hash.
async fn seen(ledger: &Ledger) -> ([u8; 32], Option<UtxoSet>) {
    let report = verify(ledger).await;
    assert!(report.is_clean(), "{report}");
    (ledger.state_digest().await.unwrap(), ledger.rolling_utxo_set().await.unwrap())
}

#[tokio::test]
async fn round_trip_between_engines_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (directory.path().join("first"), directory.path().join("second"));
    let mut timeline = Timeline::new(Workload::Chain, 3);
    let ledger = open_ledger(&first, OpenMode::Create, timeline.policy(), options()).unwrap();
    for _ in 0..120 {
        timeline.step().0.on_store(&ledger).await;
    }
    let (policy, expected, from_rocksdb) = (timeline.policy(), seen(&ledger).await, dumped(&ledger));
    assert!(expected.1.as_ref().is_some_and(|set| set.coins > 100), "the case itself: {:?}", expected.1);

    let memory = Arc::new(MemoryEngine::new());
    load(&*memory, &from_rocksdb[..]).unwrap();
    let in_memory = Ledger::open(memory, policy, options().ledger).unwrap();
    assert_eq!(seen(&in_memory).await, expected);

    let from_memory = dumped(&in_memory);
    let loaded = load(&engine(&second), &from_memory[..]).unwrap();
    let again = open_ledger(&second, OpenMode::Existing, policy, options()).unwrap();
    assert_eq!(seen(&again).await, expected);

    // The rows are the same, byte by byte; only the numbers of the commits that wrote them are not.
    let rows = |bytes: &[u8]| bytes[bytes.len() / 3..bytes.len() - 60].to_vec();
    assert_eq!(rows(&from_memory), rows(&from_rocksdb));
    assert_eq!(rows(&dumped(&again)), rows(&from_rocksdb));
    assert_eq!(loaded.bytes, from_memory.len() as u64);

    // They go on alike.
    for _ in 0..20 {
        let op = timeline.step().0;
        let outcome = op.on_store(&ledger).await;
        assert_eq!(op.on_store(&in_memory).await, outcome);
        assert_eq!(op.on_store(&again).await, outcome);
    }
    let expected = seen(&ledger).await;
    assert_eq!((seen(&in_memory).await, seen(&again).await), (expected.clone(), expected));
}

/// What a load left that was cut off is not taken for a store, by a reader either, and the next load starts over.
#[tokio::test]
async fn cut_off_load_does_not_open_and_is_started_over() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let mut timeline = Timeline::new(Workload::Chain, 4);
    let ledger = open_ledger(&from, OpenMode::Create, timeline.policy(), options()).unwrap();
    for _ in 0..60 {
        timeline.step().0.on_store(&ledger).await;
    }
    let (expected, bytes) = (seen(&ledger).await, dumped(&ledger));
    for end in [bytes.len() / 3, bytes.len() - 1] {
        let cut = load(&engine(&to), &bytes[..end]);
        assert!(matches!(cut, Err(LoadError::Damaged { .. })), "{cut:?}");
        for mode in [OpenMode::Create, OpenMode::Existing, OpenMode::ReadOnly] {
            let error = open_ledger(&to, mode, timeline.policy(), options()).err();
            assert_eq!(error, Some(StoreError::HalfLoaded { place: to.display().to_string() }));
        }
        // A program that knows nothing of loads sees a schema that it does not know.
        let schema = Raw::open(&to).get("meta", "schema").unwrap();
        assert!(schema > 3_u32.to_be_bytes().to_vec());
    }
    load(&engine(&to), &bytes[..]).unwrap();
    let loaded = open_ledger(&to, OpenMode::Existing, timeline.policy(), options()).unwrap();
    assert_eq!(seen(&loaded).await, expected);
    drop(loaded);
    let full = load(&engine(&to), &bytes[..]);
    assert_eq!(full, Err(LoadError::NotEmpty { place: to.display().to_string() }));
    assert!(engine(&to).position().unwrap() > 0);
}
