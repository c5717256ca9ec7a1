//! Checks every record, every index, and how they belong together.
//!
//! One pass over the records computes the index entries they must have and checks that each is there; one pass over each index
//! checks that every entry belongs to a record that has it. Both ways, so neither a missing nor a stray entry escapes.

use std::{
    collections::{BTreeMap, HashSet},
    ops::ControlFlow,
    sync::atomic::AtomicBool,
};

use bytes::Bytes;
use rocksdb::{DBIterator, IteratorMode, ReadOptions};
use sapwood_store::{
    Counts, StoreError, UtxoSet, VerifyReport, WorkingSet,
    changes::{Facts, IndexEntry, address_entries, is_listed, listing, record_entries, spent},
};
use sapwood_types::{Height, MasterPage, OutPoint, OutputPage, Slot, Spender, TxId, TxRecord, Undo};

use crate::{
    columns::Column,
    diagnose::RecordKey,
    engine::{Engine, engine_error},
    keys,
    read::Snapshot,
    state::State,
    utxo_set::differs,
};

/// How many records are read between two reports of progress.
const PROGRESS_EVERY: u64 = 10_000;

/// The pages of a record as they are stored.
struct StoredRecord {
    txid: TxId,
    master: Bytes,
    extras: Vec<Bytes>,
}

struct Verifier<'a> {
    engine: &'a Engine,
    snapshot: Snapshot<'a>,
    state: State,
    report: VerifyReport,
    found: Counts,
    index_entries: BTreeMap<&'static str, u64>,
    progress: &'a (dyn Fn(u64, u64) + Send + Sync),
}

impl Engine {
    pub(crate) fn verify(
        &self,
        progress: &(dyn Fn(u64, u64) + Send + Sync),
    ) -> Result<VerifyReport, StoreError> {
        let writer = self.writer.lock();
        let state = writer.state.clone();
        let kept = writer.rolling.known.clone();
        let snapshot = Snapshot::new(self);
        drop(writer);
        let mut verifier = Verifier {
            engine: self,
            snapshot,
            state,
            report: VerifyReport::default(),
            found: Counts::default(),
            index_entries: BTreeMap::new(),
            progress,
        };
        verifier.records()?;
        verifier.indexes()?;
        verifier.undo_records()?;
        verifier.counts();
        if let Some(kept) = kept {
            verifier.utxo_set(&kept)?;
        }
        Ok(verifier.report)
    }
}

