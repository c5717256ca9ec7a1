//! Kill -9 inside every phase: a process prunes a store and kills itself at each named point of each of its writes, one after the other.
//! Whatever the point, the store opens, is sound, has everything that is needed, and the next process does the rest.

use std::{
    collections::BTreeSet,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use rustix::process::{Signal, getpid, kill_process};
use sapwood_chain::{ChainState, Events};
use sapwood_conformance::fixtures::{burn, child, coin, small};
use sapwood_pruner::{Bodies, BodyLocation, JobState, ManualClock, PrunerOptions};
use sapwood_store::{CreateRequest, StoreDiagnose, StoreRead, StoreWrite};
use sapwood_store_embedded::{EmbeddedOptions, EmbeddedStore, Faults};
use sapwood_types::{Height, Tx};

use crate::harness::{NOW, World, pruner_options, start, store_options};

const ORDERS: &str = "SAPWOOD_PRUNER_CRASH";
/// Longer than any worker is left alive.
const LIFETIME: Duration = Duration::from_secs(120);
const FAMILIES: usize = 7;
const PRESERVED: usize = 7;
const DUE: usize = 14;
const LARGE: usize = 4;

/// Small chunks, so that every phase takes several writes.
fn options() -> PrunerOptions {
    PrunerOptions { chunk_records: 3, parallel_chunks: 2, ..pruner_options(small()) }
}

fn bodies(directory: &Path) -> Bodies {
    Bodies::open(&BodyLocation::Directory(directory.join("bodies"))).unwrap()
}

/// What the store begins with: something for each phase.
struct Cast {
    parents: Vec<Tx>,
    children: Vec<Tx>,
    live: Tx,
    useless: Vec<Tx>,
    large: Vec<Tx>,
}

impl Cast {
    fn new() -> Self {
        let parents: Vec<Tx> = (0..FAMILIES).map(|number| coin(&format!("parent {number}"), 1)).collect();
        let child_of = |parent: &Tx| child(&format!("child of {}", parent.txid), &[(parent, 0)], 1);
        let children = parents.iter().map(child_of).collect();
        let useless = (0..PRESERVED + DUE).map(|number| burn(&format!("useless {number}"), &[])).collect();
        let large = |number| Tx { size: 40_000, ..burn(&format!("large {number}"), &[]) };
        Cast { parents, children, live: coin("live", 1), useless, large: (0..LARGE).map(large).collect() }
    }

    async fn write(&self, directory: &Path) {
        let store = EmbeddedStore::open(&directory.join("store"), small(), store_options()).unwrap();
        let block = |height: u32, txs: Vec<Tx>| sapwood_types::Block {
            height: Height(height),
            hash: sapwood_types::BlockHash([height as u8; 32]),
            parent: sapwood_types::BlockHash([height as u8 - 1; 32]),
            time: 0,
            txs,
        };
        let mut first: Vec<Tx> = self.parents.iter().chain(&self.useless).cloned().collect();
        first.push(self.live.clone());
        for height in 1..=20 {
            let txs = if height == 1 { std::mem::take(&mut first) } else { vec![] };
            store.apply_block(Arc::new(block(height, txs)), Default::default()).await.unwrap();
        }
        let waiting = self.children.iter().cloned().map(CreateRequest::unmined).collect();
        store.create(waiting, Height(2)).await.unwrap();
        for tx in &self.large {
            let external = bodies(directory).keep(tx, Bytes::from_static(b"body")).await.unwrap();
            let request = CreateRequest { external, ..CreateRequest::mined(tx.clone(), 900, Height(2)) };
            store.create(vec![request], Height(2)).await.unwrap();
        }
        let preserved = self.useless[..PRESERVED].iter().chain([&self.live]).map(|tx| tx.txid).collect();
        store.preserve(preserved, Height(10)).await.unwrap();
    }
}

/// Ends the process at a named point, just as a killer would.
struct EndAt {
    point: String,
    left: AtomicU64,
}

impl Faults for EndAt {
    fn reached(&self, point: &'static str) -> Result<(), String> {
        if point == self.point && self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            kill_process(getpid(), Signal::KILL).unwrap();
            // The signal need not be delivered before the call returns.
            thread::sleep(LIFETIME);
        }
        Ok(())
    }
}

