//! Status, metrics and history are the same figures.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use sapwood_chain::{BelowFloor, ChainState, Failing, Progress, RefusedBlock, SourceHealth};
use sapwood_conformance::fixtures::{coin, small};
use sapwood_sources::{
    ChainPoint, Gap,
    synthetic::{SyntheticChain, SyntheticOptions, SyntheticSource},
};
use sapwood_types::{BlockHash, Height};
use serde_json::Value;

use crate::http::world::{Plan, World};

/// The samples of a scrape: name and labels as they stand there, and the value.
fn samples(text: &str) -> HashMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.into(), value.parse().unwrap()))
        .collect()
}

/// Where each number of the status is scraped: the start of its place there, the metric, and what the metric has to be multiplied by.
/// `*` stands for one name or number on the way, which becomes the value of a label.
const SCRAPED: &[(&str, &str, f64)] = &[
    ("/at_ms", "sapwood_sampled_at_seconds", 1000.0),
    ("/node/started_at", "sapwood_start_time_seconds", 1.0),
    ("/chain/tip/height", "sapwood_tip_height", 1.0),
    ("/chain/last_block_seconds", "sapwood_last_block_seconds", 1.0),
    ("/chain/source/best_height", "sapwood_source_best_height", 1.0),
    ("/chain/source/last_contact_seconds", "sapwood_source_contact_seconds", 1.0),
    ("/chain/source/errors", "sapwood_source_errors_total", 1.0),
    ("/chain/source/unreachable/seconds", "sapwood_source_unreachable_seconds", 1.0),
    ("/chain/source/unreachable/attempts", "sapwood_source_failed_attempts", 1.0),
    ("/chain/source/bodies/seconds", "sapwood_bodies_unreachable_seconds", 1.0),
    ("/chain/source/bodies/attempts", "sapwood_bodies_failed_attempts", 1.0),
    ("/chain/source/refused/height", "sapwood_refused_block_height", 1.0),
    ("/chain/source/refused/descendants", "sapwood_refused_block_descendants", 1.0),
    ("/chain/source/refused/attempts", "sapwood_refused_block_attempts", 1.0),
    ("/chain/source/gap/waiting", "sapwood_source_gap_blocks", 1.0),
    ("/chain/source/below_floor/floor", "sapwood_fork_floor_height", 1.0),
    // The source's tip, as above.
    ("/chain/source/below_floor/tip/height", "sapwood_tip_height", 1.0),
    ("/chain/applied/height", "sapwood_applied_height", 1.0),
    ("/chain/lag_blocks", "sapwood_lag_blocks", 1.0),
    ("/chain/catch_up_seconds", "sapwood_catch_up_seconds", 1.0),
    ("/chain/rollback_floor", "sapwood_rollback_floor_height", 1.0),
    ("/chain/queued", "sapwood_queued_blocks", 1.0),
    ("/chain/apply/count", "sapwood_blocks_applied_total", 1.0),
    ("/chain/apply/total_seconds", "sapwood_apply_seconds_total", 1.0),
    ("/chain/apply/last_ms", "sapwood_apply_last_seconds", 1000.0),
    ("/chain/apply/p50_ms", "sapwood_apply_recent_seconds{percentile=\"50\"}", 1000.0),
    ("/chain/apply/p99_ms", "sapwood_apply_recent_seconds{percentile=\"99\"}", 1000.0),
    ("/chain/rollback/count", "sapwood_rollbacks_total", 1.0),
    ("/chain/rollback/total_seconds", "sapwood_rollback_seconds_total", 1.0),
    ("/chain/rollback/last_ms", "sapwood_rollback_last_seconds", 1000.0),
    ("/chain/rollback/p50_ms", "sapwood_rollback_recent_seconds{percentile=\"50\"}", 1000.0),
    ("/chain/rollback/p99_ms", "sapwood_rollback_recent_seconds{percentile=\"99\"}", 1000.0),
    ("/chain/transactions", "sapwood_transactions_applied_total", 1.0),
    ("/chain/transactions_per_second", "sapwood_transactions_per_second", 1.0),
    ("/chain/blocks_per_second", "sapwood_blocks_per_second", 1.0),
    ("/counts/records", "sapwood_records", 1.0),
    ("/counts/unspent", "sapwood_unspent_outputs", 1.0),
    ("/counts/spent", "sapwood_spent_outputs", 1.0),
    ("/counts/created", "sapwood_created_outputs", 1.0),
    ("/counts/unmined", "sapwood_unmined_records", 1.0),
    ("/utxo_set/applied/height", "sapwood_utxo_set_height", 1.0),
    ("/utxo_set/outputs", "sapwood_utxo_set_outputs", 1.0),
    ("/utxo_set/transactions", "sapwood_utxo_set_transactions", 1.0),
    ("/prune/policy/configured/*", "sapwood_policy_configured_blocks{setting=\"*\"}", 1.0),
    ("/prune/policy/origins/*/at", "sapwood_policy_changed_seconds{setting=\"*\"}", 1.0),
    ("/prune/settings/*", "sapwood_prune_setting{setting=\"*\"}", 1.0),
    ("/disk/total_bytes", "sapwood_disk_total_bytes", 1.0),
    ("/disk/without_pruning_bytes", "sapwood_disk_without_pruning_bytes", 1.0),
    ("/disk/limit_bytes", "sapwood_disk_limit_bytes", 1.0),
    ("/disk/room/free_bytes", "sapwood_disk_free_bytes", 1.0),
    ("/disk/room/total_bytes", "sapwood_disk_size_bytes", 1.0),
    ("/disk/room/reserve_bytes", "sapwood_disk_reserve_bytes", 1.0),
    ("/disk/parts/*/bytes", "sapwood_disk_bytes{part=\"*\"}", 1.0),
    ("/prune/height", "sapwood_applied_height", 1.0),
    ("/prune/safe_height", "sapwood_prune_safe_height", 1.0),
    ("/prune/backlog_records", "sapwood_prune_backlog_records", 1.0),
    ("/prune/lag_blocks", "sapwood_prune_lag_blocks", 1.0),
    ("/prune/oldest_prunable_blocks", "sapwood_prune_oldest_prunable_blocks", 1.0),
    ("/prune/oldest_prunable_seconds", "sapwood_prune_oldest_prunable_seconds", 1.0),
    ("/prune/catch_up_seconds", "sapwood_prune_catch_up_seconds", 1.0),
    ("/prune/blocked/*", "sapwood_prune_blocked_records{reason=\"*\"}", 1.0),
    ("/prune/policy/*", "sapwood_policy_blocks{setting=\"*\"}", 1.0),
    ("/prune/totals/deleted", "sapwood_prune_deleted_total", 1.0),
    ("/prune/totals/bytes_freed", "sapwood_prune_bytes_freed_total", 1.0),
    ("/prune/totals/bodies_deleted", "sapwood_prune_bodies_deleted_total", 1.0),
    ("/prune/totals/retained/*", "sapwood_prune_retained_total{reason=\"*\"}", 1.0),
    ("/prune/totals/records_per_second", "sapwood_prune_records_per_second", 1.0),
    ("/prune/timing/last_ms", "sapwood_prune_last_seconds", 1000.0),
    ("/prune/timing/p50_ms", "sapwood_prune_recent_seconds{percentile=\"50\"}", 1000.0),
    ("/prune/timing/p99_ms", "sapwood_prune_recent_seconds{percentile=\"99\"}", 1000.0),
    ("/prune/holds/*/keep_from", "sapwood_hold_keep_from{hold=\"*\"}", 1.0),
    ("/prune/holds/*/expires", "sapwood_hold_expires_seconds{hold=\"*\"}", 1.0),
    ("/prune/holds/*/silent_seconds", "sapwood_hold_silent_seconds{hold=\"*\"}", 1.0),
    ("/prune/holds/*/retained_records", "sapwood_hold_retained_records{hold=\"*\"}", 1.0),
    ("/prune/holds/*/unchanged_seconds", "sapwood_hold_unchanged_seconds{hold=\"*\"}", 1.0),
    ("/engine/*/stats/*", "sapwood_engine{part=\"*\",stat=\"*\"}", 1.0),
    ("/engine_writes/applied_bytes", "sapwood_engine_applied_bytes_total", 1.0),
    ("/engine_writes/log_bytes", "sapwood_engine_log_bytes_total", 1.0),
    ("/engine_writes/log_syncs", "sapwood_engine_log_syncs_total", 1.0),
    ("/engine_writes/flush_bytes", "sapwood_engine_flush_bytes_total", 1.0),
    ("/engine_writes/compaction_bytes", "sapwood_engine_compaction_bytes_total", 1.0),
    ("/engine_writes/compaction_read_bytes", "sapwood_engine_compaction_read_bytes_total", 1.0),
    ("/write_amplification", "sapwood_engine_write_amplification", 1.0),
    ("/process/resident_bytes", "sapwood_resident_memory_bytes", 1.0),
];

