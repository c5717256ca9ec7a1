//! What the rules look at in a record, whatever form it is in.

use crate::{Height, PAGE_SIZE, PageSummary, Slot, TxHead, TxRecord};

/// A record as the rules see it: its state, and that of its outputs. Borrowed from a stored record's header or from a decoded record; both
/// show the same.
#[derive(Clone, Copy, Debug)]
pub struct RecordView<'a> {
    /// The state of the whole transaction.
    pub head: &'a TxHead,
    /// The first outputs, one by one: [`PAGE_SIZE`] of them, or all if there are fewer.
    pub slots: &'a [Slot],
    /// All other outputs, summed up.
    further: SlotTotals,
}

/// Outputs summed up.
#[derive(Clone, Copy, Debug, Default)]
struct SlotTotals {
    open: u32,
    claimed: u32,
    latest_child: Option<Height>,
}

impl<'a> RecordView<'a> {
    pub(crate) fn new(head: &'a TxHead, slots: &'a [Slot], summaries: &[PageSummary]) -> Self {
        let mut further = SlotTotals::default();
        for summary in summaries {
            further.open += u32::from(summary.open);
            further.claimed += u32::from(summary.claimed);
            further.latest_child = further.latest_child.max(summary.latest_child);
        }
        Self { head, slots, further }
    }

    pub(crate) fn of_record(record: &'a TxRecord) -> Self {
        let (slots, further) = record.slots.split_at(record.slots.len().min(PAGE_SIZE as usize));
        let all = Self { head: &record.head, slots: further, further: SlotTotals::default() };
        let further =
            SlotTotals { open: all.open(), claimed: all.claimed(), latest_child: all.latest_child() };
        Self { slots, further, ..all }
    }

    /// Returns the view of the record as it would be with another head.
    #[must_use]
    pub fn with_head(self, head: &'a TxHead) -> Self {
        Self { head, ..self }
    }

    /// Counts the outputs that stand in the way of deletion, see [`Slot::is_open`].
    pub fn open(&self) -> u32 {
        self.slots.iter().filter(|slot| slot.is_open()).count() as u32 + self.further.open
    }

    /// Counts the outputs that keep even a losing transaction, see [`Slot::is_claimed`].
    pub fn claimed(&self) -> u32 {
        self.slots.iter().filter(|slot| slot.is_claimed()).count() as u32 + self.further.claimed
    }

    /// Returns the greatest height at which a spender of one of the outputs was mined. `None` if there is no mined spender.
    pub fn latest_child(&self) -> Option<Height> {
        self.slots.iter().filter_map(Slot::child_mined_at).max().max(self.further.latest_child)
    }
}
