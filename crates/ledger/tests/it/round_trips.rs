//! How often an operation reads from the engine. An engine on a network answers every `get_many` with a round trip, so their number must not
//! depend on the size of a block or a batch.
//!
//! Every ledger here is opened just before it is measured: nothing is cached. It keeps the UTXO set and all indexes, which need pages that
//! the operations themselves do not.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use sapwood_conformance::fixtures::{block_hash, by, child, coin, coinbase, mined_in, op, small};
use sapwood_engine_memory::MemoryEngine;
use sapwood_ledger::{
    AddressIndexing, ApplyOptions, CreateRequest, Ledger, LedgerOptions, MineRequest, RollbackMode,
    SpendInput, SpendRequest, Unspend,
    engine::{
        Capabilities, EachRow, EachValue, Engine, EngineError, EngineStats, Maintenance, Scan, Table, View,
        WriteSet,
    },
};
use sapwood_types::{Height, Slot, Tx, TxId};

use crate::block;

/// What the issue allows for everything but conflicts.
const MOST: usize = 3;
/// Transactions of a block.
const BLOCK: u32 = 4_000;
/// Items of a batch.
const BATCH: u32 = 1_000;
/// Outputs of a parent: on three pages.
const OUTPUTS: u32 = 300;

/// An engine in memory that counts its reads.
struct CountingEngine {
    engine: MemoryEngine,
    reads: Arc<AtomicUsize>,
}

struct CountingView<'a> {
    view: Box<dyn View + 'a>,
    reads: &'a AtomicUsize,
}

impl Engine for CountingEngine {
    fn kind(&self) -> &'static str {
        "counting"
    }

    fn place(&self) -> String {
        self.engine.place()
    }

    fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    fn position(&self) -> Result<u64, EngineError> {
        self.engine.position()
    }

    fn view(&self) -> Result<Box<dyn View + '_>, EngineError> {
        Ok(Box::new(CountingView { view: self.engine.view()?, reads: &self.reads }))
    }

    fn commit(&self, writes: &WriteSet) -> Result<(), EngineError> {
        self.engine.commit(writes)
    }

    fn stats(&self, table: Option<Table>) -> Result<EngineStats, EngineError> {
        self.engine.stats(table)
    }

    fn maintain(&self, work: Maintenance) -> Result<(), EngineError> {
        self.engine.maintain(work)
    }

    fn backup(&self, directory: &Path) -> Result<(), EngineError> {
        self.engine.backup(directory)
    }
}

impl View for CountingView<'_> {
    fn get_many(&self, table: Table, keys: &[&[u8]], each: &mut EachValue<'_>) -> Result<(), EngineError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.view.get_many(table, keys, each)
    }

    fn scan(&self, scan: &Scan, row: &mut EachRow<'_>) -> Result<(), EngineError> {
        self.view.scan(scan, row)
    }
}

/// Rows that outlive the ledgers opened on them.
struct Rows(MemoryEngine);

impl Rows {
    fn new() -> Self {
        Self(MemoryEngine::new())
    }

    fn open(&self) -> (Ledger, Arc<AtomicUsize>) {
        let reads = Arc::new(AtomicUsize::new(0));
        let engine = CountingEngine { engine: self.0.reopen(), reads: Arc::clone(&reads) };
        let options = LedgerOptions {
            address_index: AddressIndexing { address: true, credential: true },
            utxo_hash: true,
            // A second core reads nothing by itself.
            two_cores_from: 0,
            ..LedgerOptions::default()
        };
        (Ledger::open(Arc::new(engine), small(), options).unwrap(), reads)
    }

    /// Counts the reads of an operation of a ledger that has nothing cached.
    async fn reads_of<T>(&self, operation: impl AsyncFnOnce(&Ledger) -> T) -> (usize, T) {
        let (ledger, reads) = self.open();
        reads.store(0, Ordering::Relaxed);
        let result = operation(&ledger).await;
        (reads.load(Ordering::Relaxed), result)
    }

    async fn apply(&self, height: u32, txs: &[Tx]) -> usize {
        let block = block(height, txs.to_vec());
        let (reads, applied) =
            self.reads_of(async |ledger| ledger.apply_block(block, ApplyOptions::default()).await).await;
        applied.unwrap();
        reads
    }

