//! The UTXO set in figures: stores that do not know it yet, the hash turned on and off, counting while others write, and
//! figures that are wrong.

use std::{
    ops::ControlFlow,
    path::Path,
    sync::{Arc, Mutex, mpsc},
};

use crate::harness::{options, raw::Raw, verify};
use sapwood_conformance::fixtures::{block_hash, burn, child, coin, small};
use sapwood_engine_rocksdb::{OpenMode, open_ledger};
use sapwood_ledger::{ApplyOptions, Ledger, StoreError, UtxoProgress, UtxoSet};
use sapwood_types::{Block, Height, Tx};
use tempfile::TempDir;

const KEY: &str = "utxo-set";

fn open(directory: &Path, utxo_hash: bool) -> Ledger {
    open_ledger(directory, OpenMode::Create, small(), options().ledger(|ledger| ledger.utxo_hash = utxo_hash))
        .unwrap()
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

fn quietly() -> UtxoProgress {
    Arc::new(|_, _| ControlFlow::Continue(()))
}

async fn count(store: &Ledger) -> UtxoSet {
    store.utxo_set(true, quietly()).await.unwrap()
}

async fn kept(store: &Ledger) -> Option<UtxoSet> {
    store.rolling_utxo_set().await.unwrap()
}

/// A store with a block in it, closed. Its transactions have one page and three.
async fn a_store(utxo_hash: bool) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    apply(&open(directory.path(), utxo_hash), 1, &[&coin("one", 2), &coin("wide", 300)]).await;
    directory
}

#[tokio::test]
async fn what_is_kept_is_there_again_after_reopening() {
    let directory = a_store(true).await;
    let store = open(directory.path(), true);
    let set = kept(&store).await.unwrap();
    assert_eq!((set.coins, set.transactions, set.last), (302, 2, store.last_applied().await.unwrap()));
    assert_eq!(count(&store).await, set);
}

#[tokio::test]
async fn turned_on_later_it_is_known_once_it_was_counted() {
    let directory = a_store(false).await;
    let store = open(directory.path(), true);
    assert_eq!(kept(&store).await, None);
    apply(&store, 2, &[&child("spends", &[(&coin("wide", 300), 200)], 2)]).await;
    assert_eq!(kept(&store).await, None, "nobody knows what the block was added to");
    let figures = store.utxo_set(false, quietly()).await.unwrap();
    assert_eq!((figures.coins, kept(&store).await), (303, None), "without its hash it is not worth keeping");
    let counted = count(&store).await;
    assert_eq!(kept(&store).await, Some(counted.clone()));
    drop(store);
    let store = open(directory.path(), true);
    assert_eq!(kept(&store).await, Some(counted), "after reopening");
    apply(&store, 3, &[&coin("more", 1)]).await;
    assert_eq!(kept(&store).await.unwrap().coins, 304);
    assert_eq!(kept(&store).await, Some(count(&store).await));
    let report = verify(&store).await;
    assert!(report.is_clean(), "{report}");
}

/// Whoever only looks at a store, without asking for the set to be kept, does not lose it; whoever writes does, or the entry would
/// be that of an earlier state when it is turned on again.
#[tokio::test]
async fn turned_off_it_is_dropped_with_the_first_write() {
    let directory = a_store(true).await;
    let before = kept(&open(directory.path(), true)).await;
    let store = open(directory.path(), false);
    assert_eq!(kept(&store).await, before);
    assert_eq!(Some(count(&store).await), before);
    // No record changes.
    apply(&store, 2, &[]).await;
    let now = kept(&store).await.unwrap();
    assert_eq!((now.coins, now.last), (302, store.last_applied().await.unwrap()));
    drop(store);
    assert_eq!(kept(&open(directory.path(), true)).await, Some(now));
    let store = open(directory.path(), false);
    apply(&store, 3, &[&coin("more", 1)]).await;
    assert_eq!(kept(&store).await, None);
    assert_eq!(count(&store).await.coins, 303);
    assert_eq!(kept(&store).await, None, "counted, but not to be kept");
    drop(store);
    assert_eq!(Raw::open(directory.path()).get("meta", KEY), None);
    assert_eq!(kept(&open(directory.path(), true)).await, None);
}

