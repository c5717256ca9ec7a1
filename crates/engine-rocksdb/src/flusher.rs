//! Gives back the space of what was deleted, also when nothing is written any more.
//!
//! A deletion frees nothing while it waits in memory, and the engine flushes only full buffers. So a thread flushes deletions that have
//! waited for some time. The collectors of the column families (see `columns`) have such files compacted at once, level by level, to where
//! what was deleted lies.

use std::{
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::JoinHandle,
    time::Duration,
};

use rocksdb::{DB, FlushOptions};

use sapwood_ledger::engine::Table;

/// The thread. Ends when it is dropped.
pub(crate) struct Flusher {
    /// Nothing is ever sent: the thread ends when this is gone.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    /// Starts the thread, which looks for deletions once in `every`.
    ///
    /// # Errors
    /// That of the operating system if it starts no further thread.
    pub(crate) fn start(db: Arc<DB>, every: Duration) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let look = move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = flush_deletions(&db) {
                    tracing::warn!(%error, "deletions could not be flushed: their space comes back later");
                }
            }
        };
        let thread = std::thread::Builder::new().name("flush deletions".into()).spawn(look)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported, and nothing depends on what it did.
            let _ = thread.join();
        }
    }
}

/// Flushes all column families if a deletion waits in one that is large: together, because without a log only that is consistent.
fn flush_deletions(db: &DB) -> Result<(), rocksdb::Error> {
    let mut waiting = 0;
    for table in [Table::Tx, Table::Address] {
        if let Some(family) = db.cf_handle(table.name()) {
            let deletions = db.property_int_value_cf(family, "rocksdb.num-deletes-active-mem-table")?;
            waiting += deletions.unwrap_or(0);
        }
    }
    if waiting == 0 {
        return Ok(());
    }
    let families: Vec<_> = Table::ALL.into_iter().filter_map(|table| db.cf_handle(table.name())).collect();
    tracing::debug!(deletions = waiting, "flushing deletions");
    db.flush_cfs_opt(&families, &FlushOptions::default())
}
