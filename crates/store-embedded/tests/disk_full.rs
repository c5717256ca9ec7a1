//! Writes that fail: an injected error, and a disk that is really full. What was acknowledged stays, the store says what is
//! wrong and refuses to go on, reading works, and after the cause is mended and the store is opened again it goes on.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: to panic is how they fail")]

mod harness;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use harness::{
    failing::{FailAt, every_write, store_error},
    options,
    timeline::{Timeline, Workload},
    verify,
};
use sapwood_store::{StoreDiagnose, StoreError, StoreRead};
use sapwood_store_embedded::{Durability, EmbeddedOptions, EmbeddedStore};
use sapwood_types::TxRecord;

/// Goes on with a timeline until the engine fails. Returns how; the operation that failed is the timeline's last.
async fn work_until_it_fails(store: &EmbeddedStore, timeline: &mut Timeline) -> StoreError {
    for _ in 0..5_000 {
        let (op, expected) = timeline.step();
        let outcome = op.on_store(store).await;
        if let Some(error) = store_error(&outcome) {
            return error.clone();
        }
        assert_eq!(outcome.is_ok(), expected.is_ok(), "{}: {outcome:?}", op.name());
    }
    panic!("no write failed");
}

async fn assert_refuses_every_write(store: &EmbeddedStore, because_of: &str) {
    for op in every_write() {
        let outcome = op.on_store(store).await;
        let Some(error @ StoreError::Poisoned { cause }) = store_error(&outcome) else {
            panic!("{} was not refused: {outcome:?}", op.name());
        };
        assert!(cause.contains(because_of), "{cause}");
        let text = error.to_string();
        for part in ["refuses to write", because_of, "acknowledged before is safe", "restart"] {
            assert!(text.contains(part), "{part:?} is missing: {text}");
        }
    }
}

/// Reads everything the model has at operation `number`, and finds it the same but for forgotten spenders.
async fn assert_reads_work(store: &EmbeddedStore, timeline: &mut Timeline, number: u64) {
    timeline.go_to(number);
    let txids = timeline.txids();
    let found = store.get_many(txids.clone()).await.unwrap();
    let mut model = timeline.model().clone();
    for (txid, record) in txids.iter().zip(found) {
        let record: TxRecord = record.unwrap_or_else(|| panic!("{txid} is gone"));
        assert_eq!(model.agree_on_forgotten(&record), []);
        assert_eq!(model.get(*txid), Some(record));
    }
    store.counts().await.unwrap();
    store.unmined(None, 10).await.unwrap();
}

/// Opens the store again, finds just what must be there, and goes on.
async fn assert_goes_on(directory: &Path, timeline: &mut Timeline, at: &[u64]) {
    timeline.go_to(at[0]);
    let store = EmbeddedStore::open(directory, timeline.policy(), options()).unwrap();
    let report = verify(&store).await;
    assert!(report.is_clean(), "{report}");
    let digest = store.state_digest().await.unwrap();
    let found = at.iter().find(|number| timeline.digest_at(**number) == digest);
    let found = *found.unwrap_or_else(|| panic!("what was acknowledged is gone, or more is there: {at:?}"));
    timeline.go_to(found);
    for number in found + 1..=found + 20 {
        let (op, expected) = timeline.step();
        let outcome = op.on_store(&store).await;
        assert_eq!(outcome.is_ok(), expected.is_ok(), "{}: {outcome:?}", op.name());
        assert_eq!(store.state_digest().await.unwrap(), timeline.digest_at(number), "{}", op.name());
    }
}

async fn a_failed_write(workload: Workload, point: &'static str, hit: u64) {
    let directory = tempfile::tempdir().unwrap();
    let mut timeline = Timeline::new(workload, hit);
    let with_faults = EmbeddedOptions { faults: Some(FailAt::nth(point, hit)), ..options() };
    let store = EmbeddedStore::open(directory.path(), timeline.policy(), with_faults).unwrap();
    let error = work_until_it_fails(&store, &mut timeline).await;
    assert_eq!(error, StoreError::Engine { doing: point, cause: FailAt::CAUSE.into() });
    assert_refuses_every_write(&store, FailAt::CAUSE).await;
    let failed = timeline.at();
    // A write that failed after it was written is there, but nobody was told.
    let there = if point == "after-write" { failed } else { failed - 1 };
    assert_reads_work(&store, &mut timeline, there).await;
    drop(store);
    assert_goes_on(directory.path(), &mut timeline, &[there]).await;
}

