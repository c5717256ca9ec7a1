//! Totals of the UTXO set: kept with each write, and counted on demand.
//!
//! # Correctness
//! The totals are a row of their own, written in the batch of the write that changes them, so they are those of the state
//! beside them after any crash. A new store knows its set, which is empty. One that was made or used without keeping it does not:
//! it says so until they are counted. The changes made while the count runs are added to it at its end, so writers never wait for
//! it. A store opened without keeping the set still knows it, if it did before, up to the first write that could move a coin, which
//! removes the entry: so it is never that of an earlier state, and a store that is only looked at does not lose it.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
};

use parking_lot::Mutex;
use sapwood_types::{BlockMark, DecodeError, FirstPage, FurtherPage};

use crate::{
    Changes, Ledger, StoreError, UtxoChange, UtxoCounter, UtxoProgress, UtxoSet,
    core::{Core, corrupt},
    engine::{Scan, Table, WriteSet},
    keys::RecordKey,
    read::Snapshot,
    utxo_entry,
    utxo_set::cores,
    working_set::{PageKey, decode_further},
};

const UTXO_SET_KEY: &[u8] = b"utxo-set";
/// A store with more records is counted in parts, one for each first byte of a transaction id, by all cores.
const COUNTED_AS_ONE: u64 = 5_000;
/// After so many entries a count reports progress and looks whether it should end. The largest pages take 60 ms.
const LOOK_EVERY: usize = 256;

/// What the writer knows of the UTXO set.
#[derive(Clone, Default)]
pub(crate) struct Rolling {
    /// Whether it is kept with each write.
    keeps: bool,
    /// Whether there is an entry, readable or not.
    has_entry: bool,
    /// As of the last write. Nothing if it was never counted.
    pub(crate) known: Option<UtxoSet>,
    /// What has changed since the start of the count from which `known` will be.
    since_count: Option<UtxoChange>,
}

/// What a write does to the UTXO set.
pub(crate) struct Rolled {
    known: Option<UtxoSet>,
    change: Option<UtxoChange>,
    /// Whether the entry changes or goes.
    rewrite: bool,
}

impl Rolling {
    /// Derives what becomes of the set with these changes, after which `last` is the last block. `read`: see [`UtxoChange::of`].
    pub(crate) fn roll(
        &self,
        changes: &Changes,
        read: impl FnOnce(&[PageKey]) -> Result<Vec<Option<Arc<FurtherPage>>>, StoreError>,
        last: Option<BlockMark>,
    ) -> Result<Rolled, StoreError> {
        let now = |known: UtxoSet| UtxoSet { last, ..known };
        if !self.keeps {
            let known = self.known.clone().filter(|_| changes.is_empty()).map(now);
            return Ok(Rolled { known, change: None, rewrite: self.has_entry && !changes.is_empty() });
        }
        if self.known.is_none() && self.since_count.is_none() {
            return Ok(Rolled { known: None, change: None, rewrite: false });
        }
        let change = UtxoChange::of(changes, read)?;
        // Totals that would fall below 0 were wrong. They are dropped, and counted again on demand.
        let known = self.known.as_ref().and_then(|known| known.changed(&change)).map(now);
        Ok(Rolled { known, rewrite: !change.is_none(), change: Some(change) })
    }

    /// What is known once that is written.
    pub(crate) fn rolled(&self, rolled: Rolled) -> Self {
        let mut after = self.clone();
        after.know(rolled.known, rolled.rewrite);
        if let Some((since_count, change)) = after.since_count.as_mut().zip(rolled.change.as_ref()) {
            since_count.then(change);
        }
        after
    }

    fn know(&mut self, known: Option<UtxoSet>, rewritten: bool) {
        self.known = known;
        if rewritten {
            self.has_entry = self.known.is_some();
        }
    }
}

impl Rolled {
    /// Adds the entry as the write leaves it.
    pub(crate) fn put(&self, writes: &mut WriteSet) {
        if self.rewrite {
            put(writes, self.known.as_ref());
        }
    }
}

/// Writes the entry, or deletes it if the set is not known.
pub(crate) fn put(writes: &mut WriteSet, known: Option<&UtxoSet>) {
    match known.and_then(utxo_entry::encode) {
        Some(entry) => writes.put(Table::Meta, UTXO_SET_KEY, &entry),
        None => writes.delete(Table::Meta, UTXO_SET_KEY),
    }
}

