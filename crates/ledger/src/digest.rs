//! A hash of the whole state.

use sapwood_types::{
    BlockMark, DecodeError, FirstPage, FurtherPage, Height, Scratch, Slot, TxId, codec::Writer,
};
use sha2::{Digest, Sha256};

use crate::answer::Cursor;

/// Hashes every record in the order of ids, then what else there is. Whether a deep spend still names its spender does not
/// count: slots are hashed as if settled up to `settled_below`.
pub struct StateDigest {
    hasher: Sha256,
    settled_below: Option<Height>,
    entry: Vec<u8>,
    scratch: Scratch,
}

impl StateDigest {
    /// A digest of nothing yet.
    pub fn new(settled_below: Option<Height>) -> Self {
        Self { hasher: Sha256::new(), settled_below, entry: Vec::new(), scratch: Scratch::default() }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.hasher.update((bytes.len() as u64).to_be_bytes());
        self.hasher.update(bytes);
    }

    /// Adds a first page. Records come in the order of ids, each followed by its further pages.
    pub fn first_page(&mut self, txid: &TxId, page: &FirstPage) -> Result<(), DecodeError> {
        let mut header = page.header()?;
        // Body and outputs are hashed as they are, but there have to be some.
        page.view(&header)?;
        self.settle(&mut header.slots);
        let page = page.with_slots(&header, &mut self.scratch);
        self.entry.clear();
        self.entry.extend_from_slice(&txid.0);
        self.entry.extend_from_slice(page.bytes());
        let entry = std::mem::take(&mut self.entry);
        self.add(&entry);
        self.entry = entry;
        Ok(())
    }

    /// Adds a further page.
    pub fn further_page(&mut self, mut page: FurtherPage) {
        self.settle(&mut page.slots);
        self.add(&page.encode());
    }

    fn settle(&self, slots: &mut [Slot]) {
        if let Some(height) = self.settled_below {
            slots.iter_mut().for_each(|slot| *slot = slot.settle(height));
        }
    }

    /// Adds what is not a record, and ends.
    pub fn finish(
        mut self,
        last_applied: Option<BlockMark>,
        floor: Option<Height>,
        next_block_id: u32,
        cursor: Option<Cursor>,
        undo_heights: impl IntoIterator<Item = Height>,
    ) -> [u8; 32] {
        let mut to = Writer::default();
        if let Some(mark) = last_applied {
            mark.encode(&mut to);
        }
        if let Some(floor) = floor {
            to.height(floor);
        }
        to.u32(next_block_id);
        if let Some(cursor) = cursor {
            to.sized(&cursor.0);
        }
        undo_heights.into_iter().for_each(|height| to.height(height));
        self.add(&to.finish());
        self.hasher.finalize().into()
    }
}
