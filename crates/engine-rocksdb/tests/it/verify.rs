//! `verify` names every kind of damage, and nothing where there is none. The damage is done behind the store's back.

use std::sync::Arc;

use crate::harness::{options, raw::Raw, verify};
use sapwood_conformance::fixtures::{block_hash, burn, child, coin, data_output, small};
use sapwood_engine_rocksdb::{OpenMode, open_ledger};
use sapwood_ledger::{ApplyOptions, CreateRequest, Ledger, VerifyReport};
use sapwood_types::{Block, FirstPage, Height, Output, RecordHeader, Scratch, Slot, Spender, Tx, TxId};
use tempfile::TempDir;

/// What the store of these tests holds.
struct Scene {
    directory: TempDir,
    /// Mined at 1. Its first output is spent by a mined transaction, its second by an unmined one, its third not at all.
    parent: Tx,
    /// Mined at 1, spent at 2: settled.
    settled: Tx,
    /// Mined at 2, spends the parent's first output. Preserved until 50.
    mined: Tx,
    /// Unmined, spends the parent's second output.
    waiting: Tx,
    /// Unmined, wanted the parent's second output and lost.
    loser: Tx,
    /// Three pages.
    paged: Tx,
}

impl Scene {
    async fn new() -> Self {
        let parent = coin("parent", 3);
        let settled = coin("settled", 1);
        let scene = Scene {
            directory: tempfile::tempdir().unwrap(),
            mined: child("mined", &[(&parent, 0)], 1),
            waiting: child("waiting", &[(&parent, 1)], 1),
            loser: child("loser", &[(&parent, 1)], 1),
            paged: coin("paged", 300),
            parent,
            settled,
        };
        let store = scene.open();
        let spender = burn("spender", &[(&scene.settled, 0)]);
        apply(&store, 1, &[&scene.parent, &scene.settled, &scene.paged]).await;
        apply(&store, 2, &[&scene.mined, &spender]).await;
        let lost = CreateRequest { conflicting: true, ..CreateRequest::unmined(scene.loser.clone()) };
        let created = vec![CreateRequest::unmined(scene.waiting.clone()), lost];
        store.create(created, Height(3)).await.unwrap();
        store.preserve(vec![scene.mined.txid], Height(50)).await.unwrap();
        scene
    }

    fn open(&self) -> Ledger {
        open_ledger(self.directory.path(), OpenMode::Create, small(), options()).unwrap()
    }

    /// What `verify` says after this was done to the database.
    async fn after(&self, damage: impl FnOnce(&Raw)) -> VerifyReport {
        damage(&Raw::open(self.directory.path()));
        verify(&self.open()).await
    }

    /// Changes the first page of a record.
    fn change(&self, raw: &Raw, tx: &Tx, change: impl FnOnce(&mut RecordHeader)) {
        let page = FirstPage::new(&raw.get("tx", tx.txid.0).unwrap());
        let mut header = page.header().unwrap();
        change(&mut header);
        raw.put("tx", tx.txid.0, page.with_header(&header, &mut Scratch::default()).bytes());
    }
}

async fn apply(store: &Ledger, height: u32, txs: &[&Tx]) {
    let block = Block {
        height: Height(height),
        hash: block_hash(&height.to_string()),
        parent: block_hash(&(height - 1).to_string()),
        time: 0,
        txs: txs.iter().copied().cloned().collect(),
    };
    store.apply_block(Arc::new(block), ApplyOptions::default()).await.unwrap();
}

/// One of the problems has all these parts.
#[track_caller]
fn assert_names(report: &VerifyReport, parts: &[&str]) {
    let named = |problem: &String| parts.iter().all(|part| problem.contains(part));
    assert!(!report.is_clean() && report.problems.iter().any(named), "no problem has {parts:?}: {report}");
}

/// The key of a due entry, and of a pending one without its tag.
fn by_height(height: u32, txid: &TxId) -> Vec<u8> {
    [&height.to_be_bytes()[..], &txid.0].concat()
}

fn tagged(tag: u8, key: &[u8]) -> Vec<u8> {
    [&[tag], key].concat()
}

fn page_key(tx: &Tx, number: u32) -> Vec<u8> {
    [&tx.txid.0[..], &number.to_be_bytes()].concat()
}

