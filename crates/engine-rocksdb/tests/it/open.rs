//! Opening a store: what is refused, and whether the refusal says what to do. Nothing that is refused is changed.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
    sync::Arc,
};

use crate::harness::{self, Rocks, open_at, options, raw::Raw, verify};
use sapwood_conformance::{
    crash::{
        Durable,
        timeline::{Timeline, Workload},
        worker::{DONE, Orders},
    },
    fixtures::{block_hash, child, coin, small},
};
use sapwood_engine_rocksdb::{Durability, OpenMode, Options, open_ledger};
use sapwood_ledger::{
    AddressIndexing, AddressKind, AddressQuery, ApplyError, ApplyOptions, EngineError, Ledger, Order, Page,
    SCHEMA_VERSION, StoreError,
};
use sapwood_rules::Policy;
use sapwood_types::{AddressHash, Block, Height, Tx};
use tempfile::TempDir;

fn open(directory: &Path) -> Result<Ledger, StoreError> {
    open_ledger(directory, OpenMode::Create, small(), options())
}

async fn apply(store: &Ledger, height: u32, txs: &[&Tx]) -> Result<(), ApplyError> {
    let block = Block {
        height: Height(height),
        hash: block_hash(&height.to_string()),
        parent: block_hash(&(height - 1).to_string()),
        time: 0,
        txs: txs.iter().copied().cloned().collect(),
    };
    store.apply_block(Arc::new(block), ApplyOptions::default()).await.map(|_| ())
}

/// A store with three transactions in it, closed.
async fn a_store() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    apply(&store, 1, &[&coin("one", 2), &coin("two", 1), &coin("paged", 300)]).await.unwrap();
    directory
}

/// Opening is refused with this error, whose text has all these parts, and the database is as it was.
#[track_caller]
fn assert_refused(directory: &Path, options: Options, expected: &StoreError, parts: &[&str]) {
    let state = || Raw::open(directory).get("meta", "state");
    let before = state();
    let error = open_ledger(directory, OpenMode::Create, small(), options).err();
    assert_eq!(error.as_ref(), Some(expected));
    let text = expected.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
    assert_eq!(state(), before);
}

/// Opening is refused because an entry cannot be read, and the error says which.
#[track_caller]
fn assert_corrupt(directory: &Path, which: &str) {
    match open(directory).err() {
        Some(StoreError::Corrupt { what, .. }) if what.contains(which) => {}
        other => panic!("expected {which} to be corrupt, got {other:?}"),
    }
}

#[tokio::test]
async fn a_second_open_in_the_same_process_is_refused_until_the_first_is_closed() {
    let directory = a_store().await;
    let store = open(directory.path()).unwrap();
    let clone = store.clone();
    drop(store);
    let error = open(directory.path()).err().unwrap();
    assert_eq!(
        error,
        StoreError::Engine(EngineError::Locked { place: directory.path().display().to_string() })
    );
    let text = error.to_string();
    assert!(text.contains(directory.path().to_str().unwrap()) && text.contains("in use"), "{text}");
    drop(clone);
    open(directory.path()).unwrap();
}

#[test]
fn a_second_open_in_another_process_is_refused_and_names_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let orders = Orders {
        directory: directory.path().to_owned(),
        workload: Workload::Chain,
        seed: 1,
        from: 0,
        settings: Rocks::new(Durability::ProcessCrash).settings(),
        end_at: None,
    };
    let mut child =
        orders.command("open::worker").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    // The pipe stays open until the end: a worker nobody listens to ends.
    let mut lines = lines.map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with(DONE)), "the worker does not work");
    let error = open(directory.path()).err();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(
        error,
        Some(StoreError::Engine(EngineError::Locked { place: directory.path().display().to_string() }))
    );
    open(directory.path()).unwrap();
}

#[test]
#[ignore = "the process that has a store open while another one tries"]
fn worker() {
    harness::work();
}

#[tokio::test]
async fn a_newer_schema_is_refused_with_a_hint() {
    let directory = a_store().await;
    Raw::open(directory.path()).put("meta", "schema", (SCHEMA_VERSION + 1).to_be_bytes());
    Raw::open(directory.path()).put("meta", "written-by", "sapwood 9.1.0");
    let path = directory.path().to_owned();
    let newer = StoreError::NewerSchema {
        place: path.display().to_string(),
        found: SCHEMA_VERSION + 1,
        known: SCHEMA_VERSION,
        written_by: Some("sapwood 9.1.0".into()),
    };
    let parts = [path.to_str().unwrap(), "schema version 5", "sapwood 9.1.0", "up to 4", "backup"];
    assert_refused(directory.path(), options(), &newer, &parts);
}

