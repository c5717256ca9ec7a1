//! Which records changed while somebody was looking at them without the lock.

use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use sapwood_types::TxId;

/// Keyed at random and fast: every write looks through all of them.
pub(crate) type TxIds = std::collections::HashSet<TxId, RandomState>;

/// One look at a set of records.
#[derive(Debug)]
pub(crate) struct Watch {
    watched: TxIds,
    changed: Mutex<TxIds>,
}

impl Watch {
    /// What has changed since the watch began.
    pub(crate) fn changed(&self) -> TxIds {
        self.changed.lock().clone()
    }
}

/// All looks under way.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    watches: Mutex<Vec<Arc<Watch>>>,
}

impl Watches {
    /// Begins to watch. Call before the first read.
    pub(crate) fn begin(&self, txids: &[TxId]) -> Arc<Watch> {
        let watch = Arc::new(Watch { watched: txids.iter().copied().collect(), changed: Mutex::default() });
        self.watches.lock().push(Arc::clone(&watch));
        watch
    }

    /// Stops watching.
    pub(crate) fn end(&self, watch: &Arc<Watch>) {
        self.watches.lock().retain(|other| !Arc::ptr_eq(other, watch));
    }

    /// Tells all watches what a write changed. Called by the writer, under its lock, before the write can be seen as done.
    pub(crate) fn tell(&self, changed: impl Iterator<Item = TxId> + Clone) {
        for watch in self.watches.lock().iter() {
            let mut hits = changed.clone().filter(|txid| watch.watched.contains(txid)).peekable();
            if hits.peek().is_some() {
                watch.changed.lock().extend(hits);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_sees_only_what_it_watches_and_only_while_it_lasts() {
        let watches = Watches::default();
        let [one, two] = [TxId([1; 32]), TxId([2; 32])];
        let watch = watches.begin(&[one]);
        watches.tell([one, two].into_iter());
        assert_eq!(watch.changed(), TxIds::from_iter([one]));
        watches.end(&watch);
        let later = watches.begin(&[two]);
        watches.tell([two].into_iter());
        assert_eq!(later.changed(), TxIds::from_iter([two]));
        assert_eq!(watch.changed(), TxIds::from_iter([one]));
    }
}
