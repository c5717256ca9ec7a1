//! What an operation changed, and the index entries that follow from it.
//!
//! Index entries are a function of a page before and after. Nothing keeps them by hand.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use sapwood_rules::{KeepReason, settled_at, verdict::unsettled};
use sapwood_types::{
    AddressHash, DecodeError, FirstPage, FurtherPage, Height, OutPoint, OutputRef, PAGE_SIZE, PageView,
    RecordHeader, RecordView, Scratch, Slot, TxHead, TxId,
};

use crate::{
    answer::{AddressKind, Counts},
    working_set::PageKey,
};

/// Changed pages, sorted by key.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// First pages.
    pub first: Vec<(TxId, FirstPageChange)>,
    /// Further pages.
    pub further: Vec<(PageKey, FurtherPageChange)>,
    /// Further pages that were loaded and did not change.
    pub(crate) unchanged: HashMap<PageKey, Arc<FurtherPage>>,
    /// Whose first pages, close together: they are looked for far more often than found.
    pub(crate) ids: Vec<TxId>,
}

/// A first page as it was and as it is.
#[derive(Clone, Debug)]
pub struct FirstPageChange {
    /// As it was in the store.
    pub before: Option<PageVersion>,
    /// As it is now.
    pub now: Option<PageVersion>,
}

/// A further page as it was and as it is.
#[derive(Clone, Debug, Default)]
pub struct FurtherPageChange {
    /// As it was in the store.
    pub before: Option<Arc<FurtherPage>>,
    /// As it is now.
    pub now: Option<Arc<FurtherPage>>,
}

impl FurtherPageChange {
    /// Whether it is another page than before.
    pub fn is_changed(&self) -> bool {
        match (&self.before, &self.now) {
            (Some(before), Some(now)) => !Arc::ptr_eq(before, now),
            (None, None) => false,
            _ => true,
        }
    }
}

/// One version of a first page, and what is derived from it.
#[derive(Clone, Debug)]
pub struct PageVersion {
    /// The page.
    pub page: FirstPage,
    /// What is derived from it.
    pub derived: Derived,
}

/// What is derived from a first page for indexes, counts and caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Derived {
    /// The height at which the record settled.
    pub settled: Option<Height>,
    /// Since when it is unmined.
    pub unmined_since: Option<Height>,
    /// Until when it is preserved.
    pub preserve_until: Option<Height>,
    /// When it was mined on the longest chain.
    pub mined_at: Option<Height>,
    /// Outputs on all pages that stand in the way of deletion.
    pub open: u32,
    /// What retains the record, if that is counted.
    blocked: Option<Blocked>,
    /// Outputs on this page that are unspent or frozen.
    unspent: u32,
    /// Outputs on this page that are spent.
    spent: u32,
    /// The lowest height at which a spender was mined that a slot of this page still names.
    lowest_spender: Option<Height>,
}

/// What retains a record that has not settled, as far as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocked {
    Locked,
    Preserved,
    ChildUnmined,
}

impl Blocked {
    fn of(reason: &KeepReason) -> Option<Self> {
        match reason {
            KeepReason::Locked => Some(Blocked::Locked),
            KeepReason::Preserved { .. } => Some(Blocked::Preserved),
            KeepReason::ChildUnmined { .. } => Some(Blocked::ChildUnmined),
            _ => None,
        }
    }
}

impl Derived {
    /// Derives it from a record.
    pub fn of(record: RecordView) -> Self {
        let RecordView { head, slots, .. } = record;
        Self {
            settled: settled_at(record),
            unmined_since: head.unmined_since(),
            preserve_until: head.preserve_until,
            mined_at: head.mined_at(),
            open: record.open(),
            blocked: unsettled(record).as_ref().and_then(Blocked::of),
            unspent: unspent(slots) as u32,
            spent: spent(slots) as u32,
            lowest_spender: slots
                .iter()
                .filter(|slot| slot.spender().is_some())
                .filter_map(Slot::child_mined_at)
                .min(),
        }
    }
}

impl PageVersion {
    /// Derives what there is to derive from a page.
    pub(crate) fn of(page: FirstPage) -> Result<Self, DecodeError> {
        let derived = Derived::of(page.header()?.view());
        Ok(Self { page, derived })
    }

    /// Writes the page again: slots whose spender was mined at or below this height forget who it was. Nothing is derived from who it was
    /// but `lowest_spender`, which is not used behind this.
    pub(crate) fn forget(&mut self, settled_below: Height, scratch: &mut Scratch) -> Result<(), DecodeError> {
        if self.derived.lowest_spender.is_none_or(|lowest| lowest > settled_below) {
            return Ok(());
        }
        let mut header = self.page.header()?;
        header.slots.iter_mut().for_each(|slot| *slot = slot.settle(settled_below));
        self.page = self.page.with_slots(&header, scratch);
        Ok(())
    }
}

impl FirstPageChange {
    /// Decodes the headers of the page before and after.
    pub fn headers(&self) -> Result<[Option<RecordHeader>; 2], DecodeError> {
        let header = |version: &Option<PageVersion>| version.as_ref().map(|it| it.page.header()).transpose();
        Ok([header(&self.before)?, header(&self.now)?])
    }

