//! Blocks as they are given, and as their row has them.

use std::fmt;

use bytes::Bytes;
use sapwood_types::{
    BlockHash, DecodeError, Height, TxId,
    codec::{Reader, Writer},
};

use crate::arena::{BlobPtr, Piece};

const VERSION: u8 = 1;

/// A part of a block that is stored on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Segment {
    /// The block as its chain writes it.
    Block,
    /// Receipts of its transactions.
    Receipts,
    /// What finds a transaction in the block.
    TxIndex,
}

impl Segment {
    /// All segments, in the order of their numbers.
    pub const ALL: [Segment; 3] = [Segment::Block, Segment::Receipts, Segment::TxIndex];

    /// Returns the number of the segment: 0, 1 or 2.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Returns the segment with a number. `None` if there is none.
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Returns the name used in interfaces.
    pub fn name(self) -> &'static str {
        match self {
            Segment::Block => "block",
            Segment::Receipts => "receipts",
            Segment::TxIndex => "tx_index",
        }
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A block to be archived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewBlock {
    /// Its height.
    pub height: Height,
    /// Its hash.
    pub hash: BlockHash,
    /// The hash of the block before.
    pub parent: BlockHash,
    /// Its time, a Unix timestamp in seconds.
    pub time: u64,
    /// Ids of its transactions, in order. Those that are not listed cannot be looked up.
    pub txs: Vec<TxId>,
    /// Payloads of the segments, by number. A chain that has no receipts leaves them empty.
    pub segments: [Bytes; 3],
}

/// Where a block stands, without its payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BlockPoint {
    /// Its height.
    pub height: Height,
    /// Its hash.
    pub hash: BlockHash,
    /// Its time, a Unix timestamp in seconds.
    pub time: u64,
}

/// An archived block, without its payloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockMeta {
    /// Its height.
    pub height: Height,
    /// Its hash.
    pub hash: BlockHash,
    /// The hash of the block before.
    pub parent: BlockHash,
    /// Its time, a Unix timestamp in seconds.
    pub time: u64,
    /// How many transactions it has that can be looked up.
    pub txs: u32,
    pub(crate) segments: [Vec<Piece>; 3],
}

impl BlockMeta {
    /// Returns where the block stands.
    pub fn point(&self) -> BlockPoint {
        BlockPoint { height: self.height, hash: self.hash, time: self.time }
    }

    /// Returns the length of a payload in bytes.
    pub fn len(&self, segment: Segment) -> u64 {
        self.pieces(segment).iter().map(|piece| u64::from(piece.pointer.len)).sum()
    }

    /// Whether all payloads are empty.
    pub fn is_empty(&self) -> bool {
        self.segments.iter().all(Vec::is_empty)
    }

    /// Returns the pieces of a payload.
    pub fn pieces(&self, segment: Segment) -> &[Piece] {
        &self.segments[usize::from(segment.number())]
    }

    /// Returns the bytes of all payloads.
    pub fn payload_bytes(&self) -> u64 {
        Segment::ALL.into_iter().map(|segment| self.len(segment)).sum()
    }

    /// Returns the bytes of all regions that the block uses.
    pub fn region_bytes(&self) -> u64 {
        self.pointers().map(|pointer| u64::from(pointer.class)).sum()
    }

    /// Iterates over the pointers of all payloads.
    pub fn pointers(&self) -> impl Iterator<Item = BlobPtr> {
        self.segments.iter().flatten().map(|piece| piece.pointer)
    }

    /// Counts the entries that pruning the block deletes: the block itself, its receipts and its transaction index if
    /// there are any, and the location of each transaction.
    pub fn prune_ops(&self) -> u64 {
        let optional = [Segment::Receipts, Segment::TxIndex].map(|segment| self.pieces(segment));
        let optional = optional.iter().filter(|pieces| !pieces.is_empty()).count();
        1 + optional as u64 + u64::from(self.txs)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let pieces: usize = self.segments.iter().map(Vec::len).sum();
        let mut to = Writer::with_capacity(96 + pieces * Piece::SIZE);
        to.u8(VERSION);
        to.bytes(self.hash.as_bytes());
        to.bytes(self.parent.as_bytes());
        to.varint(self.time);
        to.varint(self.txs.into());
        for pieces in &self.segments {
            to.length(pieces.len());
            pieces.iter().for_each(|piece| piece.write(&mut to));
        }
        to.finish()
    }

    pub(crate) fn decode(height: Height, bytes: &[u8]) -> Result<Self, DecodeError> {
        const WHAT: &str = "block row";
        let mut from = Reader::of_slice(bytes);
        from.version(WHAT, VERSION)?;
        let (hash, parent) = (from.block_hash("block hash")?, from.block_hash("parent hash")?);
        let (time, txs) = (from.varint("block time")?, from.varint_u32("transaction count")?);
        let mut segments = <[Vec<Piece>; 3]>::default();
        for pieces in &mut segments {
            let count = from.count("pieces", Piece::SIZE)?;
            *pieces = (0..count).map(|_| Piece::read(&mut from)).collect::<Result<_, _>>()?;
            let len: u64 = pieces.iter().map(|piece| u64::from(piece.pointer.len)).sum();
            if len > u32::MAX.into() {
                return Err(DecodeError::Inconsistent { what: WHAT, problem: "a segment of 4 GiB or more" });
            }
        }
        from.end(WHAT)?;
        Ok(Self { height, hash, parent, time, txs, segments })
    }
}

