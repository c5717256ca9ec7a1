//! What the pruner counts and measures.
//!
//! Name, help text, labels and value of a metric stand in one place; registering and documenting both go by it.

use std::{collections::BTreeMap, time::Duration};

use prometheus_client::{
    metrics::{
        TypedMetric,
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
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

/// From a millisecond to nine minutes.
fn duration_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 3.0, 13))
}

/// Declares metrics: for each its help text as a doc comment, its name, its labels, and the field that holds it with its first value.
macro_rules! metrics {
    ($(#[$meta:meta])* pub struct $struct:ident {
        $($(#[doc = $help:literal])+ $name:literal [$($label:literal),*] $vis:vis $field:ident: $type:ty = $first:expr;)+
    }) => {
        $(#[$meta])*
        #[derive(Clone)]
        pub struct $struct {
            $($vis $field: $type,)+
        }

        impl Default for $struct {
            fn default() -> Self {
                Self { $($field: $first,)+ }
            }
        }

        impl $struct {
            /// Returns every metric, as it is documented.
            pub fn list() -> Vec<MetricInfo> {
                vec![$(MetricInfo {
                    name: $name,
                    kind: <$type as TypedMetric>::TYPE.as_str(),
                    labels: &[$($label),*],
                    help: concat!($($help),+).trim_ascii(),
                },)+]
            }

            /// Puts all of them into a registry.
            pub fn register(&self, registry: &mut Registry) {
                // The library appends the suffix of counters and the full stop of help texts by itself.
                $(registry.register(
                    $name.strip_suffix("_total").unwrap_or($name),
                    concat!($($help),+).trim_ascii(),
                    self.$field.clone(),
                );)+
            }
        }
    };
}

metrics! {
    /// The metrics of one pruner. Clones count together.
    pub struct PrunerMetrics {
        /// Time a phase of a job took
        "sapwood_prune_duration_seconds" ["operation"]
        duration: Family<Labels, Histogram, fn() -> Histogram> = Family::new_with_constructor(duration_histogram);
        /// Jobs that did not prune, or stopped before their end
        "sapwood_prune_skipped_total" ["reason"] skipped: Family<Labels, Counter> = Family::default();
        /// Records deleted
        "sapwood_prune_deleted_total" [] pub(crate) processed: Counter = Counter::default();
        /// Failures of a phase
        "sapwood_prune_errors_total" ["operation"] errors: Family<Labels, Counter> = Family::default();
        /// Time of one call that judges and deletes records: a chunk, or as many as are in flight at a time
        "sapwood_prune_batch_duration_seconds" [] batch_duration: Histogram = duration_histogram();
        /// Times a due record was looked at and retained
        "sapwood_prune_retained_total" ["reason"] kept: Family<Labels, Counter> = Family::default();
        /// Bytes of the pages of deleted records
        "sapwood_prune_bytes_freed_total" [] pub(crate) bytes_freed: Counter = Counter::default();
        /// External bodies deleted
        "sapwood_prune_bodies_deleted_total" [] pub(crate) bodies_deleted: Counter = Counter::default();
        /// Jobs that are over
        "sapwood_prune_jobs_total" ["state"] jobs: Family<Labels, Counter> = Family::default();
        /// Due records that the holds let go and that are still there, without those looked at and retained
        "sapwood_prune_backlog_records" [] pub(crate) backlog: Gauge = Gauge::default();
        /// Blocks between the oldest record that is due by age and the newest
        "sapwood_prune_lag_blocks" [] pub(crate) lag: Gauge = Gauge::default();
        /// Estimated time until the backlog is gone; -1 if it is not known
        "sapwood_prune_catch_up_seconds" [] pub(crate) catch_up: Gauge = Gauge::default();
        /// Height up to which deletion is safe; -1 if no record is prunable
        "sapwood_prune_safe_height" [] pub(crate) safe_height: Gauge = Gauge::default();
        /// First height a hold needs; 0 if it needs everything
        "sapwood_hold_keep_from" ["hold"] hold_height: Family<Labels, Gauge> = Family::default();
        /// Holds that have expired and were neither renewed nor released
        "sapwood_holds_expired" [] pub(crate) holds_expired: Gauge = Gauge::default();
        /// Records that are retained and would be deleted otherwise, see docs/pruner.md
        "sapwood_prune_blocked_records" ["reason"] blocked: Family<Labels, Gauge> = Family::default();
        /// 1 if pruning is enabled
        "sapwood_prune_enabled" [] pub(crate) enabled: Gauge = Gauge::default();
        /// 1 while a job runs
        "sapwood_prune_running" [] pub(crate) running: Gauge = Gauge::default();
    }
}

impl PrunerMetrics {
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
        for MetricInfo { name, kind, help, .. } in PrunerMetrics::list() {
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
