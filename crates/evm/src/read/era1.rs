//! `.era1`: up to 8,192 blocks with receipts and total difficulties, an accumulator over their headers, and an index.
//!
//! ```text
//! version | (header | body | receipts | total difficulty)* | accumulator | block index
//! ```
//!
//! # Correctness
//! A file is read twice. The first pass reads everything but bodies and receipts and checks what the file says about itself: numbers,
//! links, difficulties, accumulator and index. So a damaged or foreign file is refused before its first block is delivered.

use alloy_consensus::Header;
use alloy_primitives::{B256, U256, keccak256};
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::{
    blocks::RawBlock,
    e2store::{E2Store, Entry},
    error::{EntryKind, Fault, ImportError},
    input::Origin,
};
use crate::{
    block::{Part, ShapeError, decode_all},
    check::BlockError,
    rlp,
};

/// How many blocks an era has at most.
const MAX_BLOCKS: usize = 8192;

/// An era whose headers have been checked.
#[derive(Debug)]
pub(crate) struct Era1 {
    store: E2Store,
    left: usize,
}

impl Era1 {
    /// Opens a file and checks its headers, accumulator and index.
    pub(crate) fn open(origin: &Origin) -> Result<Self, ImportError> {
        let blocks = Survey::run(origin)?;
        let mut store = E2Store::open(origin)?;
        let version = store.expect(EntryKind::VERSION)?;
        store.skip(version)?;
        Ok(Self { store, left: blocks })
    }

    /// Returns the next block. `None` after the last one.
    pub(crate) fn next(&mut self) -> Result<Option<RawBlock>, ImportError> {
        if self.left == 0 {
            return Ok(None);
        }
        let header = self.store.expect(EntryKind::HEADER)?;
        let header_rlp = self.store.unsnap(header)?;
        let body = self.store.expect(EntryKind::BODY)?;
        let body_rlp = self.store.unsnap(body)?;
        let receipts = self.store.expect(EntryKind::RECEIPTS)?;
        let receipts = Bytes::from(self.store.unsnap(receipts)?);
        let difficulty = self.store.expect(EntryKind::TOTAL_DIFFICULTY)?;
        self.store.skip(difficulty)?;
        // A body is the list of what follows the header in a block.
        let payload = rlp::only_list(&body_rlp)
            .map_err(|cause| self.store.error(body.offset, Fault::Rlp { what: "body", cause }))?;
        let block = rlp::wrap_list(&[&header_rlp, payload.payload]);
        self.left -= 1;
        Ok(Some(RawBlock { offset: header.offset, block: block.into(), receipts: Some(receipts) }))
    }
}

/// The first pass.
struct Survey {
    store: E2Store,
    /// The number and hash of the last header.
    last: Option<(u64, B256)>,
    first: u64,
    total_difficulty: U256,
    /// The leaves of the accumulator.
    records: Vec<[u8; 32]>,
    /// Where the blocks begin.
    offsets: Vec<u64>,
}

impl Survey {
    /// Checks a file and returns how many blocks it has.
    fn run(origin: &Origin) -> Result<usize, ImportError> {
        let mut store = E2Store::open(origin)?;
        let version = store.expect(EntryKind::VERSION)?;
        store.array::<0>(version)?;
        let mut survey = Self {
            store,
            last: None,
            first: 0,
            total_difficulty: U256::ZERO,
            records: Vec::new(),
            offsets: Vec::new(),
        };
        loop {
            match survey.store.next()? {
                Some(entry) if entry.kind == EntryKind::HEADER => survey.block(entry)?,
                Some(entry) if entry.kind == EntryKind::ACCUMULATOR => {
                    survey.accumulator(entry)?;
                    survey.index()?;
                    return Ok(survey.offsets.len());
                }
                Some(entry) => {
                    let fault = Fault::WrongEntry { expected: "header or accumulator", found: entry.kind };
                    return Err(survey.store.error(entry.offset, fault));
                }
                None => {
                    let end = survey.store.offset();
                    let fault = Fault::Truncated { what: "accumulator", needed: 40, found: 0 };
                    return Err(survey.store.error(end, fault));
                }
            }
        }
    }

