//! Which regions can be given out: the free lists and the end of the arena, in memory.

use std::collections::{BTreeMap, BTreeSet};

use super::PAGE;

/// A region that was given out and is not committed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) offset: u64,
    pub(crate) class: u32,
    /// Whether it was free before. Otherwise the arena was extended by it.
    pub(crate) reused: bool,
}

/// The free regions of each class, and where the arena ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Space {
    free: BTreeMap<u32, BTreeSet<u64>>,
    end: u64,
}

impl Space {
    pub(crate) fn new(end: u64) -> Self {
        Self { free: BTreeMap::new(), end }
    }

    /// Returns the end of the last region.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the length of a file that holds all regions: whole pages.
    pub(crate) fn file_size(&self) -> u64 {
        self.end.next_multiple_of(PAGE)
    }

    /// Adds a region to the free list of its class.
    pub(crate) fn free(&mut self, class: u32, offset: u64) {
        self.free.entry(class).or_default().insert(offset);
    }

    /// Takes the free region of a class with the lowest offset, or extends the arena. `None` if it would end past 2⁶³.
    pub(crate) fn take(&mut self, class: u32) -> Option<Taken> {
        if let Some(offset) = self.free.get_mut(&class).and_then(BTreeSet::pop_first) {
            return Some(Taken { offset, class, reused: true });
        }
        let end = self.end.checked_add(class.into()).filter(|end| *end < 1 << 63)?;
        let offset = std::mem::replace(&mut self.end, end);
        Some(Taken { offset, class, reused: false })
    }

    /// Puts back what was taken, in any order, as if it had never been.
    pub(crate) fn put_back(&mut self, taken: Vec<Taken>) {
        for Taken { offset, class, reused } in taken {
            if reused {
                self.free(class, offset);
            } else {
                self.end = self.end.min(offset);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_free_offset_of_the_class_comes_first() {
        let mut space = Space::new(PAGE);
        let taken: Vec<_> = (0..4).map(|_| space.take(4096).unwrap().offset).collect();
        assert_eq!(taken, [PAGE, PAGE + 4096, PAGE + 8192, PAGE + 12288]);
        for offset in [taken[2], taken[0], taken[3]] {
            space.free(4096, offset);
        }
        assert!(!space.take(8192).unwrap().reused, "a region of another class does not do");
        let again: Vec<_> = (0..3).map(|_| space.take(4096).unwrap()).collect();
        assert!(again.iter().all(|taken| taken.reused));
        assert_eq!(
            again.iter().map(|taken| taken.offset).collect::<Vec<_>>(),
            [taken[0], taken[2], taken[3]]
        );
        assert_eq!(space.take(4096).unwrap().offset, PAGE + 16384 + 8192);
    }

    #[test]
    fn put_back_leaves_it_as_if_never_taken() {
        let mut space = Space::new(PAGE);
        space.free(4096, 0);
        let before = space.clone();
        let taken: Vec<_> = [4096, 4096, 8192].map(|class| space.take(class).unwrap()).into();
        space.put_back(taken);
        assert_eq!(space, before);
    }

    #[test]
    fn file_is_whole_pages() {
        let mut space = Space::new(PAGE);
        assert_eq!(space.file_size(), PAGE);
        space.take(4096).unwrap();
        assert_eq!(space.file_size(), 2 * PAGE);
        space.take(PAGE as u32).unwrap();
        assert_eq!(space.file_size(), 3 * PAGE);
    }
}
