//! What the database drops of a damaged log is noticed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sapwood_conformance::fixtures::small;
use sapwood_engine_rocksdb::{Durability, OpenMode, open_ledger};
use sapwood_ledger::{Ledger, StoreError, engine::EngineError};

use crate::harness::options;

fn open(directory: &Path, mode: OpenMode, durability: Durability) -> Result<Ledger, StoreError> {
    let options = options().engine(|engine| {
        engine.durability = durability;
        // Nothing is flushed: all of it is in the log.
        engine.write_buffer_bytes = 8 << 20;
    });
    open_ledger(directory, mode, small(), options)
}

fn name(number: u32) -> String {
    format!("note {number}")
}

async fn write_notes(store: &Ledger, count: u32) {
    for number in 0..count {
        store.put_notes(vec![(name(number), Some("value".into()))]).await.unwrap();
    }
}

fn largest_log(directory: &Path) -> PathBuf {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let logs = files.filter(|path| path.extension().is_some_and(|end| end == "log"));
    logs.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap()
}

/// Flips a byte in the middle of the log, or cuts it there.
fn damage(directory: &Path, cut: bool) {
    let path = largest_log(directory);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    if cut {
        bytes.truncate(middle)
    } else {
        bytes[middle] ^= 0xff
    }
    fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn c1_damaged_log_is_refused_and_not_read_as_less() {
    for durability in [Durability::ProcessCrash, Durability::PowerLoss] {
        for cut in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let store = open(directory.path(), OpenMode::Create, durability).unwrap();
            write_notes(&store, 100).await;
            drop(store);
            damage(directory.path(), cut);
            for mode in [OpenMode::Existing, OpenMode::ReadOnly, OpenMode::Create] {
                let refused = open(directory.path(), mode, durability).err().unwrap();
                let StoreError::Engine(EngineError::WritesLost { acknowledged, found, .. }) = refused else {
                    panic!("{mode:?}: {refused}")
                };
                assert!(found < acknowledged, "{found} of {acknowledged}");
            }
            // The way out that the message names.
            fs::remove_file(directory.path().join("acknowledged")).unwrap();
            let store = open(directory.path(), OpenMode::Existing, durability).unwrap();
            assert!(store.note(&name(0)).await.unwrap().is_some());
            assert!(store.note(&name(99)).await.unwrap().is_none());
            write_notes(&store, 100).await;
            drop(store);
            open(directory.path(), OpenMode::Existing, durability).unwrap();
        }
    }
}

#[tokio::test]
async fn store_without_a_log_opens_as_it_was_flushed() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), OpenMode::Create, Durability::CleanStopOnly).unwrap();
    write_notes(&store, 10).await;
    drop(store);
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    // As after a crash: what came after the copy is not in it.
    let store = open(directory.path(), OpenMode::Existing, Durability::CleanStopOnly).unwrap();
    write_notes(&store, 20).await;
    drop(store);
    let store = open(copy.path(), OpenMode::Existing, Durability::CleanStopOnly).unwrap();
    assert!(store.note(&name(9)).await.unwrap().is_some() && store.note(&name(10)).await.unwrap().is_none());
}
