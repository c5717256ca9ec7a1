//! What was measured over time: second by second for ten minutes, minute by minute for a day.

use std::collections::{BTreeMap, VecDeque};

use sapwood_chain::TimingSummary;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::report::StatusReport;

/// How many fine points are kept: ten minutes, if one is made each second.
pub const FINE_POINTS: usize = 600;
/// How many coarse points are kept: a day of minutes.
pub const COARSE_POINTS: usize = 1440;
/// How much time a coarse point covers.
const COARSE_MS: u64 = 60_000;

/// How far back to look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Range {
    /// The last ten minutes, as often as it was measured.
    #[default]
    Minutes,
    /// The last day, minute by minute. Of times and lag the worst of the minute, of all else the last.
    Day,
}

/// One moment.
#[derive(Clone, Debug, PartialEq)]
struct Point {
    at_ms: u64,
    lag_blocks: Option<f64>,
    apply_ms: Option<f64>,
    rollback_ms: Option<f64>,
    prune_ms: Option<f64>,
    transactions_per_second: f64,
    unspent: u64,
    disk: BTreeMap<String, u64>,
    disk_total: u64,
    disk_without_pruning: u64,
}

/// What was measured over time, column by column. All columns have the same length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HistoryReport {
    /// When, as Unix timestamps in milliseconds, oldest first.
    pub at_ms: Vec<u64>,
    /// Blocks the source has and that were not applied. `None` where the tip was not known.
    pub lag_blocks: Vec<Option<f64>>,
    /// How long applying a block took, on average since the point before, in milliseconds. `None` where none was applied.
    pub apply_ms: Vec<Option<f64>>,
    /// How long rolling blocks back took.
    pub rollback_ms: Vec<Option<f64>>,
    /// How long a pruning job took.
    pub prune_ms: Vec<Option<f64>>,
    /// Transactions applied a second.
    pub transactions_per_second: Vec<f64>,
    /// Outputs that are not spent.
    pub unspent: Vec<u64>,
    /// Bytes on disk, by part.
    pub disk: BTreeMap<String, Vec<u64>>,
    /// Bytes on disk.
    pub disk_total: Vec<u64>,
    /// Bytes on disk if nothing had been pruned, see `disk.without_pruning_bytes` of the status.
    pub disk_without_pruning: Vec<u64>,
}

/// What was measured over time.
#[derive(Debug, Default)]
pub struct History {
    fine: VecDeque<Point>,
    coarse: VecDeque<Point>,
    /// How often and how long things were done when the last point was made.
    before: Option<[TimingSummary; 3]>,
}

/// How long one took on average between two reports.
fn mean_ms(before: Option<TimingSummary>, now: TimingSummary) -> Option<f64> {
    let before = before.unwrap_or_default();
    let count = now.count.checked_sub(before.count).filter(|count| *count > 0)?;
    Some((now.total_seconds - before.total_seconds).max(0.0) * 1000.0 / count as f64)
}

