//! One commit as plain data.

use bytes::Bytes;
use sapwood_types::{
    DecodeError,
    codec::{Reader, Writer},
};

use super::Table;

const VERSION: u8 = 1;
const PUT: u8 = 0;
const DELETE: u8 = 1;
const DELETE_RANGE: u8 = 2;

/// The row changes of one commit, in the order in which they take effect.
///
/// Rows lie one behind another in one buffer, as they are encoded: putting a block together allocates nothing per row, and an engine without
/// atomic commits can journal the set as it is and replay it. `docs/formats.md` describes the bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteSet {
    /// The number of the commit: one more than that of the commit before.
    pub number: u64,
    /// The leader's epoch. 0 where there is one process only.
    pub epoch: u64,
    rows: Vec<u8>,
    count: u64,
}

/// One change of a [`WriteSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowChange<'a> {
    /// Writes a row, over the one that is there.
    Put {
        /// The table.
        table: Table,
        /// The row's key.
        key: &'a [u8],
        /// The row's value.
        value: &'a [u8],
    },
    /// Deletes a row. An absent one is fine.
    Delete {
        /// The table.
        table: Table,
        /// The row's key.
        key: &'a [u8],
    },
    /// Deletes the rows from `from`, included, to `to`, excluded.
    DeleteRange {
        /// The table.
        table: Table,
        /// The lowest key.
        from: &'a [u8],
        /// The end of the range.
        to: &'a [u8],
    },
}

impl WriteSet {
    /// Creates an empty set with a number.
    pub fn new(number: u64) -> Self {
        Self { number, ..Self::default() }
    }

    /// Creates an empty set with room for rows of `bytes` bytes in all.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { rows: Vec::with_capacity(bytes), ..Self::default() }
    }

    /// Returns the number of changes.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the size of all rows in bytes.
    pub fn bytes(&self) -> usize {
        self.rows.len()
    }

    /// Writes a row, over the one that is there.
    pub fn put(&mut self, table: Table, key: &[u8], value: &[u8]) {
        self.change(PUT, table, key);
        self.sized(value);
    }

    /// Deletes a row. An absent one is fine.
    pub fn delete(&mut self, table: Table, key: &[u8]) {
        self.change(DELETE, table, key);
    }

    /// Deletes the rows from `from`, included, to `to`, excluded.
    pub fn delete_range(&mut self, table: Table, from: &[u8], to: &[u8]) {
        self.change(DELETE_RANGE, table, from);
        self.sized(to);
    }

    /// Iterates over the changes in order.
    pub fn iter(&self) -> impl Iterator<Item = RowChange<'_>> {
        Rows(&self.rows)
    }

    fn change(&mut self, kind: u8, table: Table, key: &[u8]) {
        self.rows.push(tag(kind, table));
        self.sized(key);
        self.count += 1;
    }

    fn sized(&mut self, bytes: &[u8]) {
        let mut length = bytes.len() as u64;
        while length >= 0x80 {
            self.rows.push(length as u8 | 0x80);
            length >>= 7;
        }
        self.rows.push(length as u8);
        self.rows.extend_from_slice(bytes);
    }

    /// Encodes the set.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::with_capacity(self.rows.len() + 32);
        to.u8(VERSION);
        to.varint(self.number);
        to.varint(self.epoch);
        to.varint(self.count);
        to.bytes(&self.rows);
        to.finish()
    }

    /// Decodes a set.
    ///
    /// # Errors
    /// Any byte that [`encode`](Self::encode) would not write: an unknown version, table or kind of change, a length that is cut short or not
    /// in its shortest form, a range that is empty or reversed, or a number of changes that is not the one given.
    pub fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        const WHAT: &str = "write set";
        let mut from = Reader::new(bytes);
        let found = from.u8(WHAT)?;
        if found != VERSION {
            return Err(DecodeError::UnknownVersion { what: WHAT, found, known: VERSION });
        }
        let (number, epoch) = (from.varint("write number")?, from.varint("epoch")?);
        let count = from.varint("row count")?;
        let mut set = WriteSet { number, epoch, ..WriteSet::default() };
        for _ in 0..count {
            let tag = from.u8("row")?;
            let unknown = DecodeError::UnknownValue { field: "row", value: tag.into() };
            let table = *Table::ALL.get(usize::from(tag & 0x0f)).ok_or(unknown.clone())?;
            let key = from.sized("key")?;
            match tag >> 4 {
                PUT => set.put(table, &key, &from.sized("value")?),
                DELETE => set.delete(table, &key),
                DELETE_RANGE => {
                    let to = from.sized("end of range")?;
                    if to <= key {
                        return Err(DecodeError::Inconsistent {
                            what: WHAT,
                            problem: "a range ends before it begins",
                        });
                    }
                    set.delete_range(table, &key, &to);
                }
                _ => return Err(unknown),
            }
        }
        from.end(WHAT)?;
        Ok(set)
    }
}

fn tag(kind: u8, table: Table) -> u8 {
    kind << 4 | table as u8
}

