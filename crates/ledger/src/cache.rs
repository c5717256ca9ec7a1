//! Records the writer has touched lately. Only the writer uses it, under its lock: what it has may be older than what is being written
//! at the moment, never older than what is written.

use quick_cache::{Weighter, sync::Cache};
use sapwood_types::{FirstPage, TxId};

/// Roughly what a record weighs in memory.
#[derive(Clone)]
struct Weight;

impl Weighter<TxId, FirstPage> for Weight {
    fn weight(&self, _: &TxId, page: &FirstPage) -> u64 {
        /// The key, the cache's own entry, and what the allocator rounds up.
        const OVERHEAD: usize = 150;
        (OVERHEAD + page.bytes().len()) as u64
    }
}

pub(crate) struct RecordCache {
    pages: Cache<TxId, FirstPage, Weight>,
}

impl RecordCache {
    pub(crate) fn new(bytes: u64) -> Self {
        const TYPICAL: u64 = 400;
        Self { pages: Cache::with_weighter((bytes / TYPICAL) as usize, bytes, Weight) }
    }

    pub(crate) fn get(&self, txid: &TxId) -> Option<FirstPage> {
        self.pages.get(txid)
    }

    pub(crate) fn put(&self, txid: TxId, page: FirstPage) {
        self.pages.insert(txid, page);
    }

    pub(crate) fn remove(&self, txid: &TxId) {
        self.pages.remove(txid);
    }
}