    async fn create(&self, txs: &[Tx]) -> usize {
        let batch = txs.iter().cloned().map(CreateRequest::unmined).collect();
        let (reads, created) = self.reads_of(async |ledger| ledger.create(batch, Height(3)).await).await;
        created.unwrap();
        reads
    }

    async fn sound(&self) {
        let (ledger, _) = self.open();
        assert_eq!(ledger.verify(Arc::new(|_, _| ())).await.unwrap().problems, Vec::<String>::new());
    }
}

/// So many outputs of transactions that have three pages each, and those transactions.
fn parents(label: &str, outputs: u32) -> (Vec<Tx>, Vec<(usize, u32)>) {
    let parents: Vec<Tx> =
        (0..outputs.div_ceil(OUTPUTS)).map(|number| coin(&format!("{label} {number}"), OUTPUTS)).collect();
    let places = (0..outputs).map(|output| ((output / OUTPUTS) as usize, output % OUTPUTS)).collect();
    (parents, places)
}

/// Transactions that spend one output each of parents with three pages. Every tenth has three pages itself.
fn children(label: &str, count: u32) -> (Vec<Tx>, Vec<Tx>) {
    let (parents, places) = parents(&format!("parent of {label}"), count);
    let outputs = |number: usize| if number.is_multiple_of(10) { OUTPUTS } else { 2 };
    let children = places.iter().enumerate().map(|(number, (parent, vout))| {
        child(&format!("{label} {number}"), &[(&parents[*parent], *vout)], outputs(number))
    });
    let children = children.collect();
    (parents, children)
}

fn ids(txs: &[Tx]) -> Vec<TxId> {
    txs.iter().map(|tx| tx.txid).collect()
}

/// A block with parents on all pages of older records, spends within the block, and a coinbase; and the block before it.
fn large_block() -> (Vec<Tx>, Vec<Tx>) {
    let (parents, mut txs) = children("large", BLOCK - 1);
    for number in 1..txs.len() {
        // Every third spends from the one before it, too.
        if number.is_multiple_of(3) {
            let spent = op(&txs[number - 1], 0);
            txs[number].inputs.push(sapwood_types::Input::of(spent));
        }
    }
    txs.insert(0, coinbase("coinbase", 1));
    (parents, txs)
}

#[tokio::test]
async fn large_block_is_applied_with_one_read() {
    let rows = Rows::new();
    let (parents, txs) = large_block();
    rows.apply(1, &parents).await;
    assert!(rows.apply(2, &txs).await <= 1);
    rows.sound().await;
}

#[tokio::test]
async fn block_of_known_transactions_is_applied_with_two_reads() {
    let rows = Rows::new();
    let (parents, txs) = children("known", BATCH);
    rows.apply(1, &parents).await;
    rows.create(&txs).await;
    // Further pages of what is mined now have coins of the UTXO set.
    assert!(rows.apply(2, &txs).await <= 2);
    rows.sound().await;
}

#[tokio::test]
async fn rollback_of_a_large_block_reads_at_most_three_times() {
    for mode in [RollbackMode::Follower, RollbackMode::Node] {
        let rows = Rows::new();
        let (parents, txs) = large_block();
        rows.apply(1, &parents).await;
        rows.apply(2, &txs).await;
        // Outputs of the block that unmined transactions spend: those lose or stay, but have to be looked at. One that is named on a further
        // page would take one more read.
        let spenders: Vec<Tx> = (1..50)
            .map(|number| child(&format!("later {number}"), &[(&txs[10 * number + 1], 100)], 1))
            .collect();
        rows.create(&spenders).await;
        let target = Some((Height(1), block_hash("1")));
        let (reads, rolled_back) =
            rows.reads_of(async |ledger| ledger.roll_back(target, mode).await.unwrap()).await;
        assert!(reads <= MOST, "{mode:?}: {reads} reads");
        let forgotten = if mode == RollbackMode::Follower { txs.len() } else { 0 };
        assert_eq!((rolled_back.blocks, rolled_back.forgotten.len()), (1, forgotten));
        rows.sound().await;
    }
}

#[tokio::test]
async fn rollback_of_many_blocks_reads_as_often_as_that_of_one() {
    let rows = Rows::new();
    let (parents, txs) = children("tx", 40);
    rows.apply(1, &parents).await;
    for (height, txs) in (2..).zip(txs.chunks(10)) {
        rows.apply(height, txs).await;
    }
    let target = Some((Height(1), block_hash("1")));
    let (reads, rolled_back) =
        rows.reads_of(async |ledger| ledger.roll_back(target, RollbackMode::Follower).await.unwrap()).await;
    assert_eq!((rolled_back.blocks, rolled_back.forgotten.len()), (4, 40));
    assert!(reads <= MOST, "{reads} reads");
    rows.sound().await;
}