/// Texts that may be missing. What may be missing and stands neither here nor above would be a number that nobody looks at.
const TEXTS: [&str; 20] = [
    "engine_writes",
    "room",
    "decided_by",
    "cursor",
    "last_job",
    "stopped_early",
    "error",
    "hash",
    "applied",
    "tip",
    "by",
    "utxo_set",
    "muhash",
    "source",
    "unreachable",
    "bodies",
    "refused",
    "gap",
    "damaged",
    "below_floor",
];

/// Numbers that are sums or differences of what is scraped: of two times, of jobs by state, of the phases' histograms.
const DERIVED: [&str; 4] =
    ["/node/uptime_seconds", "/prune/totals/jobs", "/prune/timing/count", "/prune/timing/total_seconds"];

/// Every number in it, and everything that is missing, with its place. An entry of a list goes by its name.
fn leaves(place: &str, value: &Value, found: &mut Vec<(String, Option<f64>)>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| leaves(&format!("{place}/{name}"), value, found));
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                let name = item.get("name").or(item.get("part")).and_then(Value::as_str).map(str::to_owned);
                // Names of holds have slashes in them, which lead nowhere here.
                let name = name.unwrap_or_else(|| number.to_string()).replace('/', "|");
                leaves(&format!("{place}/{name}"), item, found);
            }
        }
        Value::Number(number) => found.push((place.to_owned(), number.as_f64())),
        Value::Null if !TEXTS.iter().any(|text| place.ends_with(&format!("/{text}"))) => {
            found.push((place.to_owned(), None));
        }
        _ => {}
    }
}

