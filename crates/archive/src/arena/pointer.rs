//! Pointers to blobs.

use std::fmt;

use bytes::Buf;
use sapwood_types::{
    DecodeError,
    codec::{Reader, Writer},
};

/// Where a blob lies, and which owner of the region it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlobPtr {
    /// Where its region begins in the arena.
    pub offset: u64,
    /// Bytes of the blob. At least 1 and at most `class`.
    pub len: u32,
    /// Bytes of the region.
    pub class: u32,
    /// The generation of the region when the blob was written.
    pub generation: u32,
}

impl BlobPtr {
    /// Bytes of an encoded pointer.
    pub const SIZE: usize = 20;

    /// Encodes the pointer.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.offset.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.class.to_be_bytes());
        bytes[16..].copy_from_slice(&self.generation.to_be_bytes());
        bytes
    }

    /// Decodes a pointer.
    ///
    /// # Errors
    /// A length of 0 or above the class, a generation of 0, or a region that would end past 2⁶⁴.
    pub fn decode(bytes: [u8; Self::SIZE]) -> Result<Self, DecodeError> {
        Self::read(&mut Reader::of_slice(&bytes))
    }

    pub(crate) fn read<B: Buf>(from: &mut Reader<B>) -> Result<Self, DecodeError> {
        let pointer = Self {
            offset: u64::from_be_bytes(from.array("offset")?),
            len: from.u32("blob length")?,
            class: from.u32("size class")?,
            generation: from.u32("generation")?,
        };
        let problem = match pointer {
            _ if pointer.len == 0 => "the blob is empty",
            _ if pointer.len > pointer.class => "the blob is longer than its region",
            _ if pointer.generation == 0 => "generation 0 is never used",
            _ if pointer.offset.checked_add(pointer.class.into()).is_none() => "the region ends past 2^64",
            _ => return Ok(pointer),
        };
        Err(DecodeError::Inconsistent { what: "blob pointer", problem })
    }
}

impl fmt::Display for BlobPtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BlobPtr { offset, len, class, generation } = self;
        write!(f, "{len} bytes at {offset} (class {class}, generation {generation})")
    }
}

/// A pointer with the checksum of its blob. A payload is a chain of pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it lies.
    pub pointer: BlobPtr,
    /// CRC-32C of the blob.
    pub checksum: u32,
}

impl Piece {
    /// Bytes of an encoded piece.
    pub(crate) const SIZE: usize = BlobPtr::SIZE + 4;

    pub(crate) fn write(&self, to: &mut Writer) {
        to.bytes(&self.pointer.encode());
        to.u32(self.checksum);
    }

    pub(crate) fn read<B: Buf>(from: &mut Reader<B>) -> Result<Self, DecodeError> {
        Ok(Self { pointer: BlobPtr::read(from)?, checksum: from.u32("checksum")? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pointer_is_encoded_as_documented() {
        let pointer = BlobPtr { offset: 0x1_0000, len: 1000, class: 0x2_0000, generation: 7 };
        let golden = [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 3, 0xe8, 0, 2, 0, 0, 0, 0, 0, 7];
        assert_eq!(pointer.encode(), golden);
        assert_eq!(BlobPtr::decode(golden), Ok(pointer));
    }

    #[test]
    fn impossible_pointer_is_refused() {
        let good = BlobPtr { offset: 1 << 16, len: 5, class: 1 << 16, generation: 1 };
        for bad in [
            BlobPtr { len: 0, ..good },
            BlobPtr { len: (1 << 16) + 1, ..good },
            BlobPtr { generation: 0, ..good },
            BlobPtr { offset: u64::MAX - 10, ..good },
        ] {
            assert!(BlobPtr::decode(bad.encode()).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn decoded_pointer_encodes_to_the_same_bytes(bytes: [u8; 20]) {
            if let Ok(pointer) = BlobPtr::decode(bytes) {
                prop_assert_eq!(pointer.encode(), bytes);
            }
        }
    }
}