/// Walks over rows that [`WriteSet`] put together itself, so they are well-formed.
struct Rows<'a>(&'a [u8]);

impl<'a> Rows<'a> {
    fn sized(&mut self) -> Option<&'a [u8]> {
        let (mut length, mut shift) = (0_usize, 0);
        loop {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            length |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
            shift += 7;
        }
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}

impl<'a> Iterator for Rows<'a> {
    type Item = RowChange<'a>;

    fn next(&mut self) -> Option<RowChange<'a>> {
        let (&tag, rest) = self.0.split_first()?;
        self.0 = rest;
        let table = *Table::ALL.get(usize::from(tag & 0x0f))?;
        let key = self.sized()?;
        Some(match tag >> 4 {
            PUT => RowChange::Put { table, key, value: self.sized()? },
            DELETE => RowChange::Delete { table, key },
            _ => RowChange::DeleteRange { table, from: key, to: self.sized()? },
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests: to panic is how they fail")]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn example() -> WriteSet {
        let mut set = WriteSet { number: 300, epoch: 2, ..WriteSet::default() };
        set.put(Table::Tx, b"key", &[7; 130]);
        set.delete(Table::Due, b"");
        set.delete_range(Table::Address, b"a", b"b");
        set
    }

    #[test]
    fn write_set_is_encoded_as_documented() {
        let golden: [&[u8]; 6] = [
            // Version, number, epoch, count.
            &[1, 0xac, 2, 2, 3],
            // Put into `tx`.
            b"\x00\x03key\x82\x01",
            &[7; 130],
            // Delete from `due`.
            b"\x11\x00",
            // Delete a range of `address`.
            b"\x23\x01a",
            b"\x01b",
        ];
        assert_eq!(example().encode(), golden.concat());
        assert_eq!(WriteSet::decode(golden.concat().into()), Ok(example()));
        assert_eq!((example().len(), example().is_empty()), (3, false));
        // Fuzzing starts from the same bytes.
        assert_eq!(golden.concat(), include_bytes!("../../../../fuzz/seeds/write_set/example"));
    }

    #[test]
    fn damaged_write_set_is_refused() {
        let bytes = Bytes::from(example().encode());
        for end in 0..bytes.len() {
            assert!(WriteSet::decode(bytes.slice(..end)).is_err(), "cut at {end}");
        }
        assert!(WriteSet::decode([&bytes[..], &[0]].concat().into()).is_err(), "a byte more");
        let with = |place: usize, value: u8| {
            let mut bytes = bytes.to_vec();
            bytes[place] = value;
            WriteSet::decode(bytes.into())
        };
        assert!(with(0, 2).is_err(), "another version");
        assert!(with(5, 6).is_err(), "an unknown table");
        assert!(with(5, 0x30).is_err(), "an unknown kind of change");
        let last = bytes.len() - 1;
        assert!(with(last, b'a').is_err(), "an empty range");
        assert!(with(last, b'c').is_ok());
    }

    #[derive(Clone, Debug)]
    enum Change {
        Put(Table, Vec<u8>, Vec<u8>),
        Delete(Table, Vec<u8>),
        DeleteRange(Table, Vec<u8>, Vec<u8>),
    }

    fn change() -> impl Strategy<Value = Change> {
        let table = prop::sample::select(Table::ALL.to_vec());
        let bytes = || vec(any::<u8>(), 0..200);
        (table, 0..3, bytes(), bytes()).prop_map(|(table, kind, key, other)| match kind {
            0 => Change::Put(table, key, other),
            1 => Change::Delete(table, key),
            _ => Change::DeleteRange(table, key.clone(), [key, vec![0], other].concat()),
        })
    }

    proptest! {
        #[test]
        fn write_set_round_trips(number: u64, epoch: u64, changes in vec(change(), 0..40)) {
            let mut set = WriteSet { number, epoch, ..WriteSet::default() };
            for change in &changes {
                match change {
                    Change::Put(table, key, value) => set.put(*table, key, value),
                    Change::Delete(table, key) => set.delete(*table, key),
                    Change::DeleteRange(table, from, to) => set.delete_range(*table, from, to),
                }
            }
            let found: Vec<Change> = set.iter().map(|change| match change {
                RowChange::Put { table, key, value } => Change::Put(table, key.to_vec(), value.to_vec()),
                RowChange::Delete { table, key } => Change::Delete(table, key.to_vec()),
                RowChange::DeleteRange { table, from, to } => {
                    Change::DeleteRange(table, from.to_vec(), to.to_vec())
                }
            }).collect();
            prop_assert_eq!(format!("{found:?}"), format!("{changes:?}"));
            prop_assert_eq!(WriteSet::decode(set.encode().into()), Ok(set));
        }

        #[test]
        fn decoded_write_set_encodes_to_the_same_bytes(bytes in vec(any::<u8>(), 0..200)) {
            if let Ok(set) = WriteSet::decode(Bytes::from(bytes.clone())) {
                prop_assert_eq!(set.encode(), bytes);
            }
        }
    }
}
