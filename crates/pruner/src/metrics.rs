//! What the pruner counts and measures.
//!
//! Names, help texts and labels stand in one place, [`METRICS`]; registering and documenting both go by it.

use std::{collections::BTreeMap, time::Duration};

use prometheus_client::{
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Metric, Registry},
};

use crate::{jobs::JobState, run::Phase, status::Totals};

/// One metric, as it is documented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricInfo {
    /// Its name as it is scraped.
    pub name: &'static str,
    /// What kind it is.
    pub kind: &'static str,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

const fn info(
    name: &'static str,
    kind: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> MetricInfo {
    MetricInfo { name, kind, labels, help }
}

/// Every metric of the pruner.
pub static METRICS: [MetricInfo; 18] = [
    info("sapwood_prune_duration_seconds", "histogram", &["operation"], "Time a phase of a job took"),
    info(
        "sapwood_prune_skipped_total",
        "counter",
        &["reason"],
        "Jobs that did not prune, or stopped before their end",
    ),
    info("sapwood_prune_deleted_total", "counter", &[], "Records deleted"),
    info("sapwood_prune_errors_total", "counter", &["operation"], "Failures of a phase"),
    info(
        "sapwood_prune_batch_duration_seconds",
        "histogram",
        &[],
        "Time to judge and delete one chunk of records",
    ),
    info(
        "sapwood_prune_retained_total",
        "counter",
        &["reason"],
        "Times a due record was looked at and retained",
    ),
    info("sapwood_prune_bytes_freed_total", "counter", &[], "Bytes of the pages of deleted records"),
    info("sapwood_prune_bodies_deleted_total", "counter", &[], "External bodies deleted"),
    info("sapwood_prune_jobs_total", "counter", &["state"], "Jobs that are over"),
    info(
        "sapwood_prune_backlog_records",
        "gauge",
        &[],
        "Due records that the holds let go and that are still there, without those looked at and retained",
    ),
    info(
        "sapwood_prune_lag_blocks",
        "gauge",
        &[],
        "Blocks between the oldest record that is due by age and the newest",
    ),
    info(
        "sapwood_prune_catch_up_seconds",
        "gauge",
        &[],
        "Estimated time until the backlog is gone; -1 if it is not known",
    ),
    info(
        "sapwood_prune_safe_height",
        "gauge",
        &[],
        "Height up to which deletion is safe; -1 if nothing may go",
    ),
    info("sapwood_hold_keep_from", "gauge", &["hold"], "First height a hold needs; 0 if it needs everything"),
    info(
        "sapwood_holds_expired",
        "gauge",
        &[],
        "Holds that have expired and were neither renewed nor released",
    ),
    info(
        "sapwood_prune_blocked_records",
        "gauge",
        &["reason"],
        "Records that are retained and would be deleted otherwise, see docs/pruner.md",
    ),
    info("sapwood_prune_enabled", "gauge", &[], "1 if pruning is enabled"),
    info("sapwood_prune_running", "gauge", &[], "1 while a job runs"),
];

/// What can fail, by the label `operation`, besides the phases of a job (`phases`): the name and what it is.
pub const OPERATIONS: [(&str, &str); 5] = [
    ("preflight", "what comes before the first phase"),
    ("holds", "writing down how far a consumer is"),
    ("external_body", "deleting a body; its record is retained"),
    ("body_of_kept_record", "a record was locked or preserved after its body was deleted"),
    ("orphan_bodies", "looking for bodies without a record, or deleting one"),
];

/// The phases of a job, by the label `operation`, in their order.
pub fn phases() -> [&'static str; 4] {
    Phase::ALL.map(Phase::label)
}

type Labels = Vec<(&'static str, String)>;

/// The metrics of one pruner. Clones count together.
#[derive(Clone)]
pub struct PrunerMetrics {
    duration: Family<Labels, Histogram, fn() -> Histogram>,
    skipped: Family<Labels, Counter>,
    pub(crate) processed: Counter,
    errors: Family<Labels, Counter>,
    batch_duration: Histogram,
    kept: Family<Labels, Counter>,
    pub(crate) bytes_freed: Counter,
    pub(crate) bodies_deleted: Counter,
    jobs: Family<Labels, Counter>,
    pub(crate) backlog: Gauge,
    pub(crate) lag: Gauge,
    pub(crate) catch_up: Gauge,
    pub(crate) safe_height: Gauge,
    hold_height: Family<Labels, Gauge>,
    pub(crate) holds_expired: Gauge,
    blocked: Family<Labels, Gauge>,
    pub(crate) enabled: Gauge,
    pub(crate) running: Gauge,
}

/// From a millisecond to nine minutes.
fn duration_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 3.0, 13))
}

impl Default for PrunerMetrics {
    fn default() -> Self {
        Self {
            duration: Family::new_with_constructor(duration_histogram),
            skipped: Family::default(),
            processed: Counter::default(),
            errors: Family::default(),
            batch_duration: duration_histogram(),
            kept: Family::default(),
            bytes_freed: Counter::default(),
            bodies_deleted: Counter::default(),
            jobs: Family::default(),
            backlog: Gauge::default(),
            lag: Gauge::default(),
            catch_up: Gauge::default(),
            safe_height: Gauge::default(),
            hold_height: Family::default(),
            holds_expired: Gauge::default(),
            blocked: Family::default(),
            enabled: Gauge::default(),
            running: Gauge::default(),
        }
    }
}

