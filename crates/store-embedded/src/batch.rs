//! One write, put together entry by entry.

use rocksdb::{ColumnFamily, WriteBatch};
use sapwood_store::{
    IndexChange, StoreError,
    changes::{IndexEntry, RecordChange},
    working_set::{Entry, PageKey},
};
use sapwood_types::{Height, OutputPage, TxId};

use crate::{columns::Column, engine::Engine, keys};

/// Bytes of a first page with its key, index entries and what RocksDB adds to them.
const TYPICAL_RECORD: usize = 450;

/// A batch and where its entries go.
pub(crate) struct Batch<'a> {
    pub(crate) batch: WriteBatch,
    records: &'a ColumnFamily,
    due: &'a ColumnFamily,
    pending: &'a ColumnFamily,
    address: &'a ColumnFamily,
    /// The lowest height at which it lists a record as due.
    pub(crate) lowest_due: Option<Height>,
}

impl<'a> Batch<'a> {
    /// An empty batch with room for so many records.
    pub(crate) fn new(engine: &'a Engine, records: usize) -> Result<Self, StoreError> {
        Ok(Self {
            batch: WriteBatch::with_capacity_bytes(records * TYPICAL_RECORD),
            records: engine.column(Column::Tx)?,
            due: engine.column(Column::Due)?,
            pending: engine.column(Column::Pending)?,
            address: engine.column(Column::Address)?,
            lowest_due: None,
        })
    }

    /// A first page comes, changes or goes.
    pub(crate) fn master(&mut self, txid: &TxId, record: &RecordChange) {
        match &record.now {
            Some(side) => self.batch.put_cf(self.records, txid.0, side.stored.bytes()),
            None => self.batch.delete_cf(self.records, txid.0),
        }
    }

    /// A further page comes, changes or goes.
    pub(crate) fn extra(&mut self, (txid, number): &PageKey, entry: &Entry<OutputPage>) {
        let key = keys::page(txid, *number);
        match &entry.now {
            Some(page) => self.batch.put_cf(self.records, key, page.encode()),
            None => self.batch.delete_cf(self.records, key),
        }
    }

    /// An index entry comes or goes.
    pub(crate) fn index(&mut self, change: &IndexChange) {
        let (IndexChange::Put(entry) | IndexChange::Delete(entry)) = change;
        let comes = matches!(change, IndexChange::Put(_));
        if let (IndexEntry::Due(height, _), true) = (entry, comes) {
            self.lowest_due = Some(self.lowest_due.map_or(*height, |lowest| lowest.min(*height)));
        }
        let family = match entry {
            IndexEntry::Due(..) => self.due,
            IndexEntry::Unmined(..) | IndexEntry::Preserved(..) => self.pending,
            IndexEntry::Address(..) => self.address,
        };
        keys::index(entry, |_, key| match comes {
            true => self.batch.put_cf(family, key, []),
            false => self.batch.delete_cf(family, key),
        });
    }
}
