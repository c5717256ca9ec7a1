//! The pages an operation works on.
//!
//! **What lives here.** [`WorkingSet`]: pages as they were loaded, and as an operation has changed them. **What may not.** I/O: the ledger
//! loads pages into it between two runs of a transition, and writes [`WorkingSet::into_changes`] after the last one.
//!
//! # A miss is a value
//! A transition touches pages through the accessors of the working set. A page that is not loaded is noted, and the accessor returns
//! [`Stop::Need`], which `?` carries out of the transition. The ledger then loads everything that was noted in one read, rewinds the working
//! set to the pages as they were loaded, and runs the transition again from its start. A transition therefore keeps no state of its own from
//! one run to the next.
//!
//! Two habits keep the number of runs small, whatever the size of a block or a batch:
//! - A transition declares what it can foresee with [`want`](WorkingSet::want) and its siblings before it touches any of it. A declared page
//!   is noted like a missed one, and nothing stops.
//! - A loop over independent items goes on behind a miss ([`WorkingSet::each`]), so that one run notes what all of them miss.
//!
//! What happens behind a miss is not trusted: a failure counts only in a run that missed nothing (`WorkingSet::conclude`).
//!
//! # Correctness
//! Every run that ends in [`Stop::Need`] has noted a page that is not loaded, and a loaded page stays loaded: so runs come to an end. A row
//! that cannot be read is loaded as its error ([`StoreError::Corrupt`]); it fails the transitions that touch it, and no others.

use std::{
    collections::{HashMap as StdHashMap, hash_map},
    sync::Arc,
};

use bytes::Bytes;
use foldhash::fast::RandomState;
use sapwood_types::{
    DecodeError, FirstPage, FurtherPage, Height, OutPoint, Scratch, TxId, page::further_pages,
};

mod access;
mod entry;
mod stop;
#[cfg(test)]
mod tests;

use self::entry::{PageEntry, PageState};
pub use self::stop::{Access, Stop};
use crate::{Changes, StoreError, changes::FurtherPageChange};

/// Keyed at random and fast: transaction ids are chosen by strangers, and there are many.
type HashMap<K, V> = StdHashMap<K, V, RandomState>;

/// A page of a record. The first page has number 0, further pages 1 and more. Ordered as their keys in the engine.
pub type PageKey = (TxId, u32);

/// A loaded page, or why it cannot be read.
type Loaded<T> = Result<T, Box<StoreError>>;

/// The pages an operation works on.
#[derive(Default)]
pub struct WorkingSet {
    first: HashMap<TxId, Loaded<PageEntry>>,
    further: HashMap<PageKey, Loaded<FurtherPageChange>>,
    /// Pages that were touched or declared and are not loaded. May name one more than once.
    missing: Vec<PageKey>,
    /// What pages were before the current attempt.
    journal: Option<Journal>,
    scratch: Scratch,
}

#[derive(Default)]
struct Journal {
    first: HashMap<TxId, PageState>,
    further: HashMap<PageKey, Option<Arc<FurtherPage>>>,
}

fn corrupt(txid: TxId, cause: DecodeError) -> StoreError {
    StoreError::Corrupt { what: format!("transaction {txid}"), cause }
}

fn missing_page(txid: TxId) -> StoreError {
    corrupt(txid, DecodeError::Inconsistent { what: "record", problem: "a page is missing" })
}

/// Finds a page among those that are loaded, or notes it.
fn touch<'m, K: Eq + std::hash::Hash, T>(
    loaded: &'m mut HashMap<K, Loaded<T>>,
    key: &K,
    missing: &mut Vec<PageKey>,
    page: PageKey,
) -> Access<&'m mut T> {
    match loaded.get_mut(key) {
        Some(Ok(entry)) => Ok(entry),
        Some(Err(error)) => Err(Stop::Failed(error.as_ref().clone())),
        None => {
            missing.push(page);
            Err(Stop::Need)
        }
    }
}

impl Journal {
    /// Notes what a first page was, the first time the attempt changes it.
    fn note_first(journal: &mut Option<Journal>, txid: TxId, now: &PageState) {
        if let Some(journal) = journal {
            journal.first.entry(txid).or_insert_with(|| now.clone());
        }
    }

