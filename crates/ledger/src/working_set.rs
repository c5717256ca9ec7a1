//! The pages an operation has read and changed.
//!
//! A working set reads pages from a [`PageSource`] once, keeps what each page was and what it is now, and can take back what an
//! item of a batch did ([`WorkingSet::attempt`]). Nothing reaches the store before the backend writes
//! [`WorkingSet::into_changes`].

use std::{
    collections::{VecDeque, hash_map},
    hash::Hash,
    sync::Arc,
};

use foldhash::fast::RandomState;
use sapwood_types::{
    Height, MasterPage, OutPoint, OutputPage, PAGE_SIZE, Scratch, Slot, Spender, StoredMaster, Tx, TxBody,
    TxHead, TxId, TxRecord,
    page::{extra_pages, pages_of},
};

mod master;

use self::master::{MasterEntry, Now, Seen};
use crate::{Changes, StoreError};

/// Keyed at random and fast: transaction ids are chosen by strangers, and there are many.
type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;
type HashSet<K> = std::collections::HashSet<K, RandomState>;

/// A further page of a transaction: its number is 1 or more.
pub type PageKey = (TxId, u32);

/// Where pages come from.
pub trait PageSource {
    /// A first page, or that there is none, if that can be told without reading. What can is never asked of
    /// [`masters`](Self::masters).
    fn at_hand(&self, _txid: &TxId) -> Option<Option<StoredMaster>> {
        None
    }
    /// First pages, in the order asked for.
    fn masters(&self, txids: &[TxId]) -> Result<Vec<Option<StoredMaster>>, StoreError>;
    /// Further pages, in the order asked for.
    fn extras(&self, keys: &[PageKey]) -> Result<Vec<Option<Arc<OutputPage>>>, StoreError>;
}

/// A further page as it was and as it is.
#[derive(Clone, Debug)]
pub struct Entry<T> {
    /// As it was in the store.
    pub before: Option<Arc<T>>,
    /// As it is now.
    pub now: Option<Arc<T>>,
}

impl<T> Entry<T> {
    fn read(page: Option<Arc<T>>) -> Self {
        Self { before: page.clone(), now: page }
    }

    /// Whether anything happened to it.
    pub fn is_changed(&self) -> bool {
        match (&self.before, &self.now) {
            (Some(before), Some(now)) => !Arc::ptr_eq(before, now),
            (None, None) => false,
            _ => true,
        }
    }
}

/// The pages an operation works on.
pub struct WorkingSet<'a> {
    source: &'a dyn PageSource,
    masters: HashMap<TxId, MasterEntry>,
    extras: HashMap<PageKey, Entry<OutputPage>>,
    /// What pages were before the current attempt, in the order in which they changed.
    journal: Option<Journal>,
    scratch: Scratch,
}

#[derive(Default)]
struct Journal {
    masters: HashMap<TxId, Option<Now>>,
    extras: HashMap<PageKey, Option<Arc<OutputPage>>>,
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

/// Notes what a page was, the first time an attempt changes it.
fn note<K: Hash + Eq, T: Clone>(journal: Option<&mut HashMap<K, Option<T>>>, key: K, now: &Option<T>) {
    if let Some(journal) = journal {
        journal.entry(key).or_insert_with(|| now.clone());
    }
}

impl<'a> WorkingSet<'a> {
    /// An empty working set over `source`.
    pub fn new(source: &'a dyn PageSource) -> Self {
        Self {
            source,
            masters: HashMap::default(),
            extras: HashMap::default(),
            journal: None,
            scratch: Scratch::default(),
        }
    }