/// The metric that a number of the status is scraped as, and its factor.
fn metric_of(place: &str) -> Option<(String, f64)> {
    // The figures of the newest job have the names of the status. Those before it were scraped when they were the newest.
    if let Some(figure) = place.strip_prefix("/prune/newest_jobs/0/") {
        return Some((format!("sapwood_prune_newest_job{{stat=\"{}\"}}", figure.replace('/', ".")), 1.0));
    }
    let way: Vec<&str> = place.split('/').collect();
    let (pattern, metric, factor) = SCRAPED.iter().find(|(pattern, ..)| {
        let wanted: Vec<&str> = pattern.split('/').collect();
        wanted.len() == way.len()
            && wanted.iter().zip(&way).all(|(wanted, name)| *wanted == "*" || wanted == name)
    })?;
    let stars = pattern.split('/').zip(&way).filter(|(wanted, _)| *wanted == "*").map(|(_, name)| *name);
    let filled =
        stars.fold((*metric).to_owned(), |metric, name| metric.replacen('*', &name.replace('|', "/"), 1));
    Some((filled, *factor))
}

/// Compares every number of the status with what is scraped. Returns the status and how many numbers it had.
async fn agree(world: &World) -> (Value, usize) {
    world.node.sample().await;
    let status = world.get("/api/v1/status").await.ok();
    let answer = world.get("/metrics").await;
    assert!(answer.headers["content-type"].to_str().unwrap().starts_with("application/openmetrics-text"));
    let text = answer.text();
    assert!(text.ends_with("# EOF\n"));
    let scraped = samples(&text);
    let mut found = Vec::new();
    leaves("", &status, &mut found);
    let mut compared = 0;
    for (place, value) in found {
        let older_job = place.starts_with("/prune/last_job/")
            || place.starts_with("/prune/newest_jobs/") && !place.starts_with("/prune/newest_jobs/0/");
        if older_job || DERIVED.contains(&place.as_str()) {
            continue;
        }
        let (name, factor) =
            metric_of(&place).unwrap_or_else(|| panic!("{place} is in no metric: add it to SCRAPED"));
        let Some(expected) = value else {
            // What is not known is not scraped, or as what its help says.
            assert!(
                scraped.get(&name).is_none_or(|value| *value <= 0.0),
                "{place} is not known, but {name} is scraped"
            );
            continue;
        };
        let value =
            scraped.get(&name).unwrap_or_else(|| panic!("{place}: {name} is not scraped:\n{text}")) * factor;
        assert!(
            (value - expected).abs() <= expected.abs() * 1e-9,
            "{name} is {value}, {place} is {expected}"
        );
        compared += 1;
    }
    (status, compared)
}

