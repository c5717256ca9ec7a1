//! Keys: how entries are ordered in each table. All integers big-endian, so that byte order is number order.

use sapwood_types::{AddressHash, Height, OutPoint, TxId};

use crate::{AddressKind, changes::IndexEntry, engine::Table};

pub(crate) const ADDRESS_PREFIX: usize = 1 + AddressHash::SIZE;

/// The key of a further page.
pub(crate) fn page(txid: &TxId, number: u32) -> [u8; 36] {
    let mut key = [0; 36];
    key[..32].copy_from_slice(&txid.0);
    key[32..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Names what a key of the record table holds.
pub(crate) enum RecordKey {
    First(TxId),
    Further(TxId, u32),
}

impl RecordKey {
    pub(crate) fn parse(key: &[u8]) -> Option<Self> {
        let (txid, number) = key.split_first_chunk::<32>()?;
        if number.is_empty() {
            return Some(RecordKey::First(TxId(*txid)));
        }
        number.try_into().ok().map(|number| RecordKey::Further(TxId(*txid), u32::from_be_bytes(number)))
    }
}

/// Reads the height that is the key of an undo record.
pub(crate) fn parse_undo(key: &[u8]) -> Option<Height> {
    key.try_into().ok().map(|bytes| Height(u32::from_be_bytes(bytes)))
}

/// The key of a note. No other key of its table begins so.
pub(crate) fn note(name: &str) -> Vec<u8> {
    [b"note/", name.as_bytes()].concat()
}

/// What the keys of settled counts begin with. No other key in their column family begins so.
pub(crate) const SETTLED: &[u8; 8] = b"settled/";

/// The key of how many records settled at a height.
pub(crate) fn settled(height: Height) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(SETTLED);
    key[8..].copy_from_slice(&height.0.to_be_bytes());
    key
}

/// Returns the height of a settled count. `None` if it is no such key.
pub(crate) fn parse_settled(key: &[u8]) -> Option<Height> {
    let height = key.strip_prefix(SETTLED.as_slice())?.try_into().ok()?;
    Some(Height(u32::from_be_bytes(height)))
}

/// The key of an undo record.
pub(crate) fn undo(height: Height) -> [u8; 4] {
    height.0.to_be_bytes()
}

/// Which kind of pending entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    Unmined = 0,
    Preserved = 1,
}

/// Tag, height and transaction id.
pub(crate) fn pending(kind: Pending, height: Height, txid: &TxId) -> [u8; 37] {
    let mut key = [0; 37];
    key[0] = kind as u8;
    key[1..].copy_from_slice(&due(height, txid));
    key
}

/// Height and transaction id.
pub(crate) fn due(height: Height, txid: &TxId) -> [u8; 36] {
    let mut key = [0; 36];
    key[..4].copy_from_slice(&height.0.to_be_bytes());
    key[4..].copy_from_slice(&txid.0);
    key
}

/// What a due key says, or a pending key without its tag.
pub(crate) fn parse_due(key: &[u8]) -> Option<(Height, TxId)> {
    let (height, txid) = key.split_first_chunk::<4>()?;
    Some((Height(u32::from_be_bytes(*height)), TxId(txid.try_into().ok()?)))
}

/// The start of all keys of an address or credential.
pub(crate) fn address_prefix(kind: AddressKind, hash: &AddressHash) -> [u8; ADDRESS_PREFIX] {
    let mut key = [0; ADDRESS_PREFIX];
    key[0] = match kind {
        AddressKind::Address => 0,
        AddressKind::Credential => 1,
    };
    key[1..].copy_from_slice(&hash.0);
    key
}

/// Prefix, height, transaction id and output number.
pub(crate) fn address(
    kind: AddressKind,
    hash: &AddressHash,
    height: Height,
    outpoint: &OutPoint,
) -> [u8; 69] {
    let mut key = [0; 69];
    key[..ADDRESS_PREFIX].copy_from_slice(&address_prefix(kind, hash));
    key[29..33].copy_from_slice(&height.0.to_be_bytes());
    key[33..65].copy_from_slice(&outpoint.txid.0);
    key[65..].copy_from_slice(&outpoint.vout.to_be_bytes());
    key
}

/// The output an address key lists.
pub(crate) fn parse_address(key: &[u8]) -> Option<OutPoint> {
    let key: &[u8; 69] = key.try_into().ok()?;
    let txid = TxId(key[33..65].try_into().ok()?);
    Some(OutPoint::new(txid, u32::from_be_bytes(key[65..].try_into().ok()?)))
}

/// Where an index entry lies. The longest key has 69 bytes.
pub(crate) fn index(entry: &IndexEntry, put: impl FnOnce(Table, &[u8])) {
    match entry {
        IndexEntry::Due(height, txid) => put(Table::Due, &due(*height, txid)),
        IndexEntry::Unmined(height, txid) => put(Table::Pending, &pending(Pending::Unmined, *height, txid)),
        IndexEntry::Preserved(height, txid) => {
            put(Table::Pending, &pending(Pending::Preserved, *height, txid));
        }
        IndexEntry::Address(kind, hash, height, outpoint) => {
            put(Table::Address, &address(*kind, hash, *height, outpoint));
        }
    }
}

/// The smallest key greater than every key that starts with `prefix`; nothing if there is none.
pub(crate) fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Some(end);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_by_height_then_id() {
        assert!(due(Height(255), &TxId([9; 32])) < due(Height(256), &TxId([0; 32])));
        assert!(due(Height(5), &TxId([1; 32])) < due(Height(5), &TxId([2; 32])));
    }

    #[test]
    fn keys_can_be_read_back() {
        let txid = TxId([7; 32]);
        assert_eq!(parse_due(&due(Height(9), &txid)), Some((Height(9), txid)));
        assert_eq!(parse_due(&pending(Pending::Preserved, Height(9), &txid)[1..]), Some((Height(9), txid)));
        let outpoint = OutPoint::new(txid, 3);
        let key = address(AddressKind::Credential, &AddressHash([4; 28]), Height(9), &outpoint);
        assert_eq!(parse_address(&key), Some(outpoint));
        assert_eq!(parse_due(&[1, 2]), None);
        assert_eq!(parse_address(&[1, 2]), None);
    }

    #[test]
    fn the_end_of_a_prefix() {
        assert_eq!(after_prefix(&[1, 2]), Some(vec![1, 3]));
        assert_eq!(after_prefix(&[1, 255]), Some(vec![2]));
        assert_eq!(after_prefix(&[255]), None);
    }
}
