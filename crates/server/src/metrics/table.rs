//! Every metric that comes from the report: where its value stands.

use sapwood_chain::TimingSummary;
use sapwood_ledger::EngineWrites;
use sapwood_pruner::{HoldStatus, PolicyOrigin};
use sapwood_rules::{Policy, PolicyField};
use sapwood_types::Height;

use super::Kind::{self, Counter, Gauge};
use crate::status::{SourceReport, StatusReport};

/// The values of labels, in the order of the labels, and the value.
pub type Value = (Vec<String>, f64);

/// One metric.
pub struct Metric {
    /// Its name as it is scraped.
    pub name: &'static str,
    /// What kind it is.
    pub kind: Kind,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
    /// Where it stands in the report. Nothing if it is not known.
    pub read: fn(&StatusReport) -> Vec<Value>,
}

const fn metric(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
    read: fn(&StatusReport) -> Vec<Value>,
) -> Metric {
    Metric { name, kind, labels, help, read }
}

fn one(value: f64) -> Vec<Value> {
    vec![(Vec::new(), value)]
}

fn maybe(value: Option<f64>) -> Vec<Value> {
    value.map(one).unwrap_or_default()
}

fn count(value: u64) -> Vec<Value> {
    one(value as f64)
}

fn height(value: Option<Height>) -> Vec<Value> {
    maybe(value.map(|height| height.0.into()))
}

/// The recent percentiles of one kind of work, in seconds.
fn recent(timing: &TimingSummary) -> Vec<Value> {
    let value = |percentile: &str, ms: f64| (vec![percentile.to_owned()], ms / 1000.0);
    vec![value("50", timing.p50_ms), value("99", timing.p99_ms)]
}

fn labelled<'a>(values: impl Iterator<Item = (&'a str, f64)>) -> Vec<Value> {
    values.map(|(label, value)| (vec![label.to_owned()], value)).collect()
}

/// Every number below a value, with the names that lead to it. What is true is 1, what is false 0, and a duration a number of seconds.
fn numbers(path: &str, value: &serde_json::Value, found: &mut Vec<Value>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                numbers(&path, value, found);
            }
        }
        value => {
            let on = value.as_bool().map(|on| f64::from(u8::from(on)));
            let seconds =
                value.as_str().and_then(|text| Some(humantime::parse_duration(text).ok()?.as_secs_f64()));
            let number = value.as_f64().or(on).or(seconds);
            found.extend(number.map(|number| (vec![path.to_owned()], number)));
        }
    }
}

/// Every number of a policy.
fn blocks(policy: &Policy) -> Vec<Value> {
    labelled(PolicyField::ALL.into_iter().map(|field| (field.name(), f64::from(field.of(policy)))))
}

/// The states a chain can be in.
pub(super) const STATES: [&str; 6] =
    ["resetting", "catching_up", "running", "reorganising", "stalled", "stopped"];

/// A number of the source's report, if the node follows a source and it is known.
fn source(report: &StatusReport, read: impl FnOnce(&SourceReport) -> Option<f64>) -> Vec<Value> {
    maybe(report.chain.source.as_ref().and_then(read))
}

/// A number of what the engine wrote, if it counts it.
fn writes(report: &StatusReport, read: impl FnOnce(&EngineWrites) -> Option<f64>) -> Vec<Value> {
    maybe(report.engine_writes.as_ref().and_then(read))
}