    /// Shows the outputs on the page before and after, given its headers.
    pub fn views<'a>(
        &'a self,
        headers: &'a [Option<RecordHeader>; 2],
    ) -> Result<[Option<PageView<'a>>; 2], DecodeError> {
        let view = |version: &'a Option<PageVersion>, header: &'a Option<RecordHeader>| {
            version
                .as_ref()
                .zip(header.as_ref())
                .map(|(version, header)| version.page.view(header))
                .transpose()
        };
        Ok([view(&self.before, &headers[0])?, view(&self.now, &headers[1])?])
    }
}

/// Which address indexes are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressIndexing {
    /// By the hash of the locking script or address.
    pub address: bool,
    /// By payment credential.
    pub credential: bool,
}

/// One entry of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IndexEntry {
    /// The record settled at this height.
    Due(Height, TxId),
    /// The transaction is unmined since this height.
    Unmined(Height, TxId),
    /// The record is preserved until this height.
    Preserved(Height, TxId),
    /// An unspent output of an address or credential, by the height at which its record was made.
    Address(AddressKind, AddressHash, Height, OutPoint),
}

/// An index entry comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexChange {
    /// It comes.
    Put(IndexEntry),
    /// It goes.
    Delete(IndexEntry),
}

/// The entries a first page has in the due, unmined and preservation index, in this order.
pub fn record_entries(txid: TxId, derived: &Derived) -> [Option<IndexEntry>; 3] {
    [
        derived.settled.map(|height| IndexEntry::Due(height, txid)),
        derived.unmined_since.map(|height| IndexEntry::Unmined(height, txid)),
        derived.preserve_until.map(|height| IndexEntry::Preserved(height, txid)),
    ]
}

/// The entries that come and go in the due, unmined and preservation index when a first page changes.
pub fn record_changes(txid: TxId, record: &FirstPageChange, mut change: impl FnMut(IndexChange)) {
    let entries = |version: &Option<PageVersion>| {
        version.as_ref().map_or([None; 3], |version| record_entries(txid, &version.derived))
    };
    for (before, now) in entries(&record.before).into_iter().zip(entries(&record.now)) {
        if before != now {
            before.map(IndexChange::Delete).map(&mut change);
            now.map(IndexChange::Put).map(&mut change);
        }
    }
}

/// Whether an output in this state is listed under its address.
pub fn is_listed(slot: &Slot) -> bool {
    matches!(slot, Slot::Unspent | Slot::Frozen)
}

/// What the first page says about how all outputs of a transaction are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing {
    created_height: Height,
    conflicting: bool,
}

/// How the outputs of this transaction are listed.
pub fn listing(head: &TxHead) -> Listing {
    Listing { created_height: head.created_height, conflicting: head.is_conflicting() }
}

/// Calls `entry` with every entry that the wanted outputs of one page have in the address index.
pub fn address_entries(
    txid: TxId,
    number: u32,
    (listing, page): (Listing, PageView),
    indexing: AddressIndexing,
    wanted: impl Fn(usize) -> bool,
    mut entry: impl FnMut(IndexEntry),
) -> Result<(), DecodeError> {
    let listed = |place: usize, slot: &Slot| !listing.conflicting && is_listed(slot) && wanted(place);
    let mut outputs = page.outputs;
    let last = page.slots.iter().enumerate().rposition(|(place, slot)| listed(place, slot));
    for (place, slot) in page.slots.iter().enumerate().take(last.map_or(0, |last| last + 1)) {
        let Some(output) = OutputRef::decode(&mut outputs)?.filter(|_| listed(place, slot)) else { continue };
        let outpoint = OutPoint::new(txid, number * PAGE_SIZE + place as u32);
        let mut add = |kind, hash| entry(IndexEntry::Address(kind, hash, listing.created_height, outpoint));
        if indexing.address {
            add(AddressKind::Address, AddressHash::of_script(output.script));
        }
        if let Some(hash) = output.credential.filter(|_| indexing.credential) {
            add(AddressKind::Credential, hash);
        }
    }
    Ok(())
}

/// The address entries that come and go when a page changes. Outputs that are listed before and after under the same owner are
/// passed over without hashing.
fn page_address_changes(
    txid: TxId,
    number: u32,
    before: Option<(Listing, PageView)>,
    now: Option<(Listing, PageView)>,
    indexing: AddressIndexing,
    mut change: impl FnMut(IndexChange),
) -> Result<(), DecodeError> {
    let same = match (before, now) {
        (Some((listing_before, before)), Some((listing_now, now))) => {
            listing_before == listing_now && before.outputs == now.outputs
        }
        _ => false,
    };
    let listed = |side: Option<(Listing, PageView)>, place: usize| {
        side.is_some_and(|(_, page)| page.slots.get(place).is_some_and(is_listed))
    };
    let stays = |place: usize| same && listed(before, place) && listed(now, place);
    if let Some(side) = before {
        let delete = |entry| change(IndexChange::Delete(entry));
        address_entries(txid, number, side, indexing, |place| !stays(place), delete)?;
    }
    if let Some(side) = now {
        let put = |entry| change(IndexChange::Put(entry));
        address_entries(txid, number, side, indexing, |place| !stays(place), put)?;
    }
    Ok(())
}

