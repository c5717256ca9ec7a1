//! What is deleted gives its space back by itself, although nothing more is written.

use std::{path::Path, sync::Arc, time::Duration};

use crate::harness::{options, raw::Raw, verify};
use sapwood_conformance::fixtures::{block_hash, burn, coin, context, small};
use sapwood_engine_rocksdb::{OpenMode, open_ledger};
use sapwood_ledger::{AddressIndexing, ApplyOptions, Ledger, PruneFrom, PruneRequest};
use sapwood_types::{Block, Height, Tx, TxRecord};

const BLOCKS: u32 = 40;
const COINS: usize = 500;

async fn apply(store: &Ledger, height: u32, txs: Vec<Tx>) {
    let (hash, parent) = (block_hash(&height.to_string()), block_hash(&(height - 1).to_string()));
    let block = Block { height: Height(height), hash, parent, time: 0, txs };
    store.apply_block(Arc::new(block), ApplyOptions::default()).await.unwrap();
}

/// Blocks of coins, nine tenths of which the next block spends; then empty ones, until all that is spent may go.
async fn fill(store: &Ledger) -> Height {
    let mut spend: Vec<Tx> = Vec::new();
    for height in 1..=BLOCKS {
        let coins: Vec<Tx> = (0..COINS).map(|number| coin(&format!("{height} {number}"), 1)).collect();
        let mut txs: Vec<Tx> = spend.iter().map(|tx| burn(&format!("{} off", tx.txid), &[(tx, 0)])).collect();
        txs.extend(coins.iter().cloned());
        apply(store, height, txs).await;
        spend =
            coins.into_iter().enumerate().filter(|(number, _)| number % 10 > 0).map(|(_, tx)| tx).collect();
    }
    let last = BLOCKS + small().retention + 1;
    for height in BLOCKS + 1..=last {
        apply(store, height, Vec::new()).await;
    }
    Height(last)
}

/// Prunes all that is due.
async fn prune(store: &Ledger, at: Height) -> usize {
    let mut pruned = 0;
    loop {
        let (retention, context) = (small().retention, context(at.0, small().retention, &[]));
        let request = PruneRequest::settled(PruneFrom::Cursor, at.minus(retention), 1000, context);
        let outcome = store.prune(request).await.unwrap();
        assert!(outcome.judged.iter().all(|judged| judged.verdict.may_go()));
        pruned += outcome.judged.len();
        if outcome.next.is_none() {
            store.prune_undo(None, at, usize::MAX).await.unwrap();
            return pruned;
        }
    }
}

/// Bytes of tables and logs.
fn disk(directory: &Path) -> u64 {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let data = files.filter(|file| {
        let name = file.file_name().into_string().unwrap();
        name.ends_with(".sst") || name.ends_with(".log")
    });
    // One that was there a moment ago may be gone.
    data.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
}

/// Bytes of all records, with their keys.
async fn own_bytes(store: &Ledger) -> u64 {
    let records = store.records(None, usize::MAX).await.unwrap().items;
    let bytes = |record: &TxRecord| {
        let (first, further) = record.to_pages();
        assert!(further.is_empty());
        (record.txid.0.len() + first.bytes().len()) as u64
    };
    records.iter().map(bytes).sum()
}

/// Entries of the records' family that wait in memory.
async fn in_memory(store: &Ledger) -> u64 {
    let stats = store.engine_stats(Some("tx".into())).await.unwrap().remove(0);
    stats.details["memtable_entries"]
}

/// Nine tenths of the records are deleted, and nothing more is written.
async fn assert_space_comes_back(write_buffer_bytes: usize, straddles: bool) {
    let directory = tempfile::tempdir().unwrap();
    let open = |deletions_flushed_after| {
        let address_index = AddressIndexing::default();
        let options = options().ledger(|ledger| ledger.address_index = address_index).engine(|engine| {
            engine.write_buffer_bytes = write_buffer_bytes;
            engine.deletions_flushed_after = deletions_flushed_after;
        });
        open_ledger(directory.path(), OpenMode::Create, small(), options).unwrap()
    };
    let store = open(Duration::from_secs(3600));
    let last = fill(&store).await;
    store.settle_disk().await.unwrap();
    drop(store);
    let raw = Raw::open(directory.path());
    if straddles {
        raw.write_twice("tx");
    }
    let found = raw.levels("tx");
    drop(raw);
    assert_eq!(found.len() > 1, straddles, "the case itself: {found:?}");

    let store = open(Duration::from_millis(100));
    let pruned = prune(&store, last).await;
    let left = store.counts().await.unwrap().records;
    assert!(pruned as u64 > 9 * left, "the case itself: {pruned} are pruned, {left} are left");
    let most = own_bytes(&store).await * 3 / 2;
    // No caller asks for it, and no buffer is full.
    while in_memory(&store).await > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    store.settle_disk().await.unwrap();
    let found = disk(directory.path());
    assert!(found <= most, "{found} bytes on disk, and {most} are allowed");
    let report = verify(&store).await;
    assert!(report.is_clean(), "{report}");
}

/// bitcoin 35465: every coin of a chainstate of 14.7 GB was deleted, and 10 GB stayed on the disk, because deletions in one level do not reach
/// the next until as much new data comes.
#[tokio::test]
async fn bitcoin_35465_space_comes_back_from_a_database_that_straddles_levels() {
    assert_space_comes_back(64 << 10, true).await;
}

/// As above, with deletions that fit in memory: no buffer that is full comes to help.
#[tokio::test]
async fn bitcoin_35465_space_comes_back_although_deletions_fit_in_memory() {
    assert_space_comes_back(64 << 20, false).await;
}