/// A count that stops gives way to the next one.
#[tokio::test]
async fn a_stopped_count_leaves_nothing_behind() {
    let directory = a_store(false).await;
    let store = open(directory.path(), true);
    let stopped = store.utxo_set(true, Arc::new(|_, _| ControlFlow::Break(()))).await;
    assert!(matches!(stopped, Err(StoreError::Stopped { .. })), "{stopped:?}");
    assert_eq!(kept(&store).await, None);
    apply(&store, 2, &[&coin("more", 1)]).await;
    assert_eq!(Some(count(&store).await), kept(&store).await);
}

/// Of two counts at the same time one is gone on from, and the other one does no harm.
#[tokio::test]
async fn a_count_within_a_count() {
    let directory = a_store(false).await;
    let store = open(directory.path(), true);
    let (other, runtime) = (store.clone(), tokio::runtime::Handle::current());
    let progress = move |_, _| {
        assert_eq!(runtime.block_on(count(&other)).coins, 302);
        assert_eq!(runtime.block_on(kept(&other)), None, "the first one is gone on from");
        ControlFlow::Continue(())
    };
    assert_eq!(Some(store.utxo_set(true, Arc::new(progress)).await.unwrap()), kept(&store).await);
}

/// What is written while a count runs is not in its answer, but in what the store goes on from.
#[tokio::test]
async fn writes_during_a_count_are_added_at_its_end() {
    let directory = a_store(false).await;
    let store = open(directory.path(), true);
    let before = count(&open(a_store(false).await.path(), false)).await;
    let (other, runtime) = (store.clone(), tokio::runtime::Handle::current());
    let todo = Mutex::new(vec![(3, coin("three", 130)), (2, child("two", &[(&coin("wide", 300), 299)], 1))]);
    let progress = move |_, _| {
        if let Some((height, tx)) = todo.lock().unwrap().pop() {
            runtime.block_on(apply(&other, height, &[&tx]));
        }
        ControlFlow::Continue(())
    };
    let counted = store.utxo_set(true, Arc::new(progress)).await.unwrap();
    assert_eq!(counted, before, "as it was when the count began");
    let now = kept(&store).await.unwrap();
    assert_eq!((now.coins, now.last), (302 + 130, store.last_applied().await.unwrap()));
    assert_eq!(now, count(&store).await);
    let report = verify(&store).await;
    assert!(report.is_clean(), "{report}");
}

#[tokio::test]
async fn a_large_store_is_counted_in_parts_and_comes_to_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), true);
    let txs: Vec<Tx> =
        (0..6_000).map(|number| coin(&number.to_string(), 1 + number % 200 / 199 * 150)).collect();
    apply(&store, 1, &txs.iter().collect::<Vec<_>>()).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let progress = move |done, total| {
        noted.lock().unwrap().push((done, total));
        ControlFlow::Continue(())
    };
    let counted = store.utxo_set(true, Arc::new(progress)).await.unwrap();
    assert_eq!((counted.coins, counted.transactions), (6_000 + 30 * 150, 6_000));
    assert_eq!(kept(&store).await, Some(counted));
    let seen = seen.lock().unwrap();
    assert!(
        seen.len() > 250 && seen.is_sorted() && seen.last() == Some(&(6_000, 6_000)),
        "{:?}",
        seen.last()
    );
}

/// Whoever stops waiting for a count does not leave a thread behind that goes on with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_count_nobody_waits_for_ends() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), true);
    let txs: Vec<Tx> = (0..2_000).map(|number| coin(&number.to_string(), 1)).collect();
    apply(&store, 1, &txs.iter().collect::<Vec<_>>()).await;
    let (started, starts) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel::<()>();
    let goes_on = Mutex::new(goes_on);
    let progress = move |_, _| {
        started.send(()).unwrap();
        goes_on.lock().unwrap().recv().unwrap();
        ControlFlow::Continue(())
    };
    let counting = tokio::spawn(async move { store.utxo_set(true, Arc::new(progress)).await });
    starts.recv().unwrap();
    counting.abort();
    assert!(counting.await.unwrap_err().is_cancelled());
    go_on.send(()).unwrap();
    // The channel closes when the work has ended and what it was given is dropped; there was no second look.
    assert!(starts.recv().is_err());
}

