//! Who is reading, so that nothing is written over under a reader.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// The readers of an arena, by the commit that was the last one when they began.
///
/// # Correctness
/// A reader enters before it takes its view of the rows. So a reader that entered at commit n sees the rows of commit n
/// or a later one. What commit m took out of the rows can be read only by readers that entered before m was published;
/// see [`is_past`](Self::is_past).
#[derive(Debug, Default)]
pub(crate) struct Readers {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    published: u64,
    active: BTreeMap<u64, usize>,
}

impl Readers {
    pub(crate) fn new(published: u64) -> Self {
        Self { inner: Mutex::new(Inner { published, active: BTreeMap::new() }) }
    }

    /// Registers a reader until the guard is dropped.
    pub(crate) fn enter(&self) -> Guard<'_> {
        let mut inner = self.inner.lock();
        let since = inner.published;
        *inner.active.entry(since).or_default() += 1;
        Guard { readers: self, since }
    }

    /// Makes a commit the last one. It has to be visible to new views.
    pub(crate) fn publish(&self, commit: u64) {
        self.inner.lock().published = commit;
    }

    /// Whether all readers that could see the rows before `commit` are past.
    pub(crate) fn is_past(&self, commit: u64) -> bool {
        let inner = self.inner.lock();
        inner.published >= commit && inner.active.keys().next().is_none_or(|oldest| *oldest >= commit)
    }

    /// Returns how many readers there are.
    pub(crate) fn count(&self) -> usize {
        self.inner.lock().active.values().sum()
    }
}

/// RAII guard: what the reader can see is not written over until it is dropped.
#[derive(Debug)]
pub(crate) struct Guard<'a> {
    readers: &'a Readers,
    since: u64,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let mut inner = self.readers.inner.lock();
        if let Some(readers) = inner.active.get_mut(&self.since) {
            *readers -= 1;
            if *readers == 0 {
                inner.active.remove(&self.since);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_is_past_once_all_earlier_readers_left() {
        let readers = Readers::new(4);
        assert!(readers.is_past(4) && !readers.is_past(5), "5 is not published yet");
        let first = readers.enter();
        let second = readers.enter();
        readers.publish(5);
        let third = readers.enter();
        assert!(!readers.is_past(5), "two entered before it");
        drop(first);
        assert!(!readers.is_past(5));
        drop(second);
        assert!(readers.is_past(5), "the third sees the rows after it");
        assert_eq!(readers.count(), 1);
        readers.publish(6);
        assert!(!readers.is_past(6));
        drop(third);
        assert!(readers.is_past(6));
    }
}