#[tokio::test]
async fn a_sound_store_is_clean_and_everything_in_it_is_read() {
    let scene = Scene::new().await;
    let report = scene.after(|_| {}).await;
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.records, 7);
    // Two due (the settled one and the data-only one that spends it), a loser that is due too, two unmined, one preserved;
    // one entry for each unspent output, but none for the loser's.
    assert_eq!(report.index_entries, 3 + 2 + 1 + (1 + 1 + 1 + 300));
    assert!(report.to_string().contains("nothing is broken"), "{report}");
}

#[tokio::test]
async fn a_missing_due_entry_is_named() {
    let scene = Scene::new().await;
    let report = scene.after(|raw| raw.delete("due", by_height(2, &scene.settled.txid))).await;
    assert_names(&report, &["missing", "Due", &scene.settled.txid.to_string()]);
}

#[tokio::test]
async fn a_stray_due_entry_is_named() {
    let scene = Scene::new().await;
    let report = scene.after(|raw| raw.put("due", by_height(2, &scene.parent.txid), [])).await;
    assert_names(&report, &["stray", "due", &scene.parent.txid.to_string()]);
}

#[tokio::test]
async fn a_due_entry_of_a_record_that_is_not_there_is_named() {
    let scene = Scene::new().await;
    let absent = TxId([0xab; 32]);
    let report = scene.after(|raw| raw.put("due", by_height(2, &absent), [])).await;
    assert_names(&report, &["stray", "due", &absent.to_string()]);
}

/// As many entries as there should be, but at another height: counting alone would not notice.
#[tokio::test]
async fn a_due_entry_at_the_wrong_height_is_named() {
    let scene = Scene::new().await;
    let damage = |raw: &Raw| {
        raw.delete("due", by_height(2, &scene.settled.txid));
        raw.put("due", by_height(3, &scene.settled.txid), []);
    };
    let report = scene.after(damage).await;
    assert_names(&report, &["missing", "Due", &scene.settled.txid.to_string()]);
}

#[tokio::test]
async fn a_missing_unmined_entry_is_named() {
    let scene = Scene::new().await;
    let key = tagged(0, &by_height(3, &scene.waiting.txid));
    let report = scene.after(|raw| raw.delete("pending", key)).await;
    assert_names(&report, &["missing", "Unmined", &scene.waiting.txid.to_string()]);
}

#[tokio::test]
async fn a_stray_unmined_entry_is_named() {
    let scene = Scene::new().await;
    let key = tagged(0, &by_height(3, &scene.mined.txid));
    let report = scene.after(|raw| raw.put("pending", key, [])).await;
    assert_names(&report, &["stray", "pending", &scene.mined.txid.to_string()]);
}

#[tokio::test]
async fn a_missing_preservation_is_named() {
    let scene = Scene::new().await;
    let key = tagged(1, &by_height(50, &scene.mined.txid));
    let report = scene.after(|raw| raw.delete("pending", key)).await;
    assert_names(&report, &["missing", "Preserved", &scene.mined.txid.to_string()]);
}

#[tokio::test]
async fn a_missing_address_entry_is_named() {
    let scene = Scene::new().await;
    let damage = |raw: &Raw| {
        let of_parent = |key: &Vec<u8>| key[33..65] == scene.parent.txid.0;
        let key = raw.keys("address").into_iter().find(of_parent).unwrap();
        raw.delete("address", key);
    };
    let report = scene.after(damage).await;
    assert_names(&report, &["missing", "Address", &scene.parent.txid.to_string()]);
}

#[tokio::test]
async fn a_stray_address_entry_is_named() {
    let scene = Scene::new().await;
    let damage = |raw: &Raw| {
        // The parent's third output is listed; its first is spent and must not be.
        let of_parent = |key: &Vec<u8>| key[33..65] == scene.parent.txid.0;
        let mut key = raw.keys("address").into_iter().find(of_parent).unwrap();
        key[65..].copy_from_slice(&0u32.to_be_bytes());
        raw.put("address", key, []);
    };
    let report = scene.after(damage).await;
    assert_names(&report, &["stray", "address", &scene.parent.txid.to_string()]);
}

