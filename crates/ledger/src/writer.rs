//! The one writer: runs a transition, turns what it changed into one write set, commits it.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use sapwood_rules::Policy;
use sapwood_types::{FirstPage, FurtherPage, Height, TxId, Undo};
use tracing::trace;

use crate::{
    BatchError, BatchResult, Changes, PageSource, StoreError, WorkingSet,
    beside::beside,
    cache::RecordCache,
    changes::{CountChanges, Derived, PageVersion, record_changes},
    core::{Core, corrupt},
    engine::{Table, WriteSet},
    error::ItemError,
    keys,
    read::Snapshot,
    rolling::Rolling,
    rows::Rows,
    settled,
    state::{STATE_KEY, State},
    working_set::PageKey,
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
    snapshot: &'a Snapshot<'a>,
    cache: &'a RecordCache,
    in_flight: Option<&'a Changes>,
}

impl PageSource for WriterPages<'_> {
    fn cached(&self, txid: &TxId) -> Option<Option<FirstPage>> {
        match self.in_flight.and_then(|changes| changes.first_page(txid)) {
            // The engine may or may not have it yet.
            Some(change) => Some(change.now.as_ref().map(|version| version.page.clone())),
            None => self.cache.get(txid).map(Some),
        }
    }

    fn first_pages(&self, txids: &[TxId]) -> Result<Vec<Option<FirstPage>>, StoreError> {
        self.snapshot.first_pages(txids)
    }

    fn further_pages(&self, keys: &[PageKey]) -> Result<Vec<Option<Arc<FurtherPage>>>, StoreError> {
        let found = self.snapshot.further_pages(keys)?;
        let in_flight = |key: &PageKey| self.in_flight.and_then(|changes| changes.further_page(key));
        let page = |(key, read): (&PageKey, Option<Arc<FurtherPage>>)| match in_flight(key) {
            Some(change) => change.now.clone(),
            None => read,
        };
        Ok(keys.iter().zip(found).map(page).collect())
    }
}

/// A change in the making.
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
    pub(crate) derived: Derived,
}

/// A change that is decided, but for its batch: what memory has to know of it.
pub(crate) struct Prepared {
    pub(crate) changes: Changes,
    deleted: Vec<(TxId, Deleted)>,
    /// The state it leaves.
    state: State,
    /// The UTXO set it leaves.
    rolling: Rolling,
    /// How many records it leaves settled, at each height where that changes.
    settled: BTreeMap<Height, u64>,
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
pub(crate) struct PoisonOnPanic<'a>(pub(crate) &'a Core);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison("a panic in the midst of a write");
        }
    }
}

