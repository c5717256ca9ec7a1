//! What the labels of metrics can say, for the documentation.

use sapwood_chain::SourceState;
use sapwood_pruner::{BLOCKED_REASONS, JobState, PrunerOptions, StopReason, metrics::OPERATIONS};
use sapwood_rules::{KeepReason, PolicyField};

use super::table::STATES;
use crate::status::{alerts::NAMES, report::FeaturesReport};

/// The names of the fields of something, as they are in JSON.
fn fields(of: impl serde::Serialize) -> Vec<String> {
    let value = serde_json::to_value(of).unwrap_or_default();
    value.as_object().map(|fields| fields.keys().cloned().collect()).unwrap_or_default()
}

fn texts<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}

/// A label, the metrics it is of, and every value it can have.
type Row = (&'static str, &'static str, Vec<String>);

/// Labels with a fixed set of values. The others are names of holds, parts of the store and stats of the engine, as the status has them.
fn rows() -> Vec<Row> {
    let operations = OPERATIONS.iter().map(|(name, _)| *name);
    let over = JobState::ALL.into_iter().filter(|state| state.is_over());
    // A job at its limit is completed, and one that may delete nothing does its other work.
    let not_counted = ["deleting_off", "record_limit", "time_limit"];
    let skipped = StopReason::LABELS.into_iter().filter(|label| !not_counted.contains(label));
    vec![
        ("level", "`sapwood_alerts`", texts(["critical", "warning"])),
        ("name", "`sapwood_alert`", texts(NAMES)),
        ("state", "`sapwood_chain_state`", texts(STATES)),
        ("state", "`sapwood_source_state`", texts(SourceState::ALL.map(SourceState::name))),
        ("state", "`sapwood_prune_jobs_total`", texts(over.map(JobState::name))),
        ("operation", "`sapwood_prune_duration_seconds`", texts(sapwood_pruner::metrics::phases())),
        (
            "operation",
            "`sapwood_prune_errors_total`",
            texts(sapwood_pruner::metrics::phases().into_iter().chain(operations)),
        ),
        ("reason", "`sapwood_prune_skipped_total`", texts(skipped)),
        ("reason", "`sapwood_prune_retained_total`", texts(KeepReason::LABELS)),
        ("reason", "`sapwood_prune_blocked_records`", texts(BLOCKED_REASONS)),
        (
            "setting",
            "`sapwood_policy_blocks`, `sapwood_policy_configured_blocks`, `sapwood_policy_changed_seconds`",
            texts(PolicyField::ALL.map(PolicyField::name)),
        ),
        ("setting", "`sapwood_prune_setting`", fields(PrunerOptions::default())),
        ("feature", "`sapwood_feature`", fields(FeaturesReport::default())),
        ("percentile", "`sapwood_apply_recent_seconds` and the like", texts(["50", "99"])),
    ]
}

/// The part of `docs/metrics.md` on the values of labels.
pub(super) fn documentation() -> String {
    let mut page = String::from(
        "\n## Values of labels\n\
         `hold` is the name of a hold, `part` a column family of the store or `other`, `stat` of `sapwood_engine` what the engine calls \
         it (`engine` of the status), `stat` of `sapwood_prune_newest_job` the way to the number in `prune.newest_jobs` of the status. \
         What a retained record waits for is said in words by `sapwood explain tx TXID`.\n\n\
         | label | of | values |\n|---|---|---|\n",
    );
    for (label, of, values) in rows() {
        let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
        page += &format!("| `{label}` | {of} | {} |\n", values.join(", "));
    }
    page += "\nOperations that can fail besides the phases of a job:\n\n";
    for (name, meaning) in OPERATIONS {
        page += &format!("- `{name}`: {meaning}\n");
    }
    page
}
