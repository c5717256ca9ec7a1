//! The store under test, and short words for what cases do with it.

use std::{
    ops::{ControlFlow, Deref},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use crate::Store;
use sapwood_ledger::{
    Applied, ApplyError, ApplyOptions, BatchError, BatchResult, ConflictError, CreateError, CreateRequest,
    Cursor, DueRecord, Judged, MineError, MineRequest, Page, PruneFrom, PruneRequest, SpendError, SpendInput,
    SpendRequest, StoreError, Unspend, UnspendError, Utxo, UtxoSet, error::TxProblem,
};
use sapwood_rules::{Hold, Policy, SpendStatus, Verdict, lifecycle::due_up_to, settled_at};
use sapwood_types::{Block, BlockHash, Height, MinedIn, OutPoint, Slot, Spender, Tx, TxHead, TxId, TxRecord};

use super::{StoreFactory, StorePlace};
use crate::fixtures::{block_hash, context, mined_in, op};

/// How many entries of a listing are asked for at a time; few, so that cursors are used a lot.
const PAGE: usize = 40;

/// A store under test. It has to be found [`sound`](Subject::sound) at the end of its case.
pub struct Subject {
    /// `None` only while it is opened again.
    store: Option<Arc<dyn Store>>,
    place: Box<dyn StorePlace>,
    /// The policy it began with.
    policy: Policy,
    /// The policy that was set last.
    policy_now: Mutex<Policy>,
    blocks_made: AtomicU32,
    found_sound: bool,
}

impl Deref for Subject {
    type Target = dyn Store + 'static;
    fn deref(&self) -> &(dyn Store + 'static) {
        self.store()
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        assert!(
            self.found_sound || std::thread::panicking(),
            "the case never asked whether the store is sound"
        );
    }
}

/// The result of a batch of one.
pub fn only<T, E: std::fmt::Debug>(result: BatchResult<T, E>) -> Result<T, E> {
    match result {
        Ok(value) => Ok(value),
        Err(BatchError::Items { mut failed, total: 1 }) if failed.len() == 1 && failed[0].0 == 0 => {
            Err(failed.remove(0).1)
        }
        Err(error) => panic!("a batch of one item answered with {error:?}"),
    }
}

/// The failed items of a batch of `total`, of which some must have failed.
pub fn failures<T: std::fmt::Debug, E: std::fmt::Debug>(
    result: BatchResult<T, E>,
    total: usize,
) -> Vec<(usize, E)> {
    match result {
        Err(BatchError::Items { failed, total: reported }) => {
            assert_eq!(reported, total, "the error gives the wrong number of items");
            failed
        }
        other => panic!("some of the {total} items should have failed, but the answer is {other:?}"),
    }
}

/// The refusal of a block because of one of its transactions.
pub fn refused_tx(block: &Block, tx: &Tx, problem: TxProblem) -> ApplyError {
    ApplyError::Tx { hash: block.hash, height: block.height, txid: tx.txid, problem: Box::new(problem) }
}

/// Follows a listing to its end. No page may be longer than asked for.
pub async fn all_pages<T, Fut>(limit: usize, mut page: impl FnMut(Option<Cursor>) -> Fut) -> Vec<T>
where
    Fut: Future<Output = Result<Page<T>, StoreError>>,
{
    let mut items = Vec::new();
    let mut after = None;
    loop {
        let found = page(after).await.expect("listing");
        assert!(
            found.items.len() <= limit,
            "a page of {} items although the limit is {limit}",
            found.items.len()
        );
        items.extend(found.items);
        match found.next {
            Some(next) => after = Some(next),
            None => return items,
        }
    }
}

impl Subject {
    /// A new empty store with this policy.
    pub async fn new(factory: &dyn StoreFactory, policy: Policy) -> Self {
        let place = factory.place();
        let store = Some(place.open(policy).await);
        let policy_now = Mutex::new(policy);
        Self { store, place, policy, policy_now, blocks_made: AtomicU32::new(0), found_sound: false }
    }

    fn store(&self) -> &(dyn Store + 'static) {
        self.store.as_deref().expect("a store that is open")
    }

    /// The store, for another task.
    pub fn shared(&self) -> Arc<dyn Store> {
        self.store.clone().expect("a store that is open")
    }

    /// Changes how long things are kept.
    pub async fn set_policy(&self, policy: Policy) -> Result<(), StoreError> {
        self.store().set_policy(policy).await?;
        *self.policy_now.lock().expect("nothing panics with it") = policy;
        Ok(())
    }

    /// Closes the store and opens it again, with the policy that was set last. No other task may use it.
    pub async fn reopen(&mut self) {
        let closed = self.store.take().map(|store| Arc::downgrade(&store));
        let used = closed.is_some_and(|store| store.strong_count() > 0);
        assert!(!used, "another task still uses the store: it cannot be opened again");
        let policy = *self.policy_now.lock().expect("nothing panics with it");
        self.store = Some(self.place.open(policy).await);
    }

    /// Ends the case: the store verifies itself, what it lists must be what its records say, and all of it must be the same after it was opened again.
    pub async fn sound(mut self) {
        self.check_listings().await;
        let before = self.everything().await;
        self.reopen().await;
        assert_eq!(self.everything().await, before, "the store is another one after it was opened again");
        self.check_listings().await;
        self.found_sound = true;
    }

    /// What has to be the same after reopening, apart from what the digest covers.
    async fn everything(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        let unmined = all_pages(PAGE, |after| self.unmined(after, PAGE)).await;
        (
            self.digest().await,
            self.counts().await,
            (self.last_applied().await, self.rollback_floor().await, self.undoable_from().await),
            (self.prune_cursor().await, self.rolling_utxo_set().await),
            (self.due_all().await, unmined),
        )
    }

    async fn check_listings(&self) {
        let report = self.verify(Arc::new(|_, _| ())).await.expect("verify");
        assert!(report.is_clean(), "the store is not sound at the end of the case:\n{report}");
        let counts = self.counts().await.expect("counts");
        assert_eq!(report.records, counts.records, "verify and counts disagree on the number of records");
        self.utxo_set_now().await;
        let due = self.due_all().await;
        let height = |entry: &DueRecord| entry.settled_at;
        assert!(due.is_sorted_by_key(height), "the due records are not in order of height");
        let settled = self.settled_between(Height::GENESIS, Height::MAX).await.expect("how many settled");
        assert_eq!(settled, due.len() as u64, "the listing of due records and the count disagree");
        for entry in due {
            let record = self.get(entry.txid).await.expect("get").expect("a record is due but absent");
            let settled = settled_at(record.view());
            assert_eq!(settled, Some(entry.settled_at), "{} is listed as due at another height", entry.txid);
        }
        let unmined = self.old_unmined_all(Height::MAX).await;
        assert_eq!(
            unmined.len() as u64,
            counts.unmined,
            "the listing of unmined ones and the count disagree"
        );
        for txid in unmined {
            let record =
                self.get(txid).await.expect("get").expect("a transaction is listed as unmined but absent");
            assert_eq!(record.head.mined_at(), None, "{txid} is listed as unmined but is mined");
        }
    }

    /// The UTXO set, which must be kept as it is counted.
    pub async fn utxo_set_now(&self) -> UtxoSet {
        let kept = self.rolling_utxo_set().await.expect("the UTXO set that is kept");
        let counted =
            self.utxo_set(true, Arc::new(|_, _| ControlFlow::Continue(()))).await.expect("counting");
        assert_eq!(kept.as_ref(), Some(&counted), "the UTXO set that is kept is not the one that is there");
        let plain = self.utxo_set(false, Arc::new(|_, _| ControlFlow::Continue(()))).await.expect("counting");
        assert_eq!(
            plain,
            UtxoSet { hash: None, ..counted.clone() },
            "without the hash something else is counted"
        );
        counted
    }

    /// A hash of everything.
    pub async fn digest(&self) -> [u8; 32] {
        self.state_digest().await.expect("digest")
    }

    /// Panics if anything differs from when `before` was taken.
    pub async fn assert_unchanged(&self, before: [u8; 32], what: &str) {
        assert_eq!(
            self.digest().await,
            before,
            "{what} must change nothing, but the state's digest is another one"
        );
    }

    // Making records.

    /// Stores a transaction as it is asked for.
    pub async fn try_add(&self, request: CreateRequest, height: u32) -> Result<(), CreateError> {
        only(self.create(vec![request], Height(height)).await)
    }

    /// Stores an unmined transaction.
    pub async fn add(&self, tx: &Tx, height: u32) {
        self.try_add(CreateRequest::unmined(tx.clone()), height)
            .await
            .expect("storing an unmined transaction");
    }

    /// Stores a transaction mined at a height, in a block whose id is its height.
    pub async fn add_mined(&self, tx: &Tx, height: u32) {
        let request = CreateRequest::mined(tx.clone(), height, Height(height));
        self.try_add(request, height).await.expect("storing a mined transaction");
    }

    /// Stores a transaction that lost.
    pub async fn add_loser(&self, tx: &Tx, height: u32) {
        let request = CreateRequest { conflicting: true, ..CreateRequest::unmined(tx.clone()) };
        self.try_add(request, height).await.expect("storing a transaction that lost");
    }

    /// Stores an unmined transaction before its parents, on trust, so that it holds nothing when they come.
    pub async fn add_trusted(&self, tx: &Tx, height: u32) {
        let request = CreateRequest { trust_inputs: true, ..CreateRequest::unmined(tx.clone()) };
        self.try_add(request, height).await.expect("storing a transaction on trust");
    }

    // Changing records.

    /// Spends these inputs of a stored transaction.
    pub async fn try_spend(&self, tx: &Tx, vins: &[u32], height: u32) -> Result<(), SpendError> {
        let input =
            |vin: &u32| SpendInput { vin: *vin, outpoint: tx.inputs[*vin as usize].outpoint, expected: None };
        let inputs = vins.iter().map(input).collect();
        let request = SpendRequest { child: tx.txid, inputs, overrides: Default::default() };
        only(self.spend(vec![request], Height(height)).await)
    }

    /// Takes a spend back.
    pub async fn give_back(&self, outpoint: OutPoint, spender: Spender) -> Result<(), UnspendError> {
        only(self.unspend(vec![Unspend { outpoint, spender }]).await)
    }

    /// Notes a block of a transaction, or takes that back.
    pub async fn try_mine(&self, tx: &Tx, block: MinedIn, unset: bool, height: u32) -> Result<(), MineError> {
        only(self.set_mined(vec![tx.txid], MineRequest { block, unset }, Height(height)).await)
    }

    /// Mines a transaction on the longest chain, in a block whose id is its height.
    pub async fn mine(&self, tx: &Tx, height: u32) {
        self.try_mine(tx, mined_in(height, height), false, height).await.expect("mining a transaction");
    }

    /// Takes the block at a height back, as seen at another.
    pub async fn unmine(&self, tx: &Tx, height: u32, now: u32) {
        self.try_mine(tx, mined_in(height, height), true, now)
            .await
            .expect("taking a transaction's block back");
    }

    /// Says whether a transaction's blocks are on the longest chain.
    pub async fn try_longest(&self, tx: &Tx, on: bool, height: u32) -> Result<(), MineError> {
        only(self.mark_on_longest_chain(vec![tx.txid], on, Height(height)).await)
    }

    /// Makes a transaction lose, or takes that back; returns all that changed.
    pub async fn try_conflicting(&self, tx: &Tx, on: bool, height: u32) -> Result<Vec<TxId>, ConflictError> {
        only(self.set_conflicting(vec![tx.txid], on, Height(height)).await)
    }

    /// Makes transactions win; returns the losers.
    pub async fn try_resolve(&self, winners: &[&Tx], height: u32) -> Result<Vec<TxId>, ConflictError> {
        self.resolve_conflicts(winners.iter().map(|tx| tx.txid).collect(), Height(height)).await
    }

    /// Preserves transactions up to a height; returns how many were there.
    pub async fn keep(&self, txs: &[&Tx], until: u32) -> usize {
        self.preserve(txs.iter().map(|tx| tx.txid).collect(), Height(until)).await.expect("preserving")
    }

    // Reading records.

    /// The record of a transaction that must be there.
    pub async fn record(&self, tx: &Tx) -> TxRecord {
        self.get(tx.txid).await.expect("get").unwrap_or_else(|| panic!("{} should be there", tx.txid))
    }

    /// The records of these transactions, where they are there.
    pub async fn records(&self, txs: &[&Tx]) -> Vec<Option<TxRecord>> {
        let found = self.get_many(txs.iter().map(|tx| tx.txid).collect()).await.expect("get many");
        found.into_iter().map(|record| record.expect("a record that can be read")).collect()
    }

    /// Outputs, all of which can be read.
    pub async fn outputs(&self, outpoints: Vec<OutPoint>) -> Result<Vec<Option<Utxo>>, StoreError> {
        self.store().outputs(outpoints).await?.into_iter().collect()
    }

    /// How outputs look at a height, all of which can be read.
    pub async fn spend_status(
        &self,
        outpoints: Vec<OutPoint>,
        at: Height,
    ) -> Result<Vec<SpendStatus>, StoreError> {
        self.store().spend_status(outpoints, at).await?.into_iter().collect()
    }

    /// Whether a transaction is there.
    pub async fn has(&self, tx: &Tx) -> bool {
        self.get(tx.txid).await.expect("get").is_some()
    }

    /// The state of a transaction.
    pub async fn head(&self, tx: &Tx) -> TxHead {
        self.record(tx).await.head
    }

    /// The state of an output, which both ways of reading it must agree on.
    pub async fn slot(&self, tx: &Tx, vout: u32) -> Slot {
        let slot = self.record(tx).await.slots[vout as usize];
        let single = self.outputs(vec![op(tx, vout)]).await.expect("outputs").remove(0);
        if let Some(single) = single {
            assert_eq!(single.slot, slot, "the output alone and its record disagree");
        }
        slot
    }

    // Listings.

    /// Everything that settled, oldest first.
    pub async fn due_all(&self) -> Vec<DueRecord> {
        all_pages(PAGE, |after| self.due(Height::MAX, after, PAGE)).await
    }

    /// When a transaction settled, by the index. The record itself must say the same.
    pub async fn settled(&self, tx: &Tx) -> Option<u32> {
        let due = self.due_all().await;
        let found: Vec<_> =
            due.iter().filter(|entry| entry.txid == tx.txid).map(|entry| entry.settled_at).collect();
        assert!(found.len() <= 1, "{} is listed as due {} times", tx.txid, found.len());
        let by_rule = settled_at(self.record(tx).await.view());
        assert_eq!(found.first().copied(), by_rule, "{}: the due index and the record disagree", tx.txid);
        by_rule.map(|height| height.0)
    }

    /// Everything unmined since a height or before, oldest first.
    pub async fn old_unmined_all(&self, cutoff: Height) -> Vec<TxId> {
        all_pages(PAGE, |after| self.old_unmined(cutoff, after, PAGE)).await
    }

    // Pruning.

    /// What is decided about a transaction at a height. The children themselves must bear out what it remembers.
    pub async fn verdict(&self, tx: &Tx, current: u32) -> Verdict {
        self.verdict_held(tx, current, &[]).await
    }

    /// What is decided about a transaction at a height with these holds.
    pub async fn verdict_held(&self, tx: &Tx, current: u32, holds: &[Hold]) -> Verdict {
        let context = context(current, self.policy.retention, holds);
        let mut judged = self.judge(vec![tx.txid], context, true).await.expect("judge");
        let unchecked = self.judge(vec![tx.txid], context, false).await.expect("judge");
        assert_eq!(judged, unchecked, "the check of the children comes to another conclusion");
        assert_eq!(judged.len(), 1, "one transaction, one verdict");
        assert_eq!(judged[0].txid, tx.txid, "the verdict is about another transaction");
        judged.remove(0).verdict
    }

    /// Deletes these if they may go.
    pub async fn try_prune(&self, txs: &[&Tx], current: u32, holds: &[Hold]) -> Vec<Judged> {
        let request = PruneRequest::records(
            txs.iter().map(|tx| tx.txid).collect(),
            context(current, self.policy.retention, holds),
        );
        self.pruned(request).await
    }

    /// Prunes what a request asks for.
    pub async fn pruned(&self, request: PruneRequest) -> Vec<Judged> {
        self.store().prune(request).await.expect("pruning").judged
    }

    /// Deletes everything that is due at a height; returns what went, sorted. With no holds all that is listed must go.
    pub async fn prune(&self, current: u32) -> Vec<TxId> {
        self.prune_with(current, self.policy.retention).await
    }

    /// Like [`prune`](Self::prune), with another retention than the policy's.
    pub async fn prune_with(&self, current: u32, retention: u32) -> Vec<TxId> {
        let mut gone = Vec::new();
        let Some(up_to) = due_up_to(Height(current), retention) else { return gone };
        let mut from = PruneFrom::Oldest;
        loop {
            let request = PruneRequest::settled(from, up_to, PAGE, context(current, retention, &[]));
            let outcome = self.store().prune(request).await.expect("pruning");
            for judged in outcome.judged {
                assert!(judged.verdict.may_go(), "{} is listed as due but {}", judged.txid, judged.verdict);
                gone.push(judged.txid);
            }
            from = PruneFrom::Cursor;
            if outcome.next.is_none() {
                break;
            }
        }
        gone.sort();
        gone
    }

    // Blocks.

    /// A block with its own hash.
    pub fn block(&self, height: u32, parent: BlockHash, txs: &[&Tx]) -> Block {
        let number = self.blocks_made.fetch_add(1, Ordering::Relaxed);
        Block {
            height: Height(height),
            hash: block_hash(&format!("{number} at {height}")),
            parent,
            time: 1_700_000_000 + u64::from(height),
            txs: txs.iter().map(|tx| (*tx).clone()).collect(),
        }
    }

    /// The block that would come next.
    pub async fn next_block(&self, txs: &[&Tx]) -> Block {
        let last = self.last_applied().await.expect("last applied").expect("a first block");
        self.block(last.height.0 + 1, last.hash, txs)
    }

    /// Applies a block.
    pub async fn try_apply(&self, block: &Block) -> Result<Applied, ApplyError> {
        self.apply_block(Arc::new(block.clone()), ApplyOptions::default()).await
    }

    /// Applies the first block, at a height.
    pub async fn start(&self, height: u32, txs: &[&Tx]) -> Applied {
        let block = self.block(height, block_hash("before the first"), txs);
        self.try_apply(&block).await.expect("applying the first block")
    }

    /// Applies the next block.
    pub async fn extend(&self, txs: &[&Tx]) -> Applied {
        let block = self.next_block(txs).await;
        self.try_apply(&block).await.expect("applying the next block")
    }

    /// Applies empty blocks up to a height.
    pub async fn extend_to(&self, height: u32) {
        while self.last_applied().await.expect("last applied").expect("a first block").height.0 < height {
            self.extend(&[]).await;
        }
    }
}
