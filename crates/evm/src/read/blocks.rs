//! A file of blocks of any known format.

use bytes::Bytes;

use super::{
    era1::Era1,
    error::{Fault, ImportError},
    input::Origin,
    rlp_items::RlpItems,
};

/// A block as a file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawBlock {
    /// Where it begins.
    pub offset: u64,
    /// Its RLP, taken from the file and not checked.
    pub block: Bytes,
    /// The RLP list of its receipts. `None` if the format has none.
    pub receipts: Option<Bytes>,
}

/// A file of blocks.
#[derive(Debug)]
pub struct BlockFile {
    origin: Origin,
    format: Format,
}

#[derive(Debug)]
enum Format {
    Era1(Era1),
    Rlp(RlpItems),
}

impl BlockFile {
    /// Opens a file and finds out what it is. Of an `.era1` file the headers are read and checked.
    ///
    /// # Errors
    /// The file cannot be read, is of no known format, or is a damaged `.era1` file.
    pub fn open(origin: &Origin) -> Result<Self, ImportError> {
        let mut input = origin.open()?;
        let format = match input.peek()? {
            [0x65, 0x32, ..] => Format::Era1(Era1::open(origin)?),
            [0xc0..=0xff, ..] => Format::Rlp(RlpItems::new(input, "block")),
            other => {
                let found = other.iter().copied().take(8).collect();
                return Err(origin.error(0, Fault::UnknownFormat { found }));
            }
        };
        Ok(Self { origin: origin.clone(), format })
    }

    /// Returns the next block. `None` at the end of the file.
    ///
    /// # Errors
    /// The file cannot be read, is cut or damaged.
    pub fn next_block(&mut self) -> Result<Option<RawBlock>, ImportError> {
        match &mut self.format {
            Format::Era1(era) => era.next(),
            Format::Rlp(items) => {
                let next = items.next()?;
                Ok(next.map(|(offset, block)| RawBlock { offset, block, receipts: None }))
            }
        }
    }

    pub(crate) fn error(&self, offset: u64, fault: Fault) -> ImportError {
        self.origin.error(offset, fault)
    }
}
