//! The configuration, the policy, and what is logged.

use std::fs;

use serde_json::Value;

use crate::commands::{
    node::{Place, until},
    support::{bitcoin, json, printed, refused},
};

#[test]
fn m13_config_check_refuses_what_run_refuses() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sapwood.toml");
    let config = file.to_str().unwrap();
    let check = |text: &str| {
        let data = directory.path().join("data");
        fs::write(&file, format!("[data]\ndirectory = {data:?}\n[source]\nblocks = [\"x\"]\n{text}\n"))
            .unwrap();
        let said = refused(&["config", "check", config]);
        assert_eq!(refused(&["run", "--config", config]), said, "run says the same");
        said
    };
    for (text, name) in [
        ("[policy]\nreorg_window = 0", "policy.reorg_window"),
        ("[policy]\nretention = 5", "policy.retention"),
        ("[policy]\ncoinbase_maturity = 0", "policy.coinbase_maturity"),
        ("[pruner]\nbusy_share = nan", "pruner.busy_share"),
        ("[servers]\nhttp_address = \"0.0.0.0:8097\"", "servers.http_address"),
        ("[servers]\nkey = \"key.pem\"", "servers.key"),
        ("[servers]\nmax_connections = 0", "servers.max_connections"),
        ("[servers]\nrequests_per_second = 0", "servers.requests_per_second"),
        ("[servers]\nrefresh = \"0s\"", "servers.refresh"),
        ("[log]\nlevel = \"loud\"", "log.level"),
        ("[store]\nwrite_buffers = 0", "store.write_buffers"),
        ("[store]\nblock_cache_mib = 99999999999", "store.block_cache_mib"),
        ("[policy]\nretenton = 5", "did you mean policy.retention?"),
    ] {
        let said = check(text);
        assert!(said.contains(name), "{text}: {said}");
    }
    assert!(!directory.path().join("data").exists(), "nothing was made");
    fs::write(&file, "[source]\nblocks = [\"x\"]\n").unwrap();
    assert!(printed(&["config", "check", config]).contains("can be run with"));
    fs::write(&file, "[source]\nkind = \"node\"\nnode_url = \"http://bob:hunter2@127.0.0.1:1\"\n").unwrap();
    let said = refused(&["config", "check", config]);
    assert!(said.contains("source.node_url") && !said.contains("hunter2"), "{said}");
}

/// What is found out only by opening something is found out by `config check` too.
#[test]
fn config_check_refuses_sources_certificates_and_buckets_that_cannot_be_used() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let config = path("sapwood.toml");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(path("good.pem"), made.cert.pem()).unwrap();
    fs::write(path("good.key"), made.signing_key.serialize_pem()).unwrap();
    fs::write(path("other.key"), other.signing_key.serialize_pem()).unwrap();
    fs::write(path("text"), "no certificate").unwrap();
    let node = |lines: &str| format!("[source]\nkind = \"node\"\n{lines}");
    let tls = |certificate: &str, key: &str| {
        let (certificate, key) = (path(certificate), path(key));
        format!("[source]\nkind = \"feed\"\n[servers]\ncertificate = {certificate:?}\nkey = {key:?}\n")
    };
    let bodies =
        |lines: &str| format!("[source]\nkind = \"feed\"\n[bodies]\nkind = \"s3\"\nbucket = \"b\"\n{lines}");
    for (text, name) in [
        (node("node_url = \"https://127.0.0.1:8332\"\nuser = \"u\""), "source.node_url"),
        (node("node_url = \"127.0.0.1:8332\"\nuser = \"u\""), "source.node_url"),
        (node("node_url = \"http://no address\"\nuser = \"u\""), "source.node_url"),
        (node("node_url = \"http://127.0.0.1:8332\""), "source.node_directory"),
        (tls("text", "good.key"), "servers.certificate"),
        (tls("good.pem", "text"), "servers.certificate"),
        (tls("good.pem", "other.key"), "servers.certificate"),
        (bodies("endpoint = \"http://127.0.0.1:9000\""), "bodies.allow_http"),
        (bodies("endpoint = \"127.0.0.1:9000\""), "bodies.endpoint"),
    ] {
        fs::write(&config, format!("[data]\ndirectory = {:?}\n{text}\n", path("data"))).unwrap();
        let said = refused(&["config", "check", &config]);
        assert!(said.contains(name), "{text}: {said}");
        assert_eq!(refused(&["run", "--config", &config]), said, "run says the same");
    }
    assert!(!directory.path().join("data").exists(), "nothing was made");
    for text in [
        node("node_url = \"http://127.0.0.1:8332\"\nnode_directory = \"/nowhere\""),
        node("node_url = \"http://127.0.0.1:8332\"\nuser = \"u\""),
        tls("good.pem", "good.key"),
        bodies("endpoint = \"http://127.0.0.1:9000\"\nallow_http = true"),
        bodies(""),
    ] {
        fs::write(&config, &text).unwrap();
        assert!(printed(&["config", "check", &config]).contains("can be run with"), "{text}");
    }
}

