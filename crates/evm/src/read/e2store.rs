//! Entries of an e2store file.
//!
//! Nothing here knows which entries a format has: `.era1` does below, and further formats made of the same entries can.

use super::{
    MAX_ITEM_BYTES,
    error::{EntryKind, Fault, ImportError},
    input::{Input, Origin},
};

/// The header of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) kind: EntryKind,
    /// How long its data is.
    pub(crate) length: u64,
    /// Where its header begins.
    pub(crate) offset: u64,
}

/// A file of entries. After [`next`](Self::next) exactly one of the other methods takes the entry's data.
#[derive(Debug)]
pub(crate) struct E2Store {
    input: Input,
}

impl E2Store {
    pub(crate) fn open(origin: &Origin) -> Result<Self, ImportError> {
        Ok(Self { input: origin.open()? })
    }

    /// Reads the header of the next entry. `None` at the end of the file.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, ImportError> {
        let offset = self.input.offset();
        if self.input.at_end()? {
            return Ok(None);
        }
        let [t0, t1, l0, l1, l2, l3, r0, r1] = self.input.array("an entry's header")?;
        let kind = EntryKind(u16::from_le_bytes([t0, t1]));
        let found = u16::from_le_bytes([r0, r1]);
        if found != 0 {
            return Err(self.input.error(offset, Fault::Reserved { entry: kind, found }));
        }
        Ok(Some(Entry { kind, length: u32::from_le_bytes([l0, l1, l2, l3]).into(), offset }))
    }

    /// Reads the header of the next entry and requires a kind.
    pub(crate) fn expect(&mut self, kind: EntryKind) -> Result<Entry, ImportError> {
        let offset = self.input.offset();
        let expected = kind.name().unwrap_or("another entry");
        match self.next()? {
            Some(entry) if entry.kind == kind => Ok(entry),
            Some(entry) => Err(self.input.error(offset, Fault::WrongEntry { expected, found: entry.kind })),
            None => Err(self.input.error(offset, Fault::Truncated { what: expected, needed: 8, found: 0 })),
        }
    }

    /// Takes the data of an entry and decompresses it.
    pub(crate) fn unsnap(&mut self, entry: Entry) -> Result<Vec<u8>, ImportError> {
        self.input.unsnap(what(entry), entry.length, MAX_ITEM_BYTES)
    }

    /// Takes the data of an entry that has `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self, entry: Entry) -> Result<[u8; N], ImportError> {
        self.length(entry, N as u64)?;
        self.input.array(what(entry))
    }

    /// Takes the data of an entry that has `length` bytes.
    pub(crate) fn bytes(&mut self, entry: Entry, length: u64) -> Result<Vec<u8>, ImportError> {
        self.length(entry, length)?;
        let mut bytes = Vec::new();
        self.input.read(what(entry), length, &mut bytes).map(|()| bytes)
    }

    /// Passes over the data of an entry.
    pub(crate) fn skip(&mut self, entry: Entry) -> Result<(), ImportError> {
        self.input.skip(what(entry), entry.length)
    }

    /// The position of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.input.offset()
    }

    pub(crate) fn error(&self, offset: u64, fault: Fault) -> ImportError {
        self.input.error(offset, fault)
    }

    fn length(&self, entry: Entry, expected: u64) -> Result<(), ImportError> {
        if entry.length == expected {
            return Ok(());
        }
        let fault = Fault::EntryLength { entry: entry.kind, expected, found: entry.length };
        Err(self.error(entry.offset, fault))
    }
}

fn what(entry: Entry) -> &'static str {
    entry.kind.name().unwrap_or("an entry")
}
