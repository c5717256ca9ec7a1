//! One set of names, at every door.

use std::{collections::BTreeSet, fs, path::PathBuf};

use serde_json::Value;

/// Names that once meant the same as another one: the name, and the one that is used.
const RETIRED: [(&str, &str); 17] = [
    ("tx", "txid"),
    ("index", "vout"),
    ("after", "cursor"),
    ("next", "cursor"),
    ("newest_first", "order"),
    ("amount", "value"),
    ("spending_height", "spendable_from"),
    ("created_at_height", "created_height"),
    ("last_applied", "applied"),
    ("lag", "lag_blocks"),
    ("backlog", "backlog_records"),
    ("words", "state"),
    ("kept", "retained"),
    ("may_go", "prunable"),
    ("keeps", "retains"),
    ("expires_at", "expires"),
    ("figures", "stats"),
];

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every name of a property and of a parameter in an OpenAPI document.
fn names(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::Object(properties)) = fields.get("properties") {
                found.extend(properties.keys().cloned());
            }
            if fields.contains_key("in") {
                found.extend(fields.get("name").and_then(Value::as_str).map(str::to_owned));
            }
            fields.values().for_each(|value| names(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| names(item, found)),
        _ => {}
    }
}

/// Every name of a field in the `.proto` files.
fn fields() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in ["utxo", "chain", "pruner"] {
        let text = fs::read_to_string(repository().join(format!("proto/sapwood/v1/{file}.proto"))).unwrap();
        for line in text.lines().filter_map(|line| line.trim().strip_suffix(';')) {
            if let Some((before, _)) = line.split_once(" = ") {
                found.extend(before.rsplit(' ').next().map(str::to_owned));
            }
        }
    }
    found
}

#[test]
fn m16_no_retired_name_is_left_in_rest_or_grpc() {
    let document = serde_json::to_value(sapwood_server::http::openapi::document()).unwrap();
    let mut rest = BTreeSet::new();
    names(&document, &mut rest);
    let grpc = fields();
    assert!(rest.len() > 100 && grpc.len() > 100, "{} and {} names", rest.len(), grpc.len());
    for (retired, used) in RETIRED {
        assert!(!rest.contains(retired), "REST says {retired} for {used}");
        // In gRPC a problem has the index of its item in a batch, which is another thing.
        assert!(retired == "index" || !grpc.contains(retired), "gRPC says {retired} for {used}");
    }
    for name in
        ["txid", "vout", "vin", "value", "height", "created_height", "mined_at", "spendable_from", "limit"]
            .into_iter()
            .chain([
                "cursor",
                "order",
                "applied",
                "lag_blocks",
                "backlog_records",
                "retained",
                "prunable",
                "expires",
            ])
    {
        assert!(rest.contains(name), "REST does not say {name}");
        assert!(grpc.contains(name), "gRPC does not say {name}");
    }
}

#[test]
fn m16_every_metric_has_the_one_prefix_and_its_own_meaning() {
    let metrics = sapwood_server::metrics::list();
    let (mut seen, mut helps) = (BTreeSet::new(), BTreeSet::new());
    for metric in &metrics {
        assert!(metric.name.starts_with("sapwood_"), "{}", metric.name);
        assert!(seen.insert(metric.name), "{} is there twice", metric.name);
        assert!(helps.insert(metric.help), "two metrics say {:?}", metric.help);
    }
    for retired in ["sapwood_prune_jobs_run_total", "sapwood_prune_jobs_asked_total"] {
        assert!(!seen.contains(retired), "{retired} is sapwood_prune_jobs_total");
    }
}