fn worse(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

fn push(points: &mut VecDeque<Point>, point: Point, most: usize) {
    if points.len() == most {
        points.pop_front();
    }
    points.push_back(point);
}

impl History {
    /// Notes what was measured.
    pub(crate) fn note(&mut self, report: &StatusReport) {
        let timings = [report.chain.apply, report.chain.rollback, report.prune.timing];
        let before = self.before.replace(timings);
        let mean = |which: usize| mean_ms(before.map(|before| before[which]), timings[which]);
        let point = Point {
            at_ms: report.at_ms,
            lag_blocks: report.chain.lag_blocks.map(|lag| lag as f64),
            apply_ms: mean(0),
            rollback_ms: mean(1),
            prune_ms: mean(2),
            transactions_per_second: report.chain.transactions_per_second,
            unspent: report.counts.unspent,
            disk: report.disk.parts.iter().map(|part| (part.part.clone(), part.bytes)).collect(),
            disk_total: report.disk.total_bytes,
            disk_without_pruning: report.disk.without_pruning_bytes,
        };
        match self.coarse.back_mut() {
            Some(last) if last.at_ms / COARSE_MS == point.at_ms / COARSE_MS => {
                *last = Point {
                    lag_blocks: worse(last.lag_blocks, point.lag_blocks),
                    apply_ms: worse(last.apply_ms, point.apply_ms),
                    rollback_ms: worse(last.rollback_ms, point.rollback_ms),
                    prune_ms: worse(last.prune_ms, point.prune_ms),
                    ..point.clone()
                }
            }
            _ => push(&mut self.coarse, point.clone(), COARSE_POINTS),
        }
        push(&mut self.fine, point, FINE_POINTS);
    }

    /// What was measured after a moment, as a Unix timestamp in milliseconds.
    pub fn report(&self, range: Range, after_ms: u64) -> HistoryReport {
        let points = match range {
            Range::Minutes => &self.fine,
            Range::Day => &self.coarse,
        };
        // The clock may have been set back, so the order of times is not relied on.
        let from = points.iter().rposition(|point| point.at_ms <= after_ms).map_or(0, |place| place + 1);
        let points: Vec<&Point> = points.range(from..).collect();
        let parts = points.iter().flat_map(|point| point.disk.keys());
        let mut disk: BTreeMap<String, Vec<u64>> = parts.map(|part| (part.clone(), Vec::new())).collect();
        for (part, column) in &mut disk {
            *column = points.iter().map(|point| point.disk.get(part).copied().unwrap_or(0)).collect();
        }
        fn column<T>(points: &[&Point], of: impl Fn(&Point) -> T) -> Vec<T> {
            points.iter().map(|point| of(point)).collect()
        }
        HistoryReport {
            at_ms: column(&points, |point| point.at_ms),
            lag_blocks: column(&points, |point| point.lag_blocks),
            apply_ms: column(&points, |point| point.apply_ms),
            rollback_ms: column(&points, |point| point.rollback_ms),
            prune_ms: column(&points, |point| point.prune_ms),
            transactions_per_second: column(&points, |point| point.transactions_per_second),
            unspent: column(&points, |point| point.unspent),
            disk,
            disk_total: column(&points, |point| point.disk_total),
            disk_without_pruning: column(&points, |point| point.disk_without_pruning),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(at_ms: u64, lag: u64, applied: u64, seconds: f64) -> StatusReport {
        let mut report = StatusReport { at_ms, ..StatusReport::default() };
        report.chain.lag_blocks = Some(lag);
        report.chain.apply =
            TimingSummary { count: applied, total_seconds: seconds, ..TimingSummary::default() };
        report.counts.unspent = at_ms;
        report
    }

    #[test]
    fn both_rings_are_bounded_and_lose_the_oldest() {
        let mut history = History::default();
        let minutes = COARSE_POINTS as u64 + 10;
        for second in (0..minutes * 60).step_by(20) {
            history.note(&report(second * 1000, 0, 0, 0.0));
        }
        let fine = history.report(Range::Minutes, 0);
        assert_eq!((fine.at_ms.len(), fine.at_ms.last()), (FINE_POINTS, Some(&((minutes * 60 - 20) * 1000))));
        let coarse = history.report(Range::Day, 0);
        assert_eq!((coarse.at_ms.len(), coarse.at_ms[0]), (COARSE_POINTS, (10 * 60 + 40) * 1000));
    }

    #[test]
    fn a_minute_shows_its_worst_lag_and_its_last_count() {
        let mut history = History::default();
        for (second, lag) in [(0, 1), (20, 9), (40, 2), (60, 3)] {
            history.note(&report(second * 1000, lag, 0, 0.0));
        }
        let day = history.report(Range::Day, 0);
        assert_eq!(day.lag_blocks, [Some(9.0), Some(3.0)]);
        assert_eq!(day.unspent, [40_000, 60_000]);
    }

    #[test]
    fn times_are_those_of_what_was_done_in_between() {
        let mut history = History::default();
        for (second, applied, seconds) in [(1, 10, 1.0), (2, 10, 1.0), (3, 14, 1.2)] {
            history.note(&report(second * 1000, 0, applied, seconds));
        }
        let apply = history.report(Range::Minutes, 0).apply_ms;
        assert_eq!(apply[0], Some(100.0));
        assert_eq!(apply[1], None, "no block came");
        assert!((apply[2].unwrap() - 50.0).abs() < 1e-9);
    }

    #[test]
    fn only_what_is_new_is_told_also_after_the_clock_was_set_back() {
        let mut history = History::default();
        for at_ms in [5000, 6000, 2000, 3000] {
            history.note(&report(at_ms, 0, 0, 0.0));
        }
        assert_eq!(history.report(Range::Minutes, 2000).at_ms, [3000]);
        assert_eq!(history.report(Range::Minutes, 3000).at_ms, [0; 0]);
    }
}