    /// Notes what a further page was, the first time the attempt changes it.
    fn note_further(journal: &mut Option<Journal>, key: PageKey, now: &Option<Arc<FurtherPage>>) {
        if let Some(journal) = journal {
            journal.further.entry(key).or_insert_with(|| now.clone());
        }
    }
}

/// What a transition declares.
impl WorkingSet {
    /// Declares the first pages of these transactions.
    pub fn want(&mut self, txids: impl IntoIterator<Item = TxId>) {
        let missing = txids.into_iter().filter(|txid| !self.first.contains_key(txid));
        self.missing.extend(missing.map(|txid| (txid, 0)));
    }

    /// Declares the pages that hold these outputs, with their first pages.
    pub fn want_outputs(&mut self, outpoints: impl IntoIterator<Item = OutPoint>) {
        for outpoint in outpoints {
            if !self.first.contains_key(&outpoint.txid) {
                self.missing.push((outpoint.txid, 0));
            }
            let key = (outpoint.txid, outpoint.page());
            if outpoint.page() > 0 && !self.further.contains_key(&key) {
                self.missing.push(key);
            }
        }
    }

    /// Declares all pages of a transaction. Its first page, which knows how many there are, is touched.
    pub fn want_pages(&mut self, txid: TxId) -> Access<()> {
        let count = self.header(txid)?.map_or(0, |header| further_pages(header.head.output_count));
        let keys = (1..=count).map(|page| (txid, page));
        self.missing.extend(keys.filter(|key| !self.further.contains_key(key)));
        Ok(())
    }

    /// Stops if anything that was touched or declared is missing. For the start of an operation, behind its declarations: it saves a run that
    /// cannot come far.
    pub fn ready(&self) -> Access<()> {
        if self.missing.is_empty() { Ok(()) } else { Err(Stop::Need) }
    }

    /// Runs a step for every item. Goes on behind a miss, so that one run notes what all of them miss, and stops at the end. A failure
    /// behind a miss is passed over: it may follow from the miss, and comes up again if it does not.
    pub fn each<I, E>(
        &mut self,
        items: impl IntoIterator<Item = I>,
        mut step: impl FnMut(&mut Self, I) -> Result<(), Stop<E>>,
    ) -> Result<(), Stop<E>> {
        let mut missed = false;
        for item in items {
            match step(self, item) {
                Ok(()) => {}
                Err(Stop::Failed(error)) if !missed => return Err(Stop::Failed(error)),
                Err(Stop::Failed(_) | Stop::Need) => missed = true,
            }
        }
        if missed { Err(Stop::Need) } else { Ok(()) }
    }

    /// Runs one item of a batch. If it stops, everything it changed is as it was before.
    pub fn attempt<T, E>(
        &mut self,
        item: impl FnOnce(&mut Self) -> Result<T, Stop<E>>,
    ) -> Result<T, Stop<E>> {
        self.journal = Some(Journal::default());
        let result = item(self);
        let journal = self.journal.take().unwrap_or_default();
        if result.is_err() {
            for (txid, page) in journal.first {
                if let Some(Ok(entry)) = self.first.get_mut(&txid) {
                    entry.now = page;
                }
            }
            for (key, page) in journal.further {
                if let Some(Ok(entry)) = self.further.get_mut(&key) {
                    entry.now = page;
                }
            }
        }
        result
    }
}

/// What the ledger does between two runs of a transition.
impl WorkingSet {
    /// Returns the result of a run. `None` if it has to run again, because something was missing.
    pub(crate) fn conclude<T, E>(&self, run: Result<T, Stop<E>>) -> Option<Result<T, E>> {
        match run {
            Ok(result) => Some(Ok(result)),
            Err(Stop::Failed(error)) if self.missing.is_empty() => Some(Err(error)),
            Err(Stop::Need | Stop::Failed(_)) => None,
        }
    }