impl<'a> Verifier<'a> {
    /// Everything in a column family, read as it is asked for. It borrows the engine only, so that what is found can be reported
    /// on the way: a column family may be larger than memory.
    fn all(&self, column: Column) -> Result<DBIterator<'a>, StoreError> {
        let mut options = ReadOptions::default();
        self.snapshot.pin(&mut options);
        options.fill_cache(false);
        options.set_total_order_seek(true);
        let family = self.engine.column(column)?;
        Ok(self.engine.db().iterator_cf_opt(family, options, IteratorMode::Start))
    }

    /// Reads all records; a record is complete when the next one begins.
    fn records(&mut self) -> Result<(), StoreError> {
        let mut current: Option<StoredRecord> = None;
        for entry in self.all(Column::Tx)? {
            let (key, value) = entry.map_err(engine_error("reading all records"))?;
            match (RecordKey::parse(&key), &mut current) {
                (Some(RecordKey::Master(txid)), _) => {
                    let next = StoredRecord { txid, master: value.into(), extras: Vec::new() };
                    if let Some(complete) = current.replace(next) {
                        self.check_record(complete)?;
                    }
                }
                (Some(RecordKey::Extra(txid, number)), Some(record))
                    if record.txid == txid && number as usize == record.extras.len() + 1 =>
                {
                    record.extras.push(value.into());
                }
                (Some(RecordKey::Extra(txid, number)), _) => {
                    self.report.problem(format!("page {number} of {txid} has no record"));
                }
                (None, _) => self.report.problem(format!("a record's key has {} bytes", key.len())),
            }
        }
        if let Some(last) = current {
            self.check_record(last)?;
        }
        self.show_progress();
        Ok(())
    }

    fn show_progress(&self) {
        let done = self.report.records;
        (self.progress)(done, self.state.counts.records.max(done));
    }

    fn check_record(&mut self, record: StoredRecord) -> Result<(), StoreError> {
        let StoredRecord { txid, master, extras } = record;
        self.report.records += 1;
        if self.report.records.is_multiple_of(PROGRESS_EVERY) {
            self.show_progress();
        }
        let master = MasterPage::decode(master);
        let extras: Result<Vec<OutputPage>, _> = extras.into_iter().map(OutputPage::decode).collect();
        let parts = master.and_then(|master| extras.map(|extras| (master, extras)));
        let parts = parts.and_then(|(master, extras)| {
            TxRecord::assemble(txid, &master, &extras).map(|record| (master, extras, record))
        });
        match parts {
            Err(error) => self.report.problem(format!("transaction {txid} cannot be read: {error}")),
            Ok((master, extras, record)) => {
                self.check_entries(txid, &master, &extras)?;
                self.check_ties(&record)?;
            }
        }
        Ok(())
    }

    /// Every index entry the record must have is there.
    fn check_entries(
        &mut self,
        txid: TxId,
        master: &MasterPage,
        extras: &[OutputPage],
    ) -> Result<(), StoreError> {
        self.found.records += 1;
        self.found.unmined += u64::from(master.head.mined_at().is_none());
        let mut wanted: Vec<IndexEntry> =
            record_entries(txid, &Facts::of_page(master)).into_iter().flatten().collect();
        let pages = std::iter::once(&master.page).chain(extras);
        for (number, page) in pages.enumerate() {
            self.found.spent = self.found.spent.saturating_add_signed(spent(&page.slots));
            self.found.unspent += page.slots.iter().filter(|slot| is_listed(slot)).count() as u64;
            let side = (listing(master), page);
            let indexing = self.engine.options.address_index;
            let listed =
                address_entries(txid, number as u32, side, indexing, |_| true, |entry| wanted.push(entry));
            if let Err(error) = listed {
                self.report.problem(format!("outputs of transaction {txid} cannot be read: {error}"));
            }
        }
        for entry in wanted {
            let mut key = Vec::new();
            let mut column = Column::Due;
            keys::index(&entry, |in_column, bytes| (column, key) = (in_column, bytes.to_vec()));
            *self.index_entries.entry(column.name()).or_default() += 1;
            if !self.snapshot.contains(column, &key)? {
                self.report.problem(format!("index entry {entry:?} of transaction {txid} is missing"));
            }
        }
        Ok(())
    }

    /// The record agrees with its parents and children.
    fn check_ties(&mut self, record: &TxRecord) -> Result<(), StoreError> {
        let mut set = WorkingSet::new(&self.snapshot);
        let txid = record.txid;
        let mut problems = Vec::new();
        let spenders = record.slots.iter().enumerate().filter_map(|(vout, slot)| match *slot {
            Slot::Spent { spender, child_mined_at } => Some((vout as u32, spender, child_mined_at)),
            _ => None,
        });
        for (vout, spender, remembered) in spenders {
            let outpoint = OutPoint::new(txid, vout);
            problems.extend(readable(check_child(&mut set, outpoint, spender, remembered))?);
        }
        for (vin, input) in record.body.inputs.iter().enumerate() {
            let spender = Spender::new(txid, vin as u32);
            problems.extend(readable(check_parent(&mut set, record, input.outpoint, spender))?);
        }
        if record.head.is_conflicting() && record.head.mined_at().is_some() {
            problems.push("it lost against another transaction, and is mined".into());
        }
        for child in &record.head.conflicting_children {
            let lost = set.master(*child).map(|child| child.map(|child| child.head.is_conflicting()));
            if readable(lost.map(|lost| Some(lost == Some(true))))? == Some(false) {
                problems.push(format!("it lists {child} as a loser, which is not one"));
            }
        }
        problems
            .into_iter()
            .for_each(|problem| self.report.problem(format!("transaction {txid}: {problem}")));
        Ok(())
    }

    /// Every entry of every index belongs to a record that has it. Each expected entry was found above, so equal numbers prove
    /// it; only if they differ are the stray entries looked for one by one.
    fn indexes(&mut self) -> Result<(), StoreError> {
        for column in [Column::Due, Column::Pending, Column::Address] {
            let mut entries = 0;
            for entry in self.all(column)? {
                entry.map_err(engine_error("reading an index"))?;
                entries += 1;
            }
            self.report.index_entries += entries;
            let expected = self.index_entries.get(column.name()).copied().unwrap_or(0);
            if entries != expected {
                self.report.problem(format!("index {} has {entries} entries, not {expected}", column.name()));
                self.name_stray(column)?;
            }
        }
        Ok(())
    }

    /// Names stray entries as long as there is room for them in the report: each one takes reading a record.
    fn name_stray(&mut self, column: Column) -> Result<(), StoreError> {
        for entry in self.all(column)? {
            if self.report.is_full() {
                break;
            }
            let (key, _) = entry.map_err(engine_error("reading an index"))?;
            let txid = match column {
                Column::Due => keys::parse_due(&key).map(|(_, txid)| txid),
                Column::Pending => key.get(1..).and_then(keys::parse_due).map(|(_, txid)| txid),
                _ => keys::parse_address(&key).map(|outpoint| outpoint.txid),
            };
            let Some(txid) = txid else {
                self.report.problem(format!("a key of {} has {} bytes", column.name(), key.len()));
                continue;
            };
            let entries = readable(self.entries_of(txid).map(Some))?;
            if entries.is_some_and(|entries| !entries.contains(&*key)) {
                self.report.problem(format!("index {} has a stray entry for {txid}", column.name()));
            }
        }
        Ok(())
    }

    fn entries_of(&self, txid: TxId) -> Result<HashSet<Vec<u8>>, StoreError> {
        let mut set = WorkingSet::new(&self.snapshot);
        let Some((master, extras)) = set.pages(txid)? else { return Ok(HashSet::new()) };
        let mut entries: Vec<IndexEntry> =
            record_entries(txid, &Facts::of_page(&master)).into_iter().flatten().collect();
        let pages = std::iter::once(&master.page).chain(extras.iter().map(AsRef::as_ref));
        for (number, page) in pages.enumerate() {
            let side = (listing(&master), page);
            let indexing = self.engine.options.address_index;
            // Unreadable outputs were reported with their record.
            let _ =
                address_entries(txid, number as u32, side, indexing, |_| true, |entry| entries.push(entry));
        }
        let mut keys = HashSet::new();
        for entry in &entries {
            keys::index(entry, |_, key| keys.extend([key.to_vec()]));
        }
        Ok(keys)
    }

    /// The undo records form a chain from the last applied block down to the floor.
    fn undo_records(&mut self) -> Result<(), StoreError> {
        let mut undo = BTreeMap::new();
        for entry in self.all(Column::Undo)? {
            let (key, value) = entry.map_err(engine_error("reading undo records"))?;
            match (key.as_ref().try_into().map(u32::from_be_bytes), Undo::decode(value.into())) {
                (Ok(height), Ok(record)) => {
                    undo.insert(Height(height), (record.block, record.previous));
                }
                (_, Err(error)) => {
                    self.report.problem(format!("undo record {key:02x?} cannot be read: {error}"));
                }
                (Err(_), _) => {
                    self.report.problem(format!("an undo record's key has {} bytes", key.len()));
                }
            }
        }
        let Some(chain) = self.state.chain else { return Ok(()) };
        let mut expected = Some(chain.last);
        while let Some(block) = expected {
            if block.height < chain.undoable_from() {
                break;
            }
            match undo.get(&block.height) {
                Some((of, previous)) if *of == block => expected = *previous,
                Some((of, _)) => {
                    self.report.problem(format!("undo of {} is for {of}, not {block}", block.height));
                    break;
                }
                None => {
                    self.report.problem(format!("the undo record of {block} is missing"));
                    break;
                }
            }
        }
        Ok(())
    }

    fn counts(&mut self) {
        let stored = self.state.counts;
        // Spent outputs of pruned records are counted, but gone.
        let found = Counts { spent: self.found.spent.max(stored.spent), ..self.found };
        if found != stored {
            self.report.problem(format!("the store counts {stored:?}, but there are {found:?}"));
        }
    }

    /// The figures kept with each write are those of the records.
    fn utxo_set(&mut self, kept: &UtxoSet) -> Result<(), StoreError> {
        let (with_hash, records) = (kept.hash.is_some(), self.found.records);
        let go_on = |_, _| ControlFlow::Continue(());
        let stop = AtomicBool::new(false);
        let counted = self.engine.count_utxo_set(&self.snapshot, with_hash, records, &go_on, &stop);
        let counted = readable(counted.map(|counted| Some(UtxoSet { last: kept.last, ..counted })))?;
        if let Some(counted) = counted.filter(|counted| differs(kept, counted)) {
            self.report.problem(format!("the store keeps a UTXO set of {kept}, but there are {counted}"));
        }
        Ok(())
    }
}

