//! How far a follower is, and how long it will take.

use std::{
    collections::VecDeque,
    fmt,
    time::{Duration, Instant},
};

use sapwood_sources::ChainPoint;
use sapwood_types::Height;

use crate::SourceHealth;

/// The time over which speed is measured.
const WINDOW: Duration = Duration::from_secs(30);
/// How many points it is measured by.
const POINTS: usize = 60;

/// How far a follower is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// The last block that was handed over to be applied.
    pub height: Option<Height>,
    /// The last block of the source.
    pub tip: Option<ChainPoint>,
    /// How it and its source get on.
    pub source: SourceHealth,
    /// When which height was reached.
    points: VecDeque<(Instant, Height)>,
}

impl Progress {
    /// Blocks to go.
    pub fn behind(&self) -> u64 {
        let done = self.height.map_or(0, |height| u64::from(height.0) + 1);
        self.tip.map_or(0, |tip| (u64::from(tip.height.0) + 1).saturating_sub(done))
    }

    /// Blocks per second, of late.
    pub fn blocks_per_second(&self) -> Option<f64> {
        let ((from, low), (to, high)) = (self.points.front()?, self.points.back()?);
        let seconds = to.duration_since(*from).as_secs_f64();
        let blocks = high.0.checked_sub(low.0)?;
        (seconds > 0.0 && blocks > 0).then(|| f64::from(blocks) / seconds)
    }

    /// How long it will take at the speed of late.
    pub fn left(&self) -> Option<Duration> {
        let seconds = self.behind() as f64 / self.blocks_per_second()?;
        Duration::try_from_secs_f64(seconds).ok()
    }

    pub(crate) fn tip_is(&mut self, height: Option<Height>, tip: ChainPoint) {
        if self.height > height {
            // Blocks were taken back: old speed says nothing.
            self.points.clear();
        }
        (self.height, self.tip) = (height, Some(tip));
    }

    pub(crate) fn handed_over(&mut self, height: Height) {
        self.height = Some(height);
        let now = Instant::now();
        let due = |(last, _): &(Instant, Height)| now.duration_since(*last) >= WINDOW / POINTS as u32;
        if self.points.back().is_none_or(due) {
            self.points.push_back((now, height));
        }
        while self.points.front().is_some_and(|(first, _)| now.duration_since(*first) > WINDOW) {
            self.points.pop_front();
        }
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.height, self.tip.map(|tip| tip.height)) {
            (_, None) => write!(f, "no block is known"),
            (None, Some(tip)) => write!(f, "block 0 of {tip}"),
            (Some(height), Some(tip)) => write!(f, "block {height} of {tip}"),
        }?;
        if let Some(speed) = self.blocks_per_second() {
            write!(f, ", {speed:.0} a second")?;
        }
        match self.left() {
            Some(left) if self.behind() > 0 => write!(f, ", {} to go", Readable(left)),
            _ => Ok(()),
        }
    }
}

/// A duration for people: the two greatest units.
struct Readable(Duration);

impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            seconds @ 0..60 => write!(f, "{seconds} s"),
            seconds @ 60..3600 => write!(f, "{} min {} s", seconds / 60, seconds % 60),
            seconds @ 3600..86_400 => write!(f, "{} h {} min", seconds / 3600, seconds % 3600 / 60),
            seconds => write!(f, "{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_the_speed_of_late() {
        let mut progress = Progress::default();
        let tip = ChainPoint::new(Height(999), sapwood_types::BlockHash::default());
        assert_eq!((progress.behind(), progress.left()), (0, None));
        progress.tip_is(None, tip);
        assert_eq!((progress.behind(), progress.to_string()), (1000, "block 0 of 999".into()));
        let now = Instant::now();
        progress.points = VecDeque::from([(now, Height(99)), (now + Duration::from_secs(10), Height(199))]);
        progress.height = Some(Height(199));
        assert_eq!(progress.left(), Some(Duration::from_secs(80)));
        assert_eq!(progress.to_string(), "block 199 of 999, 10 a second, 1 min 20 s to go");
        progress.tip_is(Some(Height(150)), tip);
        assert_eq!(progress.left(), None, "after a rollback the old speed says nothing");
        progress.tip_is(Some(Height(999)), tip);
        assert_eq!((progress.behind(), progress.to_string()), (0, "block 999 of 999".into()));
    }
}