#[tokio::test]
async fn batch_is_created_and_spends_with_one_read() {
    let rows = Rows::new();
    let (parents, txs) = children("tx", BATCH);
    rows.apply(1, &parents).await;
    assert!(rows.create(&txs).await <= 1);
    let unspends = txs.iter().map(|tx| Unspend { outpoint: tx.inputs[0].outpoint, spender: by(tx, 0) });
    let unspends: Vec<Unspend> = unspends.collect();
    let (reads, unspent) = rows.reads_of(async |ledger| ledger.unspend(unspends).await).await;
    unspent.unwrap();
    assert!(reads <= 1, "unspend: {reads} reads");
    let spends = txs.iter().map(|tx| SpendRequest {
        child: tx.txid,
        inputs: vec![SpendInput { vin: 0, outpoint: tx.inputs[0].outpoint, expected: None }],
        overrides: Default::default(),
    });
    let spends: Vec<SpendRequest> = spends.collect();
    let (reads, spent) = rows.reads_of(async |ledger| ledger.spend(spends, Height(4)).await).await;
    spent.unwrap();
    assert!(reads <= 1, "spend: {reads} reads");
    rows.sound().await;
}

#[tokio::test]
async fn batch_of_states_reads_at_most_three_times() {
    let rows = Rows::new();
    let (parents, txs) = children("tx", BATCH);
    rows.apply(1, &parents).await;
    rows.create(&txs).await;
    let ids = || ids(&txs);
    let request = MineRequest { block: mined_in(7, 2), unset: false };
    let (reads, mined) =
        rows.reads_of(async |ledger| ledger.set_mined(ids(), request, Height(2)).await).await;
    mined.unwrap();
    assert!(reads <= MOST, "set_mined: {reads} reads");
    for on in [false, true] {
        let (reads, marked) =
            rows.reads_of(async |ledger| ledger.mark_on_longest_chain(ids(), on, Height(4)).await).await;
        marked.unwrap();
        assert!(reads <= MOST, "mark_on_longest_chain({on}): {reads} reads");
    }
    let request = MineRequest { unset: true, ..request };
    let (reads, unmined) =
        rows.reads_of(async |ledger| ledger.set_mined(ids(), request, Height(5)).await).await;
    unmined.unwrap();
    assert!(reads <= MOST, "unset: {reads} reads");

    let (reads, preserved) = rows.reads_of(async |ledger| ledger.preserve(ids(), Height(90)).await).await;
    assert_eq!(preserved.unwrap(), txs.len());
    assert!(reads <= 1, "preserve: {reads} reads");
    let outpoints: Vec<_> = txs.iter().map(|tx| op(tx, tx.outputs.len() as u32 - 1)).collect();
    let (reads, frozen) = rows.reads_of(async |ledger| ledger.freeze(outpoints.clone()).await).await;
    frozen.unwrap();
    assert!(reads <= 1, "freeze: {reads} reads");
    let (reads, unfrozen) = rows.reads_of(async |ledger| ledger.unfreeze(outpoints).await).await;
    unfrozen.unwrap();
    assert!(reads <= 1, "unfreeze: {reads} reads");
    rows.sound().await;
    let (reads, deleted) = rows.reads_of(async |ledger| ledger.delete(ids()).await).await;
    deleted.unwrap();
    assert!(reads <= 2, "delete: {reads} reads");
    rows.sound().await;
}

/// A loser, and what descends from it: so many generations in all, each of which spends from the one before. With `other_parents`, each
/// spends from another mined transaction too.
struct Conflict {
    rows: Rows,
    winner: Tx,
    losers: Vec<Tx>,
    others: Vec<Tx>,
}

impl Conflict {
    async fn new(generations: usize, other_parents: bool) -> Self {
        let rows = Rows::new();
        let contested = coin("contested", 1);
        let others: Vec<Tx> = (0..generations).map(|number| coin(&format!("other {number}"), 1)).collect();
        rows.apply(1, &[std::slice::from_ref(&contested), &others].concat()).await;
        let mut losers: Vec<Tx> = Vec::new();
        for (number, other) in others.iter().enumerate() {
            let mut of = vec![(losers.last().unwrap_or(&contested), 0)];
            of.extend(other_parents.then_some((other, 0)));
            let loser = child(&format!("loser {number}"), &of, 2);
            rows.create(std::slice::from_ref(&loser)).await;
            losers.push(loser);
        }
        let winner = child("winner", &[(&contested, 0)], 1);
        Self { rows, winner, losers, others }
    }