impl PrunerMetrics {
    /// Puts all of them into a registry.
    pub fn register(&self, registry: &mut Registry) {
        let mut put = Register { registry, next: METRICS.iter() };
        put.next(self.duration.clone());
        put.next(self.skipped.clone());
        put.next(self.processed.clone());
        put.next(self.errors.clone());
        put.next(self.batch_duration.clone());
        put.next(self.kept.clone());
        put.next(self.bytes_freed.clone());
        put.next(self.bodies_deleted.clone());
        put.next(self.jobs.clone());
        put.next(self.backlog.clone());
        put.next(self.lag.clone());
        put.next(self.catch_up.clone());
        put.next(self.safe_height.clone());
        put.next(self.hold_height.clone());
        put.next(self.holds_expired.clone());
        put.next(self.blocked.clone());
        put.next(self.enabled.clone());
        put.next(self.running.clone());
    }

    /// Goes on counting from what earlier processes counted.
    pub(crate) fn restore(&self, totals: &Totals) {
        self.processed.inc_by(totals.deleted);
        self.bytes_freed.inc_by(totals.bytes_freed);
        self.bodies_deleted.inc_by(totals.bodies_deleted);
        for (reason, count) in &totals.retained {
            self.kept.get_or_create(&vec![("reason", reason.clone())]).inc_by(*count);
        }
    }

    pub(crate) fn took(&self, operation: &'static str, duration: Duration) {
        self.duration.get_or_create(&vec![("operation", operation.into())]).observe(duration.as_secs_f64());
    }

    pub(crate) fn batch_took(&self, duration: Duration) {
        self.batch_duration.observe(duration.as_secs_f64());
    }

    pub(crate) fn skipped(&self, reason: &str) {
        self.skipped.get_or_create(&vec![("reason", reason.into())]).inc();
    }

    pub(crate) fn failed(&self, operation: &str) {
        self.errors.get_or_create(&vec![("operation", operation.into())]).inc();
    }

    pub(crate) fn kept(&self, reason: &str) {
        self.kept.get_or_create(&vec![("reason", reason.into())]).inc();
    }

    pub(crate) fn job_over(&self, state: JobState) {
        self.jobs.get_or_create(&vec![("state", state.name().into())]).inc();
    }

    pub(crate) fn blocked(&self, by_reason: &BTreeMap<String, u64>) {
        self.blocked.clear();
        for (reason, count) in by_reason {
            self.blocked.get_or_create(&vec![("reason", reason.clone())]).set(*count as i64);
        }
    }

    pub(crate) fn hold_heights(&self, heights: impl Iterator<Item = (String, i64)>) {
        self.hold_height.clear();
        for (hold, height) in heights {
            self.hold_height.get_or_create(&vec![("hold", hold)]).set(height);
        }
    }
}

/// Registers metrics in the order of [`METRICS`].
struct Register<'a> {
    registry: &'a mut Registry,
    next: std::slice::Iter<'static, MetricInfo>,
}

impl Register<'_> {
    fn next(&mut self, metric: impl Metric) {
        if let Some(info) = self.next.next() {
            // The library appends the suffix of counters and the full stop of help texts by itself.
            self.registry.register(info.name.strip_suffix("_total").unwrap_or(info.name), info.help, metric);
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn every_metric_is_scraped_under_its_documented_name() {
        let metrics = PrunerMetrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        metrics.took("delete_due", Duration::from_secs(1));
        metrics.skipped("not_running");
        metrics.failed("preserve_parents");
        metrics.kept("unspent");
        metrics.job_over(JobState::Completed);
        metrics.blocked(&[("unreadable".to_owned(), 2)].into());
        metrics.hold_heights([("persister".to_owned(), 1241)].into_iter());
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for MetricInfo { name, kind, help, .. } in &METRICS {
            let base = name.strip_suffix("_total").unwrap_or(name);
            assert!(
                text.contains(&format!("# HELP {base} {help}.\n# TYPE {base} {kind}\n")),
                "{name}:\n{text}"
            );
        }
        for line in [
            "sapwood_prune_duration_seconds_count{operation=\"delete_due\"} 1\n",
            "sapwood_prune_skipped_total{reason=\"not_running\"} 1\n",
            "sapwood_prune_deleted_total 0\n",
            "sapwood_prune_errors_total{operation=\"preserve_parents\"} 1\n",
            "sapwood_prune_batch_duration_seconds_count 0\n",
            "sapwood_hold_keep_from{hold=\"persister\"} 1241\n",
            "sapwood_prune_blocked_records{reason=\"unreadable\"} 2\n",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn every_operation_that_can_fail_is_listed() {
        let sources = [
            include_str!("service/listen.rs"),
            include_str!("service/shared.rs"),
            include_str!("service/work.rs"),
            include_str!("run/delete.rs"),
            include_str!("run/orphans.rs"),
        ];
        let failing = sources.iter().flat_map(|source| source.split(".failed(\"").skip(1));
        let mut found: Vec<&str> = failing.filter_map(|call| call.split('"').next()).collect();
        found.push("preflight");
        for name in &found {
            assert!(OPERATIONS.iter().any(|(listed, _)| listed == name), "{name} is not listed");
        }
        assert!(OPERATIONS.iter().all(|(name, _)| found.contains(name)), "{found:?}");
    }
}
