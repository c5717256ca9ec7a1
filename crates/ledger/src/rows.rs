//! The rows of one commit, put together from what changed.

use sapwood_types::{Height, TxId};

use crate::{
    IndexChange,
    changes::{FirstPageChange, FurtherPageChange, IndexEntry},
    engine::{Table, WriteSet},
    keys,
    working_set::PageKey,
};

/// Bytes of a first page with its key and index entries.
const TYPICAL_RECORD: usize = 450;

/// Rows, and what has to be known of them before they are committed.
pub(crate) struct Rows {
    pub(crate) writes: WriteSet,
    /// The lowest height at which a record is listed as due.
    pub(crate) lowest_due: Option<Height>,
}

impl Rows {
    /// Creates an empty set with room for `records` records.
    pub(crate) fn with_capacity(records: usize) -> Self {
        Self { writes: WriteSet::with_capacity(records * TYPICAL_RECORD), lowest_due: None }
    }

    /// Writes or deletes a first page.
    pub(crate) fn first_page(&mut self, txid: &TxId, change: &FirstPageChange) {
        match &change.now {
            Some(version) => self.writes.put(Table::Tx, &txid.0, version.page.bytes()),
            None => self.writes.delete(Table::Tx, &txid.0),
        }
    }

    /// Writes or deletes a further page.
    pub(crate) fn further_page(&mut self, (txid, number): &PageKey, change: &FurtherPageChange) {
        let key = keys::page(txid, *number);
        match &change.now {
            Some(page) => self.writes.put(Table::Tx, &key, &page.encode()),
            None => self.writes.delete(Table::Tx, &key),
        }
    }

    /// Writes or deletes an index entry.
    pub(crate) fn index(&mut self, change: &IndexChange) {
        let (IndexChange::Put(entry) | IndexChange::Delete(entry)) = change;
        let comes = matches!(change, IndexChange::Put(_));
        if let (IndexEntry::Due(height, _), true) = (entry, comes) {
            self.lowest_due = Some(self.lowest_due.map_or(*height, |lowest| lowest.min(*height)));
        }
        keys::index(entry, |table, key| match comes {
            true => self.writes.put(table, key, &[]),
            false => self.writes.delete(table, key),
        });
    }
}