impl Core {
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
        if let Some((writes, prepared)) = prepared {
            let large = self.is_large(prepared.changes.first.len());
            // Caches are brought up to date beside the write. If that fails, the store is poisoned: nothing is decided by them any more.
            let cache = &writer.cache;
            let (written, ()) =
                beside(large, || self.commit(writes, &prepared), || self.remember(&prepared, cache));
            written?;
            self.make_current(&mut writer, &prepared);
        }
        Ok(result)
    }

    /// Runs one operation and decides what it writes, if anything. `in_flight` is what is being written meanwhile: it counts as done.
    pub(crate) fn prepare<T, E: From<StoreError>>(
        &self,
        writer: &Writer,
        in_flight: Option<&Prepared>,
        operation: impl FnOnce(&mut Change) -> Result<T, E>,
    ) -> Result<(T, Option<(WriteSet, Prepared)>), E> {
        let Writer { state, cache, rolling } = writer;
        let (state_before, rolling): (&State, &Rolling) =
            in_flight.map_or((state, rolling), |in_flight| (&in_flight.state, &in_flight.rolling));
        let snapshot = self.snapshot()?;
        let pages = WriterPages {
            snapshot: &snapshot,
            cache,
            in_flight: in_flight.map(|in_flight| &in_flight.changes),
        };
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
        let mut rows = Rows::with_capacity(changes.first.len() + deleted.len());
        let mut counts = CountChanges::default();
        for (txid, change) in &changes.first {
            rows.first_page(txid, change);
            counts.add_record(change);
            record_changes(*txid, change, |change| rows.index(&change));
        }
        for (key, change) in &changes.further {
            rows.further_page(key, change);
            counts.add_page(change);
        }
        changes
            .address_changes(self.options.address_index, |change| rows.index(&change))
            .map_err(|cause| corrupt("a page that is being written", cause))?;
        deleted.iter().for_each(|(_, record)| counts.prune(&record.derived));
        state.counts = state.counts.changed(&counts);
        let settled = self.settled_after(&counts, in_flight);
        let rolled = rolling.roll(&changes, &pages, state.last())?;
        let Rows { mut writes, lowest_due } = rows;
        for height in undone {
            writes.delete(Table::Undo, &keys::undo(height));
        }
        if let Some(undo) = undo {
            writes.put(Table::Undo, &keys::undo(undo.block.height), &undo.encode());
        }
        writes.put(Table::Meta, STATE_KEY, &state.encode());
        settled::put(&mut writes, settled.iter().map(|(height, records)| (*height, *records)));
        rolled.put(&mut writes);
        // After all else: a loser that goes in the same write changes its parents' lists, and must not bring them back.
        for (txid, record) in &deleted {
            record.delete(&mut writes, *txid);
        }
        let rolling = rolling.rolled(rolled);
        let records = changes.first.len();
        trace!(records, ?decided, ?collected, put_together = ?clock.lap(), "prepared");
        self.reached("prepared")?;
        Ok((result, Some((writes, Prepared { changes, deleted, state, rolling, settled, lowest_due }))))
    }

    /// Returns how many records are settled after a change, at each height where that changes. `in_flight` is what is being written
    /// meanwhile: it counts as done.
    fn settled_after(&self, by: &CountChanges, in_flight: Option<&Prepared>) -> BTreeMap<Height, u64> {
        let published = self.settled.read();
        let before = |height| match in_flight.and_then(|in_flight| in_flight.settled.get(height)) {
            Some(records) => *records,
            None => published.at(*height),
        };
        let changed = by.settled.iter().filter(|(_, change)| **change != 0);
        changed.map(|(height, change)| (*height, before(height).saturating_add_signed(*change))).collect()
    }

    /// Writes what was prepared, and lets readers know.
    pub(crate) fn commit(&self, writes: WriteSet, prepared: &Prepared) -> Result<(), StoreError> {
        prepared.lowest_due.inspect(|height| self.due_start.writing(*height));
        let mut clock = Clock::start();
        self.commit_rows(writes)?;
        trace!(records = prepared.changes.first.len(), took = ?clock.lap(), "written");
        prepared.lowest_due.inspect(|_| self.due_start.written());
        self.publish_utxo_set(&prepared.rolling);
        let mut settled = self.settled.write();
        prepared.settled.iter().for_each(|(height, records)| settled.set(*height, *records));
        drop(settled);
        self.published.write().clone_from(&prepared.state);
        Ok(())
    }

    /// The writer goes on from what is written, and those who look at records are told. Only now: whoever began to look between the
    /// telling and the write would see what was, and never hear that it changed.
    pub(crate) fn make_current(&self, writer: &mut Writer, written: &Prepared) {
        let Prepared { changes, deleted, state, rolling, .. } = written;
        let deleted = deleted.iter().map(|(txid, _)| *txid);
        self.watches.tell(changes.first.iter().map(|(txid, _)| *txid).chain(deleted));
        writer.state.clone_from(state);
        writer.rolling.clone_from(rolling);
    }

    /// Takes over into the caches what is being written.
    pub(crate) fn remember(&self, prepared: &Prepared, cache: &RecordCache) {
        let Prepared { changes, deleted, .. } = prepared;
        let mut clock = Clock::start();
        let mined_at =
            |version: &Option<PageVersion>| version.as_ref().and_then(|version| version.derived.mined_at);
        let mut mined = self.mined.write();
        for (txid, record) in &changes.first {
            mined.note(*txid, mined_at(&record.before), mined_at(&record.now));
        }
        deleted.iter().for_each(|(txid, record)| mined.note(*txid, record.derived.mined_at, None));
        drop(mined);
        // What was deleted as a whole had nothing left to spend, so it is not in the cache.
        for (txid, record) in &changes.first {
            // What has nothing left to spend will hardly be asked for again before it is pruned.
            match record.now.as_ref().filter(|version| version.derived.open > 0) {
                Some(version) => cache.put(*txid, version.page.clone()),
                None => cache.remove(txid),
            }
        }
        trace!(records = changes.first.len(), took = ?clock.lap(), "remembered");
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