/// The identities of a block: what has to be deleted so that neither the block nor its transactions are found any more.
/// The row stays when a block is pruned, as the list of its tombstones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identities {
    pub(crate) hash: BlockHash,
    pub(crate) txs: Vec<TxId>,
}

impl Identities {
    /// How many tombstones it makes when its block is pruned.
    pub(crate) fn entries(txs: u64) -> u64 {
        1 + txs
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Writer::with_capacity(40 + self.txs.len() * TxId::SIZE);
        to.u8(VERSION);
        to.bytes(self.hash.as_bytes());
        to.length(self.txs.len());
        self.txs.iter().for_each(|txid| to.bytes(txid.as_bytes()));
        to.finish()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        const WHAT: &str = "block identities";
        let mut from = Reader::of_slice(bytes);
        from.version(WHAT, VERSION)?;
        let hash = from.block_hash("block hash")?;
        let count = from.count("transactions", TxId::SIZE)?;
        let txs = (0..count).map(|_| from.txid("transaction id")).collect::<Result<_, _>>()?;
        from.end(WHAT)?;
        Ok(Self { hash, txs })
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn example() -> BlockMeta {
        let piece = |offset, len, class| Piece {
            pointer: BlobPtr { offset, len, class, generation: 3 },
            checksum: 0x0102_0304,
        };
        BlockMeta {
            height: Height(1),
            hash: BlockHash([1; 32]),
            parent: BlockHash([2; 32]),
            time: 300,
            txs: 2,
            segments: [
                vec![piece(1 << 16, 1 << 16, 1 << 16), piece(2 << 16, 1, 1 << 16)],
                vec![],
                vec![piece(3 << 16, 258, 2 << 16)],
            ],
        }
    }

    #[test]
    fn block_row_is_encoded_as_documented() {
        let golden: [&[u8]; 8] = [
            &[1],
            &[1; 32],
            &[2; 32],
            // Time, transactions.
            &[0xac, 2, 2],
            // Two pieces of the block: offset, length, class, generation, checksum.
            &[2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 3, 1, 2, 3, 4],
            &[0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 3, 1, 2, 3, 4],
            // No receipts.
            &[0],
            // One piece of the transaction index.
            &[1, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 1, 2, 0, 2, 0, 0, 0, 0, 0, 3, 1, 2, 3, 4],
        ];
        assert_eq!(example().encode(), golden.concat());
        assert_eq!(BlockMeta::decode(Height(1), &golden.concat()), Ok(example()));
        assert_eq!(golden.concat(), include_bytes!("../../../fuzz/seeds/archive_block/example"));
    }

    #[test]
    fn block_counts_its_bytes_and_entries() {
        let block = example();
        assert_eq!((block.len(Segment::Block), block.len(Segment::Receipts)), ((1 << 16) + 1, 0));
        assert_eq!(block.payload_bytes(), (1 << 16) + 1 + 258);
        assert_eq!(block.region_bytes(), 4 << 16);
        assert_eq!(block.prune_ops(), 1 + 1 + 2, "the block, its index, two locations; no receipts");
    }

    #[test]
    fn damaged_block_row_is_refused() {
        let bytes = example().encode();
        for end in 0..bytes.len() {
            assert!(BlockMeta::decode(Height(1), &bytes[..end]).is_err(), "cut at {end}");
        }
        assert!(BlockMeta::decode(Height(1), &[&bytes[..], &[0]].concat()).is_err(), "a byte more");
    }

    #[test]
    fn identities_are_encoded_as_documented() {
        let ids = Identities { hash: BlockHash([1; 32]), txs: vec![TxId([2; 32]), TxId([3; 32])] };
        let golden: [&[u8]; 5] = [&[1], &[1; 32], &[2], &[2; 32], &[3; 32]];
        assert_eq!(ids.encode(), golden.concat());
        assert_eq!(Identities::decode(&golden.concat()), Ok(ids));
        assert_eq!(golden.concat(), include_bytes!("../../../fuzz/seeds/archive_identities/example"));
        for end in 0..golden.concat().len() {
            assert!(Identities::decode(&golden.concat()[..end]).is_err(), "cut at {end}");
        }
    }

    proptest! {
        #[test]
        fn decoded_block_row_encodes_to_the_same_bytes(rest in vec(any::<u8>(), 0..40), pieces in 0_u8..3) {
            let pieces = [&[pieces], &example().encode()[69..69 + 24 * usize::from(pieces)], &[0, 0]].concat();
            let bytes = [&example().encode()[..68], &pieces, &rest].concat();
            if let Ok(block) = BlockMeta::decode(Height(1), &bytes) {
                prop_assert_eq!(block.encode(), bytes);
            }
        }
    }
}
