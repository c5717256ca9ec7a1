//! The one writer: runs a transition, turns what it changed into one batch, writes it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rocksdb::{ReadOptions, WriteBatch};
use sapwood_rules::Policy;
use sapwood_store::{
    BatchError, BatchResult, Changes, PageSource, StoreError, WorkingSet,
    changes::{CountChanges, Facts, Side, record_changes},
    error::ItemError,
    working_set::PageKey,
};
use sapwood_types::{Height, OutputPage, StoredMaster, TxId, Undo};
use tracing::trace;

use crate::{
    batch::Batch,
    beside::beside,
    cache::RecordCache,
    columns::Column,
    engine::{Engine, corrupt},
    keys,
    state::{STATE_KEY, State},
    utxo_set::Rolling,
};

/// What only the writer knows. Whoever holds its lock may write.
pub(crate) struct Writer {
    pub(crate) state: State,
    pub(crate) cache: RecordCache,
    pub(crate) rolling: Rolling,
}

impl Writer {
    pub(crate) fn new(state: State, cache: RecordCache) -> Self {
        Self { state, cache, rolling: Rolling::default() }
    }
}

/// Pages as the writer sees them: from what is being written, else from its cache, else from the database.
struct WriterPages<'a> {
    engine: &'a Engine,
    cache: &'a RecordCache,
    under_way: Option<&'a Changes>,
}

impl PageSource for WriterPages<'_> {
    fn at_hand(&self, txid: &TxId) -> Option<Option<StoredMaster>> {
        match self.under_way.and_then(|changes| changes.master(txid)) {
            // The database may or may not have it yet.
            Some(record) => Some(record.now.as_ref().map(|side| side.stored.clone())),
            None => self.cache.get(txid).map(Some),
        }
    }

    fn masters(&self, txids: &[TxId]) -> Result<Vec<Option<StoredMaster>>, StoreError> {
        self.engine.read_many_masters(txids)
    }

    fn extras(&self, keys: &[PageKey]) -> Result<Vec<Option<Arc<OutputPage>>>, StoreError> {
        let found = self.engine.read_extras(keys, &ReadOptions::default())?;
        let under_way = |key: &PageKey| self.under_way.and_then(|changes| changes.extra(key));
        let page = |(key, read): (&PageKey, Option<OutputPage>)| match under_way(key) {
            Some(entry) => entry.now.clone(),
            None => read.map(Arc::new),
        };
        Ok(keys.iter().zip(found).map(page).collect())
    }
}

/// A change under way.
pub(crate) struct Change<'a> {
    /// Pages read and changed.
    pub(crate) set: WorkingSet<'a>,
    /// The state it will leave.
    pub(crate) state: State,
    pub(crate) policy: Policy,
    /// Undo records that come.
    pub(crate) undo: Option<Undo>,
    /// Undo records that go.
    pub(crate) undone: Vec<Height>,
    /// Records that go as a whole and need not be read for it: nothing is unspent on them, and nothing is unmined.
    pub(crate) deleted: Vec<(TxId, Deleted)>,
}

/// A record that goes as a whole, as far as it matters for that.
pub(crate) struct Deleted {
    /// Pages besides the first.
    pub(crate) further_pages: u32,
    pub(crate) facts: Facts,
}

/// A change that is decided, but for its batch: what memory has to know of it.
pub(crate) struct Prepared {
    pub(crate) changes: Changes,
    deleted: Vec<(TxId, Deleted)>,
    /// The state it leaves.
    state: State,
    /// The UTXO set it leaves.
    rolling: Rolling,
    /// The lowest height at which it lists a record as due.
    lowest_due: Option<Height>,
}

/// Tells how long each step of a write took, to whoever traces it.
struct Clock(Instant);

impl Clock {
    fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the last lap.
    fn lap(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.0, now)
    }
}

/// A panic between a write and what memory learns of it leaves the two different: nobody may go on from there.
pub(crate) struct PoisonOnPanic<'a>(pub(crate) &'a Engine);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison("a panic in the midst of a write");
        }
    }
}

impl Engine {
    /// Runs one operation as the only writer and writes what it changed. If it fails, nothing is changed.
    pub(crate) fn change<T, E: From<StoreError>>(
        &self,
        operation: impl FnOnce(&mut Change) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut writer = self.writer.lock();
        // Under the lock: after a failed write the cache is ahead of the disk, and nobody may decide anything by it.
        self.check_poison()?;
        let _whole = PoisonOnPanic(self);
        let (result, prepared) = self.prepare(&writer, None, operation)?;
        if let Some((batch, prepared)) = prepared {
            let large = self.is_large(prepared.changes.masters.len());
            // Caches are brought up to date beside the write. If that fails, the store is poisoned: nothing is decided by them any more.
            let cache = &writer.cache;
            let (written, ()) =
                beside(large, || self.commit(batch, &prepared), || self.remember(&prepared, cache));
            written?;
            self.make_current(&mut writer, &prepared);
        }
        Ok(result)
    }

