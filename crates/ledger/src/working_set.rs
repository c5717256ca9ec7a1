//! The pages an operation has read and changed.
//!
//! A working set reads pages from a [`PageSource`] once, keeps what each page was and what it is now, and can take back what an
//! item of a batch did ([`WorkingSet::attempt`]). Nothing reaches the store before the backend writes
//! [`WorkingSet::into_changes`].

use std::{
    collections::{VecDeque, hash_map},
    sync::Arc,
};

use foldhash::fast::RandomState;
use sapwood_types::{
    FirstPage, FurtherPage, Height, OutPoint, Output, PageView, RecordHeader, Scratch, Slot, Spender, Tx,
    TxBody, TxHead, TxId, TxRecord, first_page::pages_of, page::further_pages,
};

mod entry;

use self::entry::{LoadedPage, PageEntry, PageState};
use crate::{Changes, StoreError, changes::FurtherPageChange};

/// Keyed at random and fast: transaction ids are chosen by strangers, and there are many.
type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;
type HashSet<K> = std::collections::HashSet<K, RandomState>;

/// A further page of a transaction: its number is 1 or more.
pub type PageKey = (TxId, u32);

/// Where pages come from.
pub trait PageSource {
    /// Returns a first page, or that there is none, if that is known without reading. What is known is never asked of
    /// [`first_pages`](Self::first_pages).
    fn cached(&self, _txid: &TxId) -> Option<Option<FirstPage>> {
        None
    }
    /// First pages, in the order asked for.
    fn first_pages(&self, txids: &[TxId]) -> Result<Vec<Option<FirstPage>>, StoreError>;
    /// Further pages, in the order asked for.
    fn further_pages(&self, keys: &[PageKey]) -> Result<Vec<Option<Arc<FurtherPage>>>, StoreError>;
}

/// The pages an operation works on.
pub struct WorkingSet<'a> {
    source: &'a dyn PageSource,
    first: HashMap<TxId, PageEntry>,
    further: HashMap<PageKey, FurtherPageChange>,
    /// What pages were before the current attempt.
    journal: Option<Journal>,
    scratch: Scratch,
}

#[derive(Default)]
struct Journal {
    first: HashMap<TxId, PageState>,
    further: HashMap<PageKey, Option<Arc<FurtherPage>>>,
}

fn corrupt(txid: TxId, cause: sapwood_types::DecodeError) -> StoreError {
    StoreError::Corrupt { what: format!("transaction {txid}"), cause }
}

fn missing_page(txid: TxId) -> StoreError {
    corrupt(txid, sapwood_types::DecodeError::Inconsistent { what: "record", problem: "a page is missing" })
}

