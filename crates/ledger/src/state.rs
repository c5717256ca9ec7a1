//! What the store knows besides records: one small entry, rewritten with every write.

use crate::{Counts, Cursor};
use bytes::Bytes;
use sapwood_rules::Policy;
use sapwood_types::{
    BlockMark, DecodeError, Height,
    codec::{Reader, Writer},
};

pub(crate) const STATE_KEY: &[u8] = b"state";
pub(crate) const INDEXING_KEY: &[u8] = b"address-index";
pub(crate) const IDENTITY_KEY: &[u8] = b"identity";

/// Older versions are those of older schemas: see `migrate`.
const VERSION: u8 = 3;

/// Where the chain stands, how much there is, and how far pruning got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) chain: Option<Chain>,
    pub(crate) greatest_block_id: u32,
    pub(crate) counts: Counts,
    pub(crate) prune_cursor: Option<Cursor>,
}

/// The applied blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    /// The last one.
    pub(crate) last: BlockMark,
    /// The height of the first one.
    pub(crate) first: Height,
    /// The lowest height a rollback can reach.
    pub(crate) floor: Height,
}

impl Chain {
    /// The lowest block that a rollback can still take back: the first one too, as long as everything can be.
    pub(crate) fn undoable_from(&self) -> Height {
        if self.floor > self.first { self.floor.next() } else { self.first }
    }
}

impl State {
    pub(crate) fn last(&self) -> Option<BlockMark> {
        self.chain.map(|chain| chain.last)
    }

    pub(crate) fn floor(&self) -> Option<Height> {
        self.chain.map(|chain| chain.floor)
    }

    /// The lowest block that a rollback can still take back.
    pub(crate) fn undoable_from(&self) -> Option<Height> {
        self.chain.map(|chain| chain.undoable_from())
    }

    /// Up to which height of its spender's block a slot may forget who spent it: beyond every reorganisation and every
    /// check that would still ask.
    pub(crate) fn settled_below(&self, policy: &Policy) -> Option<Height> {
        let depth = policy.retention.max(policy.reorg_window);
        let Chain { last, floor, .. } = self.chain?;
        // A policy with a smaller window moves the floor only with the next block; until then a rollback can reach below it.
        last.height.0.checked_sub(depth).map(|height| floor.min(Height(height)))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Writer::with_capacity(96);
        to.u8(VERSION);
        to.u8(u8::from(self.chain.is_some()) | u8::from(self.prune_cursor.is_some()) << 1);
        if let Some(chain) = &self.chain {
            chain.last.encode(&mut to);
            to.height(chain.first);
            to.height(chain.floor);
        }
        to.u32(self.greatest_block_id);
        to.varint(self.counts.records);
        to.varint(self.counts.unspent);
        to.varint(self.counts.unmined);
        to.varint(self.counts.spent);
        to.varint(self.counts.locked);
        to.varint(self.counts.preserved);
        to.varint(self.counts.child_unmined);
        if let Some(cursor) = &self.prune_cursor {
            to.sized(&cursor.0);
        }
        to.finish()
    }

    pub(crate) fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        const WHAT: &str = "store state";
        let mut from = Reader::new(bytes);
        from.version(WHAT, VERSION)?;
        let flags = from.u8(WHAT)?;
        if flags > 3 {
            return Err(DecodeError::UnknownValue { field: "state flags", value: flags.into() });
        }
        let chain = if flags & 1 != 0 {
            let last = BlockMark::decode(&mut from)?;
            Some(Chain { last, first: from.height("first height")?, floor: from.height("floor")? })
        } else {
            None
        };
        let greatest_block_id = from.u32("greatest block id")?;
        let counts = Counts {
            records: from.varint("records")?,
            unspent: from.varint("unspent")?,
            unmined: from.varint("unmined")?,
            spent: from.varint("spent")?,
            locked: from.varint("locked")?,
            preserved: from.varint("preserved")?,
            child_unmined: from.varint("child unmined")?,
        };
        let prune_cursor = if flags & 2 != 0 { Some(Cursor(from.sized("prune cursor")?)) } else { None };
        from.end(WHAT)?;
        Ok(State { chain, greatest_block_id, counts, prune_cursor })
    }
}

#[cfg(test)]
mod tests {
    use sapwood_types::BlockHash;

    use super::*;

    fn full() -> State {
        State {
            chain: Some(Chain {
                last: BlockMark { id: 7, height: Height(300), hash: BlockHash([9; 32]) },
                first: Height(1),
                floor: Height(12),
            }),
            greatest_block_id: 8,
            counts: Counts {
                records: 1,
                unspent: 200,
                unmined: 3,
                spent: 300,
                locked: 4,
                preserved: 129,
                child_unmined: 6,
            },
            prune_cursor: Some(Cursor(Bytes::from_static(b"cursor"))),
        }
    }

    #[test]
    fn the_state_is_written_as_documented() {
        let golden: [&[u8]; 16] = [
            // Version, and flags: a last block and a cursor.
            &[3],
            &[3],
            // The last block: id, height, hash.
            &[0, 0, 0, 7],
            &[0, 0, 1, 44],
            &[9; 32],
            // First height, floor, greatest block id.
            &[0, 0, 0, 1],
            &[0, 0, 0, 12],
            &[0, 0, 0, 8],
            // Records, unspent outputs, unmined records, spent outputs.
            &[1],
            &[0xc8, 1],
            &[3],
            &[0xac, 2],
            // Records retained because of a lock, a preservation, an unmined child.
            &[4],
            &[0x81, 1],
            &[6],
            b"\x06cursor",
        ];
        assert_eq!(full().encode(), golden.concat());
        assert_eq!(State::decode(golden.concat().into()), Ok(full()));
        let new: [u8; 13] = [3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(State::default().encode(), new);
        // Fuzzing starts from the same bytes.
        assert_eq!(golden.concat(), include_bytes!("../../../fuzz/seeds/store_state/full"));
        assert_eq!(new, *include_bytes!("../../../fuzz/seeds/store_state/new"));
    }

    #[test]
    fn the_state_survives_and_damage_is_noticed() {
        for state in [State::default(), full()] {
            let bytes = Bytes::from(state.encode());
            assert_eq!(State::decode(bytes.clone()), Ok(state));
            for end in 0..bytes.len() {
                assert!(State::decode(bytes.slice(..end)).is_err(), "cut at {end}");
            }
            assert!(State::decode([&bytes[..], &[0]].concat().into()).is_err(), "a byte more");
        }
        let with = |place: usize, value: u8| {
            let mut bytes = full().encode();
            bytes[place] = value;
            State::decode(bytes.into())
        };
        for found in [0, 2, 4] {
            let version = DecodeError::UnknownVersion { what: "store state", found, known: 3 };
            assert_eq!(with(0, found), Err(version));
        }
        assert_eq!(with(1, 7), Err(DecodeError::UnknownValue { field: "state flags", value: 7 }));
    }

    #[test]
    fn spenders_are_forgotten_beyond_retention_and_window() {
        let policy = Policy { reorg_window: 100, ..Policy::with_retention(288) };
        assert_eq!(full().settled_below(&policy), Some(Height(12)));
        assert_eq!(full().settled_below(&Policy::with_retention(301)), None);
    }
}
