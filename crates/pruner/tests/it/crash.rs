//! Kill -9 inside every phase: a process prunes a store and kills itself at each named point of each of its writes, one after the other.
//! Whatever the point, the store opens, is sound, has everything that is needed, and the next process does the rest: in the end everything
//! is as if nobody had been killed. The same for blocks whose transactions have bodies outside, and for holds.

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
use sapwood_chain::{Chain, ChainOptions, ChainState, Events};
use sapwood_conformance::fixtures::{burn, child, coin, small};
use sapwood_engine_rocksdb::{OpenMode, open_ledger};
use sapwood_ledger::{ApplyOptions, CreateRequest, Faults, Ledger};
use sapwood_pruner::{Bodies, BodyLocation, Consumer, JobState, ManualClock, PrunerOptions};
use sapwood_rules::Hold;
use sapwood_types::{Block, BlockHash, External, Height, Tx, TxId, TxRecord};

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
        let store =
            open_ledger(&directory.join("store"), OpenMode::Create, small(), store_options()).unwrap();
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
    let mut words = orders.splitn(4, ' ');
    let mut word = || words.next().unwrap();
    let (what, point, hit) = (word().to_owned(), word().to_owned(), word().parse().unwrap());
    let directory = PathBuf::from(word());
    let faults: Arc<dyn Faults> = Arc::new(EndAt { point, left: AtomicU64::new(hit) });
    let store_options = store_options().ledger(|ledger| ledger.faults = Some(faults));
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = open_ledger(&directory.join("store"), OpenMode::Create, small(), store_options).unwrap();
        match what.as_str() {
            "prune" => prune(&store, &directory).await,
            "holds" => change_holds(&store).await,
            "blocks" => apply_large(&store, &directory).await,
            other => panic!("{other} is nothing a worker does"),
        }
    });
}

