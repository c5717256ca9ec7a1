//! Which row lies where. `docs/formats.md` describes keys and values.
//!
//! The archive has an engine of its own, so the six tables are free for it. Each kind of row lies in the table that is
//! made for how it is used, and begins with a byte of its own.

use sapwood_ledger::engine::Table;
use sapwood_types::{BlockHash, Height, TxId};

/// Blocks by height: written at one end, deleted at the other.
pub(crate) const BLOCKS: Table = Table::Due;
const BLOCK: u8 = b'b';
/// Identities of a block by height: read and deleted in order.
pub(crate) const IDS: Table = Table::Undo;
const ID: u8 = b'i';
/// Hashes, transactions and regions: point reads and writes.
pub(crate) const POINTS: Table = Table::Tx;
const HASH: u8 = b'h';
const LOCATION: u8 = b't';
const QUEUED: u8 = b'q';
const REGION: u8 = b'r';
/// Free regions and the journal: small.
pub(crate) const SMALL: Table = Table::Pending;
const FREE: u8 = b'f';
const JOURNAL: u8 = b'j';
/// A few rows.
pub(crate) const META: Table = Table::Meta;
pub(crate) const STATE_KEY: &[u8] = b"archive/state";
pub(crate) const POLICY_KEY: &[u8] = b"archive/policy";
const CONSUMER: &[u8] = b"archive/consumer/";
const NOTE: &[u8] = b"archive/note/";

/// A key of up to 37 bytes, without an allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    bytes: [u8; 37],
    len: usize,
}

impl Key {
    fn new(parts: [&[u8]; 3]) -> Self {
        let (mut bytes, mut len) = ([0; 37], 0);
        for part in parts {
            bytes[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        Self { bytes, len }
    }
}

impl std::ops::Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

pub(crate) fn block(height: Height) -> Key {
    Key::new([&[BLOCK], &height.0.to_be_bytes(), &[]])
}

/// The end of all block rows.
pub(crate) const BLOCKS_END: &[u8] = &[BLOCK + 1];

pub(crate) fn ids(height: Height) -> Key {
    Key::new([&[ID], &height.0.to_be_bytes(), &[]])
}

pub(crate) const IDS_END: &[u8] = &[ID + 1];

pub(crate) fn hash(hash: &BlockHash) -> Key {
    Key::new([&[HASH], hash.as_bytes(), &[]])
}

/// Where a transaction is included. One that is in two blocks has a row for each, so that neither has to be read to
/// write the other.
pub(crate) fn location(txid: &TxId, height: Height) -> Key {
    Key::new([&[LOCATION], txid.as_bytes(), &height.0.to_be_bytes()])
}

/// The range of the rows of a transaction: the last one is below the second key, followed by one more byte.
pub(crate) fn locations(txid: &TxId) -> (Key, Vec<u8>) {
    let last = location(txid, Height::MAX);
    (location(txid, Height::GENESIS), [&last, [0].as_slice()].concat())
}

pub(crate) fn queued(txid: &TxId) -> Key {
    Key::new([&[QUEUED], txid.as_bytes(), &[]])
}

pub(crate) fn region(offset: u64) -> Key {
    Key::new([&[REGION], &offset.to_be_bytes(), &[]])
}

pub(crate) fn free(class: u32, offset: u64) -> Key {
    Key::new([&[FREE], &class.to_be_bytes(), &offset.to_be_bytes()])
}

pub(crate) fn journal(number: u64) -> Key {
    Key::new([&[JOURNAL], &number.to_be_bytes(), &[]])
}

pub(crate) fn consumer(name: &str) -> Vec<u8> {
    [CONSUMER, name.as_bytes()].concat()
}

pub(crate) fn note(name: &str) -> Vec<u8> {
    [NOTE, name.as_bytes()].concat()
}

/// All rows that begin with one kind.
pub(crate) struct Kind {
    pub(crate) table: Table,
    pub(crate) from: &'static [u8],
    pub(crate) to: &'static [u8],
}

pub(crate) const ALL_BLOCKS: Kind = Kind { table: BLOCKS, from: &[BLOCK], to: BLOCKS_END };
pub(crate) const ALL_IDS: Kind = Kind { table: IDS, from: &[ID], to: IDS_END };
pub(crate) const ALL_HASHES: Kind = Kind { table: POINTS, from: &[HASH], to: &[HASH + 1] };
pub(crate) const ALL_LOCATIONS: Kind = Kind { table: POINTS, from: &[LOCATION], to: &[LOCATION + 1] };
pub(crate) const ALL_QUEUED: Kind = Kind { table: POINTS, from: &[QUEUED], to: &[QUEUED + 1] };
pub(crate) const ALL_REGIONS: Kind = Kind { table: POINTS, from: &[REGION], to: &[REGION + 1] };
pub(crate) const ALL_FREE: Kind = Kind { table: SMALL, from: &[FREE], to: &[FREE + 1] };
pub(crate) const ALL_JOURNAL: Kind = Kind { table: SMALL, from: &[JOURNAL], to: &[JOURNAL + 1] };
pub(crate) const ALL_CONSUMERS: Kind = Kind { table: META, from: CONSUMER, to: b"archive/consumer0" };

/// The height at the end of a key of blocks, identities or locations. `None` if the key has another length.
pub(crate) fn height_in(key: &[u8]) -> Option<Height> {
    matches!(key.len(), 5 | 37).then(|| key.last_chunk().map(|height| Height(u32::from_be_bytes(*height))))?
}

/// The number or offset at the end of a key. `None` if it is too short.
pub(crate) fn number_in(key: &[u8]) -> Option<u64> {
    key.last_chunk().map(|number| u64::from_be_bytes(*number))
}

/// The size class in the key of a free region. `None` if the key has another length.
pub(crate) fn class_in(key: &[u8]) -> Option<u32> {
    if key.len() != 13 {
        return None;
    }
    key[1..].first_chunk().map(|class| u32::from_be_bytes(*class))
}

/// The name in the key of a consumer's row. `None` if it is not UTF-8.
pub(crate) fn consumer_in(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key.strip_prefix(CONSUMER)?).ok()
}
