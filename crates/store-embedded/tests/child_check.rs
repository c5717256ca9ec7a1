//! The check of children goes by what the child's own record says on disk, whatever its parent remembers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: to panic is how they fail")]

mod harness;

use std::sync::Arc;

use bytes::Bytes;
use harness::{options, raw::Raw};
use sapwood_conformance::fixtures::{block_hash, burn, coin, context, small};
use sapwood_rules::{ChildEvidence, KeepReason, Verdict};
use sapwood_store::{ApplyOptions, DeleteDue, StorePrune, StoreRead, StoreWrite};
use sapwood_store_embedded::{EmbeddedOptions, EmbeddedStore};
use sapwood_types::{Block, Height, MasterPage, Tx};
use tempfile::TempDir;

const RETENTION: u32 = 10;
const DUE: u32 = 2 + RETENTION;

/// A parent mined at 1 and its only child, mined at 2.
struct Scene {
    directory: TempDir,
    parent: Tx,
    child: Tx,
}

async fn apply(store: &EmbeddedStore, height: u32, txs: Vec<Tx>) {
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

    fn open(&self, options: EmbeddedOptions) -> EmbeddedStore {
        EmbeddedStore::open(self.directory.path(), small(), options).unwrap()
    }

    fn change_child_on_disk(&self, change: impl FnOnce(&mut MasterPage)) {
        let raw = Raw::open(self.directory.path());
        let mut page = MasterPage::decode(Bytes::from(raw.get("tx", self.child.txid.0).unwrap())).unwrap();
        change(&mut page);
        raw.put("tx", self.child.txid.0, page.encode());
    }

    async fn delete_parent(&self, store: &EmbeddedStore, check_children: bool) -> Verdict {
        let last = store.last_applied().await.unwrap().unwrap().height.0;
        for height in last + 1..=DUE {
            apply(store, height, vec![]).await;
        }
        let request = DeleteDue {
            txids: vec![self.parent.txid],
            context: context(DUE, RETENTION, &[]),
            check_children,
            save_cursor: None,
            spare_external: false,
            permit: None,
        };
        let verdict = store.delete_due(request).await.unwrap().remove(0).verdict;
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
    scene.change_child_on_disk(|page| page.head.blocks[0].height = Height(3));
    let store = scene.open(options());
    assert_eq!(scene.delete_parent(&store, true).await, scene.disagrees(Some(3)));
}

#[tokio::test]
async fn a_child_unmined_on_disk_keeps_its_parent_and_only_the_check_finds_out() {
    let scene = Scene::new().await;
    scene.change_child_on_disk(|page| page.head.blocks.clear());
    let store = scene.open(options());
    assert_eq!(scene.delete_parent(&store, true).await, scene.disagrees(None));
    assert!(scene.delete_parent(&store, false).await.may_go());
}

#[tokio::test]
async fn a_child_that_bears_its_parent_out_lets_it_go_read_or_known() {
    for mined_heights_bytes in [0, 1 << 20] {
        let scene = Scene::new().await;
        let store = scene.open(EmbeddedOptions { mined_heights_bytes, ..options() });
        // Taken back and mined again by this store, which now knows the child's height if it may.
        let target = Some((Height(1), block_hash("1")));
        store.roll_back(target, sapwood_store::RollbackMode::Node).await.unwrap();
        apply(&store, 2, vec![scene.child.clone()]).await;
        assert!(scene.delete_parent(&store, true).await.may_go());
    }
}