#[tokio::test]
async fn a_changed_address_index_is_refused_and_the_old_setting_still_opens() {
    let directory = a_store().await;
    for asked_for in [
        AddressIndexing { address: true, credential: false },
        AddressIndexing { address: false, credential: true },
        AddressIndexing::default(),
    ] {
        let changed = options().ledger(|ledger| ledger.address_index = asked_for);
        let error = open_ledger(directory.path(), OpenMode::Create, small(), changed).err().unwrap();
        let StoreError::BadOption { problem } = &error else { panic!("{error:?}") };
        let path = directory.path().to_str().unwrap();
        for part in [path, &format!("{:?}", options().ledger.address_index), &format!("{asked_for:?}")] {
            assert!(problem.contains(part), "{part:?} is missing: {problem}");
        }
    }
    open(directory.path()).unwrap();
}

#[tokio::test]
async fn an_address_index_that_is_not_kept_is_not_an_empty_one() {
    let directory = tempfile::tempdir().unwrap();
    let address_index = AddressIndexing { address: true, credential: false };
    let options = options().ledger(|ledger| ledger.address_index = address_index);
    let store = open_ledger(directory.path(), OpenMode::Create, small(), options).unwrap();
    let query = |kind| {
        let (hash, order) = (AddressHash([7; 28]), Order::Ascending);
        store.by_address(AddressQuery { kind, hash, order, after: None, limit: 10 })
    };
    assert_eq!(query(AddressKind::Address).await, Ok(Page::new(vec![], None)));
    let error = query(AddressKind::Credential).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::BadOption { problem } if problem.contains("credential")),
        "{error:?}"
    );
}

#[test]
fn an_unsafe_policy_is_refused_before_anything_is_made() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("store");
    for policy in [Policy { retention: 4, reorg_window: 5, ..small() }, Policy { reorg_window: 0, ..small() }]
    {
        let problem = policy.validate().unwrap_err().to_string();
        let error = open_ledger(&directory, OpenMode::Create, policy, options()).err();
        assert_eq!(error, Some(StoreError::BadOption { problem }));
    }
    assert!(!directory.exists());
}

#[test]
fn a_file_in_the_place_of_the_directory_is_refused_by_name() {
    let parent = tempfile::tempdir().unwrap();
    let file = parent.path().join("file");
    std::fs::write(&file, "something else").unwrap();
    let error = open(&file).err().unwrap();
    let StoreError::Engine(EngineError::Failed { cause, .. }) = &error else { panic!("{error:?}") };
    assert!(cause.contains(file.to_str().unwrap()), "{cause}");
    assert_eq!(std::fs::read(&file).unwrap(), b"something else");
}

#[tokio::test]
async fn entries_of_the_store_itself_that_cannot_be_read_are_refused() {
    let directory = a_store().await;
    let good = Raw::open(directory.path()).get("meta", "state").unwrap();
    let longer = [good.as_slice(), b"x"].concat();
    for bad in [&b""[..], b"garbage", &good[..good.len() - 1], &longer] {
        Raw::open(directory.path()).put("meta", "state", bad);
        assert_corrupt(directory.path(), "state");
    }
    Raw::open(directory.path()).delete("meta", "state");
    assert_corrupt(directory.path(), "state");
    Raw::open(directory.path()).put("meta", "state", &good);
    open(directory.path()).unwrap();
    Raw::open(directory.path()).put("meta", "schema", b"1");
    assert_corrupt(directory.path(), "schema");
    Raw::open(directory.path()).put("meta", "schema", 0u32.to_be_bytes());
    assert_corrupt(directory.path(), "schema");
}

/// A store that has lost its schema version is not a new one: to start afresh in it would write over what is there.
#[tokio::test]
async fn a_store_without_its_schema_is_not_taken_for_a_new_one() {
    let directory = a_store().await;
    Raw::open(directory.path()).delete("meta", "schema");
    assert_corrupt(directory.path(), "schema");
    Raw::open(directory.path()).put("meta", "schema", SCHEMA_VERSION.to_be_bytes());
    let store = open(directory.path()).unwrap();
    assert!(store.get(coin("one", 2).txid).await.unwrap().is_some());
}

