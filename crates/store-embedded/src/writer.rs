//! The one writer: runs a transition, turns what it changed into one batch, writes it.

use std::{cell::RefCell, sync::Arc};

use rocksdb::{ReadOptions, WriteBatch};
use sapwood_rules::Policy;
use sapwood_store::{
    BatchError, BatchResult, Changes, IndexChange, PageSource, StoreError, WorkingSet,
    changes::IndexEntry,
    error::ItemError,
    working_set::{Entry, PageKey},
};
use sapwood_types::{Height, MasterPage, OutputPage, TxId, Undo, codec::Writer as PageWriter};

use crate::{
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

/// Pages as the writer sees them: from its cache, else from the database.
struct WriterPages<'a> {
    engine: &'a Engine,
    cache: RefCell<&'a mut RecordCache>,
}

impl PageSource for WriterPages<'_> {
    fn masters(&self, txids: &[TxId]) -> Result<Vec<Option<Arc<MasterPage>>>, StoreError> {
        let mut cache = self.cache.borrow_mut();
        let mut pages: Vec<Option<Arc<MasterPage>>> = txids.iter().map(|txid| cache.get(txid)).collect();
        let missing: Vec<usize> = (0..pages.len()).filter(|at| pages[*at].is_none()).collect();
        let wanted: Vec<TxId> = missing.iter().map(|at| txids[*at]).collect();
        let found = self.engine.read_many_masters(&wanted)?;
        for (at, page) in missing.into_iter().zip(found) {
            pages[at] = page.map(Arc::new);
        }
        Ok(pages)
    }

    fn extras(&self, keys: &[PageKey]) -> Result<Vec<Option<Arc<OutputPage>>>, StoreError> {
        let found = self.engine.read_extras(keys, &ReadOptions::default())?;
        Ok(found.into_iter().map(|page| page.map(Arc::new)).collect())
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
    pub(crate) deleted: Vec<(TxId, MasterPage)>,
}

/// The first pages of a change, one after the other.
struct Encoded {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Encoded {
    fn of(changes: &Changes) -> Self {
        const TYPICAL_PAGE: usize = 320;
        let mut to = PageWriter::with_capacity(TYPICAL_PAGE * changes.masters.len());
        let end = |(_, entry): &(TxId, Entry<MasterPage>)| {
            entry.now.iter().for_each(|page| page.encode_to(&mut to));
            to.written().len()
        };
        let ends = changes.masters.iter().map(end).collect();
        Self { bytes: to.finish(), ends }
    }

    /// As many as were changed; an empty one for each that goes.
    fn pages(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }
}

impl Engine {
    /// Runs one operation as the only writer and writes what it changed. If it fails, nothing is changed.
    pub(crate) fn change<T, E: From<StoreError>>(
        &self,
        operation: impl FnOnce(&mut Change) -> Result<T, E>,
    ) -> Result<T, E> {
        self.check_poison()?;
        let mut writer = self.writer.lock();
        let Writer { state: state_before, cache, rolling } = &mut *writer;
        let pages = WriterPages { engine: self, cache: RefCell::new(&mut *cache) };
        let mut change = Change {
            set: WorkingSet::new(&pages),
            state: state_before.clone(),
            policy: *self.policy.read(),
            undo: None,
            undone: Vec::new(),
            deleted: Vec::new(),
        };
        let result = operation(&mut change)?;
        let Change { set, mut state, policy, undo, undone, deleted } = change;
        let changes = set.into_changes(state.settled_below(&policy));
        let nothing = changes.is_empty() && undo.is_none() && undone.is_empty() && deleted.is_empty();
        if nothing && state == *state_before {
            return Ok(result);
        }
        let large = self.is_large(changes.masters.len());
        let (consequences, encoded) =
            beside(large, || changes.consequences(self.options.address_index), || Encoded::of(&changes));
        let (index_changes, count_changes) =
            consequences.map_err(|cause| corrupt("a page that is being written", cause))?;
        state.counts = state.counts.changed(count_changes);
        state.counts.records = state.counts.records.saturating_sub(deleted.len() as u64);
        let rolled = rolling.roll(&changes, &pages, state.last())?;
        let listed_as_due = index_changes.iter().filter_map(|change| match change {
            IndexChange::Put(IndexEntry::Due(height, _)) => Some(*height),
            _ => None,
        });
        let lowest_due = listed_as_due.min();
        let mut batch = self.batch(&changes, &encoded, index_changes, &state, undo.as_ref(), &undone)?;
        self.put_rolled(&mut batch, &rolled)?;
        // After all else: a loser that goes in the same write changes its parents' lists, and must not bring them back.
        let records = self.column(Column::Tx)?;
        for (txid, master) in &deleted {
            self.delete_plain(&mut batch, records, *txid, master)?;
        }
        lowest_due.inspect(|height| self.due_start.writing(*height));
        // Memory is brought up to date beside the write. If that fails, the store is poisoned: nothing is decided by this memory any more.
        let (written, ()) = beside(large, || self.write(batch), || self.remember(changes, &deleted, cache));
        written?;
        lowest_due.inspect(|_| self.due_start.written());
        rolling.rolled(rolled);
        self.publish_utxo_set(rolling);
        self.published.write().clone_from(&state);
        *state_before = state;
        Ok(result)
    }

