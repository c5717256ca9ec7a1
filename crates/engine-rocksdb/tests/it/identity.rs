//! Which network a store holds lies in the store.

use std::{path::Path, sync::Arc};

use crate::harness::options;
use sapwood_conformance::fixtures::{block_hash, child, coin, small};
use sapwood_engine_rocksdb::{OpenMode, Options, open_ledger};
use sapwood_ledger::{ApplyOptions, Ledger, StoreError};
use sapwood_types::{Block, Height, Tx};
use tempfile::TempDir;

const MAINNET: &str = "bitcoin mainnet";

fn named(identity: Option<&str>) -> Options {
    options().ledger(|ledger| ledger.identity = identity.map(str::to_owned))
}

fn open(directory: &Path, identity: Option<&str>) -> Result<Ledger, StoreError> {
    open_ledger(directory, OpenMode::Create, small(), named(identity))
}

async fn apply(store: &Ledger, height: u32, txs: Vec<Tx>) {
    let block = Block {
        height: Height(height),
        hash: block_hash(&height.to_string()),
        parent: block_hash(&(height - 1).to_string()),
        time: 0,
        txs,
    };
    store.apply_block(Arc::new(block), ApplyOptions::default()).await.unwrap();
}

/// A store with outputs on two pages, three of them spent.
async fn a_store(identity: Option<&str>) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), identity).unwrap();
    let paged = coin("paged", 200);
    apply(&store, 1, vec![paged.clone()]).await;
    apply(&store, 2, vec![child("child", &[(&paged, 0), (&paged, 127), (&paged, 128)], 1)]).await;
    directory
}

#[tokio::test]
async fn m14_a_store_of_another_network_is_refused_and_changes_nothing() {
    let directory = a_store(Some(MAINNET)).await;
    let digest = open(directory.path(), Some(MAINNET)).unwrap().state_digest().await;
    let error = open(directory.path(), Some("bitcoin regtest")).err().unwrap();
    let expected = StoreError::OtherIdentity {
        place: directory.path().display().to_string(),
        found: MAINNET.into(),
        wanted: "bitcoin regtest".into(),
    };
    assert_eq!(error, expected);
    for part in [directory.path().to_str().unwrap(), MAINNET, "bitcoin regtest"] {
        assert!(error.to_string().contains(part), "{part:?} is missing: {error}");
    }
    for mode in [OpenMode::Existing, OpenMode::ReadOnly] {
        let error = open_ledger(directory.path(), mode, small(), named(Some("bitcoin regtest"))).err();
        assert_eq!(error, Some(expected.clone()));
    }
    let store = open(directory.path(), Some(MAINNET)).unwrap();
    assert_eq!(store.identity(), Some(MAINNET));
    assert_eq!(store.state_digest().await, digest);
    drop(store);
    // A caller that names none is told which it is.
    assert_eq!(open(directory.path(), None).unwrap().identity(), Some(MAINNET));
}

#[tokio::test]
async fn m14_a_store_that_never_named_its_network_takes_the_first_one_named() {
    let directory = a_store(None).await;
    assert_eq!(open(directory.path(), None).unwrap().identity(), None);
    let reader = open_ledger(directory.path(), OpenMode::ReadOnly, small(), named(Some("anything"))).unwrap();
    assert_eq!(reader.identity(), None, "a reader names nothing");
    drop(reader);
    assert_eq!(open(directory.path(), Some(MAINNET)).unwrap().identity(), Some(MAINNET));
    assert!(matches!(open(directory.path(), Some("other")).err(), Some(StoreError::OtherIdentity { .. })));
    // It goes with every copy.
    let copy = directory.path().join("copy");
    open(directory.path(), None).unwrap().checkpoint(&copy).await.unwrap();
    assert!(matches!(open(&copy, Some("other")).err(), Some(StoreError::OtherIdentity { .. })));
}