impl Changes {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && self.further.is_empty()
    }

    /// What becomes of a first page, if it changes.
    pub fn first_page(&self, txid: &TxId) -> Option<&FirstPageChange> {
        let at = self.ids.binary_search(txid).ok()?;
        self.first.get(at).map(|(_, change)| change)
    }

    /// What becomes of a further page, if it changes.
    pub fn further_page(&self, key: &PageKey) -> Option<&FurtherPageChange> {
        let at = self.further.binary_search_by_key(key, |(key, _)| *key).ok()?;
        Some(&self.further[at].1)
    }

    /// The entries that come and go in the address indexes.
    pub fn address_changes(
        &self,
        indexing: AddressIndexing,
        mut change: impl FnMut(IndexChange),
    ) -> Result<(), DecodeError> {
        if !indexing.address && !indexing.credential {
            return Ok(());
        }
        let listing = |header: &Option<RecordHeader>| header.as_ref().map(|header| listing(&header.head));
        for (txid, page) in &self.first {
            let headers = page.headers()?;
            let [before, now] = page.views(&headers)?;
            let (before, now) = (listing(&headers[0]).zip(before), listing(&headers[1]).zip(now));
            page_address_changes(*txid, 0, before, now, indexing, &mut change)?;
        }
        for ((txid, number), page) in &self.further {
            // A transition that changes a further page changes the first one too, for its summary; and one that changes what decides the
            // listing (conflicting or not) has loaded all pages.
            let Some(first) = self.first_page(txid) else { continue };
            let headers = first.headers()?;
            let before = listing(&headers[0]).zip(page.before.as_deref().map(FurtherPage::view));
            let now = listing(&headers[1]).zip(page.now.as_deref().map(FurtherPage::view));
            page_address_changes(*txid, *number, before, now, indexing, &mut change)?;
        }
        Ok(())
    }
}

/// How the counts change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountChanges {
    records: i64,
    unspent: i64,
    unmined: i64,
    spent: i64,
    locked: i64,
    preserved: i64,
    child_unmined: i64,
    /// Settled records by the height at which they settled.
    pub settled: BTreeMap<Height, i64>,
}

impl CountChanges {
    /// Adds a change of a first page.
    pub fn add_record(&mut self, page: &FirstPageChange) {
        for (version, sign) in [(&page.before, -1), (&page.now, 1)] {
            if let Some(version) = version {
                self.add_derived(&version.derived, sign);
            }
        }
    }

    /// Adds a first page, or takes it off with a `sign` of -1.
    pub fn add_derived(&mut self, derived: &Derived, sign: i64) {
        self.records += sign;
        self.unmined += sign * i64::from(derived.mined_at.is_none());
        self.unspent += sign * i64::from(derived.unspent);
        self.spent += sign * i64::from(derived.spent);
        match derived.blocked {
            Some(Blocked::Locked) => self.locked += sign,
            Some(Blocked::Preserved) => self.preserved += sign,
            Some(Blocked::ChildUnmined) => self.child_unmined += sign,
            None => {}
        }
        if let Some(height) = derived.settled {
            *self.settled.entry(height).or_default() += sign;
        }
    }

    /// Takes a settled record off that is pruned as a whole. What was spent of it stays counted as spent.
    pub fn prune(&mut self, derived: &Derived) {
        self.add_derived(derived, -1);
        self.spent += i64::from(derived.spent);
    }

    /// Adds a change of a further page.
    pub fn add_page(&mut self, page: &FurtherPageChange) {
        for (page, sign) in [(&page.before, -1), (&page.now, 1)] {
            if let Some(page) = page {
                self.add_slots(&page.slots, sign);
            }
        }
    }

    /// Adds the outputs of a further page, or takes them off with a `sign` of -1.
    pub fn add_slots(&mut self, slots: &[Slot], sign: i64) {
        self.unspent += sign * unspent(slots);
        self.spent += sign * spent(slots);
    }
}

fn unspent(slots: &[Slot]) -> i64 {
    slots.iter().filter(|slot| is_listed(slot)).count() as i64
}

fn spent(slots: &[Slot]) -> i64 {
    slots.iter().filter(|slot| matches!(slot, Slot::Spent { .. } | Slot::Settled { .. })).count() as i64
}

impl Counts {
    /// The counts after a change.
    #[must_use]
    pub fn changed(self, by: &CountChanges) -> Counts {
        Counts {
            records: self.records.saturating_add_signed(by.records),
            unspent: self.unspent.saturating_add_signed(by.unspent),
            unmined: self.unmined.saturating_add_signed(by.unmined),
            spent: self.spent.saturating_add_signed(by.spent),
            locked: self.locked.saturating_add_signed(by.locked),
            preserved: self.preserved.saturating_add_signed(by.preserved),
            child_unmined: self.child_unmined.saturating_add_signed(by.child_unmined),
        }
    }
}