    /// Takes over into memory what a change writes.
    fn remember(&self, changes: Changes, deleted: &[(TxId, MasterPage)], cache: &mut RecordCache) {
        let mined_at = |page: &Option<Arc<MasterPage>>| page.as_ref().and_then(|page| page.head.mined_at());
        let mut mined = self.mined.write();
        for (txid, entry) in &changes.masters {
            mined.note(*txid, mined_at(&entry.before), mined_at(&entry.now));
        }
        deleted.iter().for_each(|(txid, master)| mined.note(*txid, master.head.mined_at(), None));
        drop(mined);
        let deleted = deleted.iter().map(|(txid, _)| *txid);
        self.watches.tell(changes.masters.iter().map(|(txid, _)| *txid).chain(deleted));
        // What was deleted as a whole had nothing left to spend, so it is not in the cache.
        for (txid, entry) in changes.masters {
            // What has nothing left to spend will hardly be asked for again before it is pruned.
            match entry.now.filter(|page| page.open_slots() > 0) {
                Some(page) => cache.put(txid, page),
                None => cache.remove(&txid),
            }
        }
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

    /// One batch with everything a change writes.
    fn batch(
        &self,
        changes: &Changes,
        encoded: &Encoded,
        index_changes: Vec<IndexChange>,
        state: &State,
        undo: Option<&Undo>,
        undone: &[Height],
    ) -> Result<WriteBatch, StoreError> {
        let mut batch = WriteBatch::with_capacity_bytes(2 * encoded.bytes.len());
        let records = self.column(Column::Tx)?;
        for ((txid, entry), page) in changes.masters.iter().zip(encoded.pages()) {
            match entry.now {
                Some(_) => batch.put_cf(records, txid.0, page),
                None => batch.delete_cf(records, txid.0),
            }
        }
        for ((txid, number), entry) in &changes.extras {
            let key = keys::page(txid, *number);
            match &entry.now {
                Some(page) => batch.put_cf(records, key, page.encode()),
                None => batch.delete_cf(records, key),
            }
        }
        let columns =
            [Column::Due, Column::Pending, Column::Address].map(|column| (column, self.column(column)));
        for change in index_changes {
            let (IndexChange::Put(entry) | IndexChange::Delete(entry)) = change;
            let mut result = Ok(());
            keys::index(&entry, |column, key| {
                match columns.iter().find(|(known, _)| *known == column).map(|(_, family)| family) {
                    Some(Ok(family)) if matches!(change, IndexChange::Put(_)) => {
                        batch.put_cf(*family, key, [])
                    }
                    Some(Ok(family)) => batch.delete_cf(*family, key),
                    Some(Err(error)) => result = Err(error.clone()),
                    None => {}
                }
            });
            result?;
        }
        let undo_column = self.column(Column::Undo)?;
        for height in undone {
            batch.delete_cf(undo_column, keys::undo(*height));
        }
        if let Some(undo) = undo {
            batch.put_cf(undo_column, keys::undo(undo.block.height), undo.encode());
        }
        batch.put_cf(self.column(Column::Meta)?, STATE_KEY, state.encode());
        Ok(batch)
    }
}