#[tokio::test]
async fn wrong_figures_are_named_given_up_and_set_right() {
    let directory = a_store(true).await;
    let raw = Raw::open(directory.path());
    let entry = raw.get("meta", KEY).unwrap();
    let hash_of_nothing = {
        let other = tempfile::tempdir().unwrap();
        drop(open(other.path(), true));
        Raw::open(other.path()).get("meta", KEY).unwrap().split_off(19)
    };
    drop(raw);
    let mut one_more = entry.clone();
    one_more[1] += 1;
    let other_hash = [&entry[..entry.len() - 769], &hash_of_nothing].concat();
    for wrong in [one_more, other_hash] {
        Raw::open(directory.path()).put("meta", KEY, &wrong);
        let store = open(directory.path(), true);
        let report = verify(&store).await;
        let named = report
            .problems
            .iter()
            .any(|problem| problem.contains("UTXO set") && problem.contains("302 coins"));
        assert!(named, "{report}");
        assert_eq!(count(&store).await.coins, 302);
        assert_eq!(kept(&store).await, None, "what is known to be wrong is not shown");
        drop(store);
        let store = open(directory.path(), true);
        assert_eq!(kept(&store).await, None);
        assert_eq!(Some(count(&store).await), kept(&store).await);
        let report = verify(&store).await;
        assert!(report.is_clean(), "{report}");
    }
}

/// Figures that say fewer coins than a block spends cannot be right. The block is, and is applied.
#[tokio::test]
async fn figures_that_would_fall_below_nothing_are_given_up() {
    let directory = a_store(true).await;
    let raw = Raw::open(directory.path());
    let mut entry = raw.get("meta", KEY).unwrap();
    // No coins, and worth nothing; their transactions take one byte.
    entry.splice(1..3, [0]);
    entry[3..19].fill(0);
    raw.put("meta", KEY, entry);
    drop(raw);
    let store = open(directory.path(), true);
    apply(&store, 2, &[&burn("end", &[(&coin("one", 2), 0)])]).await;
    assert_eq!(kept(&store).await, None);
    assert_eq!(count(&store).await.coins, 301);
    assert_eq!(kept(&store).await.unwrap().coins, 301);
}

#[tokio::test]
async fn an_entry_that_cannot_be_read_is_refused_by_name_where_it_is_needed() {
    let directory = a_store(true).await;
    Raw::open(directory.path()).put("meta", KEY, b"garbage");
    match open_ledger(directory.path(), OpenMode::Create, small(), options()).err() {
        Some(StoreError::Corrupt { what, .. }) if what.contains("UTXO set") => {}
        other => panic!("{other:?}"),
    }
    // Without keeping the set it is not needed, and the first write removes it.
    let store = open(directory.path(), false);
    assert_eq!(kept(&store).await, None);
    apply(&store, 2, &[&coin("more", 1)]).await;
    drop(store);
    let store = open(directory.path(), true);
    assert_eq!(kept(&store).await, None);
    assert_eq!(Some(count(&store).await), kept(&store).await);
}

/// A record that cannot be read, or of which a page is missing, makes no count at all rather than a wrong one.
#[tokio::test]
async fn a_damaged_record_is_an_error_and_not_a_smaller_set() {
    let wide = coin("wide", 300);
    let page = |number: u32| [&wide.txid.0[..], &number.to_be_bytes()].concat();
    for key in [wide.txid.0.to_vec(), page(1), page(2)] {
        let directory = a_store(true).await;
        Raw::open(directory.path()).delete("tx", &key);
        let store = open(directory.path(), true);
        let result = store.utxo_set(false, quietly()).await;
        let name = wide.txid.to_string();
        assert!(
            matches!(&result, Err(StoreError::Corrupt { what, .. }) if what.contains(&name)),
            "{result:?}"
        );
    }
}
