//! One set of names, at every door.

use std::{collections::BTreeSet, fs, path::PathBuf, time::Duration};

use sapwood_pruner::PrunerOptions;
use serde_json::Value;

use crate::http::world::{Plan, World};

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

/// The names of a message's fields in the `.proto` file of the pruner.
fn fields_of(message: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(repository().join("proto/sapwood/v1/pruner.proto")).unwrap();
    let (_, after) = text.split_once(&format!("message {message} {{")).unwrap();
    let lines = after.split('}').next().unwrap().lines().filter_map(|line| line.split_once(" = "));
    lines.filter_map(|(before, _)| before.rsplit(' ').next()).map(str::to_owned).collect()
}

/// The names of the fields of a schema, those of parts that lie flat in it included.
fn properties(document: &Value, schema: &Value) -> BTreeSet<String> {
    let schema = match schema["$ref"].as_str() {
        Some(name) => &document["components"]["schemas"][name.rsplit('/').next().unwrap()],
        None => schema,
    };
    let own = schema["properties"].as_object().into_iter().flat_map(|fields| fields.keys().cloned());
    let parts = ["allOf", "oneOf"].into_iter().filter_map(|list| schema[list].as_array()).flatten();
    parts.flat_map(|part| properties(document, part)).chain(own).collect()
}

#[test]
fn m16_one_type_has_one_set_of_names_in_rest_and_grpc() {
    let document = serde_json::to_value(sapwood_server::http::openapi::document()).unwrap();
    let schema = |name: &str| {
        let found = properties(&document, &document["components"]["schemas"][name]);
        assert!(!found.is_empty(), "there is no schema {name}");
        found
    };
    let same = [
        ("Policy", "Policy"),
        ("Job", "Job"),
        ("JobCounts", "JobCounts"),
        ("JobSeconds", "JobDurations"),
        ("Hold", "HoldStatus"),
        ("SetHoldRequest", "Hold"),
        ("PlanResponse", "Plan"),
        ("Guard", "Guard"),
        ("PrunerTotals", "Totals"),
        ("UnreadableRecord", "Unreadable"),
    ];
    for (message, name) in same {
        assert_eq!(fields_of(message), schema(name), "{message} and {name}");
    }
    // What belongs to a reason is in its message in gRPC.
    assert!(fields_of("Stopped").is_subset(&schema("Stopped")), "{:?}", schema("Stopped"));
    let mut explanation = schema("Explanation");
    explanation.insert("text".into());
    assert_eq!(fields_of("ExplainResponse"), explanation);
    // How the pruner was set up is left to REST.
    let mut status = schema("PrunerStatus");
    status.remove("settings");
    assert_eq!(fields_of("GetPrunerStatusResponse"), status);
}

#[tokio::test]
async fn m16_the_phases_of_a_job_have_one_name_each() {
    let world = World::new().await;
    world.empty_blocks(2).await;
    world.prune().await;
    world.node.sample().await;
    let status = world.get("/api/v1/status").await.ok();
    let seconds = status["prune"]["newest_jobs"][0]["seconds"].as_object().unwrap();
    let rest: BTreeSet<String> = seconds.keys().cloned().collect();
    assert_eq!(rest, fields_of("JobSeconds"));
    let metrics = world.get("/metrics").await.text();
    let begin = "sapwood_prune_duration_seconds_count{operation=\"";
    let operations = metrics.lines().filter_map(|line| line.strip_prefix(begin)?.split('"').next());
    let operations: BTreeSet<String> = operations.map(str::to_owned).collect();
    assert_eq!(operations, rest);
}

#[tokio::test]
async fn m16_the_child_check_has_one_name() {
    let world = World::planned(Plan {
        pruner: PrunerOptions { child_check: false, ..Plan::default().pruner },
        ..Plan::default()
    });
    let world = world.await;
    world.node.sample().await;
    let status = world.get("/api/v1/status").await.ok();
    assert_eq!(status["node"]["features"]["child_check"], false);
    let metrics = world.get("/metrics").await.text();
    assert!(metrics.contains("sapwood_feature{feature=\"child_check\"} 0"), "{metrics}");
    for file in ["configuration.md", "pruner.md", "http.md", "operations.md", "metrics.md"] {
        let text = fs::read_to_string(repository().join("docs").join(file)).unwrap();
        for retired in ["defensive =", "pruner.defensive", "`defensive`", "check_children"] {
            assert!(!text.contains(retired), "docs/{file} says {retired} for child_check");
        }
    }
}

/// What an operator set can be looked up, whatever it is.
#[tokio::test]
async fn every_setting_of_the_pruner_is_in_the_status() {
    let options = PrunerOptions {
        delete_due: false,
        block_assembly_ttl: Duration::from_secs(7),
        progress_log: Some(Duration::from_secs(9)),
        job_history: 11,
        ..Plan::default().pruner
    };
    let world = World::planned(Plan { pruner: options, ..Plan::default() }).await;
    world.node.sample().await;
    let settings = &world.get("/api/v1/status").await.ok()["prune"]["settings"];
    assert_eq!((&settings["delete_due"], &settings["job_history"]), (&false.into(), &11.into()));
    assert_eq!((&settings["block_assembly_ttl"], &settings["progress_log"]), (&"7s".into(), &"9s".into()));
    assert_eq!(settings["look_every"], "never");
    // Each key of the configuration, under its name.
    let text = fs::read_to_string(repository().join("docs/configuration.md")).unwrap();
    let section = text.split("[pruner]\n").nth(1).unwrap().split("\n[").next().unwrap();
    let keys = section.lines().filter_map(|line| line.split_once(" = ")).map(|(key, _)| key);
    let keys: BTreeSet<&str> = keys.filter(|key| !key.starts_with('#')).collect();
    let shown: BTreeSet<&str> = settings.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, shown);
    let metrics = world.get("/metrics").await.text();
    assert!(metrics.contains("sapwood_prune_setting{setting=\"block_assembly_ttl\"} 7.0\n"), "{metrics}");
}
