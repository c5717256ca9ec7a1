//! Finding the records of a block file.
//!
//! A record is the network's magic, a length (u32, little-endian) and a block. Between records there may be zeros (nodes fill
//! files beforehand), half-written records and whatever else an accident left; as Bitcoin Core does, the scanner then looks
//! for the next magic. Only the headers of blocks are read here.
//!
//! # Correctness
//! A record where one is expected (at the start, after another record, after zeros) is believed. Where the scanner had to search,
//! what looks like a record may be something a stranger wrote into a transaction, so there the header must also meet the
//! target that it names.

use std::io::{self, Read, Seek, SeekFrom};

use bitcoin::{block::Header, consensus::encode};

use super::files::{Key, unmask};
use crate::bitcoin::work::meets_own_target;

/// Magic and length.
pub(crate) const FRAME: u64 = 8;
const HEADER: usize = 80;
/// No record is longer: Bitcoin Core reads nothing that is (`MAX_SIZE`).
pub const MAX_RECORD: u32 = 32 * 1024 * 1024;
/// Small, because of most blocks only the header is wanted.
const WINDOW: usize = 64 * 1024;

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where the block begins.
    pub offset: u64,
    /// How long the record says the block is.
    pub length: u32,
    /// The block's header.
    pub header: Header,
}

/// What was found besides records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// How many bytes were skipped that are neither records nor zeros.
    pub skipped: u64,
    /// Where the first of them is, if there are some.
    pub skipped_at: Option<u64>,
    /// Where the first record starts whose announced end lies beyond the end of the file, if one does.
    pub torn: Option<u64>,
}

/// Goes through a block file.
pub struct Scanner<R> {
    window: Window<R>,
    magic: [u8; 4],
    at: u64,
    searching: bool,
    leftovers: Leftovers,
}

impl<R: Read + Seek> Scanner<R> {
    /// Scans from `from` on, which should be the start or the end of a record.
    pub fn new(mut input: R, magic: [u8; 4], key: Key, from: u64) -> io::Result<Self> {
        let length = input.seek(SeekFrom::End(0))?;
        let window = Window { input, key, length, start: 0, bytes: Vec::new() };
        Ok(Scanner { window, magic, at: from, searching: false, leftovers: Leftovers::default() })
    }

    /// What was found besides records so far.
    pub fn leftovers(&self) -> Leftovers {
        self.leftovers
    }

    /// The first bytes of the file, without the key.
    pub fn first_bytes(&mut self) -> io::Result<[u8; 4]> {
        let mut first = [0; 4];
        for (byte, found) in first.iter_mut().zip(self.window.get(0, 4)?) {
            *byte = *found;
        }
        Ok(first)
    }

    /// The next record.
    pub fn next_record(&mut self) -> io::Result<Option<Record>> {
        loop {
            if let Some(record) = self.record_here()? {
                self.at = record.offset + u64::from(record.length);
                self.searching = false;
                return Ok(Some(record));
            }
            if !self.skip_to_magic()? {
                return Ok(None);
            }
        }
    }

    fn record_here(&mut self) -> io::Result<Option<Record>> {
        let (at, end) = (self.at, self.window.length);
        let head = self.window.get(at, FRAME as usize + HEADER)?;
        let Some((frame, header)) = head.split_first_chunk::<8>() else {
            // Cut off within the frame.
            if head.iter().zip(self.magic).all(|(byte, magic)| *byte == magic) && !head.is_empty() {
                self.leftovers.torn.get_or_insert(at);
            }
            return Ok(None);
        };
        let ([magic, length], _) = frame.as_chunks::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length);
        if *magic != self.magic || length < HEADER as u32 || length > MAX_RECORD {
            return Ok(None);
        }
        let offset = at + FRAME;
        if offset + u64::from(length) > end {
            self.leftovers.torn.get_or_insert(at);
            return Ok(None);
        }
        let Ok(header) = encode::deserialize::<Header>(header) else { return Ok(None) };
        Ok((!self.searching || meets_own_target(&header)).then_some(Record { offset, length, header }))
    }

    /// Moves on to the next magic. Says no at the end of the file.
    fn skip_to_magic(&mut self) -> io::Result<bool> {
        const STEP: usize = WINDOW / 2;
        // What is here has just been looked at.
        let mut from = 1;
        loop {
            let (magic, at) = (self.magic, self.at);
            let zeros = self.window.zeros_at(at);
            let bytes = self.window.get(at, STEP)?;
            let found = bytes.get(from..).and_then(|rest| rest.windows(4).position(|four| four == magic));
            let at_end = bytes.len() < STEP;
            let step = match found {
                Some(position) => position + from,
                None if at_end => bytes.len(),
                // The last three bytes may be the beginning of a magic.
                None => STEP - 3,
            };
            let is_padding = |(byte, zero): &(&u8, u8)| **byte == 0 || *byte == zero;
            let mut odd =
                bytes.iter().take(step).zip(zeros).enumerate().filter(|(_, pair)| !is_padding(pair));
            if let Some((first, _)) = odd.next() {
                self.searching = true;
                self.leftovers.skipped_at.get_or_insert(at + first as u64);
                self.leftovers.skipped += 1 + odd.count() as u64;
            }
            self.at += step as u64;
            if found.is_some() || at_end {
                return Ok(found.is_some());
            }
            from = 0;
        }
    }
}

/// A stretch of the file in memory, without the key.
struct Window<R> {
    input: R,
    key: Key,
    length: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl<R: Read + Seek> Window<R> {
    /// Up to `count` bytes at a place; fewer only at the end of the file.
    fn get(&mut self, at: u64, count: usize) -> io::Result<&[u8]> {
        let count = count.min(usize::try_from(self.length.saturating_sub(at)).unwrap_or(count));
        let held = at.checked_sub(self.start).and_then(|from| usize::try_from(from).ok());
        let from = match held.filter(|from| from.saturating_add(count) <= self.bytes.len()) {
            Some(from) => from,
            None => {
                self.fill(at)?;
                0
            }
        };
        let end = from.saturating_add(count).min(self.bytes.len());
        Ok(self.bytes.get(from..end).unwrap_or_default())
    }

    fn fill(&mut self, at: u64) -> io::Result<()> {
        self.start = at;
        self.bytes.clear();
        self.input.seek(SeekFrom::Start(at))?;
        let most = (WINDOW as u64).min(self.length.saturating_sub(at));
        (&mut self.input).take(most).read_to_end(&mut self.bytes)?;
        unmask(&mut self.bytes, self.key, at);
        Ok(())
    }

    /// What a zero of the file looks like from a place on, without the key: nodes fill files with plain zeros.
    fn zeros_at(&self, at: u64) -> impl Iterator<Item = u8> + use<R> {
        let mut zeros = Key::default();
        unmask(&mut zeros, self.key, at);
        zeros.into_iter().cycle()
    }
}
