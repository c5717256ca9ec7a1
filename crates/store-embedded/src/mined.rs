//! At which height stored records are mined: what the check of children asks before it reads their records.
//!
//! It mirrors the records themselves. The writer enters what it has just written into a record, and strikes out what it
//! changed or deleted; a parent's memory of its child never gets in here. What is not found has to be read from disk.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use sapwood_types::{Height, TxId};

type Heights = HashMap<TxId, Height, RandomState>;

/// What an entry takes in memory, with the room a hash table leaves free.
const ENTRY_BYTES: u64 = 48;

/// The younger half and the older half of what is known. When the younger one is full, the older one is forgotten. Entries
/// are asked for once, about as many blocks later as records are retained, so the order of use would tell nothing.
pub(crate) struct MinedHeights {
    young: Heights,
    old: Heights,
    half: usize,
}

impl MinedHeights {
    /// Takes up to so many bytes. With 0 nothing is ever found.
    pub(crate) fn new(bytes: u64) -> Self {
        let half = usize::try_from(bytes / 2 / ENTRY_BYTES).unwrap_or(usize::MAX);
        Self { young: Heights::default(), old: Heights::default(), half }
    }

    /// The height at which this record is mined on the longest chain. Nothing if it is not, or that is not known here.
    pub(crate) fn get(&self, txid: &TxId) -> Option<Height> {
        self.young.get(txid).or_else(|| self.old.get(txid)).copied()
    }

    /// Notes that a record was written or deleted. Called under the writer's lock, after the write.
    pub(crate) fn note(&mut self, txid: TxId, before: Option<Height>, now: Option<Height>) {
        if before == now {
            return;
        }
        // It is in one half at most.
        if before.is_some() && self.young.remove(&txid).is_none() {
            self.old.remove(&txid);
        }
        let Some(height) = now.filter(|_| self.half > 0) else { return };
        if self.young.len() >= self.half {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.insert(txid, height);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM_FOR_TWO: u64 = 4 * ENTRY_BYTES;

    fn txid(number: u8) -> TxId {
        TxId([number; 32])
    }

    #[test]
    fn it_knows_what_was_written_last() {
        let mut mined = MinedHeights::new(ROOM_FOR_TWO);
        mined.note(txid(1), None, Some(Height(5)));
        assert_eq!(mined.get(&txid(1)), Some(Height(5)));
        mined.note(txid(1), Some(Height(5)), Some(Height(5)));
        assert_eq!(mined.get(&txid(1)), Some(Height(5)));
        mined.note(txid(1), Some(Height(5)), Some(Height(6)));
        assert_eq!(mined.get(&txid(1)), Some(Height(6)));
        mined.note(txid(1), Some(Height(6)), None);
        assert_eq!(mined.get(&txid(1)), None);
    }

    #[test]
    fn a_change_reaches_the_older_half_too() {
        let mut mined = MinedHeights::new(ROOM_FOR_TWO);
        (1..=3).for_each(|number| mined.note(txid(number), None, Some(Height(number.into()))));
        assert!(mined.old.contains_key(&txid(1)));
        mined.note(txid(1), Some(Height(1)), Some(Height(9)));
        assert_eq!(mined.get(&txid(1)), Some(Height(9)));
        mined.note(txid(1), Some(Height(9)), None);
        mined.note(txid(2), Some(Height(2)), None);
        assert_eq!([mined.get(&txid(1)), mined.get(&txid(2))], [None, None]);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut mined = MinedHeights::new(ROOM_FOR_TWO);
        (1..=5).for_each(|number| mined.note(txid(number), None, Some(Height(number.into()))));
        let known = [1, 2, 3, 4, 5].map(|number| mined.get(&txid(number)).is_some());
        assert_eq!(known, [false, false, true, true, true]);
    }

    #[test]
    fn without_room_everything_is_read_from_disk() {
        let mut mined = MinedHeights::new(0);
        mined.note(txid(1), None, Some(Height(5)));
        assert_eq!(mined.get(&txid(1)), None);
    }
}
