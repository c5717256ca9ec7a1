//! Which records the last commits changed, by write number.
//!
//! Pruning judges records without the writer's lock, as of a write number it read before. Under the lock it asks here which of them were
//! written since, and judges those again. See `docs/decisions/0018-versions-of-records.md`.

use std::collections::{HashSet, VecDeque};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use sapwood_types::TxId;

/// Keyed at random and fast.
pub(crate) type TxIds = HashSet<TxId, RandomState>;

/// Records that are remembered, over all commits: 4 MiB. About ten blocks of 4,000 transactions, which is longer than a chunk takes.
const REMEMBERED: usize = 1 << 17;

/// The records that the last commits changed.
#[derive(Debug)]
pub(crate) struct RecentWrites {
    inner: Mutex<Inner>,
    most: usize,
}

#[derive(Debug, Default)]
struct Inner {
    /// Ascending by number. Commits that changed no record are left out.
    commits: VecDeque<(u64, Vec<TxId>)>,
    records: usize,
    /// The number of the last commit that is not remembered.
    forgotten: u64,
}

impl Default for RecentWrites {
    fn default() -> Self {
        Self::with_most(REMEMBERED)
    }
}

impl RecentWrites {
    fn with_most(most: usize) -> Self {
        Self { inner: Mutex::default(), most }
    }

    /// Notes what a commit changed. Called by the writer, under its lock, once the commit is done.
    pub(crate) fn note(&self, number: u64, changed: Vec<TxId>) {
        let mut inner = self.inner.lock();
        inner.records += changed.len();
        inner.commits.push_back((number, changed));
        while inner.records > self.most {
            let Some((number, changed)) = inner.commits.pop_front() else { break };
            inner.records -= changed.len();
            inner.forgotten = number;
        }
    }

    /// Returns those of `candidates` that a commit after the given one changed. All of them if that is no longer remembered.
    pub(crate) fn changed_since(&self, number: u64, candidates: &TxIds) -> TxIds {
        let inner = self.inner.lock();
        if number < inner.forgotten {
            return candidates.clone();
        }
        let first = inner.commits.partition_point(|(each, _)| *each <= number);
        let since = inner.commits.range(first..).flat_map(|(_, changed)| changed);
        since.filter(|txid| candidates.contains(*txid)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn txids(numbers: &[u8]) -> Vec<TxId> {
        numbers.iter().map(|number| TxId([*number; 32])).collect()
    }

    #[test]
    fn only_later_commits_count() {
        let recent = RecentWrites::with_most(10);
        recent.note(3, txids(&[1, 2]));
        recent.note(5, txids(&[2, 3]));
        let since = |number| recent.changed_since(number, &txids(&[1, 2, 4]).into_iter().collect());
        let changed = |numbers: &[u8]| txids(numbers).into_iter().collect::<TxIds>();
        assert_eq!(since(2), changed(&[1, 2]));
        assert_eq!([since(3), since(4)], [changed(&[2]), changed(&[2])]);
        assert_eq!(since(5), changed(&[]));
    }

    #[test]
    fn everything_counts_as_changed_since_a_commit_that_is_forgotten() {
        let recent = RecentWrites::with_most(3);
        recent.note(1, txids(&[1, 2]));
        recent.note(2, txids(&[3, 4]));
        let since = |number| recent.changed_since(number, &txids(&[9]).into_iter().collect());
        assert_eq!(since(0).len(), 1, "write 1 may have changed it");
        assert_eq!(since(1).len(), 0);
        // More than fits at all.
        recent.note(3, txids(&[1, 2, 3, 4]));
        assert_eq!((since(2).len(), since(3).len()), (1, 0));
        assert_eq!(recent.inner.lock().records, 0);
    }
}