#[tokio::test]
async fn every_number_of_the_status_is_scraped_with_the_same_value() {
    let world = World::new().await;
    world.with_a_pruned_child().await;
    let hold = sapwood_rules::Hold {
        name: "audit/of-the-tests".into(),
        owner: "the tests".into(),
        keep_from: Some(sapwood_types::Height(3)),
        expires: Some(4_000_000_000),
        reason: "to be scraped".into(),
    };
    world.pruner.holds().set(hold).await.unwrap();
    world.extend(&[&coin("tx", 3)]).await;
    let (status, compared) = agree(&world).await;
    assert!(compared > 100, "{compared} numbers were compared");
    let number = |pointer: &str| status.pointer(pointer).and_then(Value::as_f64).unwrap();
    assert!(
        number("/prune/totals/deleted") >= 1.0,
        "the test would prove nothing if nothing had been pruned"
    );
    assert_eq!(number("/counts/created"), number("/counts/unspent") + number("/counts/spent"));
    assert!(number("/counts/spent") >= 2.0, "two outputs were spent, one of them by a pruned transaction");
    assert!(number("/engine_writes/applied_bytes") > 0.0 && number("/write_amplification") > 0.0);
    assert!(number("/disk/room/free_bytes") > 0.0);
    let freed = number("/disk/without_pruning_bytes") - number("/disk/total_bytes");
    assert_eq!(freed, number("/prune/totals/bytes_freed"));
}