#[tokio::test]
async fn a_damaged_record_is_a_typed_error_and_harms_nothing_else() {
    let directory = a_store().await;
    let (one, two) = (coin("one", 2), coin("two", 1));
    Raw::open(directory.path()).put("tx", one.txid.0, b"not a record");
    let store = open(directory.path()).unwrap();
    let name = one.txid.to_string();
    let is_named =
        |error: &StoreError| matches!(error, StoreError::Corrupt { what, .. } if what.contains(&name));
    let error = store.get(one.txid).await.unwrap_err();
    assert!(is_named(&error), "{error:?}");
    assert!(error.to_string().contains("sapwood verify"), "{error}");
    assert!(store.get(two.txid).await.unwrap().is_some());
    let report = verify(&store).await;
    assert!(report.problems.iter().any(|problem| problem.contains(&name)), "{report}");
    assert!(is_named(&store.state_digest().await.unwrap_err()));

    // A block that needs it fails as a whole; one that does not is fine, so the store is not poisoned.
    let refused = apply(&store, 2, &[&child("of one", &[(&one, 0)], 1)]).await.unwrap_err();
    assert!(matches!(&refused, ApplyError::Store(error) if is_named(error)), "{refused:?}");
    apply(&store, 2, &[&child("of two", &[(&two, 0)], 1)]).await.unwrap();
}

#[tokio::test]
async fn a_missing_page_of_a_large_record_is_a_typed_error() {
    let directory = a_store().await;
    let paged = coin("paged", 300);
    let key = [&paged.txid.0[..], &1u32.to_be_bytes()].concat();
    Raw::open(directory.path()).delete("tx", key);
    let store = open(directory.path()).unwrap();
    let error = store.get(paged.txid).await.unwrap_err();
    let name = paged.txid.to_string();
    assert!(matches!(&error, StoreError::Corrupt { what, .. } if what.contains(&name)), "{error:?}");
}

/// Bits that change on the disk are noticed by the engine's checksums. Whatever is read is right, or an error.
#[tokio::test]
async fn bits_that_flip_on_the_disk_are_never_read_as_data() {
    let original = tempfile::tempdir().unwrap();
    let mut timeline = Timeline::new(Workload::Chain, 5);
    let store = open_ledger(original.path(), OpenMode::Create, timeline.policy(), options()).unwrap();
    for _ in 0..80 {
        timeline.step().0.on_store(&store).await;
    }
    store.settle_disk().await.unwrap();
    drop(store);
    let mut noticed = 0;
    for part in 1..=6 {
        let directory = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(original.path()).unwrap() {
            let path = entry.unwrap().path();
            std::fs::copy(&path, directory.path().join(path.file_name().unwrap())).unwrap();
        }
        flip_in_largest_table(directory.path(), part);
        match open_ledger(directory.path(), OpenMode::Create, timeline.policy(), options()) {
            Err(StoreError::Engine(_)) => noticed += 1,
            Err(error) => panic!("{error:?}"),
            Ok(store) => match store.state_digest().await {
                Err(StoreError::Engine(_)) => noticed += 1,
                Err(error) => panic!("{error:?}"),
                Ok(digest) => assert_eq!(digest, timeline.digest_at(80), "part {part}"),
            },
        }
    }
    assert!(noticed >= 3, "only {noticed} of 6 were noticed");
}

/// Flips one bit in the largest table file, so many sevenths into it.
fn flip_in_largest_table(directory: &Path, part: usize) {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let tables = files.filter(|path| path.extension().is_some_and(|extension| extension == "sst"));
    let largest = tables.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut bytes = std::fs::read(&largest).unwrap();
    let place = bytes.len() * part / 7;
    bytes[place] ^= 1;
    std::fs::write(&largest, bytes).unwrap();
}

/// Without a log, a clean stop is the one thing that keeps everything; afterwards the store opens either way.
#[tokio::test]
async fn a_clean_stop_without_a_log_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut timeline = Timeline::new(Workload::Chain, 9);
    for durability in [Durability::CleanStopOnly, Durability::CleanStopOnly, Durability::ProcessCrash] {
        let store = open_at(directory.path(), &timeline, durability);
        let at = timeline.at();
        assert_eq!(store.state_digest().await.unwrap(), timeline.digest_at(at), "{durability:?}");
        for _ in 0..30 {
            timeline.step().0.on_store(&store).await;
        }
    }
}