/// A damaged index can be larger than memory, and looking into each of its entries could take days.
#[tokio::test]
async fn stray_entries_are_named_up_to_the_limit_of_the_report() {
    let scene = Scene::new().await;
    let damage = |raw: &Raw| {
        for number in 0..3000_u32 {
            raw.put("due", by_height(number, &scene.parent.txid), []);
        }
    };
    let report = scene.after(damage).await;
    assert_names(&report, &["index due has 3003 entries, not 3"]);
    assert_eq!((report.problems.len(), report.more), (1000, 0));
    let stray = report.problems.iter().filter(|problem| problem.contains("stray entry")).count();
    assert_eq!(stray, 999);
    assert!(report.to_string().ends_with("at least 1000 problems"), "{report}");
}

#[tokio::test]
async fn keys_of_the_wrong_length_are_named() {
    for family in ["due", "pending", "address"] {
        let scene = Scene::new().await;
        let report = scene.after(|raw| raw.put(family, b"short", [])).await;
        assert_names(&report, &["key", family, "5 bytes"]);
    }
    let scene = Scene::new().await;
    assert_names(&scene.after(|raw| raw.put("tx", b"short", [])).await, &["key", "5 bytes"]);
    let scene = Scene::new().await;
    assert_names(&scene.after(|raw| raw.put("undo", b"short", [])).await, &["undo record"]);
}

#[tokio::test]
async fn a_wrong_height_of_a_spender_is_named() {
    let scene = Scene::new().await;
    let damage = |raw: &Raw| {
        let wrong = Slot::spent(Spender::new(scene.mined.txid, 0), Some(Height(1)));
        scene.change(raw, &scene.parent, |header| header.slots[0] = wrong);
    };
    let report = scene.after(damage).await;
    let outpoint = format!("{}:0", scene.parent.txid);
    assert_names(&report, &[&outpoint, "remembers", &scene.mined.txid.to_string()]);
}

#[tokio::test]
async fn a_spender_that_nobody_has_is_named() {
    let scene = Scene::new().await;
    let damage = |raw: &Raw| {
        raw.delete("tx", scene.waiting.txid.0);
        raw.delete("pending", tagged(0, &by_height(3, &scene.waiting.txid)));
    };
    let report = scene.after(damage).await;
    let outpoint = format!("{}:1", scene.parent.txid);
    assert_names(&report, &[&outpoint, &scene.waiting.txid.to_string(), "neither stored nor mined"]);
}

#[tokio::test]
async fn a_spender_that_spends_something_else_is_named() {
    let scene = Scene::new().await;
    let damage = |raw: &Raw| {
        let wrong = Slot::spent(Spender::new(scene.mined.txid, 0), Some(Height(2)));
        scene.change(raw, &scene.parent, |header| header.slots[2] = wrong);
    };
    let report = scene.after(damage).await;
    let outpoint = format!("{}:2", scene.parent.txid);
    assert_names(&report, &[&outpoint, "which does not spend it"]);
}

#[tokio::test]
async fn a_loser_that_holds_an_output_is_named() {
    let scene = Scene::new().await;
    let damage = |raw: &Raw| {
        let wrong = Slot::spent(Spender::new(scene.loser.txid, 0), None);
        scene.change(raw, &scene.parent, |header| header.slots[1] = wrong);
    };
    let report = scene.after(damage).await;
    assert_names(&report, &[&format!("{}:1", scene.parent.txid), &scene.loser.txid.to_string(), "lost"]);
}

#[tokio::test]
async fn a_loser_that_has_not_lost_is_named() {
    let scene = Scene::new().await;
    let damage = |raw: &Raw| {
        let list = |header: &mut RecordHeader| header.head.conflicting_children.push(scene.waiting.txid);
        scene.change(raw, &scene.parent, list);
    };
    let report = scene.after(damage).await;
    assert_names(&report, &[&scene.parent.txid.to_string(), &scene.waiting.txid.to_string(), "loser"]);
}

#[tokio::test]
async fn wrong_counts_are_named() {
    let scene = Scene::new().await;
    // Version, flags, the last block's id, height and hash, first height, floor, greatest block id; then the records.
    const RECORDS: usize = 1 + 1 + 40 + 4 + 4 + 4;
    let damage = |raw: &Raw| {
        let mut state = raw.get("meta", "state").unwrap();
        assert_eq!(state[RECORDS], 7);
        state[RECORDS] = 8;
        raw.put("meta", "state", state);
    };
    let report = scene.after(damage).await;
    assert_names(&report, &["counts", "records: 8", "records: 7"]);
}

