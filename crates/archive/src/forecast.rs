//! How long the budget lasts. Pure.

use std::collections::VecDeque;

/// Samples that a meter keeps: one a tick, a day and more of them with the default timer.
const SAMPLES: usize = 2048;
/// Samples older than this many seconds do not count as the present.
const WINDOW: u64 = 86_400;
const SECONDS_PER_DAY: f64 = 86_400.0;

/// Measures how fast the archive is written, by the clock of the caller.
#[derive(Clone, Debug, Default)]
pub struct RateMeter {
    samples: VecDeque<(u64, u64)>,
}

impl RateMeter {
    /// Notes that `written` bytes were written in all at `now`, a Unix timestamp in seconds. A clock that was set back
    /// begins again.
    pub fn sample(&mut self, now: u64, written: u64) {
        match self.samples.back_mut() {
            Some((at, _)) if *at > now => self.samples.clear(),
            Some((at, bytes)) if *at == now => {
                *bytes = written;
                return;
            }
            _ => {}
        }
        self.samples.push_back((now, written));
        while self.samples.len() > SAMPLES || self.samples.front().is_some_and(|(at, _)| now - at > WINDOW) {
            self.samples.pop_front();
        }
    }

    /// Returns the bytes per second between the first and the last sample of a day. `None` with fewer than two.
    pub fn bytes_per_second(&self) -> Option<f64> {
        let ((from, before), (to, after)) = (self.samples.front()?, self.samples.back()?);
        rate(after.checked_sub(*before)?, to.checked_sub(*from)?)
    }
}

/// Bytes per second. `None` for no time.
pub(crate) fn rate(bytes: u64, seconds: u64) -> Option<f64> {
    (seconds > 0).then(|| bytes as f64 / seconds as f64)
}

/// How long the budget lasts at a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Forecast {
    /// Bytes written per second. `None` if it is not known.
    pub bytes_per_second: Option<f64>,
    /// Days until `limit` bytes are there. `None` without a limit, or if it is never reached.
    pub days_until_full: Option<f64>,
    /// Days of blocks that the budget holds after pruning. `None` as above.
    pub days_held: Option<f64>,
}

impl Forecast {
    /// Computes how long it takes from `kept` bytes to `limit`, and how many days of blocks `held` bytes are.
    pub fn new(bytes_per_second: Option<f64>, kept: u64, limit: Option<u64>, held: Option<u64>) -> Self {
        let days = |bytes: u64| {
            let rate = bytes_per_second.filter(|rate| *rate > 0.0)?;
            Some(bytes as f64 / rate / SECONDS_PER_DAY)
        };
        Self {
            bytes_per_second,
            days_until_full: limit.and_then(|limit| days(limit.saturating_sub(kept))),
            days_held: held.and_then(days),
        }
    }
}

/// What a budget holds, computed before there is an archive.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BudgetPlan {
    /// Bytes that hold blocks after pruning: the target less the headroom.
    pub effective_bytes: u64,
    /// Blocks that they hold.
    pub blocks: u64,
    /// Blocks in a day.
    pub blocks_per_day: f64,
    /// Days of blocks that they hold.
    pub days: f64,
}

impl BudgetPlan {
    /// Computes what `target` bytes hold, `headroom_percent` of them left empty, of blocks of `bytes_per_block` bytes
    /// that come every `block_seconds` seconds. `None` if blocks have no bytes or take no time.
    ///
    /// ```
    /// # use sapwood_archive::BudgetPlan;
    /// let plan = BudgetPlan::new(500_000_000_000, 20, 500_000, 2.0).unwrap();
    /// assert_eq!((plan.effective_bytes, plan.blocks), (400_000_000_000, 800_000));
    /// assert_eq!(format!("{:.1} days", plan.days), "18.5 days");
    /// ```
    pub fn new(target: u64, headroom_percent: u8, bytes_per_block: u64, block_seconds: f64) -> Option<Self> {
        if bytes_per_block == 0 || block_seconds.is_nan() || block_seconds <= 0.0 {
            return None;
        }
        let effective_bytes = crate::prune::policy::WaterMarks::new(target, headroom_percent).low;
        let blocks = effective_bytes / bytes_per_block;
        let blocks_per_day = SECONDS_PER_DAY / block_seconds;
        Some(Self { effective_bytes, blocks, blocks_per_day, days: blocks as f64 / blocks_per_day })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_agrees_with_the_tables_of_the_documents() {
        let blocks = |bytes| BudgetPlan::new(500_000_000_000, 20, bytes, 1.0).unwrap().blocks;
        assert_eq!(
            [100_000, 200_000, 500_000, 1_000_000].map(blocks),
            [4_000_000, 2_000_000, 800_000, 400_000]
        );
        let per_day = |seconds| BudgetPlan::new(500_000_000_000, 20, 1, seconds).unwrap().blocks_per_day;
        assert_eq!([1.0, 2.0, 12.0].map(per_day), [86_400.0, 43_200.0, 7_200.0]);
        assert_eq!(BudgetPlan::new(1, 20, 0, 1.0), None);
        assert_eq!(BudgetPlan::new(1, 20, 1, 0.0), None);
        assert_eq!(BudgetPlan::new(1, 20, 1, f64::NAN), None);
    }

    #[test]
    fn meter_measures_the_last_day() {
        let mut meter = RateMeter::default();
        assert_eq!(meter.bytes_per_second(), None);
        meter.sample(0, 1_000_000);
        assert_eq!(meter.bytes_per_second(), None, "one sample is no rate");
        meter.sample(100, 1_000_100);
        assert_eq!(meter.bytes_per_second(), Some(1.0));
        meter.sample(100_000, 1_000_100 + 99_900 * 5);
        meter.sample(100_010, 1_000_100 + 99_910 * 5);
        assert_eq!(meter.bytes_per_second(), Some(5.0), "what is older than a day does not count");
    }

    #[test]
    fn clock_that_was_set_back_begins_again() {
        let mut meter = RateMeter::default();
        meter.sample(1000, 10);
        meter.sample(1010, 20);
        meter.sample(500, 30);
        assert_eq!(meter.bytes_per_second(), None);
        meter.sample(510, 60);
        assert_eq!(meter.bytes_per_second(), Some(3.0));
    }

    #[test]
    fn meter_stays_small() {
        let mut meter = RateMeter::default();
        (0..10_000).for_each(|second| meter.sample(second, second * 2));
        assert_eq!(meter.samples.len(), SAMPLES);
        assert_eq!(meter.bytes_per_second(), Some(2.0));
    }

    #[test]
    fn forecast_without_a_rate_says_nothing() {
        assert_eq!(Forecast::new(Some(0.0), 5, Some(10), Some(10)).days_until_full, None);
        assert_eq!(Forecast::new(None, 5, Some(10), None).days_until_full, None);
        let forecast = Forecast::new(Some(1.0), 86_400, Some(3 * 86_400), Some(86_400));
        assert_eq!((forecast.days_until_full, forecast.days_held), (Some(2.0), Some(1.0)));
        let over = Forecast::new(Some(1.0), 10, Some(5), None);
        assert_eq!(over.days_until_full, Some(0.0));
    }
}