impl Core {
    /// Reads the entry.
    pub(crate) fn stored_utxo_set(&self, last: Option<BlockMark>) -> Result<Rolling, StoreError> {
        let keeps = self.options.utxo_hash;
        let entry = self.snapshot()?.get(Table::Meta, UTXO_SET_KEY)?;
        let has_entry = entry.is_some();
        let known = match entry.map(utxo_entry::decode).transpose() {
            Ok(known) => known.map(|known| UtxoSet { last, ..known }),
            Err(cause) if keeps => return Err(corrupt("the UTXO set's figures", cause)),
            // It will go, and can be counted again.
            Err(_) => None,
        };
        Ok(Rolling { keeps, has_entry, known, since_count: None })
    }

    /// Counts the set as it is now, and lets the writer go on from there if it does not know it.
    fn utxo_set(
        &self,
        with_hash: bool,
        progress: &UtxoProgress,
        stop: &AtomicBool,
    ) -> Result<UtxoSet, StoreError> {
        let mut writer = self.writer.lock();
        let (last, records) = (writer.state.last(), writer.state.counts.records);
        let known = writer.rolling.known.clone();
        let is_missing = self.options.utxo_hash && known.is_none();
        let is_wanted = is_missing && with_hash && writer.rolling.since_count.is_none();
        if is_wanted {
            writer.rolling.since_count = Some(UtxoChange::default());
        }
        let snapshot = self.snapshot()?;
        drop(writer);
        let mut guard = CountGuard { core: self, is_wanted };
        let counted = self.count_utxo_set(&snapshot, with_hash, records, progress.as_ref(), stop)?;
        let counted = UtxoSet { last, ..counted };
        if is_wanted {
            guard.is_wanted = false;
            self.take_over(&counted)?;
        } else if known.is_some_and(|known| differs(&known, &counted)) {
            self.give_up()?;
        }
        Ok(counted)
    }

    /// The writer goes on from a count and what has changed since.
    fn take_over(&self, counted: &UtxoSet) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        let Some(change) = writer.rolling.since_count.take() else { return Ok(()) };
        // After a failed write nothing is written, and what is in memory ends with the process.
        if self.check_poison().is_err() {
            return Ok(());
        }
        let Some(now) = counted.changed(&change) else { return Ok(()) };
        let now = UtxoSet { last: writer.state.last(), ..now };
        let mut writes = WriteSet::default();
        put(&mut writes, Some(&now));
        self.commit_rows(writes)?;
        writer.rolling.know(Some(now), true);
        self.publish_utxo_set(&writer.rolling);
        Ok(())
    }

    /// A count has shown that the totals kept are wrong. They are not shown again; the next count sets them right.
    fn give_up(&self) -> Result<(), StoreError> {
        // A reader can set nothing right; `verify` tells.
        if self.is_read_only() {
            return Ok(());
        }
        let mut writer = self.writer.lock();
        let mut writes = WriteSet::default();
        put(&mut writes, None);
        self.commit_rows(writes)?;
        writer.rolling.know(None, true);
        self.publish_utxo_set(&writer.rolling);
        Ok(())
    }

    /// Lets readers see what the writer knows. Called under the writer's lock.
    pub(crate) fn publish_utxo_set(&self, rolling: &Rolling) {
        self.published_utxo_set.write().clone_from(&rolling.known);
    }

    /// Counts the coins of a snapshot on all cores.
    pub(crate) fn count_utxo_set(
        &self,
        snapshot: &Snapshot,
        with_hash: bool,
        records: u64,
        progress: &(dyn Fn(u64, u64) -> ControlFlow<()> + Send + Sync),
        stop: &AtomicBool,
    ) -> Result<UtxoSet, StoreError> {
        let count = Count {
            snapshot,
            with_hash,
            parts: if records > COUNTED_AS_ONE { 256 } else { 1 },
            next: AtomicU32::new(0),
            done: Mutex::new(0),
            records,
            progress,
            stop,
        };
        let helpers = cores().min(count.parts as usize) - 1;
        thread::scope(|scope| {
            let start = |_| thread::Builder::new().spawn_scoped(scope, || count.work()).ok();
            let others: Vec<_> = (0..helpers).filter_map(start).collect();
            let mut result = count.work();
            for other in others {
                let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                result = match (result, other) {
                    (Ok(set), Ok(other)) => Ok(set.joined(other)),
                    // What made one end made the others stop.
                    (Err(StoreError::Stopped { .. }) | Ok(_), Err(error)) | (Err(error), _) => Err(error),
                };
            }
            let total = *count.done.lock();
            result.inspect(|_| _ = progress(total, total))
        })
    }
}

