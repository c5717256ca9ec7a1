//! The model as a store.
//!
//! Whatever tests a store can then test the model, and the tests can be tried out with no engine at all.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use async_trait::async_trait;
use bytes::Bytes;
use sapwood_ledger::*;
use sapwood_rules::{Policy, PruneContext, SpendStatus};
use sapwood_types::{Block, BlockHash, BlockMark, Height, OutPoint, PrevOutput, TxId, TxRecord, Undo};

use super::Model;
use crate::{
    StoreFactory, StorePlace,
    store::{Blocks, Store},
};

/// A [`Model`] as a [`Store`].
pub struct ModelStore {
    state: Arc<State>,
    fault: Option<fn(&mut Model)>,
}

/// What a store in this form knows.
struct State {
    model: Mutex<Model>,
    notes: Mutex<BTreeMap<String, Bytes>>,
}

impl ModelStore {
    /// An empty store.
    pub fn new(policy: Policy) -> Self {
        let state = State { model: Mutex::new(Model::new(policy)), notes: Mutex::default() };
        ModelStore { state: Arc::new(state), fault: None }
    }

    fn read(&self) -> MutexGuard<'_, Model> {
        self.state.model.lock().expect("nobody panics while holding the model")
    }

    fn write<T>(&self, work: impl FnOnce(&mut Model) -> T) -> T {
        let mut model = self.read();
        let result = work(&mut model);
        if let Some(fault) = self.fault {
            fault(&mut model);
        }
        result
    }
}

/// Makes models as stores. What a model knows outlives the reference to it, as rows outlive an engine.
#[derive(Clone, Copy, Default)]
pub struct Models {
    fault: Option<fn(&mut Model)>,
}

impl Models {
    /// Models that damage themselves after each write, to see whether a test notices.
    pub fn with_fault(fault: fn(&mut Model)) -> Self {
        Models { fault: Some(fault) }
    }
}

impl StoreFactory for Models {
    fn place(&self) -> Box<dyn StorePlace> {
        Box::new(ModelPlace { fault: self.fault, state: Mutex::default() })
    }
}

struct ModelPlace {
    fault: Option<fn(&mut Model)>,
    /// What the first store made.
    state: Mutex<Option<Arc<State>>>,
}

#[async_trait]
impl StorePlace for ModelPlace {
    async fn open(&self, policy: Policy) -> Arc<dyn Store> {
        let mut state = self.state.lock().expect("nothing panics with it");
        let store = match &*state {
            None => ModelStore { fault: self.fault, ..ModelStore::new(policy) },
            Some(state) => {
                let store = ModelStore { state: Arc::clone(state), fault: self.fault };
                store.read().set_policy(policy).expect("a policy that can be");
                store
            }
        };
        *state = Some(Arc::clone(&store.state));
        Arc::new(store)
    }
}

/// Cuts a whole listing, in ascending or descending order of its keys, into pages. The cursor is the key of the last entry
/// shown: where it goes on does not depend on whether that entry is still there.
fn page<T>(
    all: Vec<T>,
    order: Order,
    after: Option<Cursor>,
    limit: usize,
    key: impl Fn(&T) -> Vec<u8>,
) -> Result<Page<T>, StoreError> {
    check_limit(limit)?;
    let beyond = |item: &T| match (&after, order) {
        (None, _) => true,
        (Some(cursor), Order::Ascending) => key(item) > cursor.0,
        (Some(cursor), Order::Descending) => key(item) < cursor.0,
    };
    let mut items: Vec<T> = all.into_iter().filter(|item| beyond(item)).collect();
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|item| Cursor(Bytes::from(key(item))));
    Ok(Page::new(items, next))
}

/// A key that sorts by height, then by id.
fn by_height(height: Height, txid: &TxId) -> Vec<u8> {
    [&height.0.to_be_bytes()[..], &txid.0].concat()
}

