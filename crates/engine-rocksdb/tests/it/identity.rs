//! Which network a store holds lies in the store, and older stores are migrated.

use std::{path::Path, sync::Arc};

use crate::harness::{options, raw::Raw, verify};
use sapwood_conformance::fixtures::{block_hash, burn, child, coin, context, small};
use sapwood_engine_rocksdb::{OpenMode, Options, open_ledger};
use sapwood_ledger::{ApplyOptions, Counts, CreateRequest, Ledger, PruneRequest, StoreError};
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

/// Makes a store what an older schema left behind. Schema 2 did not count what is retained and what settled, schema 1 had no network's
/// name either and did not count spent outputs.
fn make_older(directory: &Path, schema: u32) {
    let raw = Raw::open(directory);
    let state = raw.get("meta", "state").unwrap();
    assert_eq!((state[0], state[1] & 2), (3, 0), "the case itself: this version, and no cursor at the end");
    // Counts of one byte each at the end: spent outputs, then three of what is retained.
    let missing = if schema == 1 { 4 } else { 3 };
    let (kept, counts) = state.split_at(state.len() - missing);
    assert!(counts.iter().all(|count| *count < 0x80), "the case itself: {counts:?}");
    raw.put("meta", "state", [&[schema as u8][..], &kept[1..]].concat());
    raw.put("meta", "schema", schema.to_be_bytes());
    for key in raw.keys("meta").iter().filter(|key| key.starts_with(b"settled/")) {
        raw.delete("meta", key);
    }
    if schema == 1 && raw.get("meta", "identity").is_some() {
        raw.delete("meta", "identity");
    }
}

/// A store with records that are locked, preserved, wait for an unmined child or settled, and one that was pruned.
async fn a_store_that_retains() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), None).unwrap();
    let coins: Vec<Tx> = (0..6).map(|number| coin(&format!("coin {number}"), 2)).collect();
    let spend = |coin: &Tx| burn(&format!("{} off", coin.txid), &[(coin, 0), (coin, 1)]);
    apply(&store, 1, coins.clone()).await;
    apply(&store, 2, vec![spend(&coins[0])]).await;
    for height in 3..=20 {
        apply(&store, height, if height == 10 { vec![spend(&coins[1])] } else { vec![] }).await;
    }
    let txids = vec![coins[0].txid];
    let request = PruneRequest::records(txids, context(20, small().retention, &[]));
    assert!(store.prune(request).await.unwrap().judged[0].verdict.may_go());
    store.set_locked(vec![coins[2].txid], true).await.unwrap();
    store.preserve(vec![coins[3].txid, coins[4].txid], Height(50)).await.unwrap();
    store.create(vec![CreateRequest::unmined(spend(&coins[5]))], Height(20)).await.unwrap();
    directory
}

async fn settled(store: &Ledger) -> [u64; 4] {
    let mut found = [0; 4];
    for (found, (from, to)) in found.iter_mut().zip([(0, 1), (2, 2), (3, 9), (10, 10)]) {
        *found = store.settled_between(Height(from), Height(to)).await.unwrap();
    }
    found
}

#[tokio::test]
async fn a_store_of_schema_2_is_recounted_once_and_keeps_what_it_counted() {
    let directory = a_store_that_retains().await;
    let store = open(directory.path(), None).unwrap();
    let (digest, counts) = (store.state_digest().await, store.counts().await.unwrap());
    let retained = (counts.locked, counts.preserved, counts.child_unmined);
    // Spent: two outputs of the pruned coin, two of the settled one, two by the unmined child.
    assert_eq!((retained, counts.spent), ((1, 2, 1), 6));
    let by_height = settled(&store).await;
    assert_eq!(by_height, [0, 1, 0, 2], "a spender with nothing to spend settles with its own block");
    drop(store);
    make_older(directory.path(), 2);

    let reader = open_ledger(directory.path(), OpenMode::ReadOnly, small(), options()).unwrap();
    assert_eq!((reader.counts().await, settled(&reader).await), (Ok(counts), by_height));
    drop(reader);
    assert_eq!(Raw::open(directory.path()).get("meta", "schema").unwrap(), 2u32.to_be_bytes());

    for time in ["migrated", "opened again"] {
        let store = open(directory.path(), None).unwrap();
        assert_eq!(store.state_digest().await, digest, "{time}");
        assert_eq!((store.counts().await, settled(&store).await), (Ok(counts), by_height), "{time}");
        let report = verify(&store).await;
        assert!(report.is_clean(), "{time}: {report}");
        drop(store);
        assert_eq!(Raw::open(directory.path()).get("meta", "schema").unwrap(), 3u32.to_be_bytes());
    }
}

#[tokio::test]
async fn a_store_of_schema_1_is_migrated_and_keeps_all_it_has() {
    let directory = a_store(Some(MAINNET)).await;
    let store = open(directory.path(), None).unwrap();
    let (digest, counts) = (store.state_digest().await, store.counts().await);
    assert_eq!(counts, Ok(Counts { records: 2, unspent: 198, unmined: 0, spent: 3, ..Counts::default() }));
    drop(store);
    make_older(directory.path(), 1);

    let reader = open_ledger(directory.path(), OpenMode::ReadOnly, small(), options()).unwrap();
    assert_eq!((reader.counts().await, reader.identity()), (counts.clone(), None));
    drop(reader);
    assert_eq!(Raw::open(directory.path()).get("meta", "schema").unwrap(), 1u32.to_be_bytes());

    let store = open(directory.path(), Some(MAINNET)).unwrap();
    assert_eq!((store.state_digest().await, store.counts().await), (digest.clone(), counts.clone()));
    assert!(verify(&store).await.is_clean());
    drop(store);
    assert_eq!(Raw::open(directory.path()).get("meta", "schema").unwrap(), 3u32.to_be_bytes());
    let store = open(directory.path(), Some(MAINNET)).unwrap();
    assert_eq!((store.state_digest().await, store.counts().await), (digest, counts));
}

#[tokio::test]
async fn a_migration_that_cannot_write_leaves_the_older_store() {
    let directory = a_store(None).await;
    make_older(directory.path(), 1);
    let before = Raw::open(directory.path()).get("meta", "state");
    let faults = Some(crate::harness::failing::FailAt::nth("before-write", 1));
    let failing = options().ledger(|ledger| ledger.faults = faults);
    assert!(open_ledger(directory.path(), OpenMode::Create, small(), failing).is_err());
    let raw = Raw::open(directory.path());
    assert_eq!(
        (raw.get("meta", "schema"), raw.get("meta", "state")),
        (Some(1u32.to_be_bytes().into()), before)
    );
}
