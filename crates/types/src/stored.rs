//! A first page as it is stored, in one piece of memory.
//!
//! A block looks at thousands of records that lie anywhere in memory, and waits for memory most of the time. So what a writer keeps at
//! hand is as small as on disk and in one piece: what changes is read where it lies, and a spend copies the page with another slot.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use crate::{
    DecodeError, MasterPage, Output, PAGE_SIZE, Slot, Tx, TxBody, TxHead,
    codec::Writer,
    front::{self, MasterFront},
    page::encode_outputs,
};

/// A first page, encoded. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredMaster(Arc<[u8]>);

/// Memory to put pages together in. It is used again and again, so it is always at hand.
#[derive(Debug, Default)]
pub struct Scratch {
    page: Writer,
    body: Writer,
}

impl StoredMaster {
    /// The page of these bytes. Whether they are one shows when they are read.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// A page, encoded.
    pub fn of(page: &MasterPage, scratch: &mut Scratch) -> Self {
        scratch.page.clear();
        page.encode_to(&mut scratch.page);
        Self::new(scratch.page.written())
    }

    /// The only page of a transaction of which nothing is spent yet. Nothing if it needs more than one.
    pub fn of_new(tx: &Tx, head: &TxHead, scratch: &mut Scratch) -> Option<Self> {
        let Scratch { page, body } = scratch;
        let count = u32::try_from(tx.outputs.len()).ok().filter(|count| *count <= PAGE_SIZE)?;
        let slot = |output: &Output| if output.spendable { Slot::Unspent } else { Slot::Unspendable };
        page.clear();
        front::encode(
            &TxHead { output_count: count, ..head.clone() },
            &[],
            tx.outputs.iter().map(slot),
            page,
        );
        body.clear();
        TxBody::encode_tx(tx, body);
        page.sized(body.written());
        encode_outputs(tx.outputs.iter().map(Some), page);
        Some(Self::new(page.written()))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is the very same piece of memory.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Reads what changes.
    pub fn front(&self) -> Result<MasterFront, DecodeError> {
        MasterFront::decode(&self.0)
    }

    /// Reads the page.
    pub fn page(&self) -> Result<MasterPage, DecodeError> {
        MasterPage::decode(Bytes::copy_from_slice(&self.0))
    }

    /// The page with other slots: as many as [`front`](Self::front) found on it.
    #[must_use]
    pub fn with_slots(&self, front: &MasterFront, scratch: &mut Scratch) -> Self {
        let to = &mut scratch.page;
        to.clear();
        to.bytes(&self.0[..front.slots_at.start]);
        front.slots.iter().for_each(|slot| slot.encode(to));
        to.bytes(&self.0[front.slots_at.end..]);
        Self::new(to.written())
    }
}

impl fmt::Debug for StoredMaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.page() {
            Ok(page) => page.fmt(f),
            Err(error) => write!(f, "{} bytes that are no page: {error}", self.0.len()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests: to panic is how they fail")]
mod tests {
    use super::*;
    use crate::{Height, Input, OutPoint, Spender, TxId, page::pages_of};

    fn tx(outputs: usize) -> Tx {
        let output = |vout: usize| match vout % 5 {
            4 => Output::data(&b"data"[..]),
            _ => Output::new(7 + vout as u64, vec![vout as u8; vout % 60]),
        };
        Tx {
            txid: TxId([3; 32]),
            version: 2,
            locktime: 9,
            fee: Some(300),
            size: 200,
            coinbase: false,
            inputs: (0..3).map(|vin| Input::of(OutPoint::new(TxId([vin; 32]), 1000))).collect(),
            outputs: (0..outputs).map(output).collect(),
            raw: Bytes::new(),
        }
    }

    #[test]
    fn a_new_page_is_the_same_by_either_way() {
        let head = TxHead { created_height: Height(7), first_unmined: Some(Height(7)), ..TxHead::default() };
        for outputs in [1, 2, 3, 127, 128] {
            let (page, _) = pages_of(&tx(outputs), head.clone());
            let stored = StoredMaster::of_new(&tx(outputs), &head, &mut Scratch::default()).unwrap();
            assert_eq!(stored.bytes(), page.encode());
            assert_eq!(stored, StoredMaster::of(&page, &mut Scratch::default()));
            assert_eq!(stored.page(), Ok(page));
        }
        assert_eq!(StoredMaster::of_new(&tx(129), &head, &mut Scratch::default()), None);
    }

    #[test]
    fn a_page_with_another_slot_is_that_page() {
        let (mut page, _) = pages_of(&tx(300), TxHead::default());
        let mut stored = StoredMaster::of(&page, &mut Scratch::default());
        for (place, mined_at) in [(0, None), (127, Some(Height(9))), (0, Some(Height(200))), (64, None)] {
            let slot = Slot::spent(Spender::new(TxId([8; 32]), 77), mined_at);
            let mut front = stored.front().unwrap();
            assert_eq!((&front.head, &front.slots), (&page.head, &page.page.slots));
            front.slots[place] = slot;
            page.page.slots[place] = slot;
            stored = stored.with_slots(&front, &mut Scratch::default());
            assert_eq!(stored.page().as_ref(), Ok(&page));
        }
    }
}
