//! What the archive knows besides its blocks: one small row, rewritten with every commit.

use sapwood_types::{
    DecodeError, Height,
    codec::{Reader, Writer},
};

use crate::{
    arena::header::{ArenaId, FIRST_OFFSET},
    block::BlockPoint,
};

const VERSION: u8 = 1;
const WHAT: &str = "archive state";

/// Bytes of regions by state, each counted by its size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RegionBytes {
    /// Of regions that blocks refer to.
    pub used: u64,
    /// Of regions that no block refers to and that cannot be used again yet.
    pub quarantine: u64,
    /// Of regions that can be used again.
    pub free: u64,
    /// Of those of the free regions whose disk space was given back.
    pub punched: u64,
}

impl RegionBytes {
    /// Returns the bytes that count against the budget: `+= class` when a region is allocated, `-= class` when it goes
    /// from quarantine to free.
    pub fn estimated_kept(&self) -> u64 {
        self.used.saturating_add(self.quarantine)
    }
}

/// The oldest block that is kept, without a block 0 that is never pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Oldest {
    pub(crate) height: Height,
    pub(crate) time: u64,
}

/// Where the archive stands, and how much there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Of the arena file.
    pub(crate) id: ArenaId,
    /// Block 0 is never pruned.
    pub(crate) keep_genesis: bool,
    /// Pruning by capacity began at high water and has not reached low water yet.
    pub(crate) latched: bool,
    pub(crate) head: Option<BlockPoint>,
    pub(crate) oldest: Option<Oldest>,
    /// Blocks at or below it are pruned.
    pub(crate) boundary: Option<Height>,
    /// What the chain reported last.
    pub(crate) finalized: Option<Height>,
    /// The lowest block that a reorg can return to.
    pub(crate) floor: Option<Height>,
    /// Tombstones at or below it were dropped.
    pub(crate) forgotten: Option<Height>,
    /// When something was pruned last, a Unix timestamp in seconds.
    pub(crate) last_prune: Option<u64>,
    /// Where the last region ends.
    pub(crate) end: u64,
    pub(crate) bytes: RegionBytes,
    /// Region bytes of a block 0 that is never pruned. Part of `bytes.used`.
    pub(crate) pinned: u64,
    /// The number of the next journal entry.
    pub(crate) next_journal: u64,
    pub(crate) totals: Totals,
}

/// Counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Totals {
    /// Blocks that are kept.
    pub blocks: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// Queued transactions.
    pub queued: u64,
    /// Pruned blocks and transactions that are remembered.
    pub tombstones: u64,
    /// Region bytes ever written.
    pub written_bytes: u64,
    /// Blocks ever pruned.
    pub pruned_blocks: u64,
    /// Region bytes ever pruned.
    pub pruned_bytes: u64,
    /// Blocks whose row could not be read when they were to be pruned. Their regions stay in use until they are
    /// repaired.
    pub unreadable: u64,
}

impl Totals {
    const COUNT: usize = 8;

    fn to_array(self) -> [u64; Self::COUNT] {
        [
            self.blocks,
            self.payload_bytes,
            self.queued,
            self.tombstones,
            self.written_bytes,
            self.pruned_blocks,
            self.pruned_bytes,
            self.unreadable,
        ]
    }

    fn of_array(
        [
            blocks,
            payload_bytes,
            queued,
            tombstones,
            written_bytes,
            pruned_blocks,
            pruned_bytes,
            unreadable,
        ]: [u64; Self::COUNT],
    ) -> Self {
        Self {
            blocks,
            payload_bytes,
            queued,
            tombstones,
            written_bytes,
            pruned_blocks,
            pruned_bytes,
            unreadable,
        }
    }
}

const KEEP_GENESIS: u16 = 1 << 0;
const LATCHED: u16 = 1 << 1;
const HEAD: u16 = 1 << 2;
const OLDEST: u16 = 1 << 3;
const BOUNDARY: u16 = 1 << 4;
const FINALIZED: u16 = 1 << 5;
const FLOOR: u16 = 1 << 6;
const FORGOTTEN: u16 = 1 << 7;
const LAST_PRUNE: u16 = 1 << 8;
const KNOWN: u16 = (1 << 9) - 1;

