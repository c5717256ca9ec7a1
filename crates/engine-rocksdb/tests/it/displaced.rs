//! A store whose directory is deleted or replaced while it is open says so, and writes nothing more.

use std::{fs, path::Path};

use sapwood_conformance::fixtures::small;
use sapwood_engine_rocksdb::{OpenMode, open_ledger};
use sapwood_ledger::{EngineError, Ledger, StoreError};

use crate::harness::options;

async fn note(store: &Ledger, text: &str) -> Result<(), StoreError> {
    store.put_notes(vec![("note".into(), Some(text.as_bytes().to_vec().into()))]).await
}

/// Blocks were applied to files that no longer existed, and the node was ready.
#[tokio::test]
async fn store_that_is_deleted_or_replaced_refuses_writes() {
    let change: [fn(&Path); 3] = [
        |directory| fs::remove_dir_all(directory).unwrap(),
        |directory| fs::rename(directory, directory.with_extension("moved")).unwrap(),
        |directory| {
            let other = directory.with_extension("other");
            drop(open_ledger(&other, OpenMode::Create, small(), options()).unwrap());
            fs::remove_dir_all(directory).unwrap();
            fs::rename(other, directory).unwrap();
        },
    ];
    for change in change {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("store");
        let store = open_ledger(&directory, OpenMode::Create, small(), options()).unwrap();
        note(&store, "before").await.unwrap();
        assert_eq!(store.writable().await, Ok(()));
        change(&directory);
        let displaced = EngineError::Displaced { place: directory.display().to_string() };
        assert_eq!(store.writable().await, Err(displaced.clone().into()));
        assert_eq!(note(&store, "after").await, Err(displaced.into()));
        assert!(matches!(store.writable().await, Err(StoreError::Poisoned { .. })));
    }
}