#[test]
fn h5_an_import_with_a_longer_retention_is_kept_by_a_run_with_the_defaults() {
    let Some(bitcoin) = bitcoin() else { return };
    let blocks = bitcoin.join("chain-mainnet-0-4312/blk00000.dat");
    let place = Place::new(&blocks, "", "");
    printed(&["import", "bitcoin", "--data", &place.data(), "--retention", "5000", blocks.to_str().unwrap()]);
    let records = |status: &Value| status["counts"]["records"].as_u64().unwrap();
    let before = records(&json(&["status", "--data", &place.data(), "--json"]));
    let node = place.run(4312);
    until("the first job", || node.json(&["prune", "status"])["totals"]["jobs"].as_u64() > Some(0));
    let status = node.json(&["status"]);
    assert_eq!(status["prune"]["policy"]["retention"], 5000);
    assert_eq!(records(&status), before);
    let log = node.stop();
    assert!(
        log.contains("retention is 5000 (promised by the data directory); the configuration says 288"),
        "{log}"
    );
}

#[test]
fn l18_with_json_every_line_is_json_and_text_has_no_colours() {
    let Some(bitcoin) = bitcoin() else { return };
    let blocks = bitcoin.join("chain-mainnet-0-4312/blk00000.dat");
    let place = Place::new(&blocks, "", "");
    let log = place.run_with(&["--log-format", "json"], 4312).stop();
    for line in log.lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok_and(|line| line.is_object()), "{line}");
    }
    let error = refused(&["--log-format", "json", "status", "--data", &place.text("none")]);
    let error: Value = serde_json::from_str(error.trim()).unwrap();
    assert!(error["fields"]["message"].as_str().unwrap().contains("holds no chain"), "{error}");
    let log = place.run(4312).stop();
    assert!(!log.contains('\u{1b}') && log.contains("serving"), "{log}");
    assert!(!log.contains("Some(") && !log.contains("Policy {"), "{log}");
}

#[test]
fn h5_the_policy_is_shown_and_changed_and_shortening_wants_yes() {
    let Some(bitcoin) = bitcoin() else { return };
    let blocks = bitcoin.join("chain-mainnet-0-4312/blk00000.dat");
    let place = Place::new(&blocks, "", "");
    let node = place.run(4312);
    assert_eq!(node.json(&["policy", "set", "--retention", "500"])["retention"], 500);
    let refusal = refused(&[&["policy", "set", "--retention", "300"][..], &node.target()].concat());
    assert!(refusal.contains("from 500 blocks to 300 blocks") && refusal.contains("--yes"), "{refusal}");
    node.stop();
    let data = place.data();
    let shown = printed(&["policy", "show", "--data", &data]);
    assert!(
        shown.contains("500 blocks") && shown.contains("set by admin from 127.0.0.1 over REST"),
        "{shown}"
    );
    let node = place.run(4312);
    assert_eq!(node.json(&["policy", "show"])["retention"], 500, "it survives a restart");
    node.stop();
    assert!(refused(&["policy", "set", "--retention", "300", "--data", &data]).contains("--yes"));
    let set = printed(&["policy", "set", "--retention", "300", "--yes", "--data", &data]);
    assert!(set.contains("300 blocks"), "{set}");
    let origin = &json(&["policy", "show", "--data", &data, "--json"])["origins"]["retention"];
    assert_eq!(
        (&origin["from"], &origin["by"]),
        (&"run_time".into(), &"a command on the data directory".into())
    );
    let wrong = refused(&["policy", "set", "--coinbase-maturity", "0", "--data", &data]);
    assert!(wrong.contains("is not that of the chain"), "m13: {wrong}");
}

/// The line "without pruning" of the page began again with every process.
#[test]
fn page_what_was_pruned_before_a_restart_counts_after_it() {
    let Some(bitcoin) = bitcoin() else { return };
    let blocks = bitcoin.join("chain-mainnet-0-4312/blk00000.dat");
    let place = Place::new(&blocks, "", "[policy]\nretention = 20\nreorg_window = 10");
    let freed = |status: &Value| {
        let bytes = |name: &str| status["disk"][name].as_u64().unwrap();
        bytes("without_pruning_bytes") - bytes("total_bytes")
    };
    let node = place.run(4312);
    until("pruning", || freed(&node.json(&["status"])) > 0);
    until("the end of pruning", || node.json(&["prune", "status"])["backlog_records"] == 0);
    let before = node.json(&["status"]);
    node.stop();
    let after = place.run(4312).json(&["status"]);
    assert_eq!(freed(&after), freed(&before));
    assert_eq!(after["prune"]["totals"]["deleted"], before["prune"]["totals"]["deleted"]);
}

#[test]
fn heavy_statistics_and_the_interval_of_measuring_come_from_the_configuration() {
    let Some(bitcoin) = bitcoin() else { return };
    let blocks = bitcoin.join("chain-mainnet-0-4312/blk00000.dat");
    let place =
        Place::new(&blocks, "heavy_statistics = false\nrefresh = \"100ms\"", "[chain]\nutxo_hash = true");
    let node = place.run(4312);
    let status = node.json(&["status"]);
    assert_eq!(status["node"]["features"]["heavy_statistics"], false);
    assert_eq!(status["utxo_set"]["muhash"], Value::Null);
    assert!(status["utxo_set"]["outputs"].as_u64() > Some(0), "what is cheap is there");
    let measured = |status: &Value| status["at_ms"].as_u64().unwrap();
    let first = measured(&status);
    until("another measurement", || measured(&node.json(&["status"])) > first);
    node.stop();
    let place = Place::new(&blocks, "", "[chain]\nutxo_hash = true");
    let node = place.run(4312);
    let status = node.json(&["status"]);
    assert_eq!(status["node"]["features"]["heavy_statistics"], true, "on unless turned off");
    until("the hash", || node.json(&["status"])["utxo_set"]["muhash"].is_string());
    node.stop();
}