/// Every metric that comes from the report.
pub const OURS: &[Metric] = &[
    metric(
        "sapwood_build_info",
        Gauge,
        &["version", "chain"],
        "1, with the version of the program and the chain it follows",
        |r| vec![(vec![r.node.version.clone(), r.node.chain.clone()], 1.0)],
    ),
    metric("sapwood_start_time_seconds", Gauge, &[], "When the node was started, as a Unix timestamp", |r| {
        count(r.node.started_at)
    }),
    metric(
        "sapwood_sampled_at_seconds",
        Gauge,
        &[],
        "When these numbers were measured, as a Unix timestamp",
        |r| one(r.at_ms as f64 / 1000.0),
    ),
    metric("sapwood_ready", Gauge, &[], "1 if the node is ready", |r| {
        one(f64::from(u8::from(r.ready.ready)))
    }),
    metric("sapwood_alerts", Gauge, &["level"], "Alerts, by level", |r| {
        use crate::status::AlertLevel::{Critical, Warning};
        let of = |level| r.alerts.iter().filter(|alert| alert.level == level).count() as f64;
        labelled([("critical", of(Critical)), ("warning", of(Warning))].into_iter())
    }),
    metric("sapwood_alert", Gauge, &["name"], "1 while there is an alert of this name", |r| {
        let active = |name: &str| f64::from(u8::from(r.alerts.iter().any(|alert| alert.name == name)));
        labelled(crate::status::alerts::NAMES.into_iter().map(|name| (name, active(name))))
    }),
    metric(
        "sapwood_chain_state",
        Gauge,
        &["state"],
        "1 for the state the chain is in, 0 for the others",
        |r| {
            labelled(
                STATES.into_iter().map(|state| (state, f64::from(u8::from(state == r.chain.state.name())))),
            )
        },
    ),
    metric("sapwood_tip_height", Gauge, &[], "Height of the last block of the source's best chain", |r| {
        height(r.chain.tip.as_ref().map(|block| block.height))
    }),
    metric(
        "sapwood_source_state",
        Gauge,
        &["state"],
        "1 for how the node and its source get on, 0 for the others. Missing without a source",
        |r| {
            let states = sapwood_chain::SourceState::ALL.map(sapwood_chain::SourceState::name);
            let is = |source: &SourceReport, state| f64::from(u8::from(source.state.name() == state));
            let source = r.chain.source.as_ref();
            source
                .map(|source| labelled(states.into_iter().map(|state| (state, is(source, state)))))
                .unwrap_or_default()
        },
    ),
    metric(
        "sapwood_source_best_height",
        Gauge,
        &[],
        "Greatest height the source knows of: headers, refused blocks with what is built on them and blocks behind a gap included",
        |r| source(r, |source| source.best_height.map(|height| height.0.into())),
    ),
    metric(
        "sapwood_source_contact_seconds",
        Gauge,
        &[],
        "Seconds since the source answered last, or since the start if it never did. Missing without a source",
        |r| source(r, |source| source.last_contact_seconds.or(Some(r.node.uptime_seconds))),
    ),
    metric("sapwood_source_errors_total", Counter, &[], "Times the source failed to answer", |r| {
        source(r, |source| Some(source.errors as f64))
    }),
    metric(
        "sapwood_source_unreachable_seconds",
        Gauge,
        &[],
        "Seconds for which the source has not answered. Missing while it does",
        |r| source(r, |source| source.unreachable.as_ref().map(|failing| failing.seconds)),
    ),
    metric(
        "sapwood_source_failed_attempts",
        Gauge,
        &[],
        "Times in a row the source failed to answer. Missing while it does",
        |r| source(r, |source| source.unreachable.as_ref().map(|failing| failing.attempts as f64)),
    ),
    metric(
        "sapwood_bodies_unreachable_seconds",
        Gauge,
        &[],
        "Seconds for which bodies of large transactions cannot be kept. Missing while they can",
        |r| source(r, |source| source.bodies.as_ref().map(|failing| failing.seconds)),
    ),
    metric(
        "sapwood_bodies_failed_attempts",
        Gauge,
        &[],
        "Times in a row a body could not be kept. Missing while they can",
        |r| source(r, |source| source.bodies.as_ref().map(|failing| failing.attempts as f64)),
    ),
    metric(
        "sapwood_refused_block_height",
        Gauge,
        &[],
        "Height of the block at which the source's chain cannot be followed further. Missing if there is none",
        |r| source(r, |source| source.refused.as_ref().map(|refused| f64::from(refused.height.0))),
    ),
    metric(
        "sapwood_refused_block_descendants",
        Gauge,
        &[],
        "Blocks built on the refused block. Missing if there is none",
        |r| source(r, |source| source.refused.as_ref().map(|refused| f64::from(refused.descendants))),
    ),
    metric(
        "sapwood_refused_block_attempts",
        Gauge,
        &[],
        "Times the refused block was tried. Missing if there is none",
        |r| source(r, |source| source.refused.as_ref().map(|refused| f64::from(refused.attempts))),
    ),
    metric(
        "sapwood_source_gap_blocks",
        Gauge,
        &[],
        "Blocks of the source that wait for one it does not have. Missing if there are none",
        |r| source(r, |source| source.gap.as_ref().map(|gap| f64::from(gap.waiting))),
    ),
    metric(
        "sapwood_fork_floor_height",
        Gauge,
        &[],
        "Lowest height a rollback can reach, while the source's chain leaves the applied one below it. Missing otherwise",
        |r| source(r, |source| source.below_floor.as_ref().map(|below| f64::from(below.floor.0))),
    ),
    metric(
        "sapwood_last_block_seconds",
        Gauge,
        &[],
        "Seconds since a block was applied last; after a restart by the time in it, until another one comes. Missing without a source",
        |r| maybe(r.chain.last_block_seconds),
    ),
    metric("sapwood_applied_height", Gauge, &[], "Height of the last applied block", |r| {
        height(r.chain.applied.as_ref().map(|block| block.height))
    }),
    metric("sapwood_rollback_floor_height", Gauge, &[], "Lowest height a rollback can reach", |r| {
        height(r.chain.rollback_floor)
    }),
    metric("sapwood_lag_blocks", Gauge, &[], "Blocks the source knows of and that are not applied", |r| {
        maybe(r.chain.lag_blocks.map(|lag| lag as f64))
    }),
    metric("sapwood_catch_up_seconds", Gauge, &[], "Estimated time until all blocks are applied", |r| {
        maybe(r.chain.catch_up_seconds)
    }),
    metric("sapwood_queued_blocks", Gauge, &[], "Blocks that were handed over and wait to be applied", |r| {
        count(r.chain.queued)
    }),
    metric("sapwood_blocks_applied_total", Counter, &[], "Blocks applied", |r| count(r.chain.apply.count)),
    metric("sapwood_apply_seconds_total", Counter, &[], "Time spent on applying blocks", |r| {
        one(r.chain.apply.total_seconds)
    }),
    metric("sapwood_apply_last_seconds", Gauge, &[], "Time the last block took", |r| {
        one(r.chain.apply.last_ms / 1000.0)
    }),
    metric(
        "sapwood_apply_recent_seconds",
        Gauge,
        &["percentile"],
        "Time a block took, of the last 512",
        |r| recent(&r.chain.apply),
    ),
    metric("sapwood_rollbacks_total", Counter, &[], "Rollbacks done", |r| count(r.chain.rollback.count)),
    metric("sapwood_rollback_seconds_total", Counter, &[], "Time spent on rolling blocks back", |r| {
        one(r.chain.rollback.total_seconds)
    }),
    metric("sapwood_rollback_last_seconds", Gauge, &[], "Time the last rollback took", |r| {
        one(r.chain.rollback.last_ms / 1000.0)
    }),
    metric(
        "sapwood_rollback_recent_seconds",
        Gauge,
        &["percentile"],
        "Time a rollback took, of the last 512",
        |r| recent(&r.chain.rollback),
    ),
    metric("sapwood_transactions_applied_total", Counter, &[], "Transactions applied", |r| {
        count(r.chain.transactions)
    }),
    metric(
        "sapwood_blocks_per_second",
        Gauge,
        &[],
        "Blocks applied a second, over the last ten seconds",
        |r| one(r.chain.blocks_per_second),
    ),
    metric(
        "sapwood_transactions_per_second",
        Gauge,
        &[],
        "Transactions applied a second, over the last ten seconds",
        |r| one(r.chain.transactions_per_second),
    ),
    metric("sapwood_records", Gauge, &[], "Stored transactions", |r| count(r.counts.records)),
    metric("sapwood_unspent_outputs", Gauge, &[], "Outputs that are not spent", |r| count(r.counts.unspent)),
    metric("sapwood_spent_outputs", Gauge, &[], "Outputs that are spent, pruned ones included", |r| {
        count(r.counts.spent)
    }),
    metric("sapwood_created_outputs", Gauge, &[], "Outputs that were ever created: unspent and spent", |r| {
        count(r.counts.created)
    }),
    metric(
        "sapwood_unmined_records",
        Gauge,
        &[],
        "Stored transactions that are not mined on the longest chain",
        |r| count(r.counts.unmined),
    ),
    metric("sapwood_utxo_set_height", Gauge, &[], "Height of the last block in the UTXO set", |r| {
        height(r.utxo_set.as_ref().and_then(|set| set.applied.as_ref()).map(|block| block.height))
    }),
    metric("sapwood_utxo_set_outputs", Gauge, &[], "Outputs in the UTXO set", |r| {
        maybe(r.utxo_set.as_ref().map(|set| set.outputs as f64))
    }),
    metric("sapwood_utxo_set_transactions", Gauge, &[], "Transactions with an output in the UTXO set", |r| {
        maybe(r.utxo_set.as_ref().map(|set| set.transactions as f64))
    }),
    metric("sapwood_utxo_set_value", Gauge, &[], "What the UTXO set is worth, in the smallest unit", |r| {
        maybe(r.utxo_set.as_ref().and_then(|set| set.value.parse().ok()))
    }),
    metric(
        "sapwood_utxo_set_hash_prefix",
        Gauge,
        &[],
        "The first six bytes of the UTXO set's hash as a number: equal on nodes that are at the same block and agree",
        |r| {
            let muhash = r.utxo_set.as_ref().and_then(|set| set.muhash.as_deref());
            maybe(
                muhash
                    .and_then(|hash| u64::from_str_radix(hash.get(..12)?, 16).ok())
                    .map(|prefix| prefix as f64),
            )
        },
    ),
    metric(
        "sapwood_feature",
        Gauge,
        &["feature"],
        "1 if it is turned on, as in `node.features` of the status",
        |r| {
            let features = serde_json::to_value(r.node.features).unwrap_or_default();
            let on = |(name, on): (&String, &serde_json::Value)| {
                (vec![name.clone()], f64::from(u8::from(on.as_bool() == Some(true))))
            };
            features.as_object().map(|features| features.iter().map(on).collect()).unwrap_or_default()
        },
    ),
    metric(
        "sapwood_policy_configured_blocks",
        Gauge,
        &["setting"],
        "How long things are kept by the configuration, in blocks",
        |r| blocks(&r.prune.policy.configuration()),
    ),
    metric(
        "sapwood_policy_changed_seconds",
        Gauge,
        &["setting"],
        "When a number of the policy was changed at run time, as a Unix timestamp",
        |r| {
            let at = |field: PolicyField| match r.prune.policy.origin(field)? {
                PolicyOrigin::RunTime { at, .. } => Some((field.name(), *at as f64)),
                PolicyOrigin::Promise => None,
            };
            labelled(PolicyField::ALL.into_iter().filter_map(at))
        },
    ),
    metric(
        "sapwood_prune_setting",
        Gauge,
        &["setting"],
        "How the pruner was set up, as in `prune.settings` of the status; durations in seconds. Missing if it is never",
        |r| {
            let settings = serde_json::to_value(&r.prune.settings).unwrap_or_default();
            let mut found = Vec::new();
            numbers("", &settings, &mut found);
            found
        },
    ),
    metric("sapwood_disk_bytes", Gauge, &["part"], "Bytes on disk, by part of the store", |r| {
        labelled(r.disk.parts.iter().map(|part| (part.part.as_str(), part.bytes as f64)))
    }),
    metric("sapwood_disk_total_bytes", Gauge, &[], "Bytes on disk, all parts together", |r| {
        count(r.disk.total_bytes)
    }),
    metric(
        "sapwood_disk_without_pruning_bytes",
        Gauge,
        &[],
        "Bytes on disk and the bytes of all records deleted since the store was made: an estimate of what it would be without pruning",
        |r| count(r.disk.without_pruning_bytes),
    ),
    metric(
        "sapwood_disk_limit_bytes",
        Gauge,
        &[],
        "Disk use above which there is an alert, if one is set",
        |r| maybe(r.disk.limit_bytes.map(|limit| limit as f64)),
    ),
    metric("sapwood_disk_free_bytes", Gauge, &[], "Free bytes on the disk of the store", |r| {
        maybe(r.disk.room.map(|room| room.free_bytes as f64))
    }),
    metric("sapwood_disk_size_bytes", Gauge, &[], "Size of the file system that holds the store", |r| {
        maybe(r.disk.room.map(|room| room.total_bytes as f64))
    }),
    metric(
        "sapwood_disk_reserve_bytes",
        Gauge,
        &[],
        "Bytes that have to stay free: with less, no block is applied. 0 if that is turned off",
        |r| maybe(r.disk.room.map(|room| room.reserve_bytes as f64)),
    ),
    metric(
        "sapwood_prune_oldest_prunable_blocks",
        Gauge,
        &[],
        "Blocks since the oldest record became due that the holds let go and that is still there. Missing if none waits",
        |r| maybe(r.prune.oldest_prunable_blocks.map(f64::from)),
    ),
    metric(
        "sapwood_prune_oldest_prunable_seconds",
        Gauge,
        &[],
        "The same in seconds, by the times of the blocks, as far back as they can be rolled back",
        |r| maybe(r.prune.oldest_prunable_seconds.map(|seconds| seconds as f64)),
    ),
    metric("sapwood_prune_last_seconds", Gauge, &[], "Time the last pruning job took", |r| {
        one(r.prune.timing.last_ms / 1000.0)
    }),
    metric(
        "sapwood_prune_recent_seconds",
        Gauge,
        &["percentile"],
        "Time a pruning job took, of the last 512",
        |r| recent(&r.prune.timing),
    ),
    metric(
        "sapwood_prune_records_per_second",
        Gauge,
        &[],
        "Records deleted in a second of work, lately",
        |r| maybe(r.prune.totals.records_per_second),
    ),
    metric(
        "sapwood_prune_newest_job",
        Gauge,
        &["stat"],
        "The numbers of the newest pruning job, named as in `prune.newest_jobs` of the status",
        |r| {
            let newest = r.prune.newest_jobs.first();
            let numbers_of = newest.and_then(|job| serde_json::to_value(job).ok()).unwrap_or_default();
            let mut found = Vec::new();
            numbers("", &numbers_of, &mut found);
            found
        },
    ),
    metric(
        "sapwood_hold_expires_seconds",
        Gauge,
        &["hold"],
        "When a hold ends by itself, as a Unix timestamp",
        |r| {
            let ends = |hold: &HoldStatus| {
                hold.hold.expires.map(|expires| (vec![hold.hold.name.clone()], expires as f64))
            };
            r.prune.holds.iter().filter_map(ends).collect()
        },
    ),
    metric(
        "sapwood_hold_silent_seconds",
        Gauge,
        &["hold"],
        "Seconds since the consumer of a hold last reported, or since the start",
        |r| {
            let silent = |hold: &HoldStatus| {
                hold.silent_seconds.map(|seconds| (vec![hold.hold.name.clone()], seconds as f64))
            };
            r.prune.holds.iter().filter_map(silent).collect()
        },
    ),
    metric(
        "sapwood_hold_retained_records",
        Gauge,
        &["hold"],
        "Records that are due by age and that a hold retains, whatever other holds do",
        |r| {
            labelled(r.prune.holds.iter().map(|hold| (hold.hold.name.as_str(), hold.retained_records as f64)))
        },
    ),
    metric(
        "sapwood_hold_unchanged_seconds",
        Gauge,
        &["hold"],
        "Seconds since a hold was set, renewed or reported for, or since the start",
        |r| {
            let age = |hold: &HoldStatus| {
                hold.unchanged_seconds.map(|age| (vec![hold.hold.name.clone()], age as f64))
            };
            r.prune.holds.iter().filter_map(age).collect()
        },
    ),
    metric("sapwood_policy_blocks", Gauge, &["setting"], "How long things are kept, in blocks", |r| {
        blocks(&r.prune.policy.policy())
    }),
    metric(
        "sapwood_engine",
        Gauge,
        &["part", "stat"],
        "What the storage engine tells about a part of the store",
        |r| {
            let stats = |part: &crate::status::report::EngineReport| -> Vec<Value> {
                let value =
                    |(name, value): (&String, &u64)| (vec![part.part.clone(), name.clone()], *value as f64);
                part.stats.iter().map(value).collect()
            };
            r.engine.iter().flat_map(stats).collect()
        },
    ),
    metric("sapwood_engine_applied_bytes_total", Counter, &[], "Bytes the engine was asked to write", |r| {
        writes(r, |writes| Some(writes.applied_bytes as f64))
    }),
    metric("sapwood_engine_log_bytes_total", Counter, &[], "Bytes written to the write-ahead log", |r| {
        writes(r, |writes| Some(writes.log_bytes as f64))
    }),
    metric("sapwood_engine_log_syncs_total", Counter, &[], "Times the log was synced to the device", |r| {
        writes(r, |writes| Some(writes.log_syncs as f64))
    }),
    metric("sapwood_engine_flush_bytes_total", Counter, &[], "Bytes written by flushes", |r| {
        writes(r, |writes| Some(writes.flush_bytes as f64))
    }),
    metric("sapwood_engine_compaction_bytes_total", Counter, &[], "Bytes written by compactions", |r| {
        writes(r, |writes| Some(writes.compaction_bytes as f64))
    }),
    metric("sapwood_engine_compaction_read_bytes_total", Counter, &[], "Bytes read by compactions", |r| {
        writes(r, |writes| Some(writes.compaction_read_bytes as f64))
    }),
    metric(
        "sapwood_engine_write_amplification",
        Gauge,
        &[],
        "Bytes written to log and files for each byte the engine was asked to write, since the start",
        |r| maybe(r.write_amplification),
    ),
    metric("sapwood_resident_memory_bytes", Gauge, &[], "Memory in use", |r| {
        maybe(r.process.resident_bytes.map(|bytes| bytes as f64))
    }),
];
