//! What happens in the midst of a write: between the moment it is decided and the moment it is on disk.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use crate::harness::options;
use sapwood_conformance::fixtures::{block_hash, burn, child, coin, context, small, spent};
use sapwood_engine_rocksdb::{OpenMode, open_ledger};
use sapwood_ledger::{ApplyOptions, Faults, Ledger, PruneRequest, StoreError};
use sapwood_rules::{KeepReason, Verdict};
use sapwood_types::{Block, Height, Tx};

/// Long enough for another thread to do whatever it does beside a write.
const BESIDE: Duration = Duration::from_millis(50);

/// Stops the next visitor of each of several points until it is let go, or makes it fail.
#[derive(Default)]
struct Point(Mutex<Vec<Stop>>);

/// Where somebody is to be stopped.
struct Stop {
    point: &'static str,
    arrived: Sender<()>,
    go: Receiver<Result<(), String>>,
}

/// A visitor to come.
struct Visit {
    arrived: Receiver<()>,
    go: Sender<Result<(), String>>,
}

impl Point {
    fn stop_at(&self, point: &'static str) -> Visit {
        let (here, arrived) = channel();
        let (go, told) = channel();
        let stop = Stop { point, arrived: here, go: told };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(stop);
        Visit { arrived, go }
    }
}

impl Faults for Point {
    fn reached(&self, point: &'static str) -> Result<(), String> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = waiting.iter().position(|stop| stop.point == point) else { return Ok(()) };
        let stop = waiting.remove(at);
        drop(waiting);
        stop.arrived.send(()).unwrap();
        stop.go.recv().unwrap_or(Ok(()))
    }
}

fn block(height: u32, tx: &Tx) -> Block {
    Block {
        height: Height(height),
        hash: block_hash(&height.to_string()),
        parent: block_hash(&(height - 1).to_string()),
        time: 0,
        txs: vec![tx.clone()],
    }
}

/// A store that uses two cores for everything, with a parent that is due at 30 and its child.
async fn scene(directory: &std::path::Path) -> (Ledger, Arc<Point>, Tx, Tx) {
    let point = Arc::new(Point::default());
    let faults = Some(Arc::clone(&point) as Arc<dyn Faults>);
    let options = options().ledger(|ledger| {
        ledger.two_cores_from = 0;
        ledger.faults = faults;
    });
    let store = open_ledger(directory, OpenMode::Create, small(), options).unwrap();
    let parent = coin("parent", 1);
    let child = burn("child", &[(&parent, 0)]);
    for (height, tx) in [(1, &parent), (2, &child)] {
        store.apply_block(Arc::new(block(height, tx)), ApplyOptions::default()).await.unwrap();
    }
    (store, point, parent, child)
}

/// A chunk that begins to look after a write is decided, and before it is on disk, sees the record as it was. It must hear of the
/// change all the same, or it deletes what somebody was told is preserved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_that_looks_in_the_midst_of_a_write_hears_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let (store, point, parent, _) = scene(directory.path()).await;
    // Until no rollback can need it any more.
    for height in 3..10 {
        let block = block(height, &coin(&height.to_string(), 1));
        store.apply_block(Arc::new(block), ApplyOptions::default()).await.unwrap();
    }
    let writing = point.stop_at("before-write");
    let preserving = tokio::spawn({
        let (store, txid) = (store.clone(), parent.txid);
        async move { store.preserve(vec![txid], Height(1000)).await }
    });
    writing.arrived.recv().unwrap();
    std::thread::sleep(BESIDE);
    let judged = point.stop_at("prune-judged");
    let deleting = tokio::spawn({
        let store = store.clone();
        let request = PruneRequest::records(vec![parent.txid], context(30, 10, &[]));
        async move { store.prune(request).await }
    });
    judged.arrived.recv().unwrap();
    writing.go.send(Ok(())).unwrap();
    assert_eq!(preserving.await.unwrap(), Ok(1));
    judged.go.send(Ok(())).unwrap();
    let verdict = deleting.await.unwrap().unwrap().judged.remove(0).verdict;
    assert_eq!(verdict, Verdict::Kept(KeepReason::Preserved { until: Height(1000) }));
    assert!(store.get(parent.txid).await.unwrap().is_some(), "it is preserved");
}

/// Whoever waits for a writer whose write then fails must not be answered from what that writer had in memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_answered_from_a_write_that_failed() {
    let directory = tempfile::tempdir().unwrap();
    let (store, point, parent, _) = scene(directory.path()).await;
    let lock = |store: &Ledger| {
        let (store, txid) = (store.clone(), parent.txid);
        tokio::spawn(async move { store.set_locked(vec![txid], true).await })
    };
    let writing = point.stop_at("before-write");
    let first = lock(&store);
    writing.arrived.recv().unwrap();
    // It comes while nothing is known to be wrong, and would have nothing to write.
    let second = lock(&store);
    std::thread::sleep(BESIDE);
    writing.go.send(Err("the disk is gone".into())).unwrap();
    assert!(first.await.unwrap().is_err());
    let answer = second.await.unwrap();
    let poisoned = matches!(
        answer,
        Err(sapwood_ledger::BatchError::Store(StoreError::Poisoned { .. } | StoreError::Engine(_)))
    );
    assert!(poisoned, "{answer:?}");
    drop(store);
    let store = open_ledger(directory.path(), OpenMode::Create, small(), options()).unwrap();
    assert!(!store.get(parent.txid).await.unwrap().unwrap().head.locked);
}

