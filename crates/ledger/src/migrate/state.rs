//! The state row as versions 1 to 3 of the schema wrote it. `docs/formats.md` describes the bytes.

use bytes::Bytes;
use sapwood_types::{
    BlockMark, DecodeError, Height,
    codec::{Reader, Writer},
};

use super::Part;
use crate::{StoreError, core::corrupt, engine::Table, read::Snapshot, state::STATE_KEY};

const WHAT: &str = "store state";

/// A state row of an older schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OlderState {
    /// The last block, the height of the first one, and the floor.
    pub(super) chain: Option<(BlockMark, Height, Height)>,
    pub(super) greatest_block_id: u32,
    /// Records, unspent outputs, unmined records.
    pub(super) counts: [u64; 3],
    /// From version 2 on.
    pub(super) spent: Option<u64>,
    /// Records that are locked, preserved, and have an unmined child: from version 3 on.
    pub(super) retained: Option<[u64; 3]>,
    pub(super) prune_cursor: Option<Bytes>,
}

impl OlderState {
    fn version(&self) -> u8 {
        1 + u8::from(self.spent.is_some()) + u8::from(self.retained.is_some())
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.u8(self.version());
        to.u8(u8::from(self.chain.is_some()) | u8::from(self.prune_cursor.is_some()) << 1);
        if let Some((last, first, floor)) = &self.chain {
            last.encode(&mut to);
            to.height(*first);
            to.height(*floor);
        }
        to.u32(self.greatest_block_id);
        let counts = self.counts.iter().chain(&self.spent).chain(self.retained.iter().flatten());
        counts.for_each(|count| to.varint(*count));
        if let Some(cursor) = &self.prune_cursor {
            to.sized(cursor);
        }
        to.finish()
    }

    pub(super) fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut from = Reader::new(bytes);
        let version = from.u8(WHAT)?;
        if !(1..=3).contains(&version) {
            return Err(DecodeError::UnknownVersion { what: WHAT, found: version, known: 3 });
        }
        let flags = from.u8(WHAT)?;
        if flags > 3 {
            return Err(DecodeError::UnknownValue { field: "state flags", value: flags.into() });
        }
        let chain = match flags & 1 {
            0 => None,
            _ => Some((BlockMark::decode(&mut from)?, from.height("first height")?, from.height("floor")?)),
        };
        let greatest_block_id = from.u32("greatest block id")?;
        let counts = [from.varint("records")?, from.varint("unspent")?, from.varint("unmined")?];
        let spent = if version > 1 { Some(from.varint("spent")?) } else { None };
        let retained = match version {
            3 => Some([from.varint("locked")?, from.varint("preserved")?, from.varint("child unmined")?]),
            _ => None,
        };
        let prune_cursor = if flags & 2 != 0 { Some(from.sized("prune cursor")?) } else { None };
        from.end(WHAT)?;
        Ok(Self { chain, greatest_block_id, counts, spent, retained, prune_cursor })
    }

    /// Reads the row of a store whose state has this version.
    pub(super) fn read(rows: &Snapshot<'_>, version: u8) -> Result<Self, StoreError> {
        let bad = |cause| corrupt("the store's state", cause);
        let row = rows.get(Table::Meta, STATE_KEY)?;
        let row =
            row.ok_or_else(|| bad(DecodeError::Inconsistent { what: WHAT, problem: "it is missing" }))?;
        let state = Self::decode(row).map_err(bad)?;
        if state.version() != version {
            return Err(bad(DecodeError::UnknownVersion {
                what: WHAT,
                found: state.version(),
                known: version,
            }));
        }
        Ok(state)
    }

    /// Writes the row.
    pub(super) fn put(&self, part: &mut Part<'_>) {
        part.writes.put(Table::Meta, STATE_KEY, &self.encode());
    }
}

/// Decodes a state row of an older schema and encodes it again.
pub(crate) fn transcode(bytes: Bytes) -> Result<Vec<u8>, DecodeError> {
    OlderState::decode(bytes).map(|state| state.encode())
}

#[cfg(test)]
mod tests {
    use sapwood_types::BlockHash;

    use super::*;

    const SEEDS: [&[u8]; 3] = [
        include_bytes!("../../../../fuzz/seeds/older_state/version_1"),
        include_bytes!("../../../../fuzz/seeds/older_state/version_2"),
        include_bytes!("../../../../fuzz/seeds/store_state/full"),
    ];

    fn full() -> OlderState {
        OlderState {
            chain: Some((
                BlockMark { id: 7, height: Height(300), hash: BlockHash([9; 32]) },
                Height(1),
                Height(12),
            )),
            greatest_block_id: 8,
            counts: [1, 200, 3],
            spent: Some(300),
            retained: Some([4, 129, 6]),
            prune_cursor: Some(Bytes::from_static(b"cursor")),
        }
    }

    #[test]
    fn each_version_of_the_state_is_read_and_written_as_it_was() {
        let version_2 = OlderState { retained: None, ..full() };
        let version_1 = OlderState { spent: None, ..version_2.clone() };
        for (seed, state) in SEEDS.into_iter().zip([version_1, version_2, full()]) {
            assert_eq!(OlderState::decode(Bytes::from_static(seed)), Ok(state.clone()));
            assert_eq!(state.encode(), seed);
            for end in 0..seed.len() {
                assert!(OlderState::decode(Bytes::from_static(&seed[..end])).is_err(), "cut at {end}");
            }
            assert!(OlderState::decode([seed, &[0]].concat().into()).is_err(), "a byte more");
        }
        for (place, value) in [(0, 0), (0, 4), (1, 4)] {
            let mut bytes = full().encode();
            bytes[place] = value;
            assert!(OlderState::decode(bytes.into()).is_err(), "{value} at {place}");
        }
    }
}