async fn prune(store: &Ledger, directory: &Path) {
    let events = Events::default();
    events.enter(ChainState::Running);
    let bodies = Some(bodies(directory));
    let pruner = start(store, &events, bodies, options(), &Arc::new(ManualClock::at(NOW))).await;
    let first = pruner.jobs(usize::MAX).pop().unwrap();
    assert_eq!(pruner.wait(first.id).await.unwrap().state, JobState::Completed);
    pruner.stop().await;
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

/// Lets a process do something until it is killed at a point, on a copy of what is there. Nothing if it came to its end before.
fn kill(what: &str, point: &str, hit: u32, original: &Path) -> (tempfile::TempDir, bool) {
    let directory = tempfile::tempdir().unwrap();
    copy(original, directory.path());
    let mut worker = Command::new(std::env::current_exe().unwrap());
    worker.args(["crash::worker", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    worker.env(ORDERS, format!("{what} {point} {hit} {}", directory.path().display()));
    let status = worker.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    if !status.success() {
        assert_eq!(status.signal(), Some(9), "the worker ended by itself at {point} {hit} of {what}");
    }
    (directory, !status.success())
}

/// Everything that is there in the end.
#[derive(Debug, PartialEq)]
struct Final {
    records: Vec<TxRecord>,
    undo: Vec<Height>,
    bodies: Vec<(TxId, External)>,
}

impl Final {
    async fn of(store: &Ledger, bodies: &Bodies) -> Self {
        let mut undo = Vec::new();
        for height in (0..40).map(Height) {
            undo.extend(store.block_at(height).await.unwrap().map(|_| height));
        }
        let mut kept = Vec::new();
        let mut listing = bodies.list(None).await.unwrap();
        while let Some(listed) = listing.next(100).await.unwrap() {
            kept.extend(listed);
        }
        kept.sort_by_key(|(txid, _)| *txid);
        let page = store.records(None, 1000).await.unwrap();
        assert_eq!(page.next, None);
        Final { records: page.items, undo, bodies: kept }
    }
}

/// What a killed process left. Panics if something that is needed is gone; says in which phase it was, and how many records have
/// lost their body and are still there.
async fn look(directory: &Path, cast: &Cast) -> (&'static str, u64) {
    let store = open_ledger(&directory.join("store"), OpenMode::Create, small(), store_options()).unwrap();
    let report = store.verify(Arc::new(|_, _| {})).await.unwrap();
    assert!(report.is_clean(), "{report}");
    let records = async |txs: &[Tx]| {
        let found = store.get_many(txs.iter().map(|tx| tx.txid).collect()).await.unwrap();
        found.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    let (parents, children) = (records(&cast.parents).await, records(&cast.children).await);
    assert!(parents.iter().chain(&children).all(Option::is_some), "a family was torn apart");
    assert!(store.get(cast.live.txid).await.unwrap().is_some(), "a live coin is gone");
    // The body may be gone already: the record is due, and the next job goes on with it. Nothing else has lost its body.
    let outside = bodies(directory).verify(&store, &small(), &|_, _| Ok(())).await.unwrap();
    assert_eq!((outside.damaged.as_slice(), outside.orphans), (&[][..], 0), "{outside}");
    // The cursor never lies behind a record that is due: all in front of it are gone.
    if let Some(cursor) = store.prune_cursor().await.unwrap() {
        let due = async |after| store.due(Height(15), after, 1000).await.unwrap().items;
        assert_eq!(due(None).await, due(Some(cursor)).await, "the cursor has passed records that are due");
    }
    let all_preserved = parents.iter().flatten().all(|parent| parent.head.preserve_until.is_some());
    let useless = records(&cast.useless).await;
    let some_gone = useless.iter().any(Option::is_none);
    assert!(all_preserved || !some_gone, "something was deleted before all parents were preserved");
    let preserved = useless.iter().flatten().filter(|record| record.head.preserve_until.is_some()).count();
    let left = useless.iter().flatten().count() + records(&cast.large).await.iter().flatten().count();
    let phase = match (all_preserved, preserved, left) {
        (false, ..) => "preserving parents",
        (true, 1.., _) => "ending preservations",
        (true, 0, 1..) => "deleting",
        (true, 0, 0) => "dropping undo",
    };
    (phase, outside.half_deleted)
}

#[tokio::test]
async fn crash_kill_9_inside_every_phase_and_the_next_process_goes_on() {
    let (cast, original) = (Cast::new(), tempfile::tempdir().unwrap());
    cast.write(original.path()).await;
    let (undisturbed, killed) = kill("prune", "nowhere", 1, original.path());
    assert!(!killed);
    let undisturbed = goes_on(undisturbed, &cast).await;
    let mut phases = BTreeSet::new();
    let (mut kills, mut half_deleted) = (0, 0);
    for point in ["before-write", "after-write", "prune-judged"] {
        for hit in 1.. {
            let (directory, killed) = kill("prune", point, hit, original.path());
            if !killed {
                assert!(hit > 3, "{point} was reached only {hit} times");
                break;
            }
            kills += 1;
            let (phase, without_body) = look(directory.path(), &cast).await;
            phases.insert(phase);
            half_deleted += u64::from(without_body > 0);
            assert_eq!(goes_on(directory, &cast).await, undisturbed, "after a kill at {point} {hit}");
        }
    }
    println!("{kills} kills, in {phases:?}, {half_deleted} between a body and its record");
    assert_eq!(phases.len(), 4, "not every phase was hit: {phases:?}");
    assert!(half_deleted > 0, "no kill came between a body and its record");
}

/// A pruner on what was left does all that was left to do.
async fn goes_on(directory: tempfile::TempDir, cast: &Cast) -> Final {
    let hook = Arc::default();
    let faults = Some(Arc::clone(&hook) as _);
    let store_options = store_options().ledger(|ledger| ledger.faults = faults);
    let store =
        open_ledger(&directory.path().join("store"), OpenMode::Create, small(), store_options).unwrap();
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
    assert_eq!(world.store.block_at(Height(15)).await.unwrap(), None);
    let left = Final::of(&world.store, world.bodies.as_ref().unwrap()).await;
    world.sound().await;
    left
}

fn large_of(height: u32) -> Tx {
    Tx { size: 40_000, ..coin(&format!("large of {height}"), 1) }
}

/// Blocks with one large transaction each, from where the store is up to height 4.
async fn apply_large(store: &Ledger, directory: &Path) {
    let shared = store.clone();
    let bodies = Arc::new(bodies(directory).of_store(store).await.unwrap());
    let chain = Chain::with_bodies(shared, Events::default(), ChainOptions::default(), bodies);
    let last = store.last_applied().await.unwrap().map_or(0, |last| last.height.0);
    for height in last + 1..=4 {
        let block = Block {
            height: Height(height),
            hash: BlockHash([height as u8; 32]),
            parent: BlockHash([height as u8 - 1; 32]),
            time: 0,
            txs: vec![large_of(height)],
        };
        chain.apply(Arc::new(block), ApplyOptions::default()).await.unwrap();
    }
}

#[tokio::test]
async fn crash_kill_9_between_a_body_and_its_record_leaves_no_record_without_its_body() {
    let original = tempfile::tempdir().unwrap();
    drop(open_ledger(&original.path().join("store"), OpenMode::Create, small(), store_options()).unwrap());
    let open = |directory: &Path| {
        open_ledger(&directory.join("store"), OpenMode::Create, small(), store_options()).unwrap()
    };
    let (undisturbed, killed) = kill("blocks", "nowhere", 1, original.path());
    assert!(!killed);
    let undisturbed = Final::of(&open(undisturbed.path()), &bodies(undisturbed.path())).await;
    assert_eq!((undisturbed.records.len(), undisturbed.bodies.len()), (4, 4));
    let mut orphans = 0;
    for point in ["before-write", "after-write"] {
        for hit in 1.. {
            let (directory, killed) = kill("blocks", point, hit, original.path());
            if !killed {
                assert!(hit > 4, "{point} was reached only {hit} times");
                break;
            }
            let store = open(directory.path());
            let outside = bodies(directory.path()).verify(&store, &small(), &|_, _| Ok(())).await.unwrap();
            assert_eq!((outside.damaged.as_slice(), outside.half_deleted), (&[][..], 0), "{outside}");
            assert_eq!(outside.found, store.counts().await.unwrap().records);
            orphans += outside.orphans;
            if outside.found > 0 {
                // What was left over goes at the start of a pruner, and what has a record stays.
                prune(&store, directory.path()).await;
                let outside =
                    bodies(directory.path()).verify(&store, &small(), &|_, _| Ok(())).await.unwrap();
                assert_eq!((outside.found, outside.orphans), (store.counts().await.unwrap().records, 0));
            }
            apply_large(&store, directory.path()).await;
            assert_eq!(Final::of(&store, &bodies(directory.path())).await, undisturbed, "{point} {hit}");
        }
    }
    assert!(orphans > 0, "no kill came between a body and its record");
}

fn operators(number: u32) -> Hold {
    Hold {
        name: format!("operator-{number}"),
        owner: "crash".into(),
        keep_from: Some(Height(number)),
        expires: None,
        reason: "to see it again".into(),
    }
}

/// Everything that is written down about holds, and that pruning is off.
async fn change_holds(store: &Ledger) {
    let events = Events::default();
    let pruner = start(store, &events, None, options(), &Arc::new(ManualClock::at(NOW))).await;
    pruner.disable().await.unwrap();
    pruner.register(Consumer::Persister).await.unwrap();
    for number in 1..=3 {
        pruner.holds().set(operators(number)).await.unwrap();
        pruner.report_persisted(Height(number)).await.unwrap();
    }
    pruner.holds().release("operator-2").await.unwrap();
    pruner.enable().await.unwrap();
    pruner.stop().await;
}

/// What is known about holds when a pruner starts, in words: each write is there or it is not.
async fn known_holds(directory: &Path) -> String {
    let store = open_ledger(&directory.join("store"), OpenMode::Create, small(), store_options()).unwrap();
    let pruner = start(&store, &Events::default(), None, options(), &Arc::new(ManualClock::at(NOW))).await;
    let holds: Vec<_> = pruner
        .list_holds()
        .await
        .unwrap()
        .into_iter()
        .map(|status| (status.hold.name, status.hold.keep_from))
        .collect();
    let known = format!("{} {holds:?}", pruner.is_enabled());
    pruner.stop().await;
    known
}

#[tokio::test]
async fn crash_kill_9_while_holds_are_written_keeps_each_or_knows_nothing_of_it() {
    let original = tempfile::tempdir().unwrap();
    drop(open_ledger(&original.path().join("store"), OpenMode::Create, small(), store_options()).unwrap());
    let known_after = async |point: &str| {
        let mut known = Vec::new();
        for hit in 1.. {
            let (directory, killed) = kill("holds", point, hit, original.path());
            known.push(known_holds(directory.path()).await);
            if !killed {
                break;
            }
        }
        // The pruner writes at its start, and a job may write between enabling and stopping: that changes nothing of this.
        known.dedup();
        known
    };
    let (before, after) = (known_after("before-write").await, known_after("after-write").await);
    assert!(before.len() > 8, "only {} writes", before.len());
    // What the write before had done is there when the next one begins, and nothing of the next one.
    assert_eq!(before, after);
    assert_eq!(before[0], "true []");
    let last = "true [(\"persister\", Some(Height(4))), (\"operator-1\", Some(Height(1))), (\"operator-3\", Some(Height(3)))]";
    assert_eq!((before.last().unwrap().as_str(), after.last().unwrap().as_str()), (last, last));
}
