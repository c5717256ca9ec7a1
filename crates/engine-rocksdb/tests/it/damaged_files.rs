//! `verify` goes on behind damage in the files of the database, and names what cannot be read.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use sapwood_conformance::fixtures::{paying, small};
use sapwood_engine_rocksdb::{OpenMode, open_ledger};
use sapwood_ledger::{CreateRequest, Ledger, StoreError, VerifyReport};
use sapwood_types::{Height, Tx, TxId};
use tempfile::TempDir;

use crate::harness::{options, raw::Raw, verify};

/// A store of unmined transactions, all of it in files.
struct Scene {
    directory: TempDir,
    txids: Vec<TxId>,
}

impl Scene {
    async fn new(transactions: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tx = |number| paying(&format!("tx {number}"), &[], &["owner"]);
        let txs: Vec<Tx> = (0..transactions).map(tx).collect();
        let store = open(directory.path()).unwrap();
        for some in txs.chunks(100) {
            let created = some.iter().map(|tx| CreateRequest::unmined(tx.clone())).collect();
            store.create(created, Height(3)).await.unwrap();
        }
        store.settle_disk().await.unwrap();
        Scene { directory, txids: txs.iter().map(|tx| tx.txid).collect() }
    }

    /// The largest file of a column family.
    fn file(&self, family: &str) -> PathBuf {
        let files = Raw::open(self.directory.path()).files(family);
        let largest = files.into_iter().max_by_key(|(_, size)| *size).unwrap();
        self.directory.path().join(largest.0)
    }

    /// Records that cannot be read one by one.
    async fn unreadable(&self, store: &Ledger) -> BTreeSet<TxId> {
        let found = store.get_many(self.txids.clone()).await.unwrap();
        let lost = |record: &Result<_, StoreError>| matches!(record, Err(StoreError::Corrupt { .. }));
        self.txids.iter().zip(found).filter(|(_, record)| lost(record)).map(|(txid, _)| *txid).collect()
    }
}

fn open(directory: &Path) -> Result<Ledger, StoreError> {
    // Larger than the whole store, so that files are not compacted while they are looked for.
    let large = options().engine(|engine| engine.write_buffer_bytes = 8 << 20);
    open_ledger(directory, OpenMode::Create, small(), large)
}

/// Flips bytes at a place of a file. Returns how it was.
fn damage(path: &Path, at: usize) -> Vec<u8> {
    let before = fs::read(path).unwrap();
    let mut bytes = before.clone();
    bytes[at..].iter_mut().take(8).for_each(|byte| *byte ^= 0xff);
    fs::write(path, bytes).unwrap();
    before
}

fn names(report: &VerifyReport, txid: &TxId) -> bool {
    let named = format!("transaction {txid} cannot be read");
    report.problems.iter().any(|problem| problem.starts_with(&named))
}

#[tokio::test]
async fn records_behind_a_damaged_block_are_read_and_those_in_it_are_named() {
    let scene = Scene::new(900).await;
    let path = scene.file("tx");
    let length = fs::metadata(&path).unwrap().len() as usize;
    let mut some_of_them = 0;
    for at in (1..40).map(|part| length * part / 40) {
        let before = damage(&path, at);
        // Where the end of the file is damaged, it cannot be opened.
        if let Ok(store) = open(scene.directory.path()) {
            let report = verify(&store).await;
            let lost = scene.unreadable(&store).await;
            some_of_them += usize::from(!lost.is_empty() && lost.len() < scene.txids.len() / 10);
            let unnamed: Vec<_> = lost.iter().filter(|txid| !names(&report, txid)).collect();
            assert!(unnamed.is_empty(), "damage at {at} of {length}: {unnamed:?} are not in {report}");
            assert_eq!(report.records as usize, scene.txids.len() - lost.len(), "damage at {at}: {report}");
            assert_eq!(report.is_clean(), lost.is_empty(), "damage at {at}: {report}");
        }
        fs::write(&path, before).unwrap();
    }
    assert!(some_of_them > 20, "{some_of_them} of 39 places lie in a block of records");
    assert!(verify(&open(scene.directory.path()).unwrap()).await.is_clean());
}

#[tokio::test]
async fn records_between_damaged_blocks_are_read() {
    let scene = Scene::new(900).await;
    let path = scene.file("tx");
    let length = fs::metadata(&path).unwrap().len() as usize;
    for part in [4, 12, 20] {
        damage(&path, length * part / 40);
    }
    let store = open(scene.directory.path()).unwrap();
    let (report, lost) = (verify(&store).await, scene.unreadable(&store).await);
    assert_eq!(report.records as usize, scene.txids.len() - lost.len(), "{report}");
    let parts = report.problems.iter().filter(|problem| problem.starts_with("rows of tx between ")).count();
    assert_eq!(parts, 3, "{report}");
    assert!(lost.iter().all(|txid| names(&report, txid)), "{report}");
}

#[tokio::test]
async fn records_whose_index_entries_are_damaged_are_named() {
    for family in ["pending", "address"] {
        let scene = Scene::new(900).await;
        let path = scene.file(family);
        damage(&path, fs::metadata(&path).unwrap().len() as usize / 4);
        let report = verify(&open(scene.directory.path()).unwrap()).await;
        assert_eq!(report.records as usize, scene.txids.len(), "{report}");
        let text = report.to_string();
        for part in [&format!("rows of {family} between "), "index entry", "cannot be read"] {
            assert!(text.contains(part), "{part:?} is missing in {text}");
        }
    }
}