/// In a row of blocks the write of one fails while the next is being worked on: those before it are there, it and the next are not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_fails_ends_a_row_of_blocks() {
    let directory = tempfile::tempdir().unwrap();
    let (store, point, ..) = scene(directory.path()).await;
    let blocks: Vec<_> = (3..7)
        .map(|height| (Arc::new(block(height, &coin(&height.to_string(), 1))), ApplyOptions::default()))
        .collect();
    let writing = point.stop_at("before-write");
    let applying = tokio::spawn({
        let store = store.clone();
        async move { store.apply_blocks(blocks).await }
    });
    writing.arrived.recv().unwrap();
    let second = point.stop_at("before-write");
    writing.go.send(Ok(())).unwrap();
    second.arrived.recv().unwrap();
    std::thread::sleep(BESIDE);
    second.go.send(Err("the disk is gone".into())).unwrap();
    let done = applying.await.unwrap();
    assert_eq!(done.applied.iter().map(|applied| applied.block.height.0).collect::<Vec<_>>(), [3]);
    assert!(done.refused.is_some());
    assert_eq!(store.last_applied().await.unwrap().unwrap().height, Height(3));
    let next = store.apply_block(Arc::new(block(4, &coin("again", 1))), ApplyOptions::default()).await;
    assert!(next.is_err(), "nothing is written any more: {next:?}");
    drop(store);
    let store = open_ledger(directory.path(), OpenMode::Create, small(), options()).unwrap();
    assert_eq!(store.last_applied().await.unwrap().unwrap().height, Height(3));
    store.apply_block(Arc::new(block(4, &coin("again", 1))), ApplyOptions::default()).await.unwrap();
}

/// Each block of a row is worked on while the one before it is stopped just before its write. All of them spend from the same further
/// pages, one of which the row itself made: every spend must be there in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_see_the_further_pages_that_the_block_before_is_writing() {
    const ENOUGH: Duration = Duration::from_secs(20);
    let directory = tempfile::tempdir().unwrap();
    let (store, point, ..) = scene(directory.path()).await;
    let wide = coin("wide", 300);
    store.apply_block(Arc::new(block(3, &wide)), ApplyOptions::default()).await.unwrap();
    let new = child("new", &[(&wide, 200), (&wide, 256)], 300);
    let mut txs = vec![new.clone()];
    txs.extend((1..4).map(|number| {
        child(
            &format!("spender {number}"),
            &[(&wide, 200 + number), (&wide, 256 + number), (&new, 128 + number)],
            1,
        )
    }));
    let blocks: Vec<_> =
        (4..).zip(&txs).map(|(height, tx)| (Arc::new(block(height, tx)), ApplyOptions::default())).collect();
    let mut prepared = point.stop_at("prepared");
    let applying = tokio::spawn({
        let store = store.clone();
        async move { store.apply_blocks(blocks).await }
    });
    prepared.arrived.recv_timeout(ENOUGH).unwrap();
    for next in 1..txs.len() {
        let writing = point.stop_at("before-write");
        let next_prepared = point.stop_at("prepared");
        prepared.go.send(Ok(())).unwrap();
        writing.arrived.recv_timeout(ENOUGH).unwrap();
        // The next block is decided while the one before it is not on disk.
        next_prepared
            .arrived
            .recv_timeout(ENOUGH)
            .unwrap_or_else(|_| panic!("block {next} waits for the write"));
        writing.go.send(Ok(())).unwrap();
        prepared = next_prepared;
    }
    prepared.go.send(Ok(())).unwrap();
    let done = applying.await.unwrap();
    assert_eq!((done.applied.len(), done.refused), (txs.len(), None));
    let record = store.get(wide.txid).await.unwrap().unwrap();
    let made = store.get(new.txid).await.unwrap().unwrap();
    for (number, tx) in txs.iter().enumerate() {
        let at = Some(4 + number as u32);
        assert_eq!(record.slots[200 + number], spent(tx, 0, at), "block {number}");
        assert_eq!(record.slots[256 + number], spent(tx, 1, at), "block {number}");
        if number > 0 {
            assert_eq!(made.slots[128 + number], spent(tx, 2, at), "block {number}");
        }
    }
    let report = crate::harness::verify(&store).await;
    assert!(report.is_clean(), "{report}");
}