    fn block(&mut self, entry: Entry) -> Result<(), ImportError> {
        if self.offsets.len() == MAX_BLOCKS {
            return Err(self.store.error(entry.offset, Fault::TooManyBlocks { limit: MAX_BLOCKS }));
        }
        let header_rlp = self.store.unsnap(entry)?;
        let hash = keccak256(&header_rlp);
        let header: Header = decode_all(&header_rlp, Part::Header)
            .map_err(|fault: ShapeError| self.store.error(entry.offset, BlockError::Shape(fault).into()))?;
        self.link(&header).map_err(|error| self.store.error(entry.offset, error.into()))?;
        for kind in [EntryKind::BODY, EntryKind::RECEIPTS] {
            let entry = self.store.expect(kind)?;
            self.store.skip(entry)?;
        }
        let difficulty = self.store.expect(EntryKind::TOTAL_DIFFICULTY)?;
        let bytes = self.store.array::<32>(difficulty)?;
        let found = U256::from_le_bytes(bytes);
        let expected = self.total_difficulty.wrapping_add(header.difficulty);
        match self.last {
            Some(_) if expected != found => {
                let fault = Fault::TotalDifficulty { number: header.number, expected, found };
                return Err(self.store.error(difficulty.offset, fault));
            }
            Some(_) => {}
            None => self.first = header.number,
        }
        self.total_difficulty = found;
        self.last = Some((header.number, hash));
        self.records.push(sha256(&hash.0, &bytes));
        self.offsets.push(entry.offset);
        Ok(())
    }

    fn link(&self, header: &Header) -> Result<(), BlockError> {
        let Some((number, hash)) = self.last else { return Ok(()) };
        let expected = number.saturating_add(1);
        if header.number != expected {
            return Err(BlockError::WrongNumber { expected, found: header.number });
        }
        if header.parent_hash != hash {
            let found = header.parent_hash;
            return Err(BlockError::WrongParent { number: header.number, expected: hash, found });
        }
        Ok(())
    }

    fn accumulator(&mut self, entry: Entry) -> Result<(), ImportError> {
        let expected = B256::new(self.store.array(entry)?);
        let found = accumulator(&self.records);
        if expected == found {
            return Ok(());
        }
        Err(self.store.error(entry.offset, Fault::Accumulator { expected, found }))
    }

    /// Checks the index: the first block's number, the distance from the index to each block, and how many there are.
    fn index(&mut self) -> Result<(), ImportError> {
        let entry = self.store.expect(EntryKind::INDEX)?;
        let bytes = self.store.bytes(entry, 16 + 8 * self.offsets.len() as u64)?;
        let mut numbers = bytes.as_chunks::<8>().0.iter().map(|chunk| i64::from_le_bytes(*chunk));
        let relative = |offset: &u64| (*offset as i64).wrapping_sub(entry.offset as i64);
        let expected = std::iter::once(("first block", self.first as i64))
            .chain(self.offsets.iter().map(|offset| ("distance to a block", relative(offset))))
            .chain([("number of blocks", self.offsets.len() as i64)]);
        for (what, expected) in expected {
            let found = numbers.next().unwrap_or_default();
            if expected != found {
                return Err(self.store.error(entry.offset, Fault::Index { what, expected, found }));
            }
        }
        match self.store.next()? {
            None => Ok(()),
            Some(more) => {
                Err(self.store.error(more.offset, Fault::TrailingBytes { what: "the block index" }))
            }
        }
    }
}

/// The SSZ root of a list of at most 8,192 header records, given the hash of each.
fn accumulator(records: &[[u8; 32]]) -> B256 {
    let mut layer = records.to_vec();
    let mut empty = [0; 32];
    for _ in 0..MAX_BLOCKS.ilog2() {
        layer = layer
            .chunks(2)
            .map(|pair| match pair {
                [left, right] => sha256(left, right),
                [left] => sha256(left, &empty),
                _ => empty,
            })
            .collect();
        empty = sha256(&empty, &empty);
    }
    let mut length = [0; 32];
    length[..8].copy_from_slice(&(records.len() as u64).to_le_bytes());
    B256::new(sha256(layer.first().unwrap_or(&empty), &length))
}

fn sha256(left: &[u8; 32], right: &[u8; 32]) -> [u8; 32] {
    Sha256::new().chain_update(left).chain_update(right).finalize().into()
}
