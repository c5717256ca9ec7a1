//! A store opened for reading: all reads work, all writes are refused, and nothing in the directory changes.

use std::{
    collections::BTreeMap, ops::ControlFlow, path::Path, process::Command, sync::Arc, time::SystemTime,
};

use crate::harness::{options, verify};
use sapwood_conformance::crash::{
    failing::{every_write, store_error},
    timeline::{Timeline, Workload},
};
use sapwood_engine_rocksdb::{OpenMode, open_ledger};
use sapwood_ledger::{AddressIndexing, EngineError, Ledger, StoreError};
use sapwood_rules::Policy;

/// Every file with its size and time of change.
fn listing(directory: &Path) -> BTreeMap<String, (u64, SystemTime)> {
    let files = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    let entry = |file: std::fs::DirEntry| {
        let metadata = file.metadata().unwrap();
        (file.file_name().into_string().unwrap(), (metadata.len(), metadata.modified().unwrap()))
    };
    files.map(entry).collect()
}

async fn assert_reads(store: &Ledger, timeline: &mut Timeline, at: u64) {
    assert_eq!(store.state_digest().await.unwrap(), timeline.digest_at(at));
    let report = verify(store).await;
    assert!(report.is_clean(), "{report}");
    for txid in timeline.txids() {
        store.get(txid).await.unwrap();
    }
    store.counts().await.unwrap();
    store.unmined(None, 10).await.unwrap();
    store.engine_stats(None).await.unwrap();
    store.disk_room().await.unwrap().unwrap();
    store.utxo_set(true, Arc::new(|_, _| ControlFlow::Continue(()))).await.unwrap();
}

async fn assert_refuses_writes(store: &Ledger, directory: &Path, policy: Policy) {
    let expected = StoreError::Engine(EngineError::ReadOnly { place: directory.display().to_string() });
    for op in every_write() {
        let outcome = op.on_store(store).await;
        assert_eq!(store_error(&outcome), Some(&expected), "{}: {outcome:?}", op.name());
    }
    assert_eq!(store.put_notes(vec![("a".into(), None)]).await, Err(expected.clone()));
    assert_eq!(store.set_policy(policy).await, Err(expected.clone()));
    assert_eq!(store.checkpoint(&directory.join("copy")).await, Err(expected.clone()));
    assert_eq!(store.writable().await, Err(expected));
}

#[tokio::test]
async fn m14_a_store_opened_for_reading_answers_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut timeline = Timeline::new(Workload::EveryOperation, 3);
    let policy = timeline.policy();
    let store = open_ledger(directory.path(), OpenMode::Create, policy, options()).unwrap();
    for _ in 0..60 {
        timeline.step().0.on_store(&store).await;
    }
    let open_read_only = |options| open_ledger(directory.path(), OpenMode::ReadOnly, policy, options);
    let locked = StoreError::Engine(EngineError::Locked { place: directory.path().display().to_string() });
    assert_eq!(open_read_only(options()).err(), Some(locked.clone()), "somebody writes to it");
    drop(store);

    let before = listing(directory.path());
    // What it was made with is what counts.
    let other = options().ledger(|ledger| {
        ledger.address_index = AddressIndexing::default();
        ledger.utxo_hash = false;
    });
    let reader = open_read_only(other).unwrap();
    let second = open_read_only(options()).unwrap();
    assert_eq!(open_ledger(directory.path(), OpenMode::Create, policy, options()).err(), Some(locked));
    let at = timeline.at();
    assert_reads(&reader, &mut timeline, at).await;
    assert_reads(&second, &mut timeline, at).await;
    timeline.go_to(at);
    assert_refuses_writes(&reader, directory.path(), policy).await;
    drop((reader, second));
    assert_eq!(listing(directory.path()), before);
    open_ledger(directory.path(), OpenMode::Create, policy, options()).unwrap();
}

#[tokio::test]
async fn m14_a_copy_without_a_lock_file_on_a_read_only_medium_can_be_looked_at() {
    let directory = tempfile::tempdir().unwrap();
    let mut timeline = Timeline::new(Workload::Chain, 3);
    let policy = timeline.policy();
    let store = open_ledger(&directory.path().join("store"), OpenMode::Create, policy, options()).unwrap();
    for _ in 0..60 {
        timeline.step().0.on_store(&store).await;
    }
    let medium = directory.path().join("medium");
    std::fs::create_dir(&medium).unwrap();
    let copy = medium.join("copy");
    store.checkpoint(&copy).await.unwrap();
    assert!(!copy.join("sapwood.lock").exists(), "the case itself");
    let mount = |arguments: &[&str]| {
        Command::new("mount").args(arguments).arg(&medium).status().is_ok_and(|status| status.success())
    };
    let source = medium.to_str().unwrap();
    let mounted = mount(&["--bind", source]) && mount(&["-o", "remount,ro,bind"]);
    if !mounted {
        let demanded = std::env::var_os("SAPWOOD_DEMAND_MOUNT").is_some_and(|demand| demand == "1");
        assert!(!demanded, "a read-only medium cannot be mounted here");
        eprintln!("not on a read-only medium: it cannot be mounted here");
    }
    let looked_at = async {
        assert_eq!(std::fs::write(medium.join("a"), "b").is_err(), mounted, "the case itself");
        let reader = open_ledger(&copy, OpenMode::ReadOnly, policy, options()).unwrap();
        let at = timeline.at();
        assert_reads(&reader, &mut timeline, at).await;
        assert_refuses_writes(&reader, &copy, policy).await;
    };
    let unmount = Unmount(mounted.then_some(&medium));
    looked_at.await;
    drop(unmount);
}

/// Takes a mount away, whatever becomes of the test.
struct Unmount<'a>(Option<&'a std::path::PathBuf>);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        if let Some(at) = self.0 {
            let done = Command::new("umount").arg("-l").arg(at).status();
            assert!(done.is_ok_and(|status| status.success()) || std::thread::panicking());
        }
    }
}

#[test]
fn m14_a_missing_store_is_an_error_and_none_is_made() {
    let parent = tempfile::tempdir().unwrap();
    let policy = Timeline::new(Workload::Chain, 1).policy();
    let (missing, empty) = (parent.path().join("missing"), parent.path().join("empty"));
    std::fs::create_dir(&empty).unwrap();
    for directory in [missing, empty] {
        let expected = StoreError::Engine(EngineError::Absent { place: directory.display().to_string() });
        assert!(expected.to_string().contains(directory.to_str().unwrap()));
        for mode in [OpenMode::Existing, OpenMode::ReadOnly] {
            assert_eq!(open_ledger(&directory, mode, policy, options()).err(), Some(expected.clone()));
        }
        let left = std::fs::read_dir(&directory).map(Iterator::count);
        assert!(left.is_err() || left.is_ok_and(|files| files == 0), "something was made");
    }
    let directory = parent.path().join("store");
    drop(open_ledger(&directory, OpenMode::Create, policy, options()).unwrap());
    drop(open_ledger(&directory, OpenMode::Existing, policy, options()).unwrap());
    open_ledger(&directory, OpenMode::ReadOnly, policy, options()).unwrap();
}