    /// Takes over what has to be loaded. May name a page more than once.
    ///
    /// # Errors
    /// [`StoreError::Task`] if nothing is missing: a transition that stops then would be run without end.
    pub(crate) fn take_missing(&mut self) -> Result<Vec<PageKey>, StoreError> {
        if self.missing.is_empty() {
            return Err(StoreError::Task { cause: "a transition stopped although it misses nothing".into() });
        }
        self.first.reserve(self.missing.len());
        Ok(std::mem::take(&mut self.missing))
    }

    /// Loads a first page. `None` if there is none.
    pub(crate) fn load_first(&mut self, txid: TxId, page: Option<FirstPage>) {
        if let hash_map::Entry::Vacant(place) = self.first.entry(txid) {
            place.insert(Ok(PageEntry::loaded(page)));
        }
    }

    /// Loads a further page. `None` if there is none.
    pub(crate) fn load_further(&mut self, key: PageKey, page: Option<Arc<FurtherPage>>) {
        if let hash_map::Entry::Vacant(place) = self.further.entry(key) {
            place.insert(Ok(FurtherPageChange { before: page.clone(), now: page }));
        }
    }

    /// Loads a page from its row, or the error that comes with reading it.
    pub(crate) fn load_row(&mut self, key: PageKey, row: Result<Option<&[u8]>, StoreError>) {
        let further = |bytes| decode_further(key, bytes).map(Arc::new);
        match (key, row) {
            ((txid, 0), Ok(row)) => self.load_first(txid, row.map(FirstPage::new)),
            ((txid, 0), Err(error)) => _ = self.first.insert(txid, Err(Box::new(error))),
            (key, row) => match row.and_then(|row| row.map(further).transpose()) {
                Ok(page) => self.load_further(key, page),
                Err(error) => _ = self.further.insert(key, Err(Box::new(error))),
            },
        }
    }

    /// Makes all pages what they were loaded as.
    pub(crate) fn rewind(&mut self) {
        self.first.values_mut().flatten().for_each(|entry| entry.now = PageState::Unchanged);
        for page in self.further.values_mut().flatten().filter(|page| page.is_changed()) {
            page.now.clone_from(&page.before);
        }
    }

    /// Returns what has changed. Slots of rewritten pages whose spender was mined at or below `settled_below` forget who it was.
    pub fn into_changes(self, settled_below: Option<Height>) -> Result<Changes, StoreError> {
        let Self { first: mut loaded, further: loaded_further, mut scratch, .. } = self;
        // Ids are sorted by themselves: they are short.
        let changed = loaded.iter().filter(|(_, entry)| entry.as_ref().is_ok_and(PageEntry::is_changed));
        let mut ids: Vec<TxId> = changed.map(|(txid, _)| *txid).collect();
        ids.sort_unstable();
        let mut first = Vec::with_capacity(ids.len());
        for txid in &ids {
            let Some(Ok(entry)) = loaded.remove(txid) else { continue };
            let change = entry.into_change(settled_below, &mut scratch);
            first.push((*txid, change.map_err(|cause| corrupt(*txid, cause))?));
        }
        let (mut further, mut unchanged) = (Vec::new(), StdHashMap::new());
        for (key, page) in loaded_further {
            let Ok(mut page) = page else { continue };
            if !page.is_changed() {
                unchanged.extend(page.before.map(|page| (key, page)));
                continue;
            }
            if let (Some(page), Some(height)) = (&mut page.now, settled_below)
                && page.slots.iter().any(|slot| slot.settle(height) != *slot)
            {
                for slot in &mut Arc::make_mut(page).slots {
                    *slot = slot.settle(height);
                }
            }
            further.push((key, page));
        }
        further.sort_unstable_by_key(|(key, _)| *key);
        Ok(Changes { first, further, unchanged, ids })
    }
}

/// Decodes a further page.
pub(crate) fn decode_further((txid, number): PageKey, bytes: &[u8]) -> Result<FurtherPage, StoreError> {
    let corrupt = |cause| StoreError::Corrupt { what: format!("page {number} of transaction {txid}"), cause };
    FurtherPage::decode(Bytes::copy_from_slice(bytes)).map_err(corrupt)
}
