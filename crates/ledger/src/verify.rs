//! Checks every record, every index, and how they belong together.
//!
//! One pass over the records computes the index entries they must have and checks that each is there; one pass over each index
//! checks that every entry belongs to a record that has it. Both ways, so neither a missing nor a stray entry escapes.

mod damage;
mod ties;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::ControlFlow,
    sync::atomic::AtomicBool,
};

use bytes::Bytes;
use sapwood_types::{
    DecodeError, FirstPage, FurtherPage, Height, PageView, RecordHeader, TxId, TxRecord, Undo,
};

use self::ties::ties;
use crate::{
    Counts, StoreError, UtxoSet, VerifyReport,
    changes::{CountChanges, Derived, IndexEntry, address_entries, listing, record_entries},
    core::{Core, corrupt},
    engine::{DamagedRange, Table},
    keys::{self, RecordKey},
    read::Snapshot,
    rolling::differs,
    settled::Settled,
    state::State,
};

/// How many records are read between two reports of progress.
const PROGRESS_EVERY: u64 = 10_000;

/// The pages of a record as they are stored.
struct StoredRecord {
    txid: TxId,
    first: FirstPage,
    further: Vec<Bytes>,
}

struct Verifier<'a> {
    core: &'a Core,
    snapshot: &'a Snapshot<'a>,
    state: State,
    report: VerifyReport,
    found: CountChanges,
    index_entries: BTreeMap<&'static str, u64>,
    /// Parts of the records that the engine cannot read.
    damaged: Vec<DamagedRange>,
    /// Records that cannot be read and are named in the report.
    unreadable: BTreeSet<TxId>,
    progress: &'a (dyn Fn(u64, u64) + Send + Sync),
}

impl Core {
    pub(crate) fn verify(
        &self,
        progress: &(dyn Fn(u64, u64) + Send + Sync),
    ) -> Result<VerifyReport, StoreError> {
        let writer = self.writer.lock();
        let state = writer.state.clone();
        let kept = writer.rolling.known.clone();
        let snapshot = self.snapshot()?;
        drop(writer);
        let mut verifier = Verifier {
            core: self,
            snapshot: &snapshot,
            state,
            report: VerifyReport::default(),
            found: CountChanges::default(),
            index_entries: BTreeMap::new(),
            damaged: Vec::new(),
            unreadable: BTreeSet::new(),
            progress,
        };
        verifier.records()?;
        verifier.indexes()?;
        verifier.undo_records()?;
        verifier.counts()?;
        if let Some(kept) = kept {
            verifier.utxo_set(&kept)?;
        }
        Ok(verifier.report)
    }
}

impl<'a> Verifier<'a> {
    /// Reads all records; a record is complete when the next one begins.
    fn records(&mut self) -> Result<(), StoreError> {
        let mut current: Option<StoredRecord> = None;
        self.damaged = self.scan(Table::Tx, |verifier, key, value| {
            match (RecordKey::parse(key), &mut current) {
                (Some(RecordKey::First(txid)), _) => {
                    let next = StoredRecord { txid, first: FirstPage::new(value), further: Vec::new() };
                    if let Some(complete) = current.replace(next) {
                        verifier.check_record(complete)?;
                    }
                }
                (Some(RecordKey::Further(txid, number)), Some(record))
                    if record.txid == txid && number as usize == record.further.len() + 1 =>
                {
                    record.further.push(Bytes::copy_from_slice(value));
                }
                (Some(RecordKey::Further(txid, number)), _) => {
                    verifier.report.problem(format!("page {number} of {txid} has no record"));
                }
                (None, _) => verifier.report.problem(format!("a record's key has {} bytes", key.len())),
            }
            Ok(())
        })?;
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
        let StoredRecord { txid, first, further } = record;
        self.report.records += 1;
        if self.report.records.is_multiple_of(PROGRESS_EVERY) {
            self.show_progress();
        }
        let decode = || {
            let header = first.header()?;
            let further = further.into_iter().map(FurtherPage::decode).collect::<Result<Vec<_>, _>>()?;
            let record = TxRecord::assemble_with(txid, &first, &header, &further)?;
            Ok::<_, DecodeError>((header, further, record))
        };
        match decode() {
            Err(error) => self.name_unreadable(txid, &error),
            Ok((header, further, record)) => {
                self.check_entries(txid, &first, &header, &further)?;
                self.check_ties(&record)?;
            }
        }
        Ok(())
    }

