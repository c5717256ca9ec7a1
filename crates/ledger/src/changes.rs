//! What an operation changed, and the index entries that follow from it.
//!
//! Index entries are a function of a page before and after. Nothing keeps them by hand.

use std::collections::BTreeMap;

use sapwood_rules::{KeepReason, settled, verdict::unsettled};
use sapwood_types::{
    AddressHash, AllSlots, DecodeError, Height, MasterFront, MasterPage, OutPoint, Output, OutputPage,
    PAGE_SIZE, Scratch, Slot, StoredMaster, TxHead, TxId, codec::Reader,
};

use crate::{
    answer::{AddressKind, Counts},
    working_set::{Entry, PageKey},
};

/// Changed pages, sorted by key.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// First pages.
    pub masters: Vec<(TxId, RecordChange)>,
    /// Further pages.
    pub extras: Vec<(PageKey, Entry<OutputPage>)>,
    /// Whose first pages, close together: they are looked for far more often than found.
    pub(crate) ids: Vec<TxId>,
}

/// A first page as it was and as it is.
#[derive(Clone, Debug)]
pub struct RecordChange {
    /// As it was in the store.
    pub before: Option<Side>,
    /// As it is now.
    pub now: Option<Side>,
}

/// A first page, and what follows from it.
#[derive(Clone, Debug)]
pub struct Side {
    /// The page.
    pub stored: StoredMaster,
    /// What follows from it.
    pub facts: Facts,
}

/// What follows from a first page for indexes, counts and caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
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

impl Facts {
    /// What follows from the page that begins like this.
    pub fn of(front: &MasterFront) -> Self {
        Self::of_state(&front.head, front.all_slots())
    }

    /// What follows from this page.
    pub fn of_page(page: &MasterPage) -> Self {
        Self::of_state(&page.head, page.all_slots())
    }

    fn of_state(head: &TxHead, slots: AllSlots) -> Self {
        Self {
            settled: settled(head, slots),
            unmined_since: head.unmined_since(),
            preserve_until: head.preserve_until,
            mined_at: head.mined_at(),
            open: slots.open(),
            blocked: unsettled(head, slots).as_ref().and_then(Blocked::of),
            unspent: unspent(slots.first_page()) as u32,
            spent: spent(slots.first_page()) as u32,
            lowest_spender: slots
                .first_page()
                .iter()
                .filter(|slot| slot.spender().is_some())
                .filter_map(Slot::child_mined_at)
                .min(),
        }
    }
}

impl Side {
    /// A page, and what follows from it unless that is known.
    pub(crate) fn of(stored: StoredMaster, facts: Option<Facts>) -> Result<Self, DecodeError> {
        let facts = match facts {
            Some(facts) => facts,
            None => Facts::of(&stored.front()?),
        };
        Ok(Self { stored, facts })
    }

    /// The page is written anew: slots whose spender was mined at or below this height forget who it was. Nothing else follows from
    /// who it was.
    pub(crate) fn forget(&mut self, settled_below: Height, scratch: &mut Scratch) -> Result<(), DecodeError> {
        if self.facts.lowest_spender.is_none_or(|lowest| lowest > settled_below) {
            return Ok(());
        }
        let mut front = self.stored.front()?;
        front.slots.iter_mut().for_each(|slot| *slot = slot.settle(settled_below));
        self.stored = self.stored.with_slots(&front, scratch);
        Ok(())
    }
}

