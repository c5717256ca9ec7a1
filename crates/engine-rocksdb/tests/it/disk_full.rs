//! Writes that fail: an injected error, a disk that is really full, and files that may not grow. What was acknowledged stays, the
//! store says what is wrong and refuses to go on, reading works, and after the cause is mended and the store is opened again it goes on.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::harness::{options, verify};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sapwood_conformance::crash::{
    failing::{FailAt, every_write, store_error},
    timeline::{Timeline, Workload},
};
use sapwood_engine_rocksdb::{Durability, OpenMode, Options, open_ledger};
use sapwood_ledger::{EngineError, Ledger, StoreError};
use sapwood_types::TxRecord;

/// Goes on with a timeline until the engine fails. Returns how; the operation that failed is the timeline's last.
async fn work_until_it_fails(store: &Ledger, timeline: &mut Timeline) -> StoreError {
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

async fn assert_refuses_every_write(store: &Ledger, because_of: &str) {
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
async fn assert_reads_work(store: &Ledger, timeline: &mut Timeline, number: u64) {
    timeline.go_to(number);
    let txids = timeline.txids();
    let found = store.get_many(txids.clone()).await.unwrap();
    let mut model = timeline.model().clone();
    for (txid, record) in txids.iter().zip(found) {
        let record: TxRecord = record.unwrap().unwrap_or_else(|| panic!("{txid} is gone"));
        assert_eq!(model.agree_on_forgotten(&record), []);
        assert_eq!(model.get(*txid), Some(record));
    }
    store.counts().await.unwrap();
    store.unmined(None, 10).await.unwrap();
}

/// Opens the store again, finds just what must be there, and goes on.
async fn assert_goes_on(directory: &Path, timeline: &mut Timeline, at: &[u64]) {
    timeline.go_to(at[0]);
    let store = open_ledger(directory, OpenMode::Create, timeline.policy(), options()).unwrap();
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
    let with_faults = options().ledger(|ledger| ledger.faults = Some(FailAt::nth(point, hit)));
    let store = open_ledger(directory.path(), OpenMode::Create, timeline.policy(), with_faults).unwrap();
    let error = work_until_it_fails(&store, &mut timeline).await;
    assert_eq!(error, StoreError::Engine(EngineError::Failed { doing: point, cause: FailAt::CAUSE.into() }));
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
    let with_faults = options().ledger(|ledger| ledger.faults = Some(FailAt::nth("before-write", 1)));
    let error = open_ledger(directory.path(), OpenMode::Create, timeline.policy(), with_faults).err();
    let expected =
        StoreError::Engine(EngineError::Failed { doing: "before-write", cause: FailAt::CAUSE.into() });
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

/// A small file system. Nothing where it cannot be mounted; `SAPWOOD_DEMAND_MOUNT=1` makes that a failure.
fn small_disk() -> Option<SmallDisk> {
    let disk = SmallDisk::new("48m");
    if let Err(why) = &disk {
        let why = format!("a small file system cannot be mounted here: {why}");
        assert!(std::env::var_os("SAPWOOD_DEMAND_MOUNT").is_none_or(|demand| demand != "1"), "{why}");
        eprintln!("SKIPPED, nothing was tested: {why}");
    }
    disk.ok()
}

/// Fills a store until nothing can be written any more, for the reason named; then mends that, and finds all that was acknowledged.
async fn fill_and_free(directory: &Path, options: Options, because_of: &str, free: impl FnOnce()) {
    let mut timeline = Timeline::new(Workload::Filling, 7);
    let policy = timeline.policy();
    let store = open_ledger(directory, OpenMode::Create, policy, options.clone()).unwrap();
    let error = work_until_it_fails(&store, &mut timeline).await;
    // The write fails itself, or waits until it is ended because the engine has failed in the background.
    let because_of = match &error {
        StoreError::Engine(EngineError::Failed { cause, .. } | EngineError::Full { cause, .. }) => {
            assert!(cause.contains(because_of), "{cause}");
            because_of
        }
        StoreError::Engine(EngineError::Stalled { errors, .. }) if *errors > 0 => "stopped writes",
        error => panic!("not an engine's error: {error:?}"),
    };
    println!("{:?}: full after {} blocks: {error}", options.engine.durability, timeline.at() - 1);
    assert!(timeline.at() > 20, "nothing fitted, so nothing was shown");
    assert_refuses_every_write(&store, because_of).await;
    let failed = timeline.at();
    assert_reads_work(&store, &mut timeline, failed - 1).await;
    drop(store);
    // Still full: it may open or not, but it says why, and does no harm.
    match open_ledger(directory, OpenMode::Create, policy, options).err() {
        None => println!("it opens although nothing can be written"),
        Some(error @ StoreError::Engine(_)) => println!("it does not open: {error}"),
        Some(error) => panic!("not an engine's error: {error:?}"),
    }
    free();
    assert_goes_on(directory, &mut timeline, &[failed - 1, failed]).await;
}

async fn a_full_disk(durability: Durability, write_buffer_bytes: usize) {
    let Some(disk) = small_disk() else { return };
    let options = options().engine(|engine| {
        engine.durability = durability;
        engine.write_buffer_bytes = write_buffer_bytes;
        engine.stalled_commit_ended_after = Duration::from_secs(2);
    });
    fill_and_free(&disk.at.join("store"), options, "No space left", || disk.resize("200m")).await;
}

#[tokio::test]
async fn a_full_disk_loses_nothing_acknowledged() {
    a_full_disk(Durability::ProcessCrash, 1 << 20).await;
}

#[tokio::test]
async fn a_full_disk_loses_nothing_acknowledged_when_every_write_is_synchronised() {
    a_full_disk(Durability::PowerLoss, 4 << 20).await;
}

/// Set in the process whose files may not grow beyond a limit.
const LIMITED: &str = "SAPWOOD_LIMITED_FILES";

/// Runs an ignored test of this binary in a process that is told when it hits a limit of files, rather than ended: a limit holds for a
/// whole process, and what becomes of its signal can only be set from outside without unsafe code.
fn run_limited(test: &str) {
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"]).env(LIMITED, "1");
    let output = command.output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (said(&output.stdout), said(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    assert!(out.contains("full after"), "it did nothing:\n{out}\n{err}");
}

/// No file may have more bytes. Nothing lifts the limit.
fn limit_files(bytes: Option<u64>) {
    let limit = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: bytes.or(limit.maximum), ..limit }).unwrap();
}

/// A full disk where nothing may be mounted: a write beyond the limit fails like one to a device that is full.
async fn files_that_cannot_grow(limit: u64, write_buffer_bytes: usize) {
    if std::env::var_os(LIMITED).is_none() {
        return println!("not the process for it: nothing to do");
    }
    let directory = tempfile::tempdir().unwrap();
    limit_files(Some(limit));
    let options = options().engine(|engine| engine.write_buffer_bytes = write_buffer_bytes);
    fill_and_free(directory.path(), options, "File too large", || limit_files(None)).await;
}

#[test]
fn a_log_that_cannot_grow_loses_nothing_acknowledged() {
    run_limited("disk_full::log_that_cannot_grow");
}

#[test]
fn a_compaction_that_cannot_write_loses_nothing_acknowledged() {
    run_limited("disk_full::compaction_that_cannot_write");
}

/// The buffers hold more than the log may, so the write itself fails.
#[tokio::test]
#[ignore = "the process whose log cannot grow"]
async fn log_that_cannot_grow() {
    files_that_cannot_grow(8 << 20, 16 << 20).await;
}

/// The log of a buffer fits, and so does the file it is flushed to. What several of them are compacted to does not, which the engine
/// notices in the background.
#[tokio::test]
#[ignore = "the process whose compactions cannot write"]
async fn compaction_that_cannot_write() {
    files_that_cannot_grow(4 << 20, 1 << 20).await;
}

/// yaci-store 848: the cursor was past eight blocks that were never written. Something else fills the disk: blocks are refused before it
/// is full, with an error that passes, while reading goes on. Once there is room the same block is applied, and none was skipped.
#[tokio::test]
async fn yaci_store_848_no_block_is_skipped_on_a_disk_that_fills_from_outside() {
    const RESERVE: u64 = 24 << 20;
    let Some(disk) = small_disk() else { return };
    let directory = disk.at.join("store");
    let mut timeline = Timeline::new(Workload::Filling, 848);
    let with_reserve = options().ledger(|ledger| ledger.disk_reserve_bytes = RESERVE);
    let store = open_ledger(&directory, OpenMode::Create, timeline.policy(), with_reserve).unwrap();
    for round in 0..3 {
        for _ in 0..4 {
            let (op, _) = timeline.step();
            assert!(op.on_store(&store).await.is_ok(), "there is room, round {round}");
        }
        let at = timeline.at();
        let before = store.state_digest().await.unwrap();
        // Files that were compacted away go in the background: the room has to stand still to be measured.
        store.settle_disk().await.unwrap();
        let room = store.disk_room().await.unwrap().unwrap();
        assert!(!room.is_short(), "{room:?}");
        let ballast = disk.at.join("ballast");
        std::fs::write(&ballast, vec![1; (room.free_bytes - RESERVE + (8 << 20)) as usize]).unwrap();
        assert!(store.disk_room().await.unwrap().unwrap().is_short());
        let (op, _) = timeline.step();
        for _ in 0..3 {
            let outcome = op.on_store(&store).await;
            let error = store_error(&outcome).unwrap_or_else(|| panic!("{}: {outcome:?}", op.name()));
            assert!(matches!(error, StoreError::NoRoom { reserve_bytes: RESERVE, .. }), "{error:?}");
        }
        assert_eq!(store.writable().await, Ok(()), "it passes: the store is not poisoned");
        assert_eq!(store.state_digest().await.unwrap(), before, "nothing was written");
        assert_reads_work(&store, &mut timeline, at).await;
        std::fs::remove_file(ballast).unwrap();
        timeline.go_to(at + 1);
        assert!(op.on_store(&store).await.is_ok(), "the same block, without opening the store again");
        assert_eq!(store.state_digest().await.unwrap(), timeline.digest_at(at + 1));
    }
    let report = verify(&store).await;
    assert!(report.is_clean(), "{report}");
}