    /// Runs one operation and decides what it writes, if anything. `under_way` is what is being written meanwhile: it counts as done.
    pub(crate) fn prepare<T, E: From<StoreError>>(
        &self,
        writer: &Writer,
        under_way: Option<&Prepared>,
        operation: impl FnOnce(&mut Change) -> Result<T, E>,
    ) -> Result<(T, Option<(WriteBatch, Prepared)>), E> {
        let Writer { state, cache, rolling } = writer;
        let (state_before, rolling): (&State, &Rolling) =
            under_way.map_or((state, rolling), |under_way| (&under_way.state, &under_way.rolling));
        let pages =
            WriterPages { engine: self, cache, under_way: under_way.map(|under_way| &under_way.changes) };
        let mut change = Change {
            set: WorkingSet::new(&pages),
            state: state_before.clone(),
            policy: *self.policy.read(),
            undo: None,
            undone: Vec::new(),
            deleted: Vec::new(),
        };
        let mut clock = Clock::start();
        let result = operation(&mut change)?;
        let decided = clock.lap();
        let Change { set, mut state, policy, undo, undone, deleted } = change;
        let changes = set.into_changes(state.settled_below(&policy))?;
        let collected = clock.lap();
        let nothing = changes.is_empty() && undo.is_none() && undone.is_empty() && deleted.is_empty();
        if nothing && state == *state_before {
            return Ok((result, None));
        }
        let mut batch = Batch::new(self, changes.masters.len() + deleted.len())?;
        let mut counts = CountChanges::default();
        for (txid, entry) in &changes.masters {
            batch.master(txid, entry);
            counts.add_record(entry);
            record_changes(*txid, entry, |change| batch.index(&change));
        }
        for (key, entry) in &changes.extras {
            batch.extra(key, entry);
            counts.add_page(entry);
        }
        changes
            .address_changes(self.options.address_index, |change| batch.index(&change))
            .map_err(|cause| corrupt("a page that is being written", cause))?;
        state.counts = state.counts.changed(counts);
        state.counts.records = state.counts.records.saturating_sub(deleted.len() as u64);
        let rolled = rolling.roll(&changes, &pages, state.last())?;
        let Batch { mut batch, lowest_due, .. } = batch;
        let undo_column = self.column(Column::Undo)?;
        for height in undone {
            batch.delete_cf(undo_column, keys::undo(height));
        }
        if let Some(undo) = undo {
            batch.put_cf(undo_column, keys::undo(undo.block.height), undo.encode());
        }
        batch.put_cf(self.column(Column::Meta)?, STATE_KEY, state.encode());
        self.put_rolled(&mut batch, &rolled)?;
        // After all else: a loser that goes in the same write changes its parents' lists, and must not bring them back.
        let records = self.column(Column::Tx)?;
        for (txid, record) in &deleted {
            self.delete_plain(&mut batch, records, *txid, record)?;
        }
        let rolling = rolling.rolled(rolled);
        let records = changes.masters.len();
        trace!(records, ?decided, ?collected, put_together = ?clock.lap(), "prepared");
        self.reached("prepared")?;
        Ok((result, Some((batch, Prepared { changes, deleted, state, rolling, lowest_due }))))
    }

    /// Writes what was prepared, and lets readers know.
    pub(crate) fn commit(&self, batch: WriteBatch, prepared: &Prepared) -> Result<(), StoreError> {
        prepared.lowest_due.inspect(|height| self.due_start.writing(*height));
        let mut clock = Clock::start();
        self.write(batch)?;
        trace!(records = prepared.changes.masters.len(), took = ?clock.lap(), "written");
        prepared.lowest_due.inspect(|_| self.due_start.written());
        self.publish_utxo_set(&prepared.rolling);
        self.published.write().clone_from(&prepared.state);
        Ok(())
    }

    /// The writer goes on from what is written, and those who look at records are told. Only now: whoever began to look between the
    /// telling and the write would see what was, and never hear that it changed.
    pub(crate) fn make_current(&self, writer: &mut Writer, written: &Prepared) {
        let Prepared { changes, deleted, state, rolling, .. } = written;
        let deleted = deleted.iter().map(|(txid, _)| *txid);
        self.watches.tell(changes.masters.iter().map(|(txid, _)| *txid).chain(deleted));
        writer.state.clone_from(state);
        writer.rolling.clone_from(rolling);
    }