    /// Every index entry the record must have is there.
    fn check_entries(
        &mut self,
        txid: TxId,
        first: &FirstPage,
        header: &RecordHeader,
        further: &[FurtherPage],
    ) -> Result<(), StoreError> {
        self.found.add_derived(&Derived::of(header.view()), 1);
        further.iter().for_each(|page| self.found.add_slots(&page.slots, 1));
        let (wanted, damage) = self.entries(txid, first, header, further);
        if let Some(error) = damage {
            self.report.problem(format!("outputs of transaction {txid} cannot be read: {error}"));
        }
        for entry in wanted {
            let mut key = Vec::new();
            let mut table = Table::Due;
            keys::index(&entry, |in_table, bytes| (table, key) = (in_table, bytes.to_vec()));
            *self.index_entries.entry(table.name()).or_default() += 1;
            match self.snapshot.contains(table, &key) {
                Ok(true) => {}
                Ok(false) => {
                    self.report.problem(format!("index entry {entry:?} of transaction {txid} is missing"));
                }
                Err(StoreError::Corrupt { cause, .. }) => {
                    self.report.problem(format!(
                        "index entry {entry:?} of transaction {txid} cannot be read: {cause}"
                    ));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The record agrees with its parents and children.
    fn check_ties(&mut self, record: &TxRecord) -> Result<(), StoreError> {
        let txid = record.txid;
        let found = self.snapshot.read(|set| ties(set, record))?;
        for (other, cause) in found.unreadable {
            self.name_unreadable(other, &cause);
        }
        for problem in found.problems {
            self.report.problem(format!("transaction {txid}: {problem}"));
        }
        Ok(())
    }

    /// Every entry of every index belongs to a record that has it. Each expected entry was found above, so equal numbers prove
    /// it; only if they differ are the stray entries looked for one by one. Entries of records that cannot be read are expected of none.
    fn indexes(&mut self) -> Result<(), StoreError> {
        for table in [Table::Due, Table::Pending, Table::Address] {
            let (mut entries, mut of_unreadable) = (0, 0);
            let damaged = self.scan(table, |verifier, key, _| {
                entries += 1;
                if entry_of(table, key).is_some_and(|txid| verifier.is_unreadable(&txid)) {
                    of_unreadable += 1;
                    verifier.check_stray(table, key)?;
                }
                Ok(())
            })?;
            self.report.index_entries += entries;
            let expected = self.index_entries.get(table.name()).copied().unwrap_or(0);
            let found = entries - of_unreadable;
            if found != expected {
                self.report.problem(format!("index {} has {found} entries, not {expected}", table.name()));
                if damaged.is_empty() {
                    self.name_stray(table)?;
                }
            }
        }
        Ok(())
    }

    /// Names stray entries as long as there is room for them in the report: each one takes reading a record.
    fn name_stray(&mut self, table: Table) -> Result<(), StoreError> {
        let mut result = Ok(());
        self.snapshot.scan_past_damage(table, |key, _| {
            if self.report.is_full() {
                return ControlFlow::Break(());
            }
            result = self.check_stray(table, key);
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        result
    }

    fn check_stray(&mut self, table: Table, key: &[u8]) -> Result<(), StoreError> {
        let Some(txid) = entry_of(table, key) else {
            self.report.problem(format!("a key of {} has {} bytes", table.name(), key.len()));
            return Ok(());
        };
        let entries = self.entries_of(txid).map(Some);
        let entries = self.readable(txid, entries)?;
        if entries.is_some_and(|entries| !entries.contains(key)) {
            self.report.problem(format!("index {} has a stray entry for {txid}", table.name()));
        }
        Ok(())
    }

    /// Lists the index entries that a record has, and what is wrong with its outputs if those of them cannot be listed.
    fn entries(
        &self,
        txid: TxId,
        first: &FirstPage,
        header: &RecordHeader,
        further: &[FurtherPage],
    ) -> (Vec<IndexEntry>, Option<DecodeError>) {
        let derived = Derived::of(header.view());
        let mut entries: Vec<IndexEntry> = record_entries(txid, &derived).into_iter().flatten().collect();
        let pages = std::iter::once(first.view(header)).chain(further.iter().map(|page| Ok(page.view())));
        let mut add = |(number, page): (usize, Result<PageView, DecodeError>)| {
            let listed = (listing(&header.head), page?);
            let indexing = self.core.options.address_index;
            address_entries(txid, number as u32, listed, indexing, |_| true, |entry| entries.push(entry))
        };
        let damage = pages.enumerate().filter_map(|page| add(page).err()).reduce(|first, _| first);
        (entries, damage)
    }

    fn entries_of(&self, txid: TxId) -> Result<HashSet<Vec<u8>>, StoreError> {
        let record = self.snapshot.read(|set| set.record(txid))?;
        let Some(record) = record else { return Ok(HashSet::new()) };
        let (first, further) = record.to_pages();
        let header = first.header().map_err(|cause| corrupt(format!("transaction {txid}"), cause))?;
        let (entries, _) = self.entries(txid, &first, &header, &further);
        let mut keys = HashSet::new();
        for entry in &entries {
            keys::index(entry, |_, key| keys.extend([key.to_vec()]));
        }
        Ok(keys)
    }

    /// The undo records form a chain from the last applied block down to the floor.
    fn undo_records(&mut self) -> Result<(), StoreError> {
        let mut undo = BTreeMap::new();
        self.scan(Table::Undo, |verifier, key, value| {
            match (keys::parse_undo(key), Undo::decode(Bytes::copy_from_slice(value))) {
                (Some(height), Ok(record)) => {
                    undo.insert(height, (record.block, record.previous));
                    verifier.name_damaged(record.created.iter().chain(&record.mined))?;
                }
                (_, Err(error)) => {
                    verifier.report.problem(format!("undo record {key:02x?} cannot be read: {error}"));
                }
                (None, _) => {
                    verifier.report.problem(format!("an undo record's key has {} bytes", key.len()));
                }
            }
            Ok(())
        })?;
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

    fn counts(&mut self) -> Result<(), StoreError> {
        let stored = self.state.counts;
        let found = Counts::default().changed(&self.found);
        // Spent outputs of pruned records are counted, but gone.
        let found = Counts { spent: found.spent.max(stored.spent), ..found };
        if found != stored {
            self.report.problem(format!("the store counts {stored:?}, but there are {found:?}"));
        }
        if !self.damaged.is_empty() {
            let lost = stored.records.saturating_sub(found.records);
            self.report.problem(format!("{lost} records lie where nothing can be read"));
            return Ok(());
        }
        let stored = self.snapshot.settled()?;
        let found = Settled::from_iter(std::mem::take(&mut self.found.settled));
        let heights: BTreeSet<Height> = stored.iter().chain(found.iter()).map(|(height, _)| height).collect();
        for height in heights {
            let (stored, found) = (stored.at(height), found.at(height));
            if stored != found {
                self.report.problem(format!(
                    "the store counts {stored} records that settled at height {height}, but there are {found}"
                ));
            }
        }
        Ok(())
    }

    /// The figures kept with each write are those of the records.
    fn utxo_set(&mut self, kept: &UtxoSet) -> Result<(), StoreError> {
        if !self.damaged.is_empty() {
            self.report.problem("the UTXO set is not compared: records cannot be read");
            return Ok(());
        }
        let (with_hash, records) = (kept.hash.is_some(), self.report.records);
        let go_on = |_, _| ControlFlow::Continue(());
        let stop = AtomicBool::new(false);
        let counted = self.core.count_utxo_set(self.snapshot, with_hash, records, &go_on, &stop);
        let counted = match counted {
            Ok(counted) => UtxoSet { last: kept.last, ..counted },
            // The record was named above.
            Err(StoreError::Corrupt { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        if differs(kept, &counted) {
            self.report.problem(format!("the store keeps a UTXO set of {kept}, but there are {counted}"));
        }
        Ok(())
    }
}

/// Returns the transaction that an index entry is of. `None` if its key has the wrong length.
fn entry_of(table: Table, key: &[u8]) -> Option<TxId> {
    match table {
        Table::Due => keys::parse_due(key).map(|(_, txid)| txid),
        Table::Pending => key.get(1..).and_then(keys::parse_due).map(|(_, txid)| txid),
        _ => keys::parse_address(key).map(|outpoint| outpoint.txid),
    }
}