#[async_trait]
impl Store for ModelStore {
    async fn get_many(&self, txids: Vec<TxId>) -> EachResult<Option<TxRecord>> {
        let model = self.read();
        Ok(txids.into_iter().map(|txid| Ok(model.get(txid))).collect())
    }

    async fn get(&self, txid: TxId) -> Result<Option<TxRecord>, StoreError> {
        Ok(self.read().get(txid))
    }

    async fn with_inputs(&self, mut record: TxRecord) -> Result<TxRecord, StoreError> {
        let model = self.read();
        for input in &mut record.body.inputs {
            let script_is_known = matches!(&input.previous, Some(PrevOutput { script: Some(_), .. }));
            if let (false, Some(utxo)) = (script_is_known, model.outputs(&[input.outpoint]).remove(0)) {
                let value = input.previous.as_ref().map_or(utxo.output.value, |known| known.value);
                input.previous = Some(PrevOutput { value, script: Some(utxo.output.script) });
            }
        }
        Ok(record)
    }

    async fn outputs(&self, outpoints: Vec<OutPoint>) -> EachResult<Option<Utxo>> {
        Ok(self.read().outputs(&outpoints).into_iter().map(Ok).collect())
    }

    async fn spend_status(&self, outpoints: Vec<OutPoint>, at: Height) -> EachResult<SpendStatus> {
        Ok(self.read().spend_status(&outpoints, at).into_iter().map(Ok).collect())
    }

