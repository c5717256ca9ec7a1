//! One name for one thing: what the command line calls an option is what REST and gRPC call it, and the configuration too.

use std::{collections::BTreeSet, fs, path::PathBuf};

use serde_json::Value;

use crate::commands::support::{bitcoin, json, printed};

/// Options of every command that asks a node, and of every command.
const COMMON: [&str; 8] = ["data", "url", "ca", "token", "config", "json", "help", "version"];

fn repository(file: &str) -> String {
    fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)).unwrap()
}

/// The options of a command's own, as REST would write them.
fn options(command: &str) -> BTreeSet<String> {
    let args: Vec<&str> = command.split(' ').chain(["--help"]).collect();
    let help = printed(&args);
    let names = help.lines().filter_map(|line| line.trim_start().split("--").nth(1));
    let names = names.filter_map(|name| name.split([' ', ',']).next());
    let own = names.filter(|name| !COMMON.contains(name) && !name.starts_with("log"));
    own.map(|name| name.replace('-', "_")).collect()
}

/// The query parameters of a path and the fields of what is sent to it.
fn rest(document: &Value, method: &str, path: &str) -> BTreeSet<String> {
    let operation = &document["paths"][path][method];
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let query = parameters.filter(|parameter| parameter["in"] == "query").map(|parameter| &parameter["name"]);
    let mut names: BTreeSet<String> = query.map(|name| name.as_str().unwrap().to_owned()).collect();
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    if let Some(body) = schema["$ref"].as_str().or(schema["oneOf"][0]["$ref"].as_str()) {
        let body = &document["components"]["schemas"][body.rsplit('/').next().unwrap()];
        names.extend(body["properties"].as_object().unwrap().keys().cloned());
    }
    names
}

/// The fields of a gRPC message.
fn grpc(message: &str) -> BTreeSet<String> {
    let protos: String = ["utxo", "chain", "pruner"]
        .map(|name| repository(&format!("proto/sapwood/v1/{name}.proto")))
        .concat();
    let (_, body) = protos.split_once(&format!("\nmessage {message} {{")).unwrap();
    let fields = body.lines().take_while(|line| *line != "}").filter_map(|line| line.split_once(" = "));
    fields.filter_map(|(before, _)| before.rsplit(' ').next().map(str::to_owned)).collect()
}

#[test]
fn m16_the_table_of_names_has_one_column() {
    let document: Value = serde_json::from_str(&repository("docs/openapi.json")).unwrap();
    let doors = [
        ("get address", "get", "/api/v1/addresses/{address}/utxos", "ListByAddressRequest"),
        ("prune plan", "get", "/api/v1/prune/plan", "PlanRequest"),
        ("prune now", "post", "/api/v1/prune", "PruneRequest"),
        ("hold set", "put", "/api/v1/holds/{name}", "SetHoldRequest"),
        ("policy set", "patch", "/api/v1/policy", "SetPolicyRequest"),
    ];
    for (command, method, path, message) in doors {
        let (rest, grpc) = (rest(&document, method, path), grpc(message));
        assert!(rest.is_subset(&grpc), "{path} has {rest:?}, {message} has {grpc:?}");
        let mut options = options(command);
        // A person says yes to what a program confirms.
        if options.remove("yes") {
            options.insert("confirm".to_owned());
        }
        assert!(
            !options.is_empty() && options.is_subset(&rest),
            "{command} has {options:?}, {path} {rest:?}"
        );
    }
    let defaults: toml::Table = printed(&["config", "--defaults"]).parse().unwrap();
    let mut settings: BTreeSet<String> = defaults["policy"].as_table().unwrap().keys().cloned().collect();
    // It follows the retention unless it is set.
    settings.insert("unmined_retention".to_owned());
    let mut policy = rest(&document, "patch", "/api/v1/policy");
    policy.remove("confirm");
    assert_eq!(settings, policy);
}

/// The one command that answers for itself. All others print what REST answers.
#[test]
fn m16_import_prints_blocks_as_rest_does() {
    let Some(bitcoin) = bitcoin() else { return };
    let blocks = bitcoin.join("chain-mainnet-0-4312/blk00000.dat");
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let (data, blocks) = (data.to_str().unwrap(), blocks.to_str().unwrap());
    let summary = json(&["import", "bitcoin", "--json", "--data", data, "--stop-at", "20", blocks]);
    let chain = json(&["status", "--json", "--data", data])["chain"].clone();
    assert_eq!((&summary["applied"], &summary["tip"]), (&chain["applied"], &chain["tip"]));
    assert_eq!(summary["applied"]["height"], 20);
}
