//! Reading and writing bytes: the few shapes all formats are made of.
//!
//! Fixed integers are big-endian. Variable-length integers are LEB128 in their shortest form; any longer form is refused, so
//! that a value has one encoding. Lengths are checked against what is left before anything is allocated, so a short input
//! can never ask for a large buffer.

use bytes::{Buf, Bytes};

use crate::{AddressHash, BlockHash, Height, TxId, UtxoHash};

/// Why bytes are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The input ends in the middle of a field.
    #[error("the input ends inside {field}: {needed} bytes needed, {left} left")]
    Truncated {
        /// What was being read.
        field: &'static str,
        /// How many bytes it needs.
        needed: usize,
        /// How many there were.
        left: usize,
    },
    /// The version byte is not one this program knows.
    #[error(
        "{what} has format version {found}, this program knows {known}: a newer program wrote it, or it is damaged"
    )]
    UnknownVersion {
        /// What was being read.
        what: &'static str,
        /// The version found.
        found: u8,
        /// The version known.
        known: u8,
    },
    /// A tag or flag that means nothing.
    #[error("{field} has the unknown value {value}")]
    UnknownValue {
        /// What was being read.
        field: &'static str,
        /// The value found.
        value: u64,
    },
    /// A number outside its range, or not in its shortest form.
    #[error("{field} is out of range or not in its shortest form")]
    BadNumber {
        /// What was being read.
        field: &'static str,
    },
    /// Bytes are left after the end.
    #[error("{left} bytes left over after the end of {what}")]
    TrailingBytes {
        /// What was being read.
        what: &'static str,
        /// How many bytes are left.
        left: usize,
    },
    /// Two parts contradict each other.
    #[error("{what}: {problem}")]
    Inconsistent {
        /// What was being read.
        what: &'static str,
        /// The contradiction.
        problem: &'static str,
    },
}

/// Puts a format together.
#[derive(Debug, Default)]
pub struct Writer {
    buffer: Vec<u8>,
}

impl Writer {
    /// A writer with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { buffer: Vec::with_capacity(capacity) }
    }

    /// What was written.
    pub fn finish(self) -> Vec<u8> {
        self.buffer
    }

    /// What was written so far.
    pub fn written(&self) -> &[u8] {
        &self.buffer
    }

    /// Starts again in the same memory.
    pub fn clear(&mut self) {
        self.buffer.clear();
    }

    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.buffer.push(value);
    }

    /// Two bytes.
    pub fn u16(&mut self, value: u16) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// A height, four bytes.
    pub fn height(&mut self, value: Height) {
        self.u32(value.0);
    }

    /// A variable-length integer, one to ten bytes.
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.buffer.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.buffer.push(value as u8);
    }

    /// A length or count as a variable-length integer.
    pub fn length(&mut self, value: usize) {
        self.varint(value as u64);
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, value: &[u8]) {
        self.buffer.extend_from_slice(value);
    }

    /// A length, then the bytes.
    pub fn sized(&mut self, value: &[u8]) {
        self.length(value.len());
        self.bytes(value);
    }
}

/// Takes a format apart. Slices it hands out share the memory of an input of [`Bytes`]; those of a plain slice are copies.
#[derive(Clone, Debug)]
pub struct Reader<B = Bytes> {
    input: B,
}

impl Reader {
    /// Reads `input` from its start.
    pub fn new(input: Bytes) -> Self {
        Self { input }
    }
}

impl<'a> Reader<&'a [u8]> {
    /// Reads borrowed bytes from their start.
    pub fn of_slice(input: &'a [u8]) -> Self {
        Self { input }
    }
}

