//! Making way for blocks: working a share of the time while they come, and all the time when they do not.

use std::time::Duration;

use sapwood_ledger::{Ledger, StoreError};
use sapwood_types::BlockMark;
use tokio::time::Instant;

use crate::options::Pacing;

/// With small blocks there are many jobs a second. What looks through thousands of entries is done no more often than this.
pub(crate) const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Knows when the last block was applied, and how much is due.
pub(crate) struct Pacer {
    pacing: Pacing,
    last: Option<BlockMark>,
    last_seen: Instant,
    /// Due records when they were last counted.
    backlog: u64,
    counted: Option<Instant>,
    shown: Option<Instant>,
}

impl Pacer {
    pub(crate) fn new(pacing: Pacing) -> Self {
        Self { pacing, last: None, last_seen: Instant::now(), backlog: 0, counted: None, shown: None }
    }

    /// Whether it has been a while since the backlog was counted.
    pub(crate) fn wants_backlog(&self) -> bool {
        is_old(self.counted)
    }

    pub(crate) fn note_backlog(&mut self, backlog: u64) {
        self.backlog = backlog;
        self.counted = Some(Instant::now());
    }

    /// Whether it has been a while since backlog and lag were shown. If so, they are now.
    pub(crate) fn shows_again(&mut self) -> bool {
        let again = is_old(self.shown);
        if again {
            self.shown = Some(Instant::now());
        }
        again
    }

    /// Whether to work all the time. Looks whether a block came.
    pub(crate) async fn full_speed(&mut self, ledger: &Ledger) -> Result<bool, StoreError> {
        let last = ledger.last_applied().await?;
        if last != self.last {
            self.last = last;
            self.last_seen = Instant::now();
        }
        let quiet = self.last_seen.elapsed() >= self.pacing.quiet_after;
        Ok(quiet || self.backlog > self.pacing.full_speed_above)
    }

    /// How long to rest after having been busy so long.
    pub(crate) fn rest(&self, busy: Duration) -> Duration {
        let share = self.pacing.busy_share;
        busy.mul_f64((1.0 - share) / share)
    }
}

fn is_old(last: Option<Instant>) -> bool {
    last.is_none_or(|last| last.elapsed() >= LOOK_AGAIN_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_makes_the_share() {
        let rest = |busy_share, busy| {
            Pacer::new(Pacing { busy_share, ..Pacing::default() })
                .rest(Duration::from_millis(busy))
                .as_millis()
        };
        assert_eq!((rest(1.0, 50), rest(0.5, 50), rest(0.2, 50)), (0, 50, 200));
    }
}
