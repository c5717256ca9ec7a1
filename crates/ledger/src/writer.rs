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
    BatchError, BatchResult, Changes, StoreError, WorkingSet,
    beside::beside,
    cache::RecordCache,
    changes::{CountChanges, Derived, PageVersion, record_changes},
    core::{Core, corrupt},
    engine::{Table, WriteSet},
    keys::{self, Pending},
    read::Snapshot,
    rolling::Rolling,
    rows::Rows,
    settled,
    state::{STATE_KEY, State},
    working_set::{PageKey, Stop, decode_further},
};

/// What only the writer knows. The holder of its lock may write.
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

/// Pages as the writer sees them: from what is being written, else from its cache, else from the engine.
struct WriterPages<'a> {
    snapshot: &'a Snapshot<'a>,
    cache: &'a RecordCache,
    in_flight: Option<&'a Changes>,
}

impl WriterPages<'_> {
    /// Returns a first page, or that there is none, if that is known without reading.
    fn cached_first(&self, txid: &TxId) -> Option<Option<FirstPage>> {
        match self.in_flight.and_then(|changes| changes.first_page(txid)) {
            // The engine may or may not have it yet.
            Some(change) => Some(change.now.as_ref().map(|version| version.page.clone())),
            None => self.cache.get(txid).map(Some),
        }
    }

    /// Returns a further page, or that there is none, if that is known without reading.
    fn cached_further(&self, key: &PageKey) -> Option<Option<Arc<FurtherPage>>> {
        Some(self.in_flight?.further_page(key)?.now.clone())
    }

    /// Loads all that a run of a transition missed: what is not known is read in one read.
    fn load(&self, set: &mut WorkingSet) -> Result<(), StoreError> {
        let mut unknown = Vec::new();
        for key in set.take_missing()? {
            match key {
                (txid, 0) => match self.cached_first(&txid) {
                    Some(page) => set.load_first(txid, page),
                    None => unknown.push(key),
                },
                _ => match self.cached_further(&key) {
                    Some(page) => set.load_further(key, page),
                    None => unknown.push(key),
                },
            }
        }
        // Engines read sorted keys faster, and a fixed order makes runs repeatable.
        unknown.sort_unstable();
        unknown.dedup();
        self.snapshot.each_page(&unknown, |key, row| set.load_row(key, row))
    }

    /// Reads further pages, in one read and in the order asked for.
    fn further_pages(&self, keys: &[PageKey]) -> Result<Vec<Option<Arc<FurtherPage>>>, StoreError> {
        let mut pages: Vec<_> = keys.iter().map(|key| self.cached_further(key).map(Ok)).collect();
        let unknown: Vec<PageKey> =
            keys.iter().zip(&pages).filter(|(_, page)| page.is_none()).map(|(key, _)| *key).collect();
        let mut unfilled = pages.iter_mut().filter(|page| page.is_none());
        self.snapshot.each_page(&unknown, |key, row| {
            let page = row.and_then(|row| row.map(|bytes| decode_further(key, bytes)).transpose());
            if let Some(place) = unfilled.next() {
                *place = Some(page.map(|page| page.map(Arc::new)));
            }
        })?;
        pages.into_iter().map(|page| page.unwrap_or(Ok(None))).collect()
    }
}

/// A change in the making.
pub(crate) struct Change {
    /// Pages loaded and changed.
    pub(crate) set: WorkingSet,
    /// The state it will leave.
    pub(crate) state: State,
    pub(crate) policy: Policy,
    /// Undo records that come.
    pub(crate) undo: Option<Undo>,
    /// Undo records that go.
    pub(crate) undone: Vec<Height>,
    /// Records that go as a whole and need not be read for it: nothing is unspent on them, and nothing is unmined.
    pub(crate) deleted: Vec<(TxId, Deleted)>,
    /// Entries of the list of preservations that no record has, to be deleted.
    pub(crate) stray_preservations: Vec<(Height, TxId)>,
}

impl Change {
    fn new(set: WorkingSet, state: State, policy: Policy) -> Self {
        Self {
            set,
            state,
            policy,
            undo: None,
            undone: Vec::new(),
            deleted: Vec::new(),
            stray_preservations: Vec::new(),
        }
    }
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

/// Measures how long each step of a write takes, for traces.
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

/// A panic between a write and what memory learns of it leaves the two different: nothing may be written from there on.
pub(crate) struct PoisonOnPanic<'a>(pub(crate) &'a Core);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison("a panic in the midst of a write");
        }
    }
}