impl State {
    pub(crate) fn new(id: ArenaId, keep_genesis: bool) -> Self {
        Self {
            id,
            keep_genesis,
            latched: false,
            head: None,
            oldest: None,
            boundary: None,
            finalized: None,
            floor: None,
            forgotten: None,
            last_prune: None,
            end: FIRST_OFFSET,
            bytes: RegionBytes::default(),
            pinned: 0,
            next_journal: 0,
            totals: Totals::default(),
        }
    }

    /// Whether the block at a height is pruned. A block 0 that is never pruned is not.
    pub(crate) fn is_pruned(&self, height: Height) -> bool {
        let kept = self.keep_genesis && height == Height::GENESIS;
        !kept && self.boundary.is_some_and(|boundary| height <= boundary)
    }

    /// Region bytes that count against the budget. What can never shrink does not: it would keep pruning on without
    /// end.
    pub(crate) fn prunable_estimate(&self) -> u64 {
        self.bytes.estimated_kept().saturating_sub(self.pinned)
    }

    /// The same without regions in quarantine, which are on their way out already.
    pub(crate) fn prunable_used(&self) -> u64 {
        self.bytes.used.saturating_sub(self.pinned)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let flags = [
            (KEEP_GENESIS, self.keep_genesis),
            (LATCHED, self.latched),
            (HEAD, self.head.is_some()),
            (OLDEST, self.oldest.is_some()),
            (BOUNDARY, self.boundary.is_some()),
            (FINALIZED, self.finalized.is_some()),
            (FLOOR, self.floor.is_some()),
            (FORGOTTEN, self.forgotten.is_some()),
            (LAST_PRUNE, self.last_prune.is_some()),
        ];
        let mut to = Writer::with_capacity(160);
        to.u8(VERSION);
        to.u16(flags.iter().filter(|(_, set)| *set).map(|(flag, _)| flag).sum());
        to.bytes(&self.id);
        if let Some(head) = &self.head {
            to.height(head.height);
            to.bytes(head.hash.as_bytes());
            to.varint(head.time);
        }
        if let Some(oldest) = &self.oldest {
            to.height(oldest.height);
            to.varint(oldest.time);
        }
        for height in [self.boundary, self.finalized, self.floor, self.forgotten].into_iter().flatten() {
            to.height(height);
        }
        if let Some(at) = self.last_prune {
            to.varint(at);
        }
        let RegionBytes { used, quarantine, free, punched } = self.bytes;
        for number in [self.end, used, quarantine, free, punched, self.pinned, self.next_journal] {
            to.varint(number);
        }
        self.totals.to_array().into_iter().for_each(|total| to.varint(total));
        to.finish()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::of_slice(bytes);
        from.version(WHAT, VERSION)?;
        let flags = from.u16("state flags")?;
        if flags & !KNOWN != 0 {
            return Err(DecodeError::UnknownValue { field: "state flags", value: flags.into() });
        }
        let has = |flag| flags & flag != 0;
        let mut state = State::new(from.array("arena id")?, has(KEEP_GENESIS));
        state.latched = has(LATCHED);
        if has(HEAD) {
            let (height, hash) = (from.height("head")?, from.block_hash("head hash")?);
            state.head = Some(BlockPoint { height, hash, time: from.varint("head time")? });
        }
        if has(OLDEST) {
            let height = from.height("oldest block")?;
            state.oldest = Some(Oldest { height, time: from.varint("oldest block's time")? });
        }
        for (flag, field, height) in [
            (BOUNDARY, "boundary", &mut state.boundary),
            (FINALIZED, "finalized", &mut state.finalized),
            (FLOOR, "floor", &mut state.floor),
            (FORGOTTEN, "forgotten", &mut state.forgotten),
        ] {
            *height = has(flag).then(|| from.height(field)).transpose()?;
        }
        state.last_prune = has(LAST_PRUNE).then(|| from.varint("last prune")).transpose()?;
        let RegionBytes { used, quarantine, free, punched } = &mut state.bytes;
        for (field, number) in [
            ("arena end", &mut state.end),
            ("used bytes", used),
            ("quarantined bytes", quarantine),
            ("free bytes", free),
            ("punched bytes", punched),
            ("pinned bytes", &mut state.pinned),
            ("next journal entry", &mut state.next_journal),
        ] {
            *number = from.varint(field)?;
        }
        let mut totals = [0; Totals::COUNT];
        for total in &mut totals {
            *total = from.varint("totals")?;
        }
        state.totals = Totals::of_array(totals);
        from.end(WHAT)?;
        let problem = match &state {
            State { end, .. } if *end < FIRST_OFFSET => "the arena ends inside its first page",
            State { head: None, oldest: Some(_), .. } => "there is an oldest block and no newest",
            State { bytes, pinned, .. } if *pinned > bytes.used => "more is pinned than used",
            State { bytes, .. } if bytes.punched > bytes.free => "more is punched than free",
            State { bytes, .. } if bytes.used.checked_add(bytes.quarantine).is_none() => {
                "it counts past 2^64"
            }
            _ => return Ok(state),
        };
        Err(DecodeError::Inconsistent { what: WHAT, problem })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::{collection::vec, prelude::*};
    use sapwood_types::BlockHash;

    use super::*;

    pub(crate) fn example() -> State {
        State {
            latched: true,
            head: Some(BlockPoint { height: Height(300), hash: BlockHash([9; 32]), time: 300 }),
            oldest: Some(Oldest { height: Height(258), time: 200 }),
            boundary: Some(Height(257)),
            floor: Some(Height(290)),
            last_prune: Some(301),
            end: 1 << 20,
            bytes: RegionBytes { used: 5 << 16, quarantine: 1 << 16, free: 2 << 16, punched: 1 << 16 },
            pinned: 1 << 16,
            next_journal: 6,
            totals: Totals { blocks: 43, written_bytes: 1 << 24, ..Totals::default() },
            ..State::new([7; 16], true)
        }
    }

    #[test]
    fn state_is_encoded_as_documented() {
        let golden: [&[u8]; 11] = [
            // Version, flags, id.
            &[1, 0x01, 0x5f],
            &[7; 16],
            // Head: height, hash, time.
            &[0, 0, 1, 0x2c],
            &[9; 32],
            &[0xac, 2],
            // Oldest block, boundary, floor, last prune.
            &[0, 0, 1, 2, 0xc8, 1, 0, 0, 1, 1, 0, 0, 1, 0x22, 0xad, 2],
            // End, used, quarantine, free, punched, pinned, next journal entry.
            &[0x80, 0x80, 0x40, 0x80, 0x80, 0x14, 0x80, 0x80, 4, 0x80, 0x80, 8, 0x80, 0x80, 4],
            &[0x80, 0x80, 4, 6],
            // Blocks, payload bytes, queued, tombstones, written bytes.
            &[43, 0, 0, 0, 0x80, 0x80, 0x80, 8],
            // Pruned blocks and bytes, unreadable.
            &[0, 0],
            &[0],
        ];
        assert_eq!(example().encode(), golden.concat());
        assert_eq!(State::decode(&golden.concat()), Ok(example()));
        // Fuzzing starts from the same bytes.
        assert_eq!(golden.concat(), include_bytes!("../../../fuzz/seeds/archive_state/example"));
    }

    #[test]
    fn damaged_state_is_refused() {
        let bytes = example().encode();
        for end in 0..bytes.len() {
            assert!(State::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        assert!(State::decode(&[&bytes[..], &[0]].concat()).is_err(), "a byte more");
        for (place, value) in [(0, 0), (0, 2), (1, 2), (1, 0x80)] {
            let mut bytes = bytes.clone();
            bytes[place] = value;
            assert!(State::decode(&bytes).is_err(), "byte {place} is {value}");
        }
    }

    proptest! {
        #[test]
        fn decoded_state_encodes_to_the_same_bytes(flags in 0_u16..KNOWN, rest in vec(any::<u8>(), 40..200)) {
            let bytes = [&[VERSION], &flags.to_be_bytes()[..], &rest].concat();
            for end in 0..bytes.len() {
                if let Ok(state) = State::decode(&bytes[..end]) {
                    prop_assert_eq!(state.encode(), &bytes[..end]);
                }
            }
        }
    }
}