#[tokio::test]
async fn wrong_counts_of_what_is_retained_are_named() {
    let scene = Scene::new().await;
    let damage = |raw: &Raw| {
        let mut state = raw.get("meta", "state").unwrap();
        let end = state.len();
        assert_eq!(state[end - 3..], [0, 1, 0], "locked, preserved, waiting for an unmined child");
        state[end - 3..].copy_from_slice(&[1, 0, 2]);
        raw.put("meta", "state", state);
    };
    let report = scene.after(damage).await;
    assert_names(&report, &["counts", "locked: 1", "preserved: 0", "child_unmined: 2"]);
}

#[tokio::test]
async fn wrong_counts_of_settled_records_are_named() {
    let key = |height: u32| [&b"settled/"[..], &height.to_be_bytes()].concat();
    type Damage = Box<dyn Fn(&Raw)>;
    let damages: [(Damage, &str); 3] = [
        (Box::new(move |raw| raw.delete("meta", key(2))), "counts 0 records that settled at height 2"),
        (Box::new(move |raw| raw.put("meta", key(2), [9])), "counts 9 records that settled at height 2"),
        (Box::new(move |raw| raw.put("meta", key(7), [1])), "counts 1 records that settled at height 7"),
    ];
    for (damage, expected) in damages {
        let scene = Scene::new().await;
        assert_names(&scene.after(damage).await, &[expected]);
    }
}

#[tokio::test]
async fn a_missing_undo_record_is_named() {
    let scene = Scene::new().await;
    let report = scene.after(|raw| raw.delete("undo", 2u32.to_be_bytes())).await;
    assert_names(&report, &["undo record", "block 2", "missing"]);
}

#[tokio::test]
async fn an_undo_record_of_another_block_is_named() {
    let scene = Scene::new().await;
    let damage =
        |raw: &Raw| raw.put("undo", 2u32.to_be_bytes(), raw.get("undo", 1u32.to_be_bytes()).unwrap());
    let report = scene.after(damage).await;
    assert_names(&report, &["undo of 2", "block 1"]);
}

#[tokio::test]
async fn an_unreadable_undo_record_is_named() {
    let scene = Scene::new().await;
    let report = scene.after(|raw| raw.put("undo", 1u32.to_be_bytes(), b"garbage")).await;
    assert_names(&report, &["undo record", "cannot be read"]);
}

#[tokio::test]
async fn an_unreadable_record_is_named() {
    let scene = Scene::new().await;
    let report = scene.after(|raw| raw.put("tx", scene.waiting.txid.0, b"garbage")).await;
    assert_names(&report, &[&scene.waiting.txid.to_string(), "cannot be read"]);
}

#[tokio::test]
async fn a_missing_page_is_named() {
    let name = |scene: &Scene| scene.paged.txid.to_string();
    for number in [1, 2] {
        let scene = Scene::new().await;
        let report = scene.after(|raw| raw.delete("tx", page_key(&scene.paged, number))).await;
        assert_names(&report, &[&name(&scene)]);
    }
}

#[tokio::test]
async fn pages_without_their_record_are_named() {
    let scene = Scene::new().await;
    let report = scene.after(|raw| raw.delete("tx", scene.paged.txid.0)).await;
    assert_names(&report, &["page 1", &scene.paged.txid.to_string(), "no record"]);
    let scene = Scene::new().await;
    let report = scene.after(|raw| raw.put("tx", page_key(&scene.parent, 1), b"page")).await;
    assert_names(&report, &[&scene.parent.txid.to_string()]);
}

/// The first page sums up what the others hold, and decides by that. A summary that is out of date could delete coins.
#[tokio::test]
async fn a_stale_summary_of_a_page_is_named() {
    let scene = Scene::new().await;
    let damage = |raw: &Raw| scene.change(raw, &scene.paged, |header| header.summaries[0].open = 0);
    let report = scene.after(damage).await;
    assert_names(&report, &[&scene.paged.txid.to_string(), "summary is stale"]);
}

/// An output that can never be spent takes no part in any of this.
#[tokio::test]
async fn data_outputs_are_no_damage() {
    let scene = Scene::new().await;
    let store = scene.open();
    let outputs = vec![data_output(), Output::new(1, &b"x"[..])];
    apply(&store, 3, &[&Tx { outputs, ..coin("data", 0) }]).await;
    let report = verify(&store).await;
    assert!(report.is_clean(), "{report}");
}
