//! A first page in the working set: as it is stored for as long as possible.

use std::sync::Arc;

use sapwood_types::{DecodeError, Height, MasterPage, Scratch, Slot, StoredMaster, TxHead, TxId};

use super::corrupt;
use crate::{
    StoreError,
    changes::{Facts, RecordChange, Side},
};

/// A first page as it was and as it is.
#[derive(Default)]
pub(super) struct MasterEntry {
    before: Option<Seen>,
    pub(super) now: Option<Now>,
}

/// A first page as it is stored, and what follows from it once somebody has looked.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) stored: StoredMaster,
    pub(super) facts: Option<Facts>,
}

/// A first page. It stays as it is stored as long as nobody asks for more than its front.
#[derive(Clone)]
pub(super) enum Now {
    Stored(Seen),
    /// It was read.
    Read(StoredMaster, Arc<MasterPage>),
    /// It was read and changed.
    Changed(Arc<MasterPage>),
}

impl Now {
    fn page(&self) -> Option<&MasterPage> {
        match self {
            Now::Stored(_) => None,
            Now::Read(_, page) | Now::Changed(page) => Some(page),
        }
    }
}

impl MasterEntry {
    pub(super) fn read(page: Option<StoredMaster>) -> Self {
        let seen = page.map(|stored| Seen { stored, facts: None });
        Self { before: seen.clone(), now: seen.map(Now::Stored) }
    }

    pub(super) fn is_changed(&self) -> bool {
        match (&self.before, &self.now) {
            (Some(before), Some(Now::Stored(Seen { stored: now, .. }) | Now::Read(now, _))) => {
                !before.stored.is(now)
            }
            (None, None) => false,
            _ => true,
        }
    }

    /// The page, read if it is not yet.
    pub(super) fn open(&mut self, txid: TxId) -> Result<Option<&MasterPage>, StoreError> {
        if let Some(Now::Stored(Seen { stored, .. })) = &self.now {
            let page = stored.page().map_err(|cause| corrupt(txid, cause))?;
            self.now = Some(Now::Read(stored.clone(), Arc::new(page)));
        }
        Ok(self.now.as_ref().and_then(Now::page))
    }

    /// The page, to be changed.
    pub(super) fn open_mut(&mut self, txid: TxId) -> Result<Option<&mut MasterPage>, StoreError> {
        self.open(txid)?;
        if let Some(Now::Read(_, page)) = &self.now {
            self.now = Some(Now::Changed(Arc::clone(page)));
        }
        Ok(match &mut self.now {
            Some(Now::Changed(page)) => Some(Arc::make_mut(page)),
            _ => None,
        })
    }

    /// Shows the state of the whole transaction and of one output (nothing if there is no page), and says what the page becomes by
    /// the answer: nothing if it has no such output.
    pub(super) fn decide_slot<E>(
        &mut self,
        txid: TxId,
        place: usize,
        decide: impl FnOnce(Option<(&TxHead, Option<&Slot>)>) -> Result<Slot, E>,
        scratch: &mut Scratch,
    ) -> Result<Result<Option<Now>, E>, StoreError> {
        let changed = match &self.now {
            None => decide(None).map(|_| None),
            Some(Now::Stored(Seen { stored, .. })) => {
                let mut front = stored.front().map_err(|cause| corrupt(txid, cause))?;
                if let Some(before) = self.before.as_mut().filter(|before| before.stored.is(stored)) {
                    before.facts = Some(Facts::of(&front));
                }
                decide(Some((&front.head, front.slots.get(place)))).map(|slot| {
                    *front.slots.get_mut(place)? = slot;
                    let stored = stored.with_slots(&front, scratch);
                    Some(Now::Stored(Seen { stored, facts: Some(Facts::of(&front)) }))
                })
            }
            Some(Now::Read(_, page) | Now::Changed(page)) => {
                decide(Some((&page.head, page.page.slots.get(place)))).map(|slot| {
                    let mut page = Arc::clone(page);
                    *Arc::make_mut(&mut page).page.slots.get_mut(place)? = slot;
                    Some(Now::Changed(page))
                })
            }
        };
        Ok(changed)
    }

    /// What was changed. Slots whose spender was mined at or below `settled_below` forget who it was.
    pub(super) fn into_change(
        self,
        settled_below: Option<Height>,
        scratch: &mut Scratch,
    ) -> Result<RecordChange, DecodeError> {
        let now = self.now.map(|now| match now {
            Now::Stored(seen) => seen,
            Now::Read(stored, _) => Seen { stored, facts: None },
            Now::Changed(page) => Seen { stored: StoredMaster::of(&page, scratch), facts: None },
        });
        let side = |seen: Option<Seen>| seen.map(|seen| Side::of(seen.stored, seen.facts)).transpose();
        let mut now = side(now)?;
        if let (Some(now), Some(height)) = (&mut now, settled_below) {
            now.forget(height, scratch)?;
        }
        Ok(RecordChange { before: side(self.before)?, now })
    }
}