#[test]
#[ignore = "the process that the test of kills starts"]
fn worker() {
    let Ok(orders) = std::env::var(ORDERS) else {
        println!("not a worker: nothing to do");
        return;
    };
    thread::spawn(|| {
        thread::sleep(LIFETIME);
        std::process::exit(3);
    });
    let mut words = orders.splitn(3, ' ');
    let mut word = || words.next().unwrap();
    let (point, hit) = (word().to_owned(), word().parse().unwrap());
    let directory = PathBuf::from(word());
    let faults: Arc<dyn Faults> = Arc::new(EndAt { point, left: AtomicU64::new(hit) });
    let store_options = EmbeddedOptions { faults: Some(faults), ..store_options() };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = EmbeddedStore::open(&directory.join("store"), small(), store_options).unwrap();
        let events = Events::default();
        events.enter(ChainState::Running);
        let bodies = Some(bodies(&directory));
        let pruner = start(&store, &events, bodies, options(), &Arc::new(ManualClock::at(NOW))).await;
        let first = pruner.jobs(usize::MAX).pop().unwrap();
        assert_eq!(pruner.wait(first.id).await.unwrap().state, JobState::Completed);
        pruner.stop().await;
    });
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// What a killed process left. Panics if something that is needed is gone; says in which phase it was.
async fn look(directory: &Path, cast: &Cast) -> &'static str {
    let store = EmbeddedStore::open(&directory.join("store"), small(), store_options()).unwrap();
    let report = store.verify(Arc::new(|_, _| {})).await.unwrap();
    assert!(report.is_clean(), "{report}");
    let records = async |txs: &[Tx]| store.get_many(txs.iter().map(|tx| tx.txid).collect()).await.unwrap();
    let (parents, children) = (records(&cast.parents).await, records(&cast.children).await);
    assert!(parents.iter().chain(&children).all(Option::is_some), "a family was torn apart");
    assert!(store.get(cast.live.txid).await.unwrap().is_some(), "a live coin is gone");
    for record in records(&cast.large).await.into_iter().flatten() {
        let external = record.head.external.unwrap();
        // The body may be gone already: the record is due, and the next job goes on with it.
        bodies(directory).exists(record.txid, external).await.unwrap();
    }
    let all_preserved = parents.iter().flatten().all(|parent| parent.head.preserve_until.is_some());
    let useless = records(&cast.useless).await;
    let some_gone = useless.iter().any(Option::is_none);
    assert!(all_preserved || !some_gone, "something was deleted before all parents were preserved");
    let preserved = useless.iter().flatten().filter(|record| record.head.preserve_until.is_some()).count();
    let left = useless.iter().flatten().count() + records(&cast.large).await.iter().flatten().count();
    match (all_preserved, preserved, left) {
        (false, ..) => "preserving parents",
        (true, 1.., _) => "ending preservations",
        (true, 0, 1..) => "deleting",
        (true, 0, 0) => "dropping undo",
    }
}

#[tokio::test]
async fn crash_kill_9_inside_every_phase_and_the_next_process_goes_on() {
    let (cast, original) = (Cast::new(), tempfile::tempdir().unwrap());
    cast.write(original.path()).await;
    let mut phases = BTreeSet::new();
    let mut kills = 0;
    for point in ["before-write", "after-write", "prune-judged"] {
        for hit in 1.. {
            let directory = tempfile::tempdir().unwrap();
            copy(original.path(), directory.path());
            let mut worker = Command::new(std::env::current_exe().unwrap());
            worker.args(["crash::worker", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
            worker.env(ORDERS, format!("{point} {hit} {}", directory.path().display()));
            let status = worker.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
            if status.success() {
                assert!(hit > 3, "{point} was reached only {hit} times");
                break;
            }
            assert_eq!(status.signal(), Some(9), "the worker ended by itself at {point} {hit}");
            kills += 1;
            phases.insert(look(directory.path(), &cast).await);
            goes_on(directory, &cast).await;
        }
    }
    println!("{kills} kills, in {phases:?}");
    assert_eq!(phases.len(), 4, "not every phase was hit: {phases:?}");
}

/// A pruner on what was left does all that was left to do.
async fn goes_on(directory: tempfile::TempDir, cast: &Cast) {
    let hook = Arc::default();
    let faults = Some(Arc::clone(&hook) as _);
    let store_options = EmbeddedOptions { faults, ..store_options() };
    let store = EmbeddedStore::open(&directory.path().join("store"), small(), store_options).unwrap();
    let events = Events::default();
    events.enter(ChainState::Running);
    let clock = Arc::new(ManualClock::at(NOW));
    let bodies = bodies(directory.path());
    let pruner = start(&store, &events, Some(bodies.clone()), options(), &clock).await;
    let world =
        World { directory, store, events, clock, options: options(), bodies: Some(bodies), hook, pruner };
    world.prune_ok().await;
    assert_eq!(
        world.records().await as usize,
        2 * FAMILIES + 1,
        "families and the live coin stay, all else goes"
    );
    for parent in &cast.parents {
        assert_eq!(world.preserved_until(parent).await, Some(40));
    }
    for tx in &cast.large {
        let external = world.bodies.as_ref().unwrap().belongs_outside(tx).unwrap();
        assert_eq!(world.bodies.as_ref().unwrap().exists(tx.txid, external).await, Ok(false));
    }
    assert_eq!(world.store.undo(Height(15)).await.unwrap(), None);
    world.sound().await;
}