/// With a follower that applies blocks, rolls some back and has the pruner at work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_status_and_metrics_agree_while_a_source_is_followed() {
    let source = SyntheticSource::new(SyntheticOptions {
        txs_per_block: 20,
        unmined_per_block: 5,
        first_outputs: 300,
        coinbase_maturity: small().coinbase_maturity,
        reorg_probability: 0.2,
        max_reorg_depth: 3,
        ..SyntheticOptions::default()
    })
    .unwrap();
    let world = World::planned(Plan { source: Some(source.clone()), ..Plan::default() }).await;
    for _ in 0..4 {
        (0..15).for_each(|_| drop(source.advance()));
        let tip = source.look(SyntheticChain::tip).unwrap();
        let started = Instant::now();
        loop {
            let applied = world.store.last_applied().await.unwrap();
            let running = world.chain.events().state() == ChainState::Running;
            if running && applied.is_some_and(|applied| applied.hash == tip.hash) {
                break;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "{tip:?} was not applied: {applied:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Counters of the pruner move while it works, so it has to be done.
        world.prune().await;
        while !world.pruner.jobs(usize::MAX).iter().all(|job| job.state.is_over()) {
            assert!(started.elapsed() < Duration::from_secs(60), "the pruner does not come to an end");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (status, compared) = agree(&world).await;
        assert!(compared > 100, "{compared} numbers were compared");
        assert_eq!(status["chain"]["tip"], status["chain"]["applied"]);
        assert_eq!(status["chain"]["tip"]["hash"], tip.hash.to_string());
        assert_eq!(status["chain"]["source"]["state"], "following");
        assert_eq!(status["chain"]["source"]["best_height"], tip.height.0);
        assert_eq!(status["chain"]["lag_blocks"], 0);
        assert_eq!(status["ready"]["ready"], true, "{}", status["ready"]);
    }
    let status = world.get("/api/v1/status").await.ok();
    for place in ["/prune/totals/deleted", "/chain/rollback/count", "/counts/spent", "/chain/transactions"] {
        assert!(status.pointer(place).and_then(Value::as_u64) > Some(0), "{place} has not moved");
    }
}

#[tokio::test]
async fn every_scraped_metric_is_documented_under_its_kind() {
    let world = World::new().await;
    world.with_a_pruned_child().await;
    world.node.sample().await;
    let text = world.get("/metrics").await.text();
    let documented: HashMap<&str, &str> = sapwood_server::metrics::list()
        .into_iter()
        .map(|metric| (metric.name.strip_suffix("_total").unwrap_or(metric.name), metric.kind))
        .collect();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut seen = 0;
    for (name, kind) in types.map(|line| line.split_once(' ').unwrap()) {
        assert_eq!(documented.get(name), Some(&kind), "{name}");
        seen += 1;
    }
    assert!(seen > 40, "{seen} metrics");
}

#[tokio::test]
async fn the_last_point_of_the_history_is_the_status() {
    let world = World::new().await;
    world.empty_blocks(2).await;
    world.node.sample().await;
    world.extend(&[&coin("tx", 3)]).await;
    let report = world.node.sample().await;
    let status = world.get("/api/v1/status").await.ok();
    for range in ["minutes", "day"] {
        let history = world.get(&format!("/api/v1/history?range={range}")).await.ok();
        let last = |name: &str| history[name].as_array().unwrap().last().cloned().unwrap_or(Value::Null);
        assert_eq!(last("at_ms"), status["at_ms"]);
        assert_eq!(last("unspent"), status["counts"]["unspent"]);
        assert_eq!(last("lag_blocks"), status["chain"]["lag_blocks"]);
        assert_eq!(last("transactions_per_second"), status["chain"]["transactions_per_second"]);
        for part in status["disk"]["parts"].as_array().unwrap() {
            let column = &history["disk"][part["part"].as_str().unwrap()];
            assert_eq!(column.as_array().unwrap().last(), Some(&part["bytes"]));
        }
        assert_eq!(last("disk_total"), status["disk"]["total_bytes"]);
        assert_eq!(last("disk_without_pruning"), status["disk"]["without_pruning_bytes"]);
        let columns = history.as_object().unwrap().values().filter_map(Value::as_array);
        let lengths: Vec<usize> = columns.map(Vec::len).collect();
        assert!(lengths.iter().all(|length| *length == lengths[0]), "all columns are equally long");
    }
    let nothing_new = world.get(&format!("/api/v1/history?after_ms={}", report.at_ms)).await.ok();
    assert_eq!(nothing_new["at_ms"], serde_json::json!([]));
}

/// With a source that has everything wrong with it at once.
#[tokio::test]
async fn c1_every_number_of_the_source_is_scraped_with_the_same_value() {
    let failing = |attempts| Failing { since: Instant::now(), attempts, error: "no answer".into() };
    let point = |height| ChainPoint::new(Height(height), BlockHash([7; 32]));
    let source = SourceHealth {
        tip: Some(point(90)),
        best_height: Some(Height(99)),
        unreachable: Some(failing(3)),
        bodies: Some(failing(4)),
        refused: Some(RefusedBlock {
            height: Height(50),
            hash: BlockHash([8; 32]),
            reason: "it takes too much".into(),
            descendants: 53,
            insisted: true,
            attempts: 2,
        }),
        gap: Some(Gap { missing: BlockHash([1; 32]), child: BlockHash([2; 32]), waiting: 6, damaged: None }),
        below_floor: Some(BelowFloor { tip: point(90), floor: Height(5) }),
        last_contact: Some(Instant::now()),
        errors: 12,
    };
    let mut progress = Progress::default();
    (progress.tip, progress.source) = (source.tip, source);
    let (_sender, progress) = tokio::sync::watch::channel(progress);
    let world = World::planned(Plan { progress: Some(progress), ..Plan::default() }).await;
    world.empty_blocks(3).await;
    let (status, _) = agree(&world).await;
    assert_eq!(status["chain"]["lag_blocks"], 97, "counted from what the source knows of");
    assert_eq!(status["chain"]["source"]["refused"]["descendants"], 53);
    assert_eq!(status["ready"]["ready"], false);
    let scraped = samples(&world.get("/metrics").await.text());
    let named = [
        "source_unreachable",
        "bodies_unreachable",
        "block_refused",
        "source_gap",
        "fork_below_floor",
        "lag",
    ];
    for name in named {
        let alerts = status["alerts"].as_array().unwrap();
        assert!(alerts.iter().any(|alert| alert["name"] == name), "{name}");
        assert_eq!(scraped[&format!("sapwood_alert{{name=\"{name}\"}}")], 1.0);
    }
    assert_eq!(scraped["sapwood_source_state{state=\"unreachable\"}"], 1.0);
    assert_eq!(scraped["sapwood_source_state{state=\"following\"}"], 0.0);
}
