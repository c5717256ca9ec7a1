//! Records the writer has touched lately. Only the writer uses it, under its lock: what it has may be older than what is being written
//! at the moment, never older than what is written.

use std::sync::Arc;

use quick_cache::{Weighter, sync::Cache};
use sapwood_types::{MasterPage, TxId};

/// Roughly what a record weighs in memory.
#[derive(Clone)]
struct Weight;

impl Weighter<TxId, Arc<MasterPage>> for Weight {
    fn weight(&self, _: &TxId, page: &Arc<MasterPage>) -> u64 {
        const OVERHEAD: usize = 400;
        const SLOT: usize = size_of::<sapwood_types::Slot>();
        (OVERHEAD + page.body.len() + page.page.outputs.len() + SLOT * page.page.slots.len()) as u64
    }
}

pub(crate) struct RecordCache {
    pages: Cache<TxId, Arc<MasterPage>, Weight>,
}

impl RecordCache {
    pub(crate) fn new(bytes: u64) -> Self {
        const TYPICAL: u64 = 700;
        Self { pages: Cache::with_weighter((bytes / TYPICAL) as usize, bytes, Weight) }
    }

    pub(crate) fn get(&self, txid: &TxId) -> Option<Arc<MasterPage>> {
        self.pages.get(txid)
    }

    pub(crate) fn put(&self, txid: TxId, page: Arc<MasterPage>) {
        self.pages.insert(txid, page);
    }

    pub(crate) fn remove(&self, txid: &TxId) {
        self.pages.remove(txid);
    }
}
