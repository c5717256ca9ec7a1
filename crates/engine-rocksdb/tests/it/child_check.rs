//! The check of children goes by what the child's own record says on disk, whatever its parent remembers.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::harness::{options, raw::Raw};
use sapwood_conformance::fixtures::{block_hash, burn, coin, context, small};
use sapwood_engine_rocksdb::{OpenMode, Options, open_ledger};
use sapwood_ledger::{ApplyOptions, Faults, Ledger, PruneRequest};
use sapwood_rules::{ChildEvidence, KeepReason, Verdict};
use sapwood_types::{Block, FirstPage, Height, RecordHeader, Scratch, Tx};
use tempfile::TempDir;

const RETENTION: u32 = 10;
const DUE: u32 = 2 + RETENTION;

/// A parent mined at 1 and its only child, mined at 2.
struct Scene {
    directory: TempDir,
    parent: Tx,
    child: Tx,
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

impl Scene {
    async fn new() -> Self {
        let parent = coin("parent", 1);
        let child = burn("child", &[(&parent, 0)]);
        let scene = Scene { directory: tempfile::tempdir().unwrap(), parent, child };
        let store = scene.open(options());
        for (height, tx) in [(1, &scene.parent), (2, &scene.child)] {
            apply(&store, height, vec![tx.clone()]).await;
        }
        scene
    }

    fn open(&self, options: Options) -> Ledger {
        open_ledger(self.directory.path(), OpenMode::Create, small(), options).unwrap()
    }

    fn change_child_on_disk(&self, change: impl FnOnce(&mut RecordHeader)) {
        let raw = Raw::open(self.directory.path());
        let page = FirstPage::new(&raw.get("tx", self.child.txid.0).unwrap());
        let mut header = page.header().unwrap();
        change(&mut header);
        raw.put("tx", self.child.txid.0, page.with_header(&header, &mut Scratch::default()).bytes());
    }

    async fn delete_parent(&self, store: &Ledger, check_children: bool) -> Verdict {
        let last = store.last_applied().await.unwrap().unwrap().height.0;
        for height in last + 1..=DUE {
            apply(store, height, vec![]).await;
        }
        let request = PruneRequest {
            check_children,
            ..PruneRequest::records(vec![self.parent.txid], context(DUE, RETENTION, &[]))
        };
        let verdict = store.prune(request).await.unwrap().judged.remove(0).verdict;
        let kept = store.get(self.parent.txid).await.unwrap().is_some();
        assert_eq!(kept, !verdict.may_go());
        verdict
    }

    fn disagrees(&self, mined_at: Option<u32>) -> Verdict {
        Verdict::Kept(KeepReason::ChildDisagrees {
            child: self.child.txid,
            remembered: Some(Height(2)),
            found: ChildEvidence::Present { mined_at: mined_at.map(Height) },
        })
    }
}

#[tokio::test]
async fn a_child_mined_elsewhere_on_disk_keeps_its_parent() {
    let scene = Scene::new().await;
    scene.change_child_on_disk(|header| header.head.blocks[0].height = Height(3));
    let store = scene.open(options());
    assert_eq!(scene.delete_parent(&store, true).await, scene.disagrees(Some(3)));
}

#[tokio::test]
async fn a_child_unmined_on_disk_keeps_its_parent_and_only_the_check_finds_out() {
    let scene = Scene::new().await;
    scene.change_child_on_disk(|header| header.head.blocks.clear());
    let store = scene.open(options());
    assert_eq!(scene.delete_parent(&store, true).await, scene.disagrees(None));
    assert!(scene.delete_parent(&store, false).await.may_go());
}

#[tokio::test]
async fn a_child_that_bears_its_parent_out_lets_it_go_read_or_known() {
    for mined_heights_bytes in [0, 1 << 20] {
        let scene = Scene::new().await;
        let store = scene.open(options().ledger(|ledger| ledger.mined_heights_bytes = mined_heights_bytes));
        // Taken back and mined again by this store, which now knows the child's height if it may.
        let target = Some((Height(1), block_hash("1")));
        store.roll_back(target, sapwood_ledger::RollbackMode::Node).await.unwrap();
        apply(&store, 2, vec![scene.child.clone()]).await;
        assert!(scene.delete_parent(&store, true).await.may_go());
    }
}

/// Counts how often children are read from disk.
#[derive(Default)]
struct Reads(AtomicUsize);

impl Faults for Reads {
    fn reached(&self, point: &'static str) -> Result<(), String> {
        self.0.fetch_add(usize::from(point == "prune-children"), Ordering::Relaxed);
        Ok(())
    }
}

#[tokio::test]
async fn no_more_children_are_read_in_one_go_than_set() {
    const CHILDREN: u32 = 7;
    for (children_per_read, expected) in [(1, 7), (3, 3), (7, 1), (10_000, 1)] {
        let (directory, reads) = (tempfile::tempdir().unwrap(), Arc::new(Reads::default()));
        let faults = Some(Arc::clone(&reads) as Arc<dyn Faults>);
        // No height is in memory, so every child is read.
        let options = options().ledger(|ledger| {
            ledger.children_per_read = children_per_read;
            ledger.mined_heights_bytes = 0;
            ledger.faults = faults;
        });
        let store = open_ledger(directory.path(), OpenMode::Create, small(), options).unwrap();
        let parent = coin("parent", CHILDREN);
        let children = (0..CHILDREN).map(|output| burn(&format!("child {output}"), &[(&parent, output)]));
        apply(&store, 1, vec![parent.clone()]).await;
        apply(&store, 2, children.collect()).await;
        for height in 3..=DUE {
            apply(&store, height, vec![]).await;
        }
        let judged = store.judge(vec![parent.txid], context(DUE, RETENTION, &[]), true).await.unwrap();
        assert!(judged[0].verdict.may_go());
        assert_eq!(reads.0.load(Ordering::Relaxed), expected, "with {children_per_read} in one go");
    }
}