impl RecordChange {
    /// The page before and after, decoded.
    pub fn pages(&self) -> Result<[Option<MasterPage>; 2], DecodeError> {
        let page = |side: &Option<Side>| side.as_ref().map(|side| side.stored.page()).transpose();
        Ok([page(&self.before)?, page(&self.now)?])
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
pub fn record_entries(txid: TxId, facts: &Facts) -> [Option<IndexEntry>; 3] {
    [
        facts.settled.map(|height| IndexEntry::Due(height, txid)),
        facts.unmined_since.map(|height| IndexEntry::Unmined(height, txid)),
        facts.preserve_until.map(|height| IndexEntry::Preserved(height, txid)),
    ]
}

/// The entries that come and go in the due, unmined and preservation index when a first page changes.
pub fn record_changes(txid: TxId, record: &RecordChange, mut change: impl FnMut(IndexChange)) {
    let entries =
        |side: &Option<Side>| side.as_ref().map_or([None; 3], |side| record_entries(txid, &side.facts));
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
pub fn listing(master: &MasterPage) -> Listing {
    Listing { created_height: master.head.created_height, conflicting: master.head.is_conflicting() }
}

/// Calls `entry` with every entry that the wanted outputs of one page have in the address index.
pub fn address_entries(
    txid: TxId,
    number: u32,
    (listing, page): (Listing, &OutputPage),
    indexing: AddressIndexing,
    wanted: impl Fn(usize) -> bool,
    mut entry: impl FnMut(IndexEntry),
) -> Result<(), DecodeError> {
    let listed = |place: usize, slot: &Slot| !listing.conflicting && is_listed(slot) && wanted(place);
    let mut reader = Reader::new(page.outputs.clone());
    let last = page.slots.iter().enumerate().rposition(|(place, slot)| listed(place, slot));
    for (place, slot) in page.slots.iter().enumerate().take(last.map_or(0, |last| last + 1)) {
        let Some(output) = Output::decode(&mut reader)?.filter(|_| listed(place, slot)) else { continue };
        let outpoint = OutPoint::new(txid, number * PAGE_SIZE + place as u32);
        let mut add = |kind, hash| entry(IndexEntry::Address(kind, hash, listing.created_height, outpoint));
        if indexing.address {
            add(AddressKind::Address, AddressHash::of_script(&output.script));
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
    before: Option<(Listing, &OutputPage)>,
    now: Option<(Listing, &OutputPage)>,
    indexing: AddressIndexing,
    mut change: impl FnMut(IndexChange),
) -> Result<(), DecodeError> {
    let same = match (before, now) {
        (Some((listing_before, before)), Some((listing_now, now))) => {
            listing_before == listing_now && before.outputs == now.outputs
        }
        _ => false,
    };
    let listed = |side: Option<(Listing, &OutputPage)>, place: usize| {
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
        self.masters.is_empty() && self.extras.is_empty()
    }

    /// What becomes of a first page, if it changes.
    pub fn master(&self, txid: &TxId) -> Option<&RecordChange> {
        let at = self.ids.binary_search(txid).ok()?;
        self.masters.get(at).map(|(_, record)| record)
    }

    /// What becomes of a further page, if it changes.
    pub fn extra(&self, key: &PageKey) -> Option<&Entry<OutputPage>> {
        let at = self.extras.binary_search_by_key(key, |(key, _)| *key).ok()?;
        Some(&self.extras[at].1)
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
        for (txid, record) in &self.masters {
            let pages = record.pages()?;
            let [before, now] =
                pages.each_ref().map(|page| page.as_ref().map(|master| (listing(master), &master.page)));
            page_address_changes(*txid, 0, before, now, indexing, &mut change)?;
        }
        for ((txid, number), entry) in &self.extras {
            // Whoever changes a further page changes the first one too, for its summary; and whoever changes what decides
            // the listing (conflicting or not) has loaded all pages.
            let Some(record) = self.master(txid) else { continue };
            let [master_before, master_now] = record.pages()?;
            let before = entry.before.as_deref().zip(master_before.as_ref());
            let now = entry.now.as_deref().zip(master_now.as_ref());
            let side = |(page, master)| (listing(master), page);
            page_address_changes(*txid, *number, before.map(side), now.map(side), indexing, &mut change)?;
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
    pub fn add_record(&mut self, record: &RecordChange) {
        for (side, sign) in [(&record.before, -1), (&record.now, 1)] {
            if let Some(side) = side {
                self.add_facts(&side.facts, sign);
            }
        }
    }

    /// Adds a first page, or takes it off with a `sign` of -1.
    pub fn add_facts(&mut self, facts: &Facts, sign: i64) {
        self.records += sign;
        self.unmined += sign * i64::from(facts.mined_at.is_none());
        self.unspent += sign * i64::from(facts.unspent);
        self.spent += sign * i64::from(facts.spent);
        match facts.blocked {
            Some(Blocked::Locked) => self.locked += sign,
            Some(Blocked::Preserved) => self.preserved += sign,
            Some(Blocked::ChildUnmined) => self.child_unmined += sign,
            None => {}
        }
        if let Some(height) = facts.settled {
            *self.settled.entry(height).or_default() += sign;
        }
    }

    /// Takes a settled record off that is pruned as a whole. What was spent of it stays counted as spent.
    pub fn prune(&mut self, facts: &Facts) {
        self.add_facts(facts, -1);
        self.spent += i64::from(facts.spent);
    }

    /// Adds a change of a further page.
    pub fn add_page(&mut self, entry: &Entry<OutputPage>) {
        for (page, sign) in [(&entry.before, -1), (&entry.now, 1)] {
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
