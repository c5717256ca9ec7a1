//! How long things take.

use std::{collections::VecDeque, time::Duration};

use parking_lot::Mutex;

/// How many durations are kept for percentiles.
const KEPT: usize = 512;

/// How long one kind of work takes.
#[derive(Debug, Default)]
pub struct Timing(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    count: u64,
    total: Duration,
    recent: VecDeque<Duration>,
}

/// How long one kind of work took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TimingSummary {
    /// How often it was done.
    pub count: u64,
    /// How long all of it took, in seconds.
    pub total_seconds: f64,
    /// How long the last one took, in milliseconds.
    pub last_ms: f64,
    /// What half of the recent ones were below, in milliseconds.
    pub p50_ms: f64,
    /// What all but one in a hundred of the recent ones were below, in milliseconds.
    pub p99_ms: f64,
}

impl Timing {
    /// Notes one.
    pub fn note(&self, took: Duration) {
        let mut kept = self.0.lock();
        kept.count += 1;
        kept.total += took;
        if kept.recent.len() == KEPT {
            kept.recent.pop_front();
        }
        kept.recent.push_back(took);
    }

    /// What is known of all of them.
    pub fn summary(&self) -> TimingSummary {
        let kept = self.0.lock();
        let mut sorted: Vec<Duration> = kept.recent.iter().copied().collect();
        sorted.sort_unstable();
        let ms =
            |duration: Option<&Duration>| duration.map_or(0.0, |duration| duration.as_secs_f64() * 1000.0);
        let percentile = |percent: usize| ms(sorted.get(sorted.len().saturating_sub(1) * percent / 100));
        TimingSummary {
            count: kept.count,
            total_seconds: kept.total.as_secs_f64(),
            last_ms: ms(kept.recent.back()),
            p50_ms: percentile(50),
            p99_ms: percentile(99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_ones_give_the_percentiles_and_all_give_the_total() {
        let timing = Timing::default();
        assert_eq!(timing.summary(), TimingSummary::default());
        for ms in 0..1000 {
            timing.note(Duration::from_millis(ms));
        }
        let summary = timing.summary();
        assert_eq!((summary.count, summary.last_ms), (1000, 999.0));
        assert!((summary.total_seconds - 499.5).abs() < 1e-6);
        // The last 512 are 488 to 999.
        assert!((summary.p50_ms - 743.0).abs() < 2.0 && summary.p99_ms > 990.0, "{summary:?}");
    }
}
