//! Stores that older versions wrote are opened, migrated and verified.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::process::{Signal, getpid, kill_process};
use sapwood_conformance::fixtures::{block_hash, coin, small};
use sapwood_engine_memory::{FailPoint, MemoryEngine};
use sapwood_engine_rocksdb::{OpenMode, Options, RocksEngine, open_ledger};
use sapwood_ledger::{
    ApplyOptions, Counts, Faults, Ledger, LedgerOptions, RollbackMode, SCHEMA_VERSION, StoreError,
    engine::{Engine, Scan, Table, WriteSet},
};
use sapwood_rules::Policy;
use sapwood_testing::fixture::{Fixture, SCHEMAS};
use sapwood_types::{Block, Height};

use crate::harness::{options, raw::Raw, verify};

/// What the fixtures were written with.
pub(crate) fn policy() -> Policy {
    Policy { retention: 4000, reorg_window: 6, ..small() }
}

fn in_small_parts() -> Options {
    options().ledger(|ledger| ledger.migration_part_rows = 20)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The store is the one that the older version wrote, and sound.
pub(crate) async fn assert_migrated(ledger: &Ledger, fixture: &Fixture) -> Counts {
    let schema = fixture.schema;
    assert_eq!(hex(&ledger.state_digest().await.unwrap()), fixture.text("digest"), "schema {schema}");
    let kept = ledger.rolling_utxo_set().await.unwrap().unwrap();
    let counted = ledger.utxo_set(true, Arc::new(|_, _| ControlFlow::Continue(()))).await.unwrap();
    assert_eq!(kept, counted, "schema {schema}");
    assert_eq!(kept.digest().as_deref(), Some(fixture.text("utxo_hash")), "schema {schema}");
    assert_eq!(kept.coins, fixture.number("coins"));
    let counts = ledger.counts().await.unwrap();
    let seen = (counts.records, counts.unspent, counts.unmined);
    let expected = ["records", "unspent", "unmined"].map(|name| fixture.number(name));
    assert_eq!(seen, expected.into(), "schema {schema}");
    let last = ledger.last_applied().await.unwrap().unwrap();
    assert_eq!(u64::from(last.height.0), fixture.number("last_height"));
    assert_eq!(ledger.note("fixture").await.unwrap().as_deref(), Some(&b"a note"[..]));
    let report = verify(ledger).await;
    assert!(report.is_clean(), "schema {schema}: {report}");
    counts
}

/// The names and sizes of all files.
fn files(directory: &Path) -> BTreeMap<String, u64> {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    let size = |entry: std::fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len())
    };
    entries.map(size).collect()
}

#[tokio::test]
async fn store_of_every_older_schema_is_migrated_and_goes_on() {
    let mut all = Vec::new();
    for schema in SCHEMAS {
        let fixture = Fixture::unpack(schema);
        let directory = fixture.store();
        let open = || open_ledger(&directory, OpenMode::Existing, policy(), in_small_parts()).unwrap();
        let counts = assert_migrated(&open(), &fixture).await;
        let (written, number) = {
            let raw = Raw::open(&directory);
            assert_eq!(raw.get("meta", "schema").unwrap(), SCHEMA_VERSION.to_be_bytes());
            (raw.get("meta", "written-by"), raw.get("meta", "write-number"))
        };
        assert!(written.is_some());
        let ledger = open();
        assert_eq!(assert_migrated(&ledger, &fixture).await, counts, "opened again");

        // Undo records of the older version still roll back, and blocks go on.
        let before = ledger.last_applied().await.unwrap().unwrap();
        let target = ledger.block_at(before.height.minus(3)).await.unwrap().unwrap().block;
        ledger.roll_back(Some((target.height, target.hash)), RollbackMode::Node).await.unwrap();
        let block = Block {
            height: target.height.next(),
            hash: block_hash("after the upgrade"),
            parent: target.hash,
            time: 0,
            txs: vec![coin("after the upgrade", 2)],
        };
        ledger.apply_block(Arc::new(block), ApplyOptions::default()).await.unwrap();
        let report = verify(&ledger).await;
        assert!(report.is_clean(), "schema {schema}: {report}");
        drop(ledger);
        assert_ne!(Raw::open(&directory).get("meta", "write-number"), number, "the case itself");
        all.push(counts);
    }
    // The same operations: what schema 1 and 2 did not count is what schema 3 did, but for outputs that were spent and pruned before.
    let without_spent = |counts: &Counts| Counts { spent: 0, ..*counts };
    assert_eq!(without_spent(&all[0]), without_spent(&all[2]));
    assert_eq!(all[1], all[2]);
    assert!(all[0].spent <= all[2].spent && all[2].locked > 0 && all[2].preserved > 0);
}

#[test]
fn reader_refuses_an_older_store_and_changes_nothing() {
    for schema in SCHEMAS {
        let fixture = Fixture::unpack(schema);
        let before = files(&fixture.store());
        let error = open_ledger(&fixture.store(), OpenMode::ReadOnly, policy(), options()).err().unwrap();
        let place = fixture.store().display().to_string();
        assert_eq!(error, StoreError::OlderSchema { place, found: schema, known: SCHEMA_VERSION });
        assert_eq!(files(&fixture.store()), before);
    }
}