impl<B: Buf> Reader<B> {
    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.input.remaining()
    }

    /// Everything that is left.
    pub fn rest(mut self) -> Bytes {
        self.input.copy_to_bytes(self.input.remaining())
    }

    /// Fails if anything is left.
    pub fn end(self, what: &'static str) -> Result<(), DecodeError> {
        match self.left() {
            0 => Ok(()),
            left => Err(DecodeError::TrailingBytes { what, left }),
        }
    }

    fn need(&self, field: &'static str, needed: usize) -> Result<(), DecodeError> {
        let left = self.left();
        if left < needed { Err(DecodeError::Truncated { field, needed, left }) } else { Ok(()) }
    }

    /// So many bytes.
    pub fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        self.need(field, N)?;
        let mut bytes = [0; N];
        self.input.copy_to_slice(&mut bytes);
        Ok(bytes)
    }

    /// Checks the version byte.
    pub fn version(&mut self, what: &'static str, known: u8) -> Result<(), DecodeError> {
        match self.u8(what)? {
            found if found == known => Ok(()),
            found => Err(DecodeError::UnknownVersion { what, found, known }),
        }
    }

    /// One byte.
    pub fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    /// Two bytes.
    pub fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        self.array(field).map(u16::from_be_bytes)
    }

    /// Four bytes.
    pub fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.array(field).map(u32::from_be_bytes)
    }

    /// A height.
    pub fn height(&mut self, field: &'static str) -> Result<Height, DecodeError> {
        self.u32(field).map(Height)
    }

    /// A variable-length integer in its shortest form.
    pub fn varint(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8(field)?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(DecodeError::BadNumber { field });
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                let padded = byte == 0 && shift > 0;
                return if padded { Err(DecodeError::BadNumber { field }) } else { Ok(value) };
            }
        }
        Err(DecodeError::BadNumber { field })
    }

    /// A variable-length integer that fits 32 bits.
    pub fn varint_u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        u32::try_from(self.varint(field)?).map_err(|_| DecodeError::BadNumber { field })
    }

    /// A count of things that take at least `least` bytes each: refused if that many cannot follow.
    pub fn count(&mut self, field: &'static str, least: usize) -> Result<usize, DecodeError> {
        let count = usize::try_from(self.varint(field)?).map_err(|_| DecodeError::BadNumber { field })?;
        let needed = count.checked_mul(least.max(1)).ok_or(DecodeError::BadNumber { field })?;
        self.need(field, needed)?;
        Ok(count)
    }

    /// So many bytes, without copying.
    pub fn take(&mut self, field: &'static str, length: usize) -> Result<Bytes, DecodeError> {
        self.need(field, length)?;
        Ok(self.input.copy_to_bytes(length))
    }

    /// A length, then that many bytes, without copying.
    pub fn sized(&mut self, field: &'static str) -> Result<Bytes, DecodeError> {
        let length = self.count(field, 1)?;
        self.take(field, length)
    }

    /// A transaction id.
    pub fn txid(&mut self, field: &'static str) -> Result<TxId, DecodeError> {
        self.array(field).map(TxId)
    }

    /// A block hash.
    pub fn block_hash(&mut self, field: &'static str) -> Result<BlockHash, DecodeError> {
        self.array(field).map(BlockHash)
    }

    /// An output's hash.
    pub fn utxo_hash(&mut self, field: &'static str) -> Result<UtxoHash, DecodeError> {
        self.array(field).map(UtxoHash)
    }

    /// An address hash.
    pub fn address_hash(&mut self, field: &'static str) -> Result<AddressHash, DecodeError> {
        self.array(field).map(AddressHash)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn varint_of(bytes: &[u8]) -> Result<u64, DecodeError> {
        Reader::new(Bytes::copy_from_slice(bytes)).varint("number")
    }

    #[test]
    fn longer_forms_of_a_number_are_refused() {
        assert_eq!(varint_of(&[0x80, 0x00]), Err(DecodeError::BadNumber { field: "number" }));
        assert_eq!(varint_of(&[0xff; 11]), Err(DecodeError::BadNumber { field: "number" }));
        let two_to_the_64 = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02];
        assert_eq!(varint_of(&two_to_the_64), Err(DecodeError::BadNumber { field: "number" }));
    }

    #[test]
    fn a_short_input_cannot_claim_a_long_list() {
        let mut writer = Writer::default();
        writer.varint(u64::MAX);
        let count = Reader::new(writer.finish().into()).count("items", 36);
        assert_eq!(count, Err(DecodeError::BadNumber { field: "items" }));
    }

    proptest! {
        #[test]
        fn numbers_survive(value: u64) {
            let mut writer = Writer::default();
            writer.varint(value);
            let mut reader = Reader::new(writer.finish().into());
            prop_assert_eq!(reader.varint("number"), Ok(value));
            prop_assert_eq!(reader.left(), 0);
        }
    }
}
