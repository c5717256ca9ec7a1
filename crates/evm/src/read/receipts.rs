//! Receipts beside a file of blocks that has none.

use bytes::Bytes;

use super::{
    error::{Fault, ImportError},
    input::Origin,
    rlp_items::RlpItems,
};

/// A file with one RLP list of receipts for each block from block 1 on.
#[derive(Debug)]
pub struct ReceiptsFile {
    items: RlpItems,
    /// The block that the next list belongs to.
    next: u64,
}

impl ReceiptsFile {
    /// Opens the file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(origin: &Origin) -> Result<Self, ImportError> {
        Ok(Self { items: RlpItems::new(origin.open()?, "receipts"), next: 1 })
    }

    /// Returns the receipts of a block, passing over those of earlier blocks. Block 0 has none, so its list is empty.
    ///
    /// # Errors
    /// The file ends before, is past that block already, or is not RLP.
    pub fn of_block(&mut self, number: u64) -> Result<Bytes, ImportError> {
        if number == 0 {
            return Ok(Bytes::from_static(&[0xc0]));
        }
        while self.next <= number {
            let Some((_, list)) = self.items.next()? else { break };
            self.next += 1;
            if self.next > number {
                return Ok(list);
            }
        }
        Err(self.items.error(self.items.offset(), Fault::NoReceipts { number, last: self.next - 1 }))
    }

    /// Whether there are receipts after those that were returned.
    ///
    /// # Errors
    /// The file cannot be read, or is not RLP.
    pub fn has_more(&mut self) -> Result<bool, ImportError> {
        self.items.next().map(|next| next.is_some())
    }
}
