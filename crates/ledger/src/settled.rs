//! How many records settled at each height, kept with each write: what is deep enough to go and what is not, without reading any of them.

use std::collections::BTreeMap;

use bytes::Bytes;
use sapwood_types::{
    DecodeError, Height,
    codec::{Reader, Writer},
};

use crate::{
    StoreError,
    core::corrupt,
    engine::{Scan, Table, WriteSet},
    keys,
    read::Snapshot,
};

/// Records by the height at which they settled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settled(BTreeMap<Height, u64>);

impl Settled {
    pub(crate) fn at(&self, height: Height) -> u64 {
        self.0.get(&height).copied().unwrap_or(0)
    }

    /// A height of no records takes no room.
    pub(crate) fn set(&mut self, height: Height, records: u64) {
        match records {
            0 => self.0.remove(&height),
            _ => self.0.insert(height, records),
        };
    }

    /// Sums up `from` to `to`, both included.
    pub(crate) fn between(&self, from: Height, to: Height) -> u64 {
        if from > to { 0 } else { self.0.range(from..=to).map(|(_, records)| records).sum() }
    }

    /// Every height with records, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Height, u64)> {
        self.0.iter().map(|(height, records)| (*height, *records))
    }
}

impl FromIterator<(Height, i64)> for Settled {
    fn from_iter<T: IntoIterator<Item = (Height, i64)>>(counted: T) -> Self {
        let mut settled = Settled::default();
        for (height, records) in counted {
            settled.set(height, records.max(0).unsigned_abs());
        }
        settled
    }
}

fn encode(records: u64) -> Vec<u8> {
    let mut to = Writer::default();
    to.varint(records);
    to.finish()
}

fn decode(key: &[u8], value: Bytes) -> Result<(Height, u64), DecodeError> {
    const WHAT: &str = "settled records";
    let height = keys::parse_settled(key).ok_or(DecodeError::BadNumber { field: "height" })?;
    let mut from = Reader::new(value);
    let records = from.varint(WHAT)?;
    from.end(WHAT)?;
    if records == 0 {
        return Err(DecodeError::Inconsistent { what: WHAT, problem: "0 is not stored" });
    }
    Ok((height, records))
}

impl Snapshot<'_> {
    /// Reads what is stored.
    pub(crate) fn settled(&self) -> Result<Settled, StoreError> {
        let mut settled = Settled::default();
        let end = keys::after_prefix(keys::SETTLED);
        let scan = Scan { from: keys::SETTLED, to: end.as_deref(), ..Scan::all(Table::Meta) };
        self.try_scan(&scan, |key, value| {
            let (height, records) = decode(key, Bytes::copy_from_slice(value))
                .map_err(|cause| corrupt("the count of settled records", cause))?;
            settled.set(height, records);
            Ok(())
        })?;
        Ok(settled)
    }

    /// Reads how many records settled at one height.
    pub(crate) fn settled_at(&self, height: Height) -> Result<u64, StoreError> {
        let key = keys::settled(height);
        let Some(row) = self.get(Table::Meta, &key)? else { return Ok(0) };
        let (_, records) =
            decode(&key, row).map_err(|cause| corrupt("the count of settled records", cause))?;
        Ok(records)
    }
}

/// Writes the numbers of these heights.
pub(crate) fn put(writes: &mut WriteSet, changed: impl IntoIterator<Item = (Height, u64)>) {
    for (height, records) in changed {
        match records {
            0 => writes.delete(Table::Meta, &keys::settled(height)),
            _ => writes.put(Table::Meta, &keys::settled(height), &encode(records)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_sums_up_both_ends() {
        let settled = Settled::from_iter([(Height(3), 2), (Height(5), 7), (Height(9), 1), (Height(6), 0)]);
        let between = |from, to| settled.between(Height(from), Height(to));
        assert_eq!((between(3, 9), between(4, 8), between(5, 5), between(6, 8)), (10, 7, 7, 0));
        assert_eq!((between(0, u32::MAX), between(9, 3)), (10, 0));
        assert_eq!(settled.iter().count(), 3, "a height of no records takes no room");
    }

    #[test]
    fn a_row_is_written_as_documented_and_damage_is_noticed() {
        let key = keys::settled(Height(300));
        assert_eq!(key, *b"settled/\x00\x00\x01\x2c");
        assert_eq!(encode(300), [0xac, 2]);
        assert_eq!(decode(&key, encode(300).into()), Ok((Height(300), 300)));
        for bad in [&b""[..], &[0], &[0xac], &[0xac, 2, 0]] {
            assert!(decode(&key, Bytes::from_static(bad)).is_err(), "{bad:?}");
        }
        assert!(decode(b"settled/\x00\x01\x2c", encode(1).into()).is_err());
    }
}