/// erigon 23593: an upgrade deleted what the directory was made to keep. Every row of the older version is there after the migration, though
/// it is opened with a policy that would let all of them go.
#[tokio::test]
async fn erigon_23593_migration_deletes_no_row() {
    const FAMILIES: [&str; 6] = ["tx", "due", "pending", "address", "undo", "meta"];
    let keys = |directory: &Path| {
        let raw = Raw::open(directory);
        FAMILIES.map(|family| raw.keys(family))
    };
    for schema in SCHEMAS {
        let fixture = Fixture::unpack(schema);
        let before = keys(&fixture.store());
        let ledger = open_ledger(&fixture.store(), OpenMode::Existing, small(), options()).unwrap();
        let due = ledger.due(Height::MAX, None, 1000).await.unwrap();
        assert!(!due.items.is_empty(), "the case itself: some could go");
        drop(ledger);
        for ((family, before), now) in FAMILIES.iter().zip(before).zip(keys(&fixture.store())) {
            let missing = before.iter().find(|key| !now.contains(key));
            assert_eq!(missing, None, "schema {schema}, {family}");
            assert!(now.len() == before.len() || *family == "meta", "schema {schema}, {family}");
        }
    }
}

/// Copies all rows into an engine in memory.
fn in_memory(engine: &dyn Engine) -> MemoryEngine {
    let (memory, view) = (MemoryEngine::new(), engine.view().unwrap());
    let mut writes = WriteSet::new(1);
    for table in Table::ALL {
        let put = &mut |key: &[u8], value: &[u8]| {
            writes.put(table, key, value);
            ControlFlow::Continue(())
        };
        view.scan(&Scan::all(table), put).unwrap();
    }
    memory.commit(&writes).unwrap();
    memory
}

/// The process ends at each commit of the migration, on rows that the older version wrote. In memory, where that takes no time.
#[tokio::test]
async fn migration_of_every_older_schema_resumes_at_every_commit() {
    for schema in SCHEMAS {
        let fixture = Fixture::unpack(schema);
        let rocksdb = RocksEngine::open(&fixture.store(), OpenMode::Existing, &options().engine).unwrap();
        for point in [FailPoint::BeforeCommit, FailPoint::AfterCommit] {
            let mut engine = Arc::new(in_memory(&rocksdb));
            let mut kills = 0;
            let ledger = loop {
                let further = if point == FailPoint::BeforeCommit { 2 } else { 1 };
                engine.fail_at(engine.position().unwrap() + further, point);
                let options = LedgerOptions { faults: None, ..in_small_parts().ledger };
                match Ledger::open(Arc::clone(&engine) as _, policy(), options) {
                    Ok(ledger) => break ledger,
                    Err(StoreError::Engine(_)) => kills += 1,
                    Err(error) => panic!("schema {schema}, kill {kills}: {error}"),
                }
                engine = Arc::new(engine.reopen());
            };
            assert_migrated(&ledger, &fixture).await;
            assert!(kills >= if schema < 3 { 10 } else { 2 }, "schema {schema}: only {kills} kills");
        }
    }
}

const DIRECTORY: &str = "SAPWOOD_MIGRATION_DIRECTORY";
const END_AT: &str = "SAPWOOD_MIGRATION_END_AT";

/// Ends the process at a commit, just as a killer would.
struct EndAt {
    point: String,
    left: AtomicU64,
}

impl Faults for EndAt {
    fn reached(&self, point: &'static str) -> Result<(), String> {
        if point == self.point && self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            kill_process(getpid(), Signal::KILL).unwrap();
            std::thread::park();
        }
        Ok(())
    }
}

#[test]
#[ignore = "the process that migrates and is killed"]
fn worker() {
    let (Ok(directory), Ok(end_at)) = (std::env::var(DIRECTORY), std::env::var(END_AT)) else {
        println!("not a worker: nothing to do");
        return;
    };
    let (point, hit) = end_at.split_once(' ').unwrap();
    let faults = EndAt { point: point.into(), left: AtomicU64::new(hit.parse().unwrap()) };
    let options = in_small_parts().ledger(|ledger| ledger.faults = Some(Arc::new(faults)));
    open_ledger(Path::new(&directory), OpenMode::Existing, policy(), options).unwrap();
}

/// Kill -9 in the middle of migrating a database: the next process goes on where the last commit left it.
#[tokio::test]
async fn crash_during_a_migration_is_resumed() {
    for schema in SCHEMAS {
        let fixture = Fixture::unpack(schema);
        let (mut kills, mut turn) = (0, 0);
        loop {
            turn += 1;
            let point = if turn % 2 == 0 { "before-write" } else { "after-write" };
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["migrations::worker", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
            command.env(DIRECTORY, fixture.store()).env(END_AT, format!("{point} {}", 1 + turn % 4));
            let status = command.stdout(Stdio::null()).stderr(Stdio::inherit()).status().unwrap();
            match status.signal() {
                Some(9) => kills += 1,
                _ => break assert!(status.success(), "schema {schema}, kill {kills}: {status}"),
            }
        }
        let ledger = open_ledger(&fixture.store(), OpenMode::Existing, policy(), options()).unwrap();
        assert_migrated(&ledger, &fixture).await;
        assert!(kills > 0, "schema {schema}: no process was killed");
        println!("schema {schema}: {kills} kills");
    }
}