#[tokio::test]
async fn a_write_that_fails_before_it_is_written_poisons_the_store_and_is_not_there() {
    for hit in [2, 5, 40] {
        a_failed_write(Workload::EveryOperation, "before-write", hit).await;
        a_failed_write(Workload::Chain, "before-write", hit).await;
    }
}

#[tokio::test]
async fn a_write_that_fails_after_it_is_written_poisons_the_store_and_is_there_as_a_whole() {
    for hit in [2, 5, 40] {
        a_failed_write(Workload::EveryOperation, "after-write", hit).await;
        a_failed_write(Workload::Chain, "after-write", hit).await;
    }
}

#[tokio::test]
async fn an_error_while_making_a_new_store_leaves_nothing_that_looks_like_one() {
    let directory = tempfile::tempdir().unwrap();
    let mut timeline = Timeline::new(Workload::Chain, 1);
    let with_faults = EmbeddedOptions { faults: Some(FailAt::nth("before-write", 1)), ..options() };
    let error = EmbeddedStore::open(directory.path(), timeline.policy(), with_faults).err();
    let expected = StoreError::Engine { doing: "before-write", cause: FailAt::CAUSE.into() };
    assert_eq!(error, Some(expected));
    assert_goes_on(directory.path(), &mut timeline, &[0]).await;
}

/// A file system of its own, in memory, taken away with the guard.
struct SmallDisk {
    at: PathBuf,
    _parent: tempfile::TempDir,
}

fn mount(arguments: &[&str], at: &Path) -> Result<(), String> {
    let output = Command::new("mount").args(arguments).arg(at).output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

impl SmallDisk {
    fn new(size: &str) -> Result<Self, String> {
        let parent = tempfile::tempdir().map_err(|error| error.to_string())?;
        let at = parent.path().join("disk");
        std::fs::create_dir(&at).map_err(|error| error.to_string())?;
        mount(&["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"], &at)?;
        Ok(SmallDisk { at, _parent: parent })
    }

    fn resize(&self, size: &str) {
        mount(&["-o", &format!("remount,size={size}")], &self.at).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a failing test may still have files open there.
        let done = Command::new("umount").arg("-l").arg(&self.at).status();
        if !done.is_ok_and(|status| status.success()) {
            eprintln!("{} could not be unmounted", self.at.display());
        }
    }
}

async fn a_full_disk(durability: Durability, write_buffer_bytes: usize) {
    let disk = match SmallDisk::new("48m") {
        Ok(disk) => disk,
        Err(why) => return println!("skipped: a small file system cannot be mounted here: {why}"),
    };
    let directory = disk.at.join("store");
    let mut timeline = Timeline::new(Workload::Filling, 7);
    let policy = timeline.policy();
    let options = EmbeddedOptions { durability, write_buffer_bytes, ..options() };
    let store = EmbeddedStore::open(&directory, policy, options.clone()).unwrap();
    let error = work_until_it_fails(&store, &mut timeline).await;
    let StoreError::Engine { cause, .. } = &error else { panic!("not an engine's error: {error:?}") };
    assert!(cause.contains("No space left"), "{cause}");
    println!("{durability:?}: full after {} blocks: {error}", timeline.at() - 1);
    assert!(timeline.at() > 20, "nothing fitted, so nothing was shown");
    assert_refuses_every_write(&store, "No space left").await;
    let failed = timeline.at();
    assert_reads_work(&store, &mut timeline, failed - 1).await;
    drop(store);
    // Still full: it may open or not, but it says why, and does no harm.
    match EmbeddedStore::open(&directory, policy, options).err() {
        None => println!("it opens on the full disk"),
        Some(error @ StoreError::Engine { .. }) => println!("it does not open on the full disk: {error}"),
        Some(error) => panic!("not an engine's error: {error:?}"),
    }
    disk.resize("200m");
    assert_goes_on(&directory, &mut timeline, &[failed - 1, failed]).await;
}

#[tokio::test]
async fn a_full_disk_loses_nothing_acknowledged() {
    a_full_disk(Durability::ProcessCrash, 1 << 20).await;
}

#[tokio::test]
async fn a_full_disk_loses_nothing_acknowledged_when_every_write_is_synchronised() {
    a_full_disk(Durability::PowerLoss, 4 << 20).await;
}