/// Whether totals that are kept are not those that were counted at the same moment.
pub(crate) fn differs(kept: &UtxoSet, counted: &UtxoSet) -> bool {
    let both_hashed = kept.hash.is_some() && counted.hash.is_some();
    let hash = |set: &UtxoSet| set.hash.clone().filter(|_| both_hashed);
    UtxoSet { hash: hash(kept), ..kept.clone() } != UtxoSet { hash: hash(counted), ..counted.clone() }
}

/// A count that ends without a result leaves nothing behind.
struct CountGuard<'a> {
    core: &'a Core,
    is_wanted: bool,
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        if self.is_wanted {
            self.core.writer.lock().rolling.since_count = None;
        }
    }
}

/// A count in flight.
struct Count<'a> {
    snapshot: &'a Snapshot<'a>,
    with_hash: bool,
    parts: u32,
    next: AtomicU32,
    /// Records read so far. Held while progress is reported, so that it never goes back.
    done: Mutex<u64>,
    records: u64,
    progress: &'a (dyn Fn(u64, u64) -> ControlFlow<()> + Send + Sync),
    stop: &'a AtomicBool,
}

impl Count<'_> {
    /// Counts parts until none is left. If it fails, the others stop.
    fn work(&self) -> Result<UtxoSet, StoreError> {
        let mut counter = UtxoCounter::new(self.with_hash);
        loop {
            let part = self.next.fetch_add(1, Ordering::Relaxed);
            if part >= self.parts {
                return counter.finish().inspect_err(|_| self.stop.store(true, Ordering::Relaxed));
            }
            self.part(part, &mut counter).inspect_err(|_| self.stop.store(true, Ordering::Relaxed))?;
        }
    }

    fn part(&self, part: u32, counter: &mut UtxoCounter) -> Result<(), StoreError> {
        let (from, to) = match u8::try_from(part) {
            Ok(first) if self.parts > 1 => (vec![first], first.checked_add(1).map(|end| vec![end])),
            _ => (Vec::new(), None),
        };
        let scan = Scan { from: &from, to: to.as_deref(), ..Scan::all(Table::Tx) };
        let (mut records, mut rows) = (0, 0_usize);
        self.snapshot.try_scan(&scan, |key, value| {
            if rows.is_multiple_of(LOOK_EVERY) {
                self.look(std::mem::take(&mut records))?;
            }
            rows += 1;
            match RecordKey::parse(key) {
                Some(RecordKey::First(txid)) => {
                    counter.first_page(txid, &FirstPage::new(value))?;
                    records += 1;
                    Ok(())
                }
                Some(RecordKey::Further(txid, number)) => {
                    let page = decode_further((txid, number), value)?;
                    counter.further_page(txid, number, &page)
                }
                None => Err(corrupt("a record's key", DecodeError::BadNumber { field: "key" })),
            }
        })?;
        self.look(records)
    }

    /// Reports progress, and ends the count if it is not wanted any more.
    fn look(&self, records: u64) -> Result<(), StoreError> {
        let mut done = self.done.lock();
        *done += records;
        let go_on = (self.progress)(*done, self.records.max(*done));
        if go_on.is_break() || self.stop.load(Ordering::Relaxed) {
            return Err(StoreError::Stopped { doing: "counting the UTXO set" });
        }
        Ok(())
    }
}

/// Stops a count when its caller stops waiting.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Ledger {
    /// Counts on a thread that may block, and soon stops there if the caller stops waiting.
    pub(crate) async fn counted_utxo_set(
        &self,
        with_hash: bool,
        progress: UtxoProgress,
    ) -> Result<UtxoSet, StoreError> {
        let waiting = StopOnDrop(Arc::default());
        let stop = Arc::clone(&waiting.0);
        self.run(move |core| core.utxo_set(with_hash, &progress, &stop)).await?
    }
}