impl Core {
    /// Runs one operation as the only writer and writes what it changed. If it fails, nothing is changed. The operation is run from its start
    /// as often as it misses something, see [`working_set`](crate::working_set).
    pub(crate) fn change<T, E: From<StoreError>>(
        &self,
        operation: impl FnMut(&mut Change) -> Result<T, Stop<E>>,
    ) -> Result<T, E> {
        let mut writer = self.writer.lock();
        // Under the lock: after a failed write the cache is ahead of the engine, and nothing may be decided by it.
        self.check_poison()?;
        let _whole = PoisonOnPanic(self);
        let (result, prepared) = self.prepare(&writer, None, operation)?;
        if let Some((writes, prepared)) = prepared {
            let large = self.is_large(prepared.changes.first.len());
            // Caches are brought up to date beside the write. If that fails, the store is poisoned: nothing is decided by them any more.
            let cache = &writer.cache;
            let (written, ()) =
                beside(large, || self.commit(writes, &prepared), || self.remember(&prepared, cache));
            self.make_current(&mut writer, &prepared, written?);
        }
        Ok(result)
    }

    /// Runs one operation and decides what it writes, if anything. `in_flight` is what is being written meanwhile: it counts as done.
    pub(crate) fn prepare<T, E: From<StoreError>>(
        &self,
        writer: &Writer,
        in_flight: Option<&Prepared>,
        mut operation: impl FnMut(&mut Change) -> Result<T, Stop<E>>,
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
        let policy = *self.policy.read();
        let mut clock = Clock::start();
        let mut change = Change::new(WorkingSet::default(), state_before.clone(), policy);
        let mut runs = 1;
        let result = loop {
            let run = operation(&mut change);
            if let Some(result) = change.set.conclude(run) {
                break result?;
            }
            let mut set = change.set;
            pages.load(&mut set)?;
            set.rewind();
            change = Change::new(set, state_before.clone(), policy);
            runs += 1;
        };
        let decided = clock.lap();
        let Change { set, mut state, undo, undone, deleted, stray_preservations, .. } = change;
        let changes = set.into_changes(state.settled_below(&policy))?;
        let collected = clock.lap();
        let nothing = changes.is_empty()
            && undo.is_none()
            && undone.is_empty()
            && deleted.is_empty()
            && stray_preservations.is_empty();
        if nothing && state == *state_before {
            return Ok((result, None));
        }
        if let Some(faults) = &self.options.faults {
            faults.changing(&changes, undo.as_ref());
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
        let rolled = rolling.roll(&changes, |keys| pages.further_pages(keys), state.last())?;
        let Rows { mut writes, lowest_due } = rows;
        for (until, txid) in stray_preservations {
            writes.delete(Table::Pending, &keys::pending(Pending::Preserved, until, &txid));
        }
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
        trace!(records, runs, ?decided, ?collected, put_together = ?clock.lap(), "prepared");
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

    /// Writes what was prepared, and lets readers know. Returns the number of the commit.
    pub(crate) fn commit(&self, writes: WriteSet, prepared: &Prepared) -> Result<u64, StoreError> {
        prepared.lowest_due.inspect(|height| self.due_start.writing(*height));
        let mut clock = Clock::start();
        let number = self.commit_rows(writes)?;
        trace!(records = prepared.changes.first.len(), took = ?clock.lap(), "written");
        prepared.lowest_due.inspect(|_| self.due_start.written());
        self.publish_utxo_set(&prepared.rolling);
        let mut settled = self.settled.write();
        prepared.settled.iter().for_each(|(height, records)| settled.set(*height, *records));
        drop(settled);
        self.published.write().clone_from(&prepared.state);
        Ok(number)
    }

    /// Lets the writer go on from what is written, and notes what changed under the number of its commit.
    pub(crate) fn make_current(&self, writer: &mut Writer, written: &Prepared, number: u64) {
        let Prepared { changes, deleted, state, rolling, .. } = written;
        let deleted = deleted.iter().map(|(txid, _)| *txid);
        self.recent.note(number, changes.first.iter().map(|(txid, _)| *txid).chain(deleted).collect());
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

    /// Runs a batch of independent items as one write. Those that fail change nothing. `want` declares what an item needs.
    pub(crate) fn change_each<I, T, E>(
        &self,
        items: &[I],
        want: impl Fn(&mut WorkingSet, &I),
        operation: impl Fn(&mut WorkingSet, &Policy, &I) -> Result<T, Stop<E>>,
    ) -> BatchResult<Vec<T>, E> {
        let (done, failed) = self.change(|Change { set, policy, .. }| {
            items.iter().for_each(|item| want(set, item));
            set.ready()?;
            let (mut done, mut failed) = (Vec::with_capacity(items.len()), Vec::new());
            set.each(items.iter().enumerate(), |set, (number, item)| {
                match set.attempt(|set| operation(set, policy, item)) {
                    Ok(result) => done.push(result),
                    Err(Stop::Failed(error)) => failed.push((number, error)),
                    Err(Stop::Need) => return Err(Stop::Need),
                }
                Ok(())
            })?;
            Ok::<_, Stop<StoreError>>((done, failed))
        })?;
        if failed.is_empty() { Ok(done) } else { Err(BatchError::Items { failed, total: items.len() }) }
    }
}
