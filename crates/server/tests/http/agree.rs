//! Status, metrics and history are the same figures.

use std::collections::HashMap;

use sapwood_conformance::fixtures::coin;
use serde_json::Value;

use crate::world::World;

/// The samples of a scrape: name and labels as they stand there, and the value.
fn samples(text: &str) -> HashMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.into(), value.parse().unwrap()))
        .collect()
}

#[tokio::test]
async fn every_figure_of_the_status_is_scraped_with_the_same_value() {
    let world = World::new().await;
    world.with_a_pruned_child().await;
    world.extend(&[&coin("tx", 3)]).await;
    world.node.sample().await;
    let status = world.get("/api/v1/status").await.ok();
    let answer = world.get("/metrics").await;
    assert!(answer.headers["content-type"].to_str().unwrap().starts_with("application/openmetrics-text"));
    let text = answer.text();
    assert!(text.ends_with("# EOF\n"));
    let scraped = samples(&text);
    let at = |pointer: &str| status.pointer(pointer).unwrap_or_else(|| panic!("no {pointer} in {status:#}"));
    let number = |pointer: &str| at(pointer).as_f64().unwrap_or_else(|| panic!("{pointer}: {}", at(pointer)));
    let same = [
        ("sapwood_applied_height", "/chain/applied/height", 1.0),
        ("sapwood_rollback_floor_height", "/chain/rollback_floor", 1.0),
        ("sapwood_queued_blocks", "/chain/queued", 1.0),
        ("sapwood_blocks_applied_total", "/chain/apply/count", 1.0),
        ("sapwood_apply_seconds_total", "/chain/apply/total_seconds", 1.0),
        ("sapwood_apply_last_seconds", "/chain/apply/last_ms", 1000.0),
        ("sapwood_apply_recent_seconds{quantile=\"0.5\"}", "/chain/apply/p50_ms", 1000.0),
        ("sapwood_apply_recent_seconds{quantile=\"0.99\"}", "/chain/apply/p99_ms", 1000.0),
        ("sapwood_rollbacks_total", "/chain/rollback/count", 1.0),
        ("sapwood_transactions_applied_total", "/chain/transactions", 1.0),
        ("sapwood_transactions_per_second", "/chain/transactions_per_second", 1.0),
        ("sapwood_blocks_per_second", "/chain/blocks_per_second", 1.0),
        ("sapwood_records", "/records/transactions", 1.0),
        ("sapwood_unspent_outputs", "/records/unspent", 1.0),
        ("sapwood_unmined_records", "/records/unmined", 1.0),
        ("sapwood_disk_total_bytes", "/disk/total_bytes", 1.0),
        ("sapwood_disk_without_pruning_bytes", "/disk/without_pruning_bytes", 1.0),
        ("sapwood_prune_jobs_run_total", "/prune/timing/count", 1.0),
        ("sapwood_prune_last_seconds", "/prune/timing/last_ms", 1000.0),
        ("sapwood_policy_blocks{setting=\"retention\"}", "/prune/policy/retention", 1.0),
        ("sapwood_policy_blocks{setting=\"reorg_window\"}", "/prune/policy/reorg_window", 1.0),
        ("process_resident_memory_bytes", "/process/resident_bytes", 1.0),
        ("pruner_processed_total", "/prune/deleted", 1.0),
        ("pruner_bytes_freed_total", "/prune/bytes_freed", 1.0),
        ("pruner_bodies_deleted_total", "/prune/bodies_deleted", 1.0),
        ("pruner_safe_height", "/prune/safe_height", 1.0),
        ("pruner_due_backlog", "/prune/backlog_records", 1.0),
        ("pruner_lag_blocks", "/prune/lag_blocks", 1.0),
    ];
    for (name, pointer, unit) in same {
        let value = scraped.get(name).unwrap_or_else(|| panic!("{name} is not scraped:\n{text}"));
        let (value, expected) = (value * unit, number(pointer));
        assert!(
            (value - expected).abs() <= expected.abs() * 1e-9,
            "{name} is {value}, {pointer} is {expected}"
        );
    }
    for part in at("/disk/parts").as_array().unwrap() {
        let name = format!("sapwood_disk_bytes{{part=\"{}\"}}", part["part"].as_str().unwrap());
        assert_eq!(scraped[&name], part["bytes"].as_f64().unwrap());
    }
    for hold in at("/prune/holds").as_array().unwrap() {
        let name = format!("pruner_hold_height{{hold=\"{}\"}}", hold["name"].as_str().unwrap());
        assert_eq!(scraped[&name], hold["keep_from"].as_f64().unwrap());
    }
    for (reason, count) in at("/prune/kept_by_reason").as_object().unwrap() {
        assert_eq!(scraped[&format!("pruner_kept_total{{reason=\"{reason}\"}}")], count.as_f64().unwrap());
    }
    for part in at("/engine").as_array().unwrap() {
        for (figure, value) in part["figures"].as_object().unwrap() {
            let name = format!("sapwood_engine{{part={},figure=\"{figure}\"}}", part["part"]);
            assert_eq!(scraped[&name], value.as_f64().unwrap());
        }
    }
    assert!(number("/prune/deleted") >= 1.0, "the test would prove nothing if nothing had been pruned");
    let freed = number("/disk/without_pruning_bytes") - number("/disk/total_bytes");
    assert_eq!(freed, number("/prune/bytes_freed"));
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
        assert_eq!(last("unspent"), status["records"]["unspent"]);
        assert_eq!(last("disk_total"), status["disk"]["total_bytes"]);
        assert_eq!(last("disk_without_pruning"), status["disk"]["without_pruning_bytes"]);
        let columns = history.as_object().unwrap().values().filter_map(Value::as_array);
        let lengths: Vec<usize> = columns.map(Vec::len).collect();
        assert!(lengths.iter().all(|length| *length == lengths[0]), "all columns are equally long");
    }
    let nothing_new = world.get(&format!("/api/v1/history?after_ms={}", report.at_ms)).await.ok();
    assert_eq!(nothing_new["at_ms"], serde_json::json!([]));
}