    async fn old_unmined(
        &self,
        cutoff: Height,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<TxId>, StoreError> {
        let all = self.read().old_unmined(cutoff);
        let found = page(all, Order::Ascending, after, limit, |(since, txid)| by_height(*since, txid))?;
        Ok(Page::new(found.items.into_iter().map(|(_, txid)| txid).collect(), found.next))
    }

    async fn unmined(&self, after: Option<Cursor>, limit: usize) -> Result<Page<UnminedTx>, StoreError> {
        page(self.read().unmined(), Order::Ascending, after, limit, |tx| by_height(tx.since, &tx.txid))
    }

    async fn by_address(&self, query: AddressQuery) -> Result<Page<Utxo>, StoreError> {
        let all = self.read().by_address(query.kind, query.hash, query.order);
        let key = |utxo: &Utxo| {
            let record = by_height(utxo.created_height, &utxo.outpoint.txid);
            [&record[..], &utxo.outpoint.vout.to_be_bytes()].concat()
        };
        page(all, query.order, query.after, query.limit, key)
    }

    async fn last_applied(&self) -> Result<Option<BlockMark>, StoreError> {
        Ok(self.read().last_applied())
    }

    async fn rollback_floor(&self) -> Result<Option<Height>, StoreError> {
        Ok(self.read().rollback_floor())
    }

    async fn undoable_from(&self) -> Result<Option<Height>, StoreError> {
        Ok(self.read().undoable_from())
    }

    async fn block_at(&self, height: Height) -> Result<Option<Undo>, StoreError> {
        Ok(self.read().undo(height))
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        Ok(self.read().counts())
    }

    async fn settled_between(&self, from: Height, to: Height) -> Result<u64, StoreError> {
        Ok(self.read().settled_between(from, to))
    }

    async fn rolling_utxo_set(&self) -> Result<Option<UtxoSet>, StoreError> {
        Ok(Some(self.read().utxo_set()))
    }

    async fn note(&self, name: &str) -> Result<Option<Bytes>, StoreError> {
        Ok(self.state.notes.lock().expect("nobody panics while holding the notes").get(name).cloned())
    }

    async fn create(&self, batch: Vec<CreateRequest>, height: Height) -> BatchResult<(), CreateError> {
        self.write(|model| model.create(batch, height))
    }

    async fn spend(&self, batch: Vec<SpendRequest>, height: Height) -> BatchResult<(), SpendError> {
        self.write(|model| model.spend(batch, height))
    }

    async fn unspend(&self, batch: Vec<Unspend>) -> BatchResult<(), UnspendError> {
        self.write(|model| model.unspend(batch))
    }

    async fn set_mined(
        &self,
        txids: Vec<TxId>,
        request: MineRequest,
        height: Height,
    ) -> BatchResult<(), MineError> {
        self.write(|model| model.set_mined(txids, request, height))
    }

    async fn mark_on_longest_chain(
        &self,
        txids: Vec<TxId>,
        on: bool,
        height: Height,
    ) -> BatchResult<(), MineError> {
        self.write(|model| model.mark_on_longest_chain(txids, on, height))
    }

    async fn set_conflicting(
        &self,
        txids: Vec<TxId>,
        on: bool,
        height: Height,
    ) -> BatchResult<Vec<TxId>, ConflictError> {
        self.write(|model| model.set_conflicting(txids, on, height))
    }

    async fn resolve_conflicts(
        &self,
        winners: Vec<TxId>,
        height: Height,
    ) -> Result<Vec<TxId>, ConflictError> {
        self.write(|model| model.resolve_conflicts(winners, height))
    }

    async fn set_locked(&self, txids: Vec<TxId>, on: bool) -> BatchResult<(), FreezeError> {
        self.write(|model| model.set_locked(txids, on))
    }

    async fn freeze(&self, outpoints: Vec<OutPoint>) -> BatchResult<(), FreezeError> {
        self.write(|model| model.freeze(outpoints))
    }

    async fn unfreeze(&self, outpoints: Vec<OutPoint>) -> BatchResult<(), FreezeError> {
        self.write(|model| model.unfreeze(outpoints))
    }

    async fn reassign(&self, batch: Vec<Reassign>, height: Height) -> BatchResult<(), ReassignError> {
        self.write(|model| model.reassign(batch, height))
    }

    async fn preserve(&self, txids: Vec<TxId>, until: Height) -> BatchResult<usize, PreserveError> {
        self.write(|model| model.preserve(txids, until))
    }

    async fn delete(&self, txids: Vec<TxId>) -> BatchResult<(), DeleteError> {
        self.write(|model| model.delete(txids))
    }

    async fn apply_block(&self, block: Arc<Block>, options: ApplyOptions) -> Result<Applied, ApplyError> {
        self.write(|model| model.apply_block(&block, options))
    }

    async fn apply_blocks(&self, blocks: Blocks) -> AppliedBlocks {
        let mut done = AppliedBlocks::default();
        for (block, options) in blocks {
            match self.apply_block(block, options).await {
                Ok(applied) => done.applied.push(applied),
                Err(error) => {
                    done.refused = Some(error);
                    break;
                }
            }
        }
        done
    }

    async fn roll_back(
        &self,
        target: Option<(Height, BlockHash)>,
        mode: RollbackMode,
    ) -> Result<RolledBack, RollbackError> {
        self.write(|model| model.roll_back(target, mode))
    }

    async fn put_notes(&self, notes: Vec<(String, Option<Bytes>)>) -> Result<(), StoreError> {
        let mut kept = self.state.notes.lock().expect("nobody panics while holding the notes");
        for (name, note) in notes {
            match note {
                Some(note) => drop(kept.insert(name, note)),
                None => drop(kept.remove(&name)),
            }
        }
        Ok(())
    }

    async fn set_policy(&self, policy: Policy) -> Result<(), StoreError> {
        let refused =
            |error: sapwood_rules::PolicyError| StoreError::BadOption { problem: error.to_string() };
        self.write(|model| model.set_policy(policy)).map_err(refused)
    }

    async fn due(
        &self,
        settled_up_to: Height,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<DueRecord>, StoreError> {
        let all = self.read().due(settled_up_to);
        page(all, Order::Ascending, after, limit, |due| by_height(due.settled_at, &due.txid))
    }

    async fn judge(
        &self,
        txids: Vec<TxId>,
        context: PruneContext,
        check_children: bool,
    ) -> Result<Vec<Judged>, StoreError> {
        Ok(self.read().judge(&txids, &context, check_children))
    }

    async fn prune(&self, request: PruneRequest) -> Result<PruneOutcome, StoreError> {
        if let PruneWhat::Settled { limit, per_write, .. } = request.what {
            check_limit(limit)?;
            check_limit(per_write)?;
        }
        if !request.dry_run && request.permit.as_ref().is_some_and(|permit| !permit.is_given()) {
            return Err(StoreError::Stopped { doing: "deleting due records" });
        }
        Ok(self.write(|model| model.prune(&request)))
    }

    async fn prune_cursor(&self) -> Result<Option<Cursor>, StoreError> {
        Ok(self.read().prune_cursor())
    }

    async fn end_preservations(&self, preserved: Vec<(TxId, Height)>) -> Result<usize, StoreError> {
        Ok(self.write(|model| model.end_preservations(&preserved)))
    }

    async fn preserved(
        &self,
        up_to: Height,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<TxId>, StoreError> {
        let all = self.read().preserved(up_to);
        let found = page(all, Order::Ascending, after, limit, |(until, txid)| by_height(*until, txid))?;
        Ok(Page::new(found.items.into_iter().map(|(_, txid)| txid).collect(), found.next))
    }

    async fn expire_preservations(&self, height: Height, limit: usize) -> Result<Expired, StoreError> {
        check_limit(limit)?;
        let worked_off = self.write(|model| model.expire_preservations(height, limit));
        Ok(Expired { worked_off, unreadable: Vec::new() })
    }

    async fn prune_undo(
        &self,
        from: Option<Height>,
        below: Height,
        limit: usize,
    ) -> Result<UndoDropped, StoreError> {
        check_limit(limit)?;
        Ok(self.write(|model| model.prune_undo(from, below, limit)))
    }

    /// Not a hash one would compare with another store's: only equal states of one model have equal ones.
    async fn state_digest(&self) -> Result<[u8; 32], StoreError> {
        let model = Model { forget_bound: None, pruned_outputs: 0, ..self.read().clone() };
        let text = format!("{model:?}");
        let half = |seed: &[u8]| sapwood_types::AddressHash::of_script(&[seed, text.as_bytes()].concat()).0;
        let mut digest = [0; 32];
        digest[..28].copy_from_slice(&half(b"a"));
        digest[28..].copy_from_slice(&half(b"b")[..4]);
        Ok(digest)
    }

    async fn records(&self, after: Option<Cursor>, limit: usize) -> Result<Page<TxRecord>, StoreError> {
        let all = self.read().records().values().map(|record| TxRecord::clone(record)).collect();
        page(all, Order::Ascending, after, limit, |record: &TxRecord| record.txid.0.to_vec())
    }

    async fn verify(
        &self,
        progress: Arc<dyn Fn(u64, u64) + Send + Sync>,
    ) -> Result<VerifyReport, StoreError> {
        let model = self.read();
        let plain: BTreeMap<TxId, TxRecord> =
            model.records().iter().map(|(txid, record)| (*txid, TxRecord::clone(record))).collect();
        let records = plain.len() as u64;
        progress(records, records);
        let mut report = VerifyReport { records, ..VerifyReport::default() };
        for problem in crate::state_machine::invariants::of_records(&plain) {
            report.problem(problem);
        }
        Ok(report)
    }

    async fn utxo_set(&self, with_hash: bool, progress: UtxoProgress) -> Result<UtxoSet, StoreError> {
        let model = self.read();
        let records = model.records().len() as u64;
        if progress(records, records).is_break() {
            return Err(StoreError::Stopped { doing: "counting the UTXO set" });
        }
        let set = model.utxo_set();
        Ok(UtxoSet { hash: set.hash.filter(|_| with_hash), ..set })
    }
}
