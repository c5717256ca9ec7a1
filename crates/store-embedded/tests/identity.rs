//! Which network a store holds lies in the store, and older stores are migrated.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: to panic is how they fail")]

mod harness;

use std::{path::Path, sync::Arc};

use harness::{options, raw::Raw, verify};
use sapwood_conformance::fixtures::{block_hash, child, coin, small};
use sapwood_store::{ApplyOptions, Counts, StoreDiagnose, StoreError, StoreRead, StoreWrite};
use sapwood_store_embedded::{EmbeddedOptions, EmbeddedStore};
use sapwood_types::{Block, Height, Tx};
use tempfile::TempDir;

const MAINNET: &str = "bitcoin mainnet";

fn named(identity: Option<&str>) -> EmbeddedOptions {
    EmbeddedOptions { identity: identity.map(str::to_owned), ..options() }
}

fn open(directory: &Path, identity: Option<&str>) -> Result<EmbeddedStore, StoreError> {
    EmbeddedStore::open(directory, small(), named(identity))
}

async fn apply(store: &EmbeddedStore, height: u32, txs: Vec<Tx>) {
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
        directory: directory.path().to_owned(),
        found: MAINNET.into(),
        wanted: "bitcoin regtest".into(),
    };
    assert_eq!(error, expected);
    for part in [directory.path().to_str().unwrap(), MAINNET, "bitcoin regtest"] {
        assert!(error.to_string().contains(part), "{part:?} is missing: {error}");
    }
    for way in [EmbeddedStore::open_existing, EmbeddedStore::open_read_only] {
        let error = way(directory.path(), small(), named(Some("bitcoin regtest"))).err();
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
    let reader = EmbeddedStore::open_read_only(directory.path(), small(), named(Some("anything"))).unwrap();
    assert_eq!(reader.identity(), None, "a reader names nothing");
    drop(reader);
    assert_eq!(open(directory.path(), Some(MAINNET)).unwrap().identity(), Some(MAINNET));
    assert!(matches!(open(directory.path(), Some("other")).err(), Some(StoreError::OtherIdentity { .. })));
    // It goes with every copy.
    let copy = directory.path().join("copy");
    open(directory.path(), None).unwrap().checkpoint(&copy).await.unwrap();
    assert!(matches!(open(&copy, Some("other")).err(), Some(StoreError::OtherIdentity { .. })));
}

/// Makes a store what schema 1 left behind: no network's name, a state without spent outputs.
fn make_older(directory: &Path, named: bool) {
    let raw = Raw::open(directory);
    let state = raw.get("meta", "state").unwrap();
    // Version, flags, a block mark, three heights; then counts of one byte or two each, the last of which goes.
    let (front, counts) = state.split_at(2 + 40 + 12);
    assert_eq!((front[0], counts), (2, &[2, 0xc6, 1, 0, 3][..]), "the case itself");
    let older = [&[1][..], &front[1..], &counts[..4]].concat();
    raw.put("meta", "state", older);
    raw.put("meta", "schema", 1u32.to_be_bytes());
    if named {
        raw.delete("meta", "identity");
    }
}

#[tokio::test]
async fn a_store_of_schema_1_is_migrated_and_keeps_all_it_has() {
    let directory = a_store(Some(MAINNET)).await;
    let store = open(directory.path(), None).unwrap();
    let (digest, counts) = (store.state_digest().await, store.counts().await);
    assert_eq!(counts, Ok(Counts { records: 2, unspent: 198, unmined: 0, spent: 3 }));
    drop(store);
    make_older(directory.path(), true);

    let reader = EmbeddedStore::open_read_only(directory.path(), small(), options()).unwrap();
    assert_eq!((reader.counts().await, reader.identity()), (counts.clone(), None));
    drop(reader);
    assert_eq!(Raw::open(directory.path()).get("meta", "schema").unwrap(), 1u32.to_be_bytes());

    let store = open(directory.path(), Some(MAINNET)).unwrap();
    assert_eq!((store.state_digest().await, store.counts().await), (digest.clone(), counts.clone()));
    assert!(verify(&store).await.is_clean());
    drop(store);
    assert_eq!(Raw::open(directory.path()).get("meta", "schema").unwrap(), 2u32.to_be_bytes());
    let store = open(directory.path(), Some(MAINNET)).unwrap();
    assert_eq!((store.state_digest().await, store.counts().await), (digest, counts));
}

#[tokio::test]
async fn a_migration_that_cannot_write_leaves_the_older_store() {
    let directory = a_store(None).await;
    make_older(directory.path(), false);
    let before = Raw::open(directory.path()).get("meta", "state");
    let faults = Some(harness::failing::FailAt::nth("before-write", 1));
    let failing = EmbeddedOptions { faults, ..options() };
    assert!(EmbeddedStore::open(directory.path(), small(), failing).is_err());
    let raw = Raw::open(directory.path());
    assert_eq!(
        (raw.get("meta", "schema"), raw.get("meta", "state")),
        (Some(1u32.to_be_bytes().into()), before)
    );
}
