//! Copies of a running store: each is the store as it was at one moment.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use crate::harness::{open_at, options, verify};
use sapwood_conformance::crash::timeline::{Timeline, Workload};
use sapwood_engine_rocksdb::{Durability, OpenMode, open_ledger};
use sapwood_ledger::StoreError;

/// Copies a store again and again while another task writes; every copy is one of the moments in between.
async fn copies_while_it_works(durability: Durability) {
    let directory = tempfile::tempdir().unwrap();
    let mut timeline = Timeline::new(Workload::Chain, 11);
    let store = open_at(directory.path(), &timeline, durability);
    let (done, enough) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let writer = tokio::spawn({
        let (store, done, enough) = (store.clone(), Arc::clone(&done), Arc::clone(&enough));
        async move {
            let mut timeline = Timeline::new(Workload::Chain, 11);
            while !enough.load(Ordering::Relaxed) {
                let (op, expected) = timeline.step();
                let outcome = op.on_store(&store).await;
                assert_eq!(outcome.is_ok(), expected.is_ok(), "{}: {outcome:?}", op.name());
                done.store(timeline.at(), Ordering::Relaxed);
            }
        }
    });
    let mut moved = 0;
    let mut last = 0;
    for number in 0..8 {
        while done.load(Ordering::Relaxed) < last + 5 {
            tokio::task::yield_now().await;
        }
        let copy = directory.path().join(format!("copy {number}"));
        let before = done.load(Ordering::Relaxed);
        store.checkpoint(&copy).await.unwrap();
        let after = done.load(Ordering::Relaxed) + 1;
        last = after;

        let copy = open_ledger(&copy, OpenMode::Create, timeline.policy(), options()).unwrap();
        let report = verify(&copy).await;
        assert!(report.is_clean(), "copy {number}: {report}");
        let digest = copy.state_digest().await.unwrap();
        let found = (before..=after).find(|number| timeline.digest_at(*number) == digest);
        let found = found.unwrap_or_else(|| {
            let other = (0..after + 30).find(|number| timeline.digest_at(*number) == digest);
            panic!("copy {number} is none of the moments {before} to {after}; it is {other:?}")
        });
        moved += u64::from(found > before);
        // It is a store like any other.
        timeline.go_to(found);
        let (op, expected) = timeline.step();
        assert_eq!(op.on_store(&copy).await.is_ok(), expected.is_ok());
    }
    enough.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    println!("{durability:?}: {moved} of 8 copies are of a moment after they were asked for");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_store_at_work_is_one_consistent_moment() {
    copies_while_it_works(Durability::ProcessCrash).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_store_without_a_log_is_one_consistent_moment() {
    copies_while_it_works(Durability::CleanStopOnly).await;
}

/// The buffers are small, so stops fall into flushes that the engine began by itself.
#[tokio::test]
async fn a_clean_stop_without_a_log_keeps_everything() {
    let directory = tempfile::tempdir().unwrap();
    let mut timeline = Timeline::new(Workload::Chain, 12);
    for stop in 0..40 {
        let store = open_at(directory.path(), &timeline, Durability::CleanStopOnly);
        let at = timeline.at();
        assert_eq!(store.state_digest().await.unwrap(), timeline.digest_at(at), "after stop {stop} at {at}");
        for _ in 0..30 + stop {
            let (op, expected) = timeline.step();
            assert_eq!(op.on_store(&store).await.is_ok(), expected.is_ok());
        }
    }
}

#[tokio::test]
async fn a_copy_is_never_written_over_something() {
    let directory = tempfile::tempdir().unwrap();
    let timeline = Timeline::new(Workload::Chain, 1);
    let store = open_at(&directory.path().join("store"), &timeline, Durability::ProcessCrash);
    let target = directory.path().join("target");
    std::fs::create_dir(&target).unwrap();
    let error = store.checkpoint(&target).await.unwrap_err();
    let StoreError::BadOption { problem } = &error else { panic!("{error:?}") };
    assert!(problem.contains(target.to_str().unwrap()) && problem.contains("new directory"), "{problem}");
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
    std::fs::remove_dir(&target).unwrap();
    store.checkpoint(&target).await.unwrap();
}