/// Passes over an error of one record while reading ahead: it comes up again when that record's turn comes.
///
/// # Errors
/// Any other error.
pub fn readable(read: Result<(), StoreError>) -> Result<(), StoreError> {
    match read {
        Err(error) if error.is_of_one_record() => Ok(()),
        read => read,
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

impl<'a> WorkingSet<'a> {
    /// Creates an empty working set over `source`.
    pub fn new(source: &'a dyn PageSource) -> Self {
        Self {
            source,
            first: HashMap::default(),
            further: HashMap::default(),
            journal: None,
            scratch: Scratch::default(),
        }
    }

    /// Reads the first pages of these transactions in one go.
    pub fn load(&mut self, txids: impl IntoIterator<Item = TxId>) -> Result<(), StoreError> {
        let mut wanted = Vec::new();
        for txid in txids {
            if let hash_map::Entry::Vacant(place) = self.first.entry(txid) {
                match self.source.cached(&txid) {
                    Some(page) => _ = place.insert(PageEntry::loaded(page)),
                    None => wanted.push(txid),
                }
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        // Engines read sorted keys faster, and a fixed order makes runs repeatable.
        wanted.sort_unstable();
        wanted.dedup();
        let pages = self.source.first_pages(&wanted)?;
        self.first.extend(wanted.into_iter().zip(pages.into_iter().map(PageEntry::loaded)));
        Ok(())
    }

    /// Like [`load`](Self::load). Where one of them cannot be read, each is read when its turn comes, and only those that need the
    /// damaged one fail.
    pub fn load_readable(&mut self, txids: impl IntoIterator<Item = TxId>) -> Result<(), StoreError> {
        readable(self.load(txids))
    }

    /// Makes room for this many first pages.
    pub fn reserve(&mut self, pages: usize) {
        self.first.reserve(pages);
    }

    /// Reads all further pages of these transactions in one go.
    pub fn load_all_pages(&mut self, txids: &[TxId]) -> Result<(), StoreError> {
        self.load(txids.iter().copied())?;
        let mut wanted = Vec::new();
        for txid in txids {
            if let Some(header) = self.header(*txid)? {
                let keys = (1..=further_pages(header.head.output_count)).map(|page| (*txid, page));
                wanted.extend(keys.filter(|key| !self.further.contains_key(key)));
            }
        }
        self.load_further(wanted)
    }

    /// Reads the pages that hold these outputs, with their first pages.
    pub fn load_outputs(
        &mut self,
        outpoints: impl Iterator<Item = OutPoint> + Clone,
    ) -> Result<(), StoreError> {
        self.load(outpoints.clone().map(|outpoint| outpoint.txid))?;
        self.load_further_pages(outpoints)
    }

    /// Reads the further pages among those that hold these outputs. Their first pages are loaded already.
    pub fn load_further_pages(
        &mut self,
        outpoints: impl Iterator<Item = OutPoint>,
    ) -> Result<(), StoreError> {
        let mut wanted: Vec<PageKey> = outpoints
            .filter(|outpoint| outpoint.page() > 0)
            .map(|outpoint| (outpoint.txid, outpoint.page()))
            .filter(|key| !self.further.contains_key(key))
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        self.load_further(wanted)
    }

    fn load_further(&mut self, wanted: Vec<PageKey>) -> Result<(), StoreError> {
        if wanted.is_empty() {
            return Ok(());
        }
        let pages = self.source.further_pages(&wanted)?.into_iter();
        let loaded = pages.map(|page| FurtherPageChange { before: page.clone(), now: page });
        self.further.extend(wanted.into_iter().zip(loaded));
        Ok(())
    }

    /// Returns the first page of a transaction and its header, which may be ahead of it.
    fn first_page(&mut self, txid: TxId) -> Result<Option<(&FirstPage, &RecordHeader)>, StoreError> {
        self.load([txid])?;
        let Some(entry) = self.first.get_mut(&txid) else { return Ok(None) };
        let opened = entry.open().map_err(|cause| corrupt(txid, cause))?;
        Ok(opened.map(|(page, header)| (page, header.as_ref())))
    }

    /// Returns the header of a record. `None` if it is not stored.
    pub fn header(&mut self, txid: TxId) -> Result<Option<&RecordHeader>, StoreError> {
        Ok(self.first_page(txid)?.map(|(_, header)| header))
    }

    /// Returns the state of a transaction. `None` if it is not stored.
    pub fn head(&mut self, txid: TxId) -> Result<Option<&TxHead>, StoreError> {
        Ok(self.header(txid)?.map(|header| &header.head))
    }

    /// Returns the state of a transaction, to be changed. `None` if it is not stored.
    pub fn head_mut(&mut self, txid: TxId) -> Result<Option<&mut TxHead>, StoreError> {
        Ok(self.header_mut(txid)?.map(|header| &mut header.head))
    }

    /// Whether a transaction is stored.
    pub fn contains(&mut self, txid: TxId) -> Result<bool, StoreError> {
        self.load([txid])?;
        Ok(self.first.get(&txid).is_some_and(PageEntry::is_present))
    }

    /// Returns the header of a record, to be changed. `None` if it is not stored.
    fn header_mut(&mut self, txid: TxId) -> Result<Option<&mut RecordHeader>, StoreError> {
        self.load([txid])?;
        let Some(entry) = self.first.get_mut(&txid) else { return Ok(None) };
        Journal::note_first(&mut self.journal, txid, &entry.now);
        entry.open_mut().map_err(|cause| corrupt(txid, cause))
    }

    /// Lists what a stored transaction spends.
    pub fn inputs(&mut self, txid: TxId) -> Result<Vec<OutPoint>, StoreError> {
        let Some((page, header)) = self.first_page(txid)? else { return Ok(Vec::new()) };
        let body = page.body(header).map_err(|cause| corrupt(txid, cause))?;
        Ok(body.inputs.iter().map(|input| input.outpoint).collect())
    }

    /// Returns the body of a stored transaction. `None` if it is not stored.
    pub fn body(&mut self, txid: TxId) -> Result<Option<TxBody>, StoreError> {
        let Some((page, header)) = self.first_page(txid)? else { return Ok(None) };
        page.body(header).map(Some).map_err(|cause| corrupt(txid, cause))
    }

    /// Shows the page that holds an output: the first page, or a further one. `None` if there is no such output.
    fn page_of(&mut self, outpoint: OutPoint) -> Result<Option<PageView<'_>>, StoreError> {
        let Some(header) = self.header(outpoint.txid)? else { return Ok(None) };
        if outpoint.vout >= header.head.output_count {
            return Ok(None);
        }
        if outpoint.page() > 0 {
            return Ok(Some(self.further_page(outpoint.txid, outpoint.page())?.view()));
        }
        let Some((page, header)) = self.first_page(outpoint.txid)? else { return Ok(None) };
        page.view(header).map(Some).map_err(|cause| corrupt(outpoint.txid, cause))
    }

    fn further_page(&mut self, txid: TxId, page: u32) -> Result<&FurtherPage, StoreError> {
        if !self.further.contains_key(&(txid, page)) {
            self.load_further(vec![(txid, page)])?;
        }
        let entry = self.further.get(&(txid, page));
        entry.and_then(|entry| entry.now.as_deref()).ok_or_else(|| missing_page(txid))
    }

    /// Returns the state of an output. `None` if its transaction is not stored or has no such output.
    pub fn slot(&mut self, outpoint: OutPoint) -> Result<Option<Slot>, StoreError> {
        if outpoint.page() > 0 {
            return Ok(self.page_of(outpoint)?.and_then(|page| page.slots.get(outpoint.place()).copied()));
        }
        let header = self.header(outpoint.txid)?;
        Ok(header.and_then(|header| header.slots.get(outpoint.place()).copied()))
    }

    /// Returns an output as it is kept. `None` if it is not.
    pub fn output(&mut self, outpoint: OutPoint) -> Result<Option<Output>, StoreError> {
        let Some(page) = self.page_of(outpoint)? else { return Ok(None) };
        page.output(outpoint.place()).map_err(|cause| corrupt(outpoint.txid, cause))
    }

    /// Changes a further page, and the first page's summary of it.
    fn change_further<T>(
        &mut self,
        (txid, page): PageKey,
        change: impl FnOnce(&mut FurtherPage) -> T,
    ) -> Result<T, StoreError> {
        self.further_page(txid, page)?;
        let entry = self.further.get_mut(&(txid, page)).ok_or_else(|| missing_page(txid))?;
        Journal::note_further(&mut self.journal, (txid, page), &entry.now);
        let further = entry.now.as_mut().map(Arc::make_mut).ok_or_else(|| missing_page(txid))?;
        let result = change(further);
        let summary = further.summary();
        let header = self.header_mut(txid)?.ok_or_else(|| missing_page(txid))?;
        if let Some(place) = header.summaries.get_mut(page as usize - 1) {
            *place = summary;
        }
        Ok(result)
    }

    /// Sets the state of an output that is there.
    pub fn set_slot(&mut self, outpoint: OutPoint, slot: Slot) -> Result<(), StoreError> {
        let (txid, page, place) = (outpoint.txid, outpoint.page(), outpoint.place());
        let set = |slots: &mut [Slot]| {
            if let Some(place) = slots.get_mut(place) {
                *place = slot;
            }
        };
        if page > 0 {
            return self.change_further((txid, page), |page| set(&mut page.slots));
        }
        set(&mut self.header_mut(txid)?.ok_or_else(|| missing_page(txid))?.slots);
        Ok(())
    }

    /// Puts another output in the place of one that is kept.
    pub fn set_output(&mut self, outpoint: OutPoint, output: Output) -> Result<(), StoreError> {
        let (txid, page, place) = (outpoint.txid, outpoint.page(), outpoint.place());
        if page > 0 {
            let set = self.change_further((txid, page), |page| page.set_output(place, output))?;
            return set.map_err(|cause| corrupt(txid, cause));
        }
        self.header_mut(txid)?;
        let entry = self.first.get_mut(&txid).ok_or_else(|| missing_page(txid))?;
        entry.set_output(place, output).map_err(|cause| corrupt(txid, cause))
    }

    /// Shows the state of an output and of its transaction (`None` if the transaction is not stored), and changes the output as the answer
    /// says. The hot path of a block: one look-up where the output is on the first page.
    pub fn decide_slot<E>(
        &mut self,
        outpoint: OutPoint,
        decide: impl FnOnce(Option<(&TxHead, Option<&Slot>)>) -> Result<Slot, E>,
    ) -> Result<Result<(), E>, StoreError> {
        if outpoint.page() > 0 {
            let slot = self.slot(outpoint)?;
            let seen = self.header(outpoint.txid)?.map(|header| (&header.head, slot.as_ref()));
            return match decide(seen) {
                Ok(slot) => self.set_slot(outpoint, slot).map(Ok),
                Err(error) => Ok(Err(error)),
            };
        }
        let (txid, place) = (outpoint.txid, outpoint.place());
        let entry = match self.first.get_mut(&txid) {
            Some(entry) => entry,
            None => {
                self.load([txid])?;
                self.first.entry(txid).or_default()
            }
        };
        let decided = entry.decide_slot(place, decide, &mut self.scratch);
        let changed = match decided.map_err(|cause| corrupt(txid, cause))? {
            Ok(Some(changed)) => changed,
            Ok(None) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        };
        Journal::note_first(&mut self.journal, txid, &entry.now);
        entry.now = changed;
        Ok(Ok(()))
    }

    /// Sets since when a transaction is a loser; `None` if it is not. Its outputs come off or onto the address index with it, so all its
    /// pages count as changed.
    pub fn set_conflicting_since(&mut self, txid: TxId, since: Option<Height>) -> Result<(), StoreError> {
        self.load_all_pages(&[txid])?;
        let Some(header) = self.header_mut(txid)? else { return Ok(()) };
        header.head.conflicting_since = since;
        for page in 1..=further_pages(header.head.output_count) {
            self.change_further((txid, page), |_| ())?;
        }
        Ok(())
    }

    /// Lists the spender of each spent output of a transaction, in order, with the height it is remembered at.
    pub fn spenders(&mut self, txid: TxId) -> Result<Vec<(Spender, Option<Height>)>, StoreError> {
        let mut spenders = Vec::new();
        for slot in self.slots(txid)? {
            if let Slot::Spent { spender, child_mined_at } = slot {
                spenders.push((spender, child_mined_at));
            }
        }
        Ok(spenders)
    }

    /// Lists the state of all outputs of a transaction.
    pub fn slots(&mut self, txid: TxId) -> Result<Vec<Slot>, StoreError> {
        self.load_all_pages(&[txid])?;
        let Some(header) = self.header(txid)? else { return Ok(Vec::new()) };
        let mut slots = header.slots.to_vec();
        for page in 1..=further_pages(header.head.output_count) {
            slots.extend_from_slice(&self.further_page(txid, page)?.slots);
        }
        Ok(slots)
    }

    /// Decodes a whole record, with all its pages. `None` if it is not stored.
    pub fn record(&mut self, txid: TxId) -> Result<Option<TxRecord>, StoreError> {
        self.load_all_pages(&[txid])?;
        let Some(header) = self.header(txid)? else { return Ok(None) };
        let count = further_pages(header.head.output_count);
        let page = |page| self.further.get(&(txid, page)).and_then(|entry| entry.now.clone());
        let further: Option<Vec<Arc<FurtherPage>>> = (1..=count).map(page).collect();
        let further = further.ok_or_else(|| missing_page(txid))?;
        let first = self.first_page(txid)?;
        let record = first.map(|(page, header)| TxRecord::assemble_with(txid, page, header, &further));
        record.transpose().map_err(|cause| corrupt(txid, cause))
    }

    /// Puts the record of a new transaction in place, of which no output is spent yet. One of the same id must have been removed before.
    pub fn insert_new(&mut self, tx: &Tx, head: TxHead) -> Result<(), StoreError> {
        let (first, further) = pages_of(tx, head, &mut self.scratch);
        self.put(tx.txid, first, further)
    }

    /// Puts a record in place. A record of the same id must have been removed before.
    pub fn insert(&mut self, record: &TxRecord) -> Result<(), StoreError> {
        let (first, further) = record.to_pages();
        self.put(record.txid, first, further)
    }

    fn put(&mut self, txid: TxId, first: FirstPage, further: Vec<FurtherPage>) -> Result<(), StoreError> {
        self.load([txid])?;
        let entry = self.first.entry(txid).or_default();
        Journal::note_first(&mut self.journal, txid, &entry.now);
        entry.now = PageState::Written(LoadedPage::new(first));
        for (page, number) in further.into_iter().zip(1..) {
            // A page that was never read cannot have existed: removal reads all pages of what it removes.
            let entry = self.further.entry((txid, number)).or_default();
            Journal::note_further(&mut self.journal, (txid, number), &entry.now);
            entry.now = Some(Arc::new(page));
        }
        Ok(())
    }

    /// Removes a record with all its pages.
    pub fn remove(&mut self, txid: TxId) -> Result<(), StoreError> {
        self.load_all_pages(&[txid])?;
        let Some(header) = self.header(txid)? else { return Ok(()) };
        for page in 1..=further_pages(header.head.output_count) {
            if let Some(entry) = self.further.get_mut(&(txid, page)) {
                Journal::note_further(&mut self.journal, (txid, page), &entry.now);
                entry.now = None;
            }
        }
        if let Some(entry) = self.first.get_mut(&txid) {
            Journal::note_first(&mut self.journal, txid, &entry.now);
            entry.now = PageState::Absent;
        }
        Ok(())
    }

    /// These transactions and all that descend from them, breadth first.
    pub fn with_descendants(&mut self, roots: &[TxId]) -> Result<Vec<TxId>, StoreError> {
        let mut seen: HashSet<TxId> = HashSet::default();
        let mut found = Vec::new();
        let mut queue: VecDeque<TxId> = roots.iter().copied().collect();
        while let Some(txid) = queue.pop_front() {
            if !seen.insert(txid) || !self.contains(txid)? {
                continue;
            }
            found.push(txid);
            queue.extend(self.spenders(txid)?.into_iter().map(|(spender, _)| spender.child));
        }
        Ok(found)
    }

    /// Runs one item of a batch. If it fails, everything it changed is as it was before.
    pub fn attempt<T, E>(&mut self, item: impl FnOnce(&mut Self) -> Result<T, E>) -> Result<T, E> {
        self.journal = Some(Journal::default());
        let result = item(self);
        let journal = self.journal.take().unwrap_or_default();
        if result.is_err() {
            for (txid, page) in journal.first {
                if let Some(entry) = self.first.get_mut(&txid) {
                    entry.now = page;
                }
            }
            for (key, page) in journal.further {
                if let Some(entry) = self.further.get_mut(&key) {
                    entry.now = page;
                }
            }
        }
        result
    }

    /// What has changed. Slots of rewritten pages whose spender was mined at or below `settled_below` forget who it was.
    pub fn into_changes(self, settled_below: Option<Height>) -> Result<Changes, StoreError> {
        let Self { first: mut loaded, further: loaded_further, mut scratch, .. } = self;
        // Ids are sorted by themselves: they are short.
        let changed = loaded.iter().filter(|(_, entry)| entry.is_changed());
        let mut ids: Vec<TxId> = changed.map(|(txid, _)| *txid).collect();
        ids.sort_unstable();
        let mut first = Vec::with_capacity(ids.len());
        for txid in &ids {
            let Some(entry) = loaded.remove(txid) else { continue };
            let change = entry.into_change(settled_below, &mut scratch);
            first.push((*txid, change.map_err(|cause| corrupt(*txid, cause))?));
        }
        let mut further = Vec::with_capacity(loaded_further.len());
        for (key, mut page) in loaded_further.into_iter().filter(|(_, page)| page.is_changed()) {
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
        Ok(Changes { first, further, ids })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests: to panic is how they fail")]
mod tests {
    use bytes::Bytes;

    use super::*;

    const TXID: TxId = TxId([7; 32]);
    /// On the first page, and on each of two further ones.
    const PLACES: [OutPoint; 3] = [
        OutPoint { txid: TXID, vout: 5 },
        OutPoint { txid: TXID, vout: 130 },
        OutPoint { txid: TXID, vout: 299 },
    ];

    /// One record of three pages.
    struct OneRecord {
        first: FirstPage,
        further: Vec<Arc<FurtherPage>>,
    }

    fn tx(txid: TxId, outputs: usize) -> Tx {
        Tx {
            txid,
            version: 1,
            locktime: 0,
            fee: None,
            size: 100,
            coinbase: false,
            inputs: Vec::new(),
            outputs: vec![Output::new(1, &b"script"[..]); outputs],
            raw: Bytes::new(),
        }
    }

    impl OneRecord {
        fn new() -> Self {
            let (first, further) = pages_of(&tx(TXID, 300), TxHead::default(), &mut Scratch::default());
            Self { first, further: further.into_iter().map(Arc::new).collect() }
        }
    }

    impl PageSource for OneRecord {
        fn first_pages(&self, txids: &[TxId]) -> Result<Vec<Option<FirstPage>>, StoreError> {
            Ok(txids.iter().map(|txid| (*txid == TXID).then(|| self.first.clone())).collect())
        }

        fn further_pages(&self, keys: &[PageKey]) -> Result<Vec<Option<Arc<FurtherPage>>>, StoreError> {
            let page = |(txid, number): &PageKey| {
                let page = self.further.get(*number as usize - 1).filter(|_| *txid == TXID)?;
                Some(Arc::clone(page))
            };
            Ok(keys.iter().map(page).collect())
        }
    }

    /// What every transition does but one that fails half-way: changes before all is checked.
    fn fail(set: &mut WorkingSet, change: impl FnOnce(&mut WorkingSet)) {
        let failed: Result<(), &str> = set.attempt(|set| {
            change(set);
            Err("after it has changed something")
        });
        assert!(failed.is_err());
    }

    #[test]
    fn a_failed_attempt_leaves_every_page_as_it_was() {
        let source = OneRecord::new();
        let mut set = WorkingSet::new(&source);
        fail(&mut set, |set| {
            for place in PLACES {
                set.set_slot(place, Slot::Frozen).unwrap();
            }
        });
        assert_eq!(set.slots(TXID).unwrap(), [Slot::Unspent; 300]);
        assert!(set.into_changes(None).unwrap().is_empty(), "nothing is written");
    }

    #[test]
    fn a_failed_attempt_leaves_what_an_earlier_one_did_to_the_same_pages() {
        let source = OneRecord::new();
        let mut set = WorkingSet::new(&source);
        let first: Result<(), StoreError> =
            set.attempt(|set| PLACES.into_iter().try_for_each(|place| set.set_slot(place, Slot::Frozen)));
        first.unwrap();
        let expected = set.record(TXID).unwrap();
        fail(&mut set, |set| {
            for place in PLACES {
                set.set_slot(place, Slot::Unspent).unwrap();
                set.set_slot(OutPoint::new(TXID, place.vout - 1), Slot::Frozen).unwrap();
            }
        });
        fail(&mut set, |set| set.remove(TXID).unwrap());
        fail(&mut set, |set| set.set_conflicting_since(TXID, Some(Height(3))).unwrap());
        assert_eq!(set.record(TXID).unwrap(), expected);
        let changes = set.into_changes(None).unwrap();
        let changed: Vec<u32> = changes.further.iter().map(|((_, number), _)| *number).collect();
        assert_eq!((changes.first.len(), changed), (1, vec![1, 2]));
    }

    #[test]
    fn a_record_that_a_failed_attempt_made_is_not_there() {
        let source = OneRecord::new();
        let mut set = WorkingSet::new(&source);
        let other = TxId([8; 32]);
        fail(&mut set, |set| set.insert_new(&tx(other, 300), TxHead::default()).unwrap());
        assert!(!set.contains(other).unwrap());
        assert!(set.into_changes(None).unwrap().is_empty());
        // Removed and made again with fewer pages, and all of it reverted.
        let mut set = WorkingSet::new(&source);
        let expected = set.record(TXID).unwrap();
        fail(&mut set, |set| {
            set.remove(TXID).unwrap();
            set.insert_new(&tx(TXID, 200), TxHead::default()).unwrap();
        });
        assert_eq!(set.record(TXID).unwrap(), expected);
        assert!(set.into_changes(None).unwrap().is_empty());
    }
}