    /// Reads the first pages of these transactions in one go.
    pub fn load(&mut self, txids: impl IntoIterator<Item = TxId>) -> Result<(), StoreError> {
        let mut wanted = Vec::new();
        for txid in txids {
            if let hash_map::Entry::Vacant(place) = self.masters.entry(txid) {
                match self.source.at_hand(&txid) {
                    Some(page) => _ = place.insert(MasterEntry::read(page)),
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
        let pages = self.source.masters(&wanted)?;
        self.masters.extend(wanted.into_iter().zip(pages.into_iter().map(MasterEntry::read)));
        Ok(())
    }

    /// Like [`load`](Self::load). Where one of them cannot be read, each is read when its turn comes, and only those that need the
    /// damaged one fail.
    pub fn load_readable(&mut self, txids: impl IntoIterator<Item = TxId>) -> Result<(), StoreError> {
        readable(self.load(txids))
    }

    /// Makes room for so many first pages.
    pub fn reserve(&mut self, masters: usize) {
        self.masters.reserve(masters);
    }

    /// Reads all further pages of these transactions in one go.
    pub fn load_all_pages(&mut self, txids: &[TxId]) -> Result<(), StoreError> {
        self.load(txids.iter().copied())?;
        let mut wanted = Vec::new();
        for txid in txids {
            if let Some(master) = self.master(*txid)? {
                let further = extra_pages(master.head.output_count);
                let keys = (1..=further).map(|page| (*txid, page));
                wanted.extend(keys.filter(|key| !self.extras.contains_key(key)));
            }
        }
        self.load_extras(wanted)
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
            .filter(|key| !self.extras.contains_key(key))
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        self.load_extras(wanted)
    }

    fn load_extras(&mut self, wanted: Vec<PageKey>) -> Result<(), StoreError> {
        if wanted.is_empty() {
            return Ok(());
        }
        let pages = self.source.extras(&wanted)?;
        self.extras.extend(wanted.into_iter().zip(pages.into_iter().map(Entry::read)));
        Ok(())
    }

    /// The first page of a transaction.
    pub fn master(&mut self, txid: TxId) -> Result<Option<&MasterPage>, StoreError> {
        self.load([txid])?;
        self.masters.get_mut(&txid).map_or(Ok(None), |entry| entry.open(txid))
    }

    /// Whether a transaction is stored.
    pub fn contains(&mut self, txid: TxId) -> Result<bool, StoreError> {
        self.load([txid])?;
        Ok(self.masters.get(&txid).is_some_and(|entry| entry.now.is_some()))
    }

    /// The first page of a transaction, to be changed.
    pub fn master_mut(&mut self, txid: TxId) -> Result<Option<&mut MasterPage>, StoreError> {
        self.load([txid])?;
        let Some(entry) = self.masters.get_mut(&txid) else { return Ok(None) };
        note(self.journal.as_mut().map(|journal| &mut journal.masters), txid, &entry.now);
        entry.open_mut(txid)
    }

    /// What a stored transaction spends.
    pub fn inputs(&mut self, txid: TxId) -> Result<Vec<OutPoint>, StoreError> {
        let Some(master) = self.master(txid)? else { return Ok(Vec::new()) };
        let body = TxBody::decode(master.body.clone()).map_err(|cause| corrupt(txid, cause))?;
        Ok(body.inputs.iter().map(|input| input.outpoint).collect())
    }

    /// The page that holds an output: the first page, or a further one.
    fn output_page(&mut self, outpoint: OutPoint) -> Result<Option<&OutputPage>, StoreError> {
        let Some(master) = self.master(outpoint.txid)? else { return Ok(None) };
        if outpoint.vout >= master.head.output_count {
            return Ok(None);
        }
        if outpoint.page() == 0 {
            return Ok(self.master(outpoint.txid)?.map(|master| &master.page));
        }
        self.extra(outpoint.txid, outpoint.page()).map(Some)
    }

    fn extra(&mut self, txid: TxId, page: u32) -> Result<&OutputPage, StoreError> {
        if !self.extras.contains_key(&(txid, page)) {
            self.load_extras(vec![(txid, page)])?;
        }
        let entry = self.extras.get(&(txid, page));
        entry.and_then(|entry| entry.now.as_deref()).ok_or_else(|| missing_page(txid))
    }

    /// The state of an output; nothing if its transaction or number is not there.
    pub fn slot(&mut self, outpoint: OutPoint) -> Result<Option<Slot>, StoreError> {
        let page = self.output_page(outpoint)?;
        Ok(page.and_then(|page| page.slots.get(outpoint.place()).copied()))
    }

    /// An output as it is kept.
    pub fn output(&mut self, outpoint: OutPoint) -> Result<Option<sapwood_types::Output>, StoreError> {
        let Some(page) = self.output_page(outpoint)? else { return Ok(None) };
        page.output(outpoint.place()).map_err(|cause| corrupt(outpoint.txid, cause))
    }

    /// Changes the page that holds an output, and the first page's summary of it.
    pub fn change_page<T>(
        &mut self,
        outpoint: OutPoint,
        change: impl FnOnce(&mut OutputPage) -> T,
    ) -> Result<T, StoreError> {
        let (txid, page) = (outpoint.txid, outpoint.page());
        if page == 0 {
            let master = self.master_mut(txid)?.ok_or_else(|| missing_page(txid))?;
            return Ok(change(&mut master.page));
        }
        self.extra(txid, page)?;
        let entry = self.extras.get_mut(&(txid, page)).ok_or_else(|| missing_page(txid))?;
        note(self.journal.as_mut().map(|journal| &mut journal.extras), (txid, page), &entry.now);
        let extra = entry.now.as_mut().map(Arc::make_mut).ok_or_else(|| missing_page(txid))?;
        let result = change(extra);
        let summary = extra.summary();
        let master = self.master_mut(txid)?.ok_or_else(|| missing_page(txid))?;
        if let Some(place) = master.summaries.get_mut(page as usize - 1) {
            *place = summary;
        }
        Ok(result)
    }

    /// Sets the state of an output that is there.
    pub fn set_slot(&mut self, outpoint: OutPoint, slot: Slot) -> Result<(), StoreError> {
        self.change_page(outpoint, |page| {
            if let Some(place) = page.slots.get_mut(outpoint.place()) {
                *place = slot;
            }
        })
    }

    /// Shows the state of an output and of its transaction (nothing if the transaction is not there), and changes the output
    /// as the answer says. The hot path of a block: one look-up where the output is on the first page.
    pub fn decide_slot<E>(
        &mut self,
        outpoint: OutPoint,
        decide: impl FnOnce(Option<(&TxHead, Option<&Slot>)>) -> Result<Slot, E>,
    ) -> Result<Result<(), E>, StoreError> {
        if outpoint.page() > 0 {
            let slot = self.slot(outpoint)?;
            let head = self.master(outpoint.txid)?.map(|master| (&master.head, slot.as_ref()));
            return match decide(head) {
                Ok(slot) => self.set_slot(outpoint, slot).map(Ok),
                Err(error) => Ok(Err(error)),
            };
        }
        let (txid, place) = (outpoint.txid, outpoint.place());
        let entry = match self.masters.get_mut(&txid) {
            Some(entry) => entry,
            None => {
                self.load([txid])?;
                self.masters.entry(txid).or_default()
            }
        };
        let changed = match entry.decide_slot(txid, place, decide, &mut self.scratch)? {
            Ok(Some(changed)) => changed,
            Ok(None) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        };
        note(self.journal.as_mut().map(|journal| &mut journal.masters), txid, &entry.now);
        entry.now = Some(changed);
        Ok(Ok(()))
    }

    /// Says since when a transaction is a loser, or that it is not. Its outputs come off or onto the address index with it, so
    /// all its pages count as changed.
    pub fn set_conflicting_since(&mut self, txid: TxId, since: Option<Height>) -> Result<(), StoreError> {
        self.load_all_pages(&[txid])?;
        let Some(master) = self.master_mut(txid)? else { return Ok(()) };
        master.head.conflicting_since = since;
        for page in 1..=extra_pages(master.head.output_count) {
            self.change_page(OutPoint::new(txid, page * PAGE_SIZE), |_| ())?;
        }
        Ok(())
    }

    /// The spender of each spent output of a transaction, in order, with the height it is remembered at.
    pub fn spenders(&mut self, txid: TxId) -> Result<Vec<(Spender, Option<Height>)>, StoreError> {
        let mut spenders = Vec::new();
        for slot in self.slots(txid)? {
            if let Slot::Spent { spender, child_mined_at } = slot {
                spenders.push((spender, child_mined_at));
            }
        }
        Ok(spenders)
    }

    /// The state of all outputs of a transaction.
    pub fn slots(&mut self, txid: TxId) -> Result<Vec<Slot>, StoreError> {
        self.load_all_pages(&[txid])?;
        let Some(master) = self.master(txid)? else { return Ok(Vec::new()) };
        let mut slots = master.page.slots.to_vec();
        for page in 1..=extra_pages(master.head.output_count) {
            slots.extend_from_slice(&self.extra(txid, page)?.slots);
        }
        Ok(slots)
    }

    /// A whole record, with all its pages.
    pub fn record(&mut self, txid: TxId) -> Result<Option<TxRecord>, StoreError> {
        let Some((master, extras)) = self.pages(txid)? else { return Ok(None) };
        let extras: Vec<OutputPage> = extras.iter().map(|page| page.as_ref().clone()).collect();
        TxRecord::assemble(txid, &master, &extras).map(Some).map_err(|cause| corrupt(txid, cause))
    }

    /// All pages of a transaction.
    #[expect(clippy::type_complexity, reason = "the pages of one record, said once")]
    pub fn pages(
        &mut self,
        txid: TxId,
    ) -> Result<Option<(Arc<MasterPage>, Vec<Arc<OutputPage>>)>, StoreError> {
        self.load_all_pages(&[txid])?;
        let master = match self.masters.get(&txid).and_then(|entry| entry.now.as_ref()) {
            Some(Now::Read(_, page) | Now::Changed(page)) => Arc::clone(page),
            Some(Now::Stored(_)) | None => return Ok(None),
        };
        let extra = |page| {
            let entry: Option<&Entry<OutputPage>> = self.extras.get(&(txid, page));
            entry.and_then(|entry| entry.now.clone()).ok_or_else(|| missing_page(txid))
        };
        let extras = (1..=extra_pages(master.head.output_count)).map(extra).collect::<Result<_, _>>()?;
        Ok(Some((master, extras)))
    }

    /// Puts the record of a new transaction in place, nothing of which is spent yet. One of the same id must have been removed before.
    pub fn insert_new(&mut self, tx: &Tx, head: TxHead) -> Result<(), StoreError> {
        match StoredMaster::of_new(tx, &head, &mut self.scratch) {
            Some(stored) => self.put(tx.txid, Now::Stored(Seen { stored, facts: None })),
            None => {
                let (master, extras) = pages_of(tx, head);
                self.insert(tx.txid, master, extras)
            }
        }
    }

    fn put(&mut self, txid: TxId, page: Now) -> Result<(), StoreError> {
        self.load([txid])?;
        let entry = self.masters.entry(txid).or_default();
        note(self.journal.as_mut().map(|journal| &mut journal.masters), txid, &entry.now);
        entry.now = Some(page);
        Ok(())
    }

    /// Puts a record in place. A record of the same id must have been removed before.
    pub fn insert(
        &mut self,
        txid: TxId,
        master: MasterPage,
        extras: Vec<OutputPage>,
    ) -> Result<(), StoreError> {
        for (index, page) in extras.into_iter().enumerate() {
            let key = (txid, index as u32 + 1);
            // A page that was never read cannot have existed: removal reads all pages of what it removes.
            let entry = self.extras.entry(key).or_insert(Entry { before: None, now: None });
            note(self.journal.as_mut().map(|journal| &mut journal.extras), key, &entry.now);
            entry.now = Some(Arc::new(page));
        }
        self.put(txid, Now::Changed(Arc::new(master)))
    }

    /// Removes a record with all its pages.
    pub fn remove(&mut self, txid: TxId) -> Result<(), StoreError> {
        self.load_all_pages(&[txid])?;
        let Some(master) = self.master(txid)? else { return Ok(()) };
        for page in 1..=extra_pages(master.head.output_count) {
            if let Some(entry) = self.extras.get_mut(&(txid, page)) {
                note(self.journal.as_mut().map(|journal| &mut journal.extras), (txid, page), &entry.now);
                entry.now = None;
            }
        }
        if let Some(entry) = self.masters.get_mut(&txid) {
            note(self.journal.as_mut().map(|journal| &mut journal.masters), txid, &entry.now);
            entry.now = None;
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
            for (txid, page) in journal.masters {
                if let Some(entry) = self.masters.get_mut(&txid) {
                    entry.now = page;
                }
            }
            for (key, page) in journal.extras {
                if let Some(entry) = self.extras.get_mut(&key) {
                    entry.now = page;
                }
            }
        }
        result
    }

    /// What has changed. Slots of rewritten pages whose spender was mined at or below `settled_below` forget who it was.
    pub fn into_changes(self, settled_below: Option<Height>) -> Result<Changes, StoreError> {
        let Self { masters: mut read, extras: read_extras, mut scratch, .. } = self;
        // Ids are sorted by themselves: they are short.
        let changed = read.iter().filter(|(_, entry)| entry.is_changed());
        let mut ids: Vec<TxId> = changed.map(|(txid, _)| *txid).collect();
        ids.sort_unstable();
        let mut masters = Vec::with_capacity(ids.len());
        for txid in &ids {
            let Some(entry) = read.remove(txid) else { continue };
            let change = entry.into_change(settled_below, &mut scratch);
            masters.push((*txid, change.map_err(|cause| corrupt(*txid, cause))?));
        }
        let mut extras = Vec::with_capacity(read_extras.len());
        for (key, mut entry) in read_extras.into_iter().filter(|(_, entry)| entry.is_changed()) {
            if let (Some(page), Some(height)) = (&mut entry.now, settled_below)
                && page.slots.iter().any(|slot| slot.settle(height) != *slot)
            {
                for slot in &mut Arc::make_mut(page).slots {
                    *slot = slot.settle(height);
                }
            }
            extras.push((key, entry));
        }
        extras.sort_unstable_by_key(|(key, _)| *key);
        Ok(Changes { masters, extras, ids })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests: to panic is how they fail")]
mod tests {
    use bytes::Bytes;
    use sapwood_types::Output;

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
        master: MasterPage,
        extras: Vec<Arc<OutputPage>>,
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
            let (master, extras) = pages_of(&tx(TXID, 300), TxHead::default());
            Self { master, extras: extras.into_iter().map(Arc::new).collect() }
        }
    }

    impl PageSource for OneRecord {
        fn masters(&self, txids: &[TxId]) -> Result<Vec<Option<StoredMaster>>, StoreError> {
            let stored = |txid: &TxId| {
                (*txid == TXID).then(|| StoredMaster::of(&self.master, &mut Scratch::default()))
            };
            Ok(txids.iter().map(stored).collect())
        }

        fn extras(&self, keys: &[PageKey]) -> Result<Vec<Option<Arc<OutputPage>>>, StoreError> {
            let page = |(txid, number): &PageKey| {
                let page = self.extras.get(*number as usize - 1).filter(|_| *txid == TXID)?;
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
        let expected = set.pages(TXID).unwrap();
        fail(&mut set, |set| {
            for place in PLACES {
                set.set_slot(place, Slot::Unspent).unwrap();
                set.set_slot(OutPoint::new(TXID, place.vout - 1), Slot::Frozen).unwrap();
            }
        });
        fail(&mut set, |set| set.remove(TXID).unwrap());
        fail(&mut set, |set| set.set_conflicting_since(TXID, Some(Height(3))).unwrap());
        assert_eq!(set.pages(TXID).unwrap(), expected);
        let changes = set.into_changes(None).unwrap();
        let changed: Vec<u32> = changes.extras.iter().map(|((_, number), _)| *number).collect();
        assert_eq!((changes.masters.len(), changed), (1, vec![1, 2]));
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
        let expected = set.pages(TXID).unwrap();
        fail(&mut set, |set| {
            set.remove(TXID).unwrap();
            set.insert_new(&tx(TXID, 200), TxHead::default()).unwrap();
        });
        assert_eq!(set.pages(TXID).unwrap(), expected);
        assert!(set.into_changes(None).unwrap().is_empty());
    }
}
