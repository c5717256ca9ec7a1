//! A stretch of the list of settled records, pruned in parts of one write each.
//!
//! # Correctness
//! Parts are worked on at the same time. Each write saves the cursor as it is once that write is done: the end of the last part up to which
//! all are done. A part is marked as done under the writer's lock, so a write that saves a cursor behind it comes after its own write. The
//! saved cursor therefore never lies behind a part that is not done.

use bytes::Bytes;
use parking_lot::Mutex;
use sapwood_types::TxId;

use crate::{Cursor, DueRecord, Page, keys};

/// Records that are pruned in one write.
pub(super) struct Part {
    pub(super) txids: Vec<TxId>,
    /// Where the list goes on behind them. `None` at the end of the list.
    end: Option<Cursor>,
}

/// Consecutive parts of the list.
pub(super) struct Stretch {
    /// Where it begins.
    start: Option<Cursor>,
    pub(super) parts: Vec<Part>,
    done: Mutex<Vec<bool>>,
}

impl Stretch {
    /// Cuts a page that begins behind `start` into parts of `per_write` records.
    pub(super) fn new(start: Option<Cursor>, page: &Page<DueRecord>, per_write: usize) -> Self {
        let count = page.items.len().div_ceil(per_write);
        let place = |due: &DueRecord| Cursor(Bytes::copy_from_slice(&keys::due(due.settled_at, &due.txid)));
        let parts = page.items.chunks(per_write).enumerate().map(|(number, part)| {
            let end = if number + 1 < count { part.last().map(place) } else { page.next.clone() };
            Part { txids: part.iter().map(|due| due.txid).collect(), end }
        });
        Self { start, parts: parts.collect(), done: Mutex::new(vec![false; count]) }
    }

    /// Marks a part as done. Call under the writer's lock, in its write.
    pub(super) fn finish(&self, part: usize) {
        self.done.lock()[part] = true;
    }

    /// Returns the end of the last part up to which all are done, or where the stretch begins.
    pub(super) fn cursor(&self) -> Option<Cursor> {
        let done = self.done.lock();
        let first = self.parts.iter().zip(&*done).take_while(|(_, done)| **done);
        first.filter_map(|(part, _)| part.end.clone()).last().or_else(|| self.start.clone())
    }
}

#[cfg(test)]
mod tests {
    use sapwood_types::Height;

    use super::*;

    fn due(number: u8) -> DueRecord {
        DueRecord { settled_at: Height(7), txid: TxId([number; 32]) }
    }

    fn cursor(number: u8) -> Cursor {
        Cursor(Bytes::copy_from_slice(&keys::due(Height(7), &due(number).txid)))
    }

    fn stretch(start: Option<Cursor>, records: &[u8], next: Option<Cursor>) -> Stretch {
        Stretch::new(start, &Page::new(records.iter().copied().map(due).collect(), next), 2)
    }

    #[test]
    fn cursor_never_passes_a_part_that_is_not_done() {
        let stretch = stretch(Some(cursor(0)), &[1, 2, 3, 4, 5, 6, 7], None);
        let sizes: Vec<usize> = stretch.parts.iter().map(|part| part.txids.len()).collect();
        assert_eq!(sizes, [2, 2, 2, 1]);
        stretch.finish(2);
        assert_eq!(stretch.cursor(), Some(cursor(0)), "parts 0 and 1 are not done");
        stretch.finish(0);
        assert_eq!(stretch.cursor(), Some(cursor(2)), "part 1 is not done");
        stretch.finish(1);
        assert_eq!(stretch.cursor(), Some(cursor(6)), "with part 1 all up to 2 are done");
        stretch.finish(3);
        assert_eq!(stretch.cursor(), Some(cursor(6)), "the end of the list is no place to go on from");
    }

    #[test]
    fn cursor_of_a_list_that_goes_on_is_its_end() {
        let stretch = stretch(None, &[1, 2, 3], Some(cursor(3)));
        assert_eq!(stretch.cursor(), None);
        stretch.finish(0);
        stretch.finish(1);
        assert_eq!(stretch.cursor(), Some(cursor(3)));
    }
}
