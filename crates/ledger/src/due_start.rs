//! Where the list of due records begins. It is deleted at its beginning, and whoever lists it from there would step over all
//! that was deleted and not yet compacted.

use parking_lot::Mutex;
use sapwood_types::Height;

/// The height below which nothing is listed as due.
#[derive(Debug, Default)]
pub(crate) struct DueStart(Mutex<Known>);

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    start: Height,
    /// Counts writes that list something, once before and once after each: odd while one is under way.
    writes: u64,
}

/// What was known when somebody began to look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look(Known);

impl Look {
    /// The height to begin at.
    pub(crate) fn start(&self) -> Height {
        self.0.start
    }
}

impl DueStart {
    /// A write begins that lists records, none of them below this height.
    pub(crate) fn writing(&self, lowest: Height) {
        let mut known = self.0.lock();
        known.start = known.start.min(lowest);
        known.writes += 1;
    }

    /// That write is done. After one that failed nothing more is learned.
    pub(crate) fn written(&self) {
        self.0.lock().writes += 1;
    }

    /// Somebody begins to look. Call before taking the snapshot to look at.
    pub(crate) fn look(&self) -> Look {
        Look(*self.0.lock())
    }

    /// Nothing is listed below this height, as of that look. Believed only if nothing was listed meanwhile.
    pub(crate) fn found(&self, look: Look, start: Height) {
        let mut known = self.0.lock();
        if look.0.writes.is_multiple_of(2) && look.0.writes == known.writes {
            known.start = known.start.max(start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_moves_up_with_what_is_found_and_down_with_what_is_listed() {
        let due = DueStart::default();
        due.found(due.look(), Height(7));
        assert_eq!(due.look().start(), Height(7));
        due.writing(Height(9));
        due.written();
        assert_eq!(due.look().start(), Height(7));
        due.writing(Height(3));
        assert_eq!(due.look().start(), Height(3));
    }

    #[test]
    fn a_look_that_may_have_missed_a_write_teaches_nothing() {
        let due = DueStart::default();
        let before = due.look();
        due.writing(Height(3));
        let during = due.look();
        due.found(before, Height(7));
        due.found(during, Height(7));
        due.written();
        due.found(before, Height(7));
        due.found(during, Height(7));
        assert_eq!(due.look().start(), Height(0));
        due.found(due.look(), Height(3));
        assert_eq!(due.look().start(), Height(3));
    }
}
