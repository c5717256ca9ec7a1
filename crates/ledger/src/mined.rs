//! At which height stored records are mined: what the check of children asks before it reads their records.
//!
//! It mirrors the records themselves. The writer enters what it has just written into a record, and strikes out what it
//! changed or deleted; a parent's memory of its child never gets in here. What is not found has to be read from disk.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use sapwood_types::{Height, TxId};

type Heights = HashMap<TxId, Height, RandomState>;

/// What a place of the table takes: an entry, and a byte that says whether there is one.
const PLACE_BYTES: u64 = size_of::<(TxId, Height)>() as u64 + 1;
/// What a table takes besides.
const TABLE_BYTES: u64 = 16;
/// The smallest table there is.
const LEAST_PLACES: u64 = 4;

/// How many entries fit into a table of so many bytes. A table has a power of two of places and leaves an eighth of them free.
fn entries_in(bytes: u64) -> usize {
    let fitting = bytes.saturating_sub(TABLE_BYTES) / PLACE_BYTES;
    let Some(places) = fitting.checked_ilog2().map(|power| 1_u64 << power) else { return 0 };
    let entries = match places {
        ..LEAST_PLACES => 0,
        LEAST_PLACES..=8 => places - 1,
        _ => places / 8 * 7,
    };
    usize::try_from(entries).unwrap_or(usize::MAX)
}

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
        Self { young: Heights::default(), old: Heights::default(), half: entries_in(bytes / 2) }
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
        let Some(height) = now.filter(|_| self.make_room()) else { return };
        self.young.insert(txid, height);
    }

    /// Sees to it that the next entry fits without the table growing, and says whether it does. A table that grew would take
    /// twice the memory it was given, and while it grows a block waits for tens of milliseconds.
    fn make_room(&mut self) -> bool {
        // Less than was reserved where many entries were struck out: their places are not all free again.
        if self.young.len() < self.young.capacity() {
            return true;
        }
        std::mem::swap(&mut self.young, &mut self.old);
        self.young.clear();
        if self.young.capacity() >= self.half {
            return self.half > 0;
        }
        // Not used yet, or struck out to the last entry, which leaves clearing without effect. All of it is reserved at once: what no
        // entry has touched is not backed by memory, so a store with few records pays for a byte of each place only.
        self.young = Heights::default();
        if let Err(error) = self.young.try_reserve(self.half) {
            tracing::warn!(%error, entries = self.half, "no memory for mined heights: children are read from disk");
            self.half = 0;
        }
        self.half > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Room for three entries in each half.
    const LITTLE: u64 = 2 * (LEAST_PLACES * PLACE_BYTES + TABLE_BYTES);

    fn txid(number: u8) -> TxId {
        TxId([number; 32])
    }

    #[test]
    fn it_knows_what_was_written_last() {
        let mut mined = MinedHeights::new(LITTLE);
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
        let mut mined = MinedHeights::new(LITTLE);
        (1..=4).for_each(|number| mined.note(txid(number), None, Some(Height(number.into()))));
        assert!(mined.old.contains_key(&txid(1)));
        mined.note(txid(1), Some(Height(1)), Some(Height(9)));
        assert_eq!(mined.get(&txid(1)), Some(Height(9)));
        mined.note(txid(1), Some(Height(9)), None);
        mined.note(txid(2), Some(Height(2)), None);
        assert_eq!([mined.get(&txid(1)), mined.get(&txid(2))], [None, None]);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut mined = MinedHeights::new(LITTLE);
        (1..=7).for_each(|number| mined.note(txid(number), None, Some(Height(number.into()))));
        let known = [1, 2, 3, 4, 5, 6, 7].map(|number| mined.get(&txid(number)).is_some());
        assert_eq!(known, [false, false, false, true, true, true, true]);
    }

    #[test]
    fn without_room_everything_is_read_from_disk() {
        for bytes in [0, 1, LITTLE - 1] {
            let mut mined = MinedHeights::new(bytes);
            mined.note(txid(1), None, Some(Height(5)));
            assert_eq!(mined.get(&txid(1)), None, "{bytes} bytes");
        }
    }

    #[test]
    fn more_memory_than_there_is_means_none() {
        let mut mined = MinedHeights::new(u64::MAX);
        mined.note(txid(1), None, Some(Height(5)));
        assert_eq!(mined.get(&txid(1)), None);
    }

    /// How many places a table has that takes so many entries.
    fn places(entries: usize) -> u64 {
        if entries < 8 { entries as u64 + 1 } else { entries as u64 / 7 * 8 }
    }

    fn bytes(table: &Heights) -> u64 {
        if table.capacity() == 0 { 0 } else { places(table.capacity()) * PLACE_BYTES + TABLE_BYTES }
    }

    #[test]
    fn both_tables_together_take_no_more_than_they_are_given() {
        for limit in (0..6000).chain([1 << 20, 75 << 20, 96 << 20]) {
            let half = entries_in(limit / 2);
            let mut table = Heights::default();
            table.reserve(half);
            // The table is as large as reckoned, and one of twice the size would not fit.
            assert_eq!(table.capacity(), half, "{limit}");
            assert!(2 * bytes(&table) <= limit, "{limit}");
            assert!(2 * (2 * places(half).max(2) * PLACE_BYTES + TABLE_BYTES) > limit, "{limit}");
        }
    }

    /// Entries that are struck out leave gaps, and a table full of gaps would grow where it has fewer entries than it may.
    #[test]
    fn striking_out_entries_makes_no_table_grow() {
        let mut mined = MinedHeights::new(8 << 10);
        let numbered = |number: u32| {
            let mut txid = TxId::default();
            txid.0[..4].copy_from_slice(&number.to_be_bytes());
            txid
        };
        for number in 0..20_000 {
            mined.note(numbered(number), None, Some(Height(number)));
            // Stretches of all of them, most, few and none.
            let struck_out = [10, 9, 2, 0][number as usize / 500 % 4];
            if let Some(earlier) = number.checked_sub(40)
                && earlier % 10 < struck_out
            {
                mined.note(numbered(earlier), Some(Height(earlier)), None);
                assert_eq!(mined.get(&numbered(earlier)), None);
            }
            assert_eq!(mined.get(&numbered(number)), Some(Height(number)));
            // Just after it has grown a table has no gaps, and shows its size.
            let largest = mined.young.capacity().max(mined.old.capacity());
            assert!(largest <= mined.half, "{number}: room for {largest}, not {}", mined.half);
        }
    }
}