/// Nothing, where a record cannot be read that another one leads to: it is reported when its own turn comes, and what is
/// broken must not keep the rest from being checked.
fn readable<T>(found: Result<Option<T>, StoreError>) -> Result<Option<T>, StoreError> {
    match found {
        Err(StoreError::Corrupt { .. }) => Ok(None),
        other => other,
    }
}

/// What is wrong between an output and the transaction that spends it.
fn check_child(
    set: &mut WorkingSet,
    outpoint: OutPoint,
    spender: Spender,
    remembered: Option<Height>,
) -> Result<Option<String>, StoreError> {
    let Some(child) = set.master(spender.child)? else {
        let dangling = remembered.is_none();
        return Ok(
            dangling.then(|| format!("{outpoint} is spent by {spender}, which is neither stored nor mined"))
        );
    };
    let mined_at = child.head.mined_at();
    if mined_at != remembered {
        return Ok(Some(format!("{outpoint} remembers {spender} at {remembered:?}, it is at {mined_at:?}")));
    }
    if child.head.is_conflicting() {
        return Ok(Some(format!("{outpoint} is spent by {spender}, which has lost")));
    }
    let inputs = set.inputs(spender.child)?;
    let spends = inputs.get(spender.vin as usize) == Some(&outpoint);
    Ok((!spends).then(|| format!("{outpoint} is spent by {spender}, which does not spend it")))
}

/// What is wrong between an input and the transaction it spends from.
fn check_parent(
    set: &mut WorkingSet,
    record: &TxRecord,
    outpoint: OutPoint,
    spender: Spender,
) -> Result<Option<String>, StoreError> {
    let Some(parent) = set.master(outpoint.txid)? else { return Ok(None) };
    let lost = record.head.is_conflicting();
    // That a loser is not listed proves nothing: a parent that comes back after it was pruned does not know of it.
    if !lost && parent.head.conflicting_children.contains(&record.txid) {
        return Ok(Some(format!("it has not lost, but its parent {} lists it as a loser", outpoint.txid)));
    }
    let held = matches!(set.slot(outpoint)?, Some(Slot::Spent { spender: by, .. }) if by == spender);
    Ok((lost && held).then(|| format!("it lost against another transaction, and holds {outpoint}")))
}