    /// All have lost, and hold nothing.
    async fn check(&self, lost: Vec<TxId>) {
        assert_eq!(lost, ids(&self.losers));
        let (ledger, _) = self.rows.open();
        for other in &self.others {
            assert_eq!(ledger.get(other.txid).await.unwrap().unwrap().slots, [Slot::Unspent]);
        }
        self.rows.sound().await;
    }
}

/// The winner, what it spends, and each generation of losers: one read each. What the last generation spends besides takes one more.
#[tokio::test]
async fn conflict_is_resolved_with_a_read_per_generation_and_two() {
    for (generations, other_parents) in [(1, false), (2, false), (5, false), (1, true), (2, true), (5, true)]
    {
        let conflict = Conflict::new(generations, other_parents).await;
        let request = CreateRequest { conflicting: true, ..CreateRequest::unmined(conflict.winner.clone()) };
        let (_, created) =
            conflict.rows.reads_of(async |ledger| ledger.create(vec![request], Height(3)).await).await;
        created.unwrap();
        let winners = vec![conflict.winner.txid];
        let (reads, lost) =
            conflict.rows.reads_of(async |ledger| ledger.resolve_conflicts(winners, Height(4)).await).await;
        conflict.check(lost.unwrap()).await;
        let most = generations + 2 + usize::from(other_parents);
        assert!(reads <= most, "{generations} generations, {other_parents}: {reads} reads");
    }
}

#[tokio::test]
async fn block_wins_against_a_conflict_with_a_read_per_generation_and_one() {
    for (generations, other_parents) in [(1, false), (5, false), (1, true), (5, true)] {
        let conflict = Conflict::new(generations, other_parents).await;
        let block = block(2, vec![coinbase("coinbase", 1), conflict.winner.clone()]);
        let apply = async |ledger: &Ledger| ledger.apply_block(block, ApplyOptions::default()).await;
        let (reads, applied) = conflict.rows.reads_of(apply).await;
        conflict.check(applied.unwrap().conflicting).await;
        let most = generations + 1 + usize::from(other_parents);
        assert!(reads <= most, "{generations} generations, {other_parents}: {reads} reads");
    }
}

/// Losers of unlike depth in one block are followed at the same time.
#[tokio::test]
async fn conflicts_side_by_side_read_as_often_as_the_deepest() {
    let rows = Rows::new();
    let contested: Vec<Tx> = (0..20).map(|number| coin(&format!("contested {number}"), 1)).collect();
    rows.apply(1, &contested).await;
    let mut winners = vec![coinbase("coinbase", 1)];
    for (number, parent) in contested.iter().enumerate() {
        let mut last = parent.clone();
        for generation in 0..1 + number % 4 {
            let loser = child(&format!("loser {number} {generation}"), &[(&last, 0)], 1);
            rows.create(std::slice::from_ref(&loser)).await;
            last = loser;
        }
        winners.push(child(&format!("winner {number}"), &[(parent, 0)], 1));
    }
    let reads = rows.apply(2, &winners).await;
    assert!(reads <= 4 + 1, "{reads} reads");
    rows.sound().await;
}

#[tokio::test]
async fn records_are_read_with_two_reads_and_outputs_with_one() {
    let rows = Rows::new();
    let (parents, txs) = children("tx", BATCH);
    rows.apply(1, &parents).await;
    rows.apply(2, &txs).await;
    let (reads, records) = rows.reads_of(async |ledger| ledger.get_many(ids(&txs)).await.unwrap()).await;
    assert!(records.iter().all(|record| matches!(record, Ok(Some(_)))));
    assert!(reads <= 2, "records: {reads} reads");
    let outpoints = txs.iter().map(|tx| tx.inputs[0].outpoint).collect();
    let (reads, outputs) = rows.reads_of(async |ledger| ledger.outputs(outpoints).await.unwrap()).await;
    assert!(outputs.iter().all(|output| matches!(output, Ok(Some(_)))));
    assert!(reads <= 1, "outputs: {reads} reads");
}