    /// Takes over into the caches what is being written.
    pub(crate) fn remember(&self, prepared: &Prepared, cache: &RecordCache) {
        let Prepared { changes, deleted, .. } = prepared;
        let mut clock = Clock::start();
        let mined_at = |side: &Option<Side>| side.as_ref().and_then(|side| side.facts.mined_at);
        let mut mined = self.mined.write();
        for (txid, record) in &changes.masters {
            mined.note(*txid, mined_at(&record.before), mined_at(&record.now));
        }
        deleted.iter().for_each(|(txid, record)| mined.note(*txid, record.facts.mined_at, None));
        drop(mined);
        // What was deleted as a whole had nothing left to spend, so it is not in the cache.
        for (txid, record) in &changes.masters {
            // What has nothing left to spend will hardly be asked for again before it is pruned.
            match record.now.as_ref().filter(|side| side.facts.open > 0) {
                Some(side) => cache.put(*txid, side.stored.clone()),
                None => cache.remove(txid),
            }
        }
        trace!(records = changes.masters.len(), took = ?clock.lap(), "remembered");
    }

    /// Runs a batch of independent items as one write. Those that fail change nothing.
    pub(crate) fn change_each<I, T, E: ItemError>(
        &self,
        items: &[I],
        prepare: impl FnOnce(&mut Change) -> Result<(), StoreError>,
        operation: impl Fn(&mut WorkingSet, &Policy, &I) -> Result<T, E>,
    ) -> BatchResult<Vec<T>, E> {
        let (done, failed) = self.change(|change| {
            prepare(change)?;
            let (mut done, mut failed) = (Vec::with_capacity(items.len()), Vec::new());
            for (number, item) in items.iter().enumerate() {
                match change.set.attempt(|set| operation(set, &change.policy, item)) {
                    Ok(result) => done.push(result),
                    Err(error) => failed.push((number, error.into_store().map_or_else(Ok, Err)?)),
                }
            }
            Ok::<_, StoreError>((done, failed))
        })?;
        if failed.is_empty() { Ok(done) } else { Err(BatchError::Items { failed, total: items.len() }) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests: to panic is how they fail")]
mod tests {
    use sapwood_conformance::fixtures::{block_hash, burn, coin, context, mined_in, small};
    use sapwood_rules::{ChildEvidence, KeepReason, Verdict};
    use sapwood_store::{ApplyOptions, DeleteDue, MineRequest, RollbackMode, StorePrune, StoreWrite};
    use sapwood_types::{Block, Slot, Spender, Tx};

    use super::*;
    use crate::{EmbeddedOptions, EmbeddedStore};

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

    /// Makes a parent on disk say that its only output was spent at 2, behind the back of all that is in memory.
    fn forge(engine: &Engine, parent: &Tx, child: &Tx) {
        let found = engine.read_masters(&[parent.txid], &ReadOptions::default()).unwrap().remove(0);
        let mut page = found.unwrap().page().unwrap();
        page.page.slots[0] = Slot::spent(Spender::new(child.txid, 0), Some(Height(2)));
        let mut batch = WriteBatch::default();
        batch.put_cf(engine.column(Column::Tx).unwrap(), parent.txid.0, page.encode());
        engine.write(batch).unwrap();
    }

    /// What is known of mined heights follows every way in which a child stops being mined, or is mined elsewhere. The parent's memory is
    /// forged, so only the check of the child itself stands between it and deletion.
    #[tokio::test]
    async fn the_check_of_children_knows_what_was_rolled_back() {
        let to_1 = Some((Height(1), block_hash("1")));
        for (way, found) in [("rolled back", None), ("unset", None), ("mined elsewhere", Some(Height(3)))] {
            let directory = tempfile::tempdir().unwrap();
            let store = EmbeddedStore::open(directory.path(), small(), EmbeddedOptions::default()).unwrap();
            let (parent, child) = (coin("parent", 1), burn("child", &[(&coin("parent", 1), 0)]));
            apply(&store, 1, vec![parent.clone()]).await;
            apply(&store, 2, vec![child.clone()]).await;
            match way {
                "unset" => {
                    let request = MineRequest { block: mined_in(2, 2), unset: true };
                    store.set_mined(vec![child.txid], request, Height(3)).await.unwrap();
                }
                _ => _ = store.roll_back(to_1, RollbackMode::Node).await.unwrap(),
            }
            let last = store.engine.published.read().last().unwrap().height.0;
            for height in last + 1..=12 {
                let again = way == "mined elsewhere" && height == 3;
                apply(&store, height, again.then(|| child.clone()).into_iter().collect()).await;
            }
            forge(&store.engine, &parent, &child);
            let request = DeleteDue {
                txids: vec![parent.txid],
                context: context(12, 5, &[]),
                check_children: true,
                save_cursor: None,
                spare_external: false,
                permit: None,
            };
            let verdict = store.delete_due(request).await.unwrap().remove(0).verdict;
            let disagrees = KeepReason::ChildDisagrees {
                child: child.txid,
                remembered: Some(Height(2)),
                found: ChildEvidence::Present { mined_at: found },
            };
            assert_eq!(verdict, Verdict::Kept(disagrees), "{way}");
        }
    }
}
