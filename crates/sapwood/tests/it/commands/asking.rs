//! Asking a node that runs, and a directory that no node has open.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use crate::commands::{
    node::{Place, TOKEN},
    support::{bitcoin, json, printed, refused, run},
};

/// The first payment of all, in block 170; one of its outputs is spent in block 181.
const TXID: &str = "f4184fc596403b9d638783cf57adfe4c75c605f6356fbc91338530e9831e9e16";

fn mainnet() -> Option<std::path::PathBuf> {
    Some(bitcoin()?.join("chain-mainnet-0-4312/blk00000.dat"))
}

#[test]
fn h8_answers_are_the_same_from_a_running_node_and_from_its_directory() {
    let Some(blocks) = mainnet() else { return };
    let place =
        Place::new(&blocks, "", "[chain]\naddress_index = true\nutxo_hash = true\n[pruner]\nenabled = false");
    let node = place.run(4312);
    let (data, outpoint) = (place.data(), format!("{TXID}:1"));
    let script =
        format!("script:{}", node.json(&["get", "tx", TXID])["outputs"][0]["script"].as_str().unwrap());
    let questions: &[&[&str]] = &[
        &["get", "tx", TXID],
        &["get", "utxo", &outpoint],
        &["get", "address", &script, "--limit", "3", "--order", "desc"],
        &["get", "utxo-set"],
        &["explain", "tx", TXID],
        &["prune", "plan"],
        &["hold", "list"],
        &["policy", "show"],
    ];
    let online: Vec<_> = questions.iter().map(|question| node.json(question)).collect();
    let as_text: Vec<_> =
        questions.iter().map(|question| printed(&[question, &node.target()[..]].concat())).collect();
    // The node that runs on the directory is found by the directory.
    assert_eq!(printed(&["get", "tx", TXID, "--data", &data]), as_text[0]);
    assert!(printed(&["verify", "--data", &data]).contains("nothing is broken"));
    let rollback = refused(&["rollback", "--data", &data, "--to", "4300"]);
    assert!(rollback.contains("only while no node runs"), "{rollback}");
    let status = node.json(&["status"]);
    let pruner = [node.json(&["prune", "status"]), json(&["prune", "status", "--data", &data, "--json"])];
    let lines = lines_of(&printed(&["prune", "status", "--data", &data]));
    node.stop();
    for ((question, online), as_text) in questions.iter().zip(online).zip(as_text) {
        let offline = [question, &["--data", data.as_str()][..]].concat();
        assert_eq!(json(&[&offline[..], &["--json"]].concat()), online, "{question:?}");
        assert_eq!(printed(&offline), as_text, "{question:?}");
    }
    let offline = json(&["status", "--data", &data, "--json"]);
    assert_eq!(offline["chain"]["state"], "offline");
    assert_eq!(
        (&offline["chain"]["applied"], &offline["counts"]),
        (&status["chain"]["applied"], &status["counts"])
    );
    // Of what moves with time the schema is the same, and so are the lines that people read.
    let offline = json(&["prune", "status", "--data", &data, "--json"]);
    for online in pruner {
        assert_eq!(fields("", &online), fields("", &offline));
    }
    assert_eq!(lines_of(&printed(&["prune", "status", "--data", &data])), lines);
    assert!(
        ["state", "safe height", "backlog", "hold"].iter().all(|line| lines.contains(*line)),
        "{lines:?}"
    );
}

/// The names of all fields, with the way to them. A list is what its items are.
fn fields(path: &str, value: &serde_json::Value) -> BTreeSet<String> {
    match value {
        serde_json::Value::Object(fields_of) => {
            let below = |(name, value): (&String, _)| {
                let path = format!("{path}/{name}");
                fields(&path, value).into_iter().chain([path])
            };
            fields_of.iter().flat_map(below).collect()
        }
        serde_json::Value::Array(items) => items.iter().flat_map(|item| fields(path, item)).collect(),
        _ => BTreeSet::new(),
    }
}

/// What the lines of a text are about.
fn lines_of(text: &str) -> BTreeSet<String> {
    text.lines().map(|line| line[..14].trim_end().to_owned()).collect()
}

#[test]
fn h8_holds_and_pruning_are_controlled_online_and_offline() {
    let Some(blocks) = mainnet() else { return };
    let place = Place::new(&blocks, "", "");
    let node = place.run(4312);
    let data = place.data();
    let set =
        node.json(&["hold", "set", "export/first", "--keep-from", "10", "--owner", "me", "--reason", "why"]);
    assert_eq!((&set["name"], &set["keep_from"]), (&"export/first".into(), &10.into()));
    let names = |holds: serde_json::Value| {
        let holds = holds.as_array().expect("one list").clone();
        holds.iter().map(|hold| hold["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(names(node.json(&["hold", "list"])).contains(&"export/first".to_owned()));
    let job = node.json(&["prune", "now"]);
    assert_eq!((&job["state"], &job["trigger"]), (&"completed".into(), &"on_demand".into()), "{job}");
    assert!(printed(&[&["prune", "jobs"], &node.target()[..]].concat()).contains("on demand"));
    let url = node.url.clone();
    let without_token = refused(&["prune", "disable", "--url", &url]);
    assert!(without_token.contains("--token"), "{without_token}");
    assert!(printed(&["prune", "disable", "--url", &url, "--token", TOKEN]).contains("pruning is disabled"));
    node.stop();

    assert!(printed(&["prune", "status", "--data", &data]).contains("disabled"));
    assert!(refused(&["prune", "now", "--data", &data]).contains("enable it first"));
    assert!(printed(&["prune", "enable", "--data", &data]).contains("pruning is enabled"));
    assert!(names(json(&["hold", "list", "--data", &data, "--json"])).contains(&"export/first".to_owned()));
    let released = printed(&["hold", "release", "export/first", "--data", &data]);
    assert_eq!(released, "export/first is released\n");
    assert!(refused(&["hold", "release", "export/first", "--data", &data]).contains("export/first"));
    assert!(printed(&["hold", "set", "mine", "--data", &data]).contains("needs everything"));
    assert!(printed(&["prune", "jobs", "--data", &data]).contains("no job yet"));
}

#[test]
fn h7_the_plan_of_a_directory_is_what_prune_now_does() {
    let Some(blocks) = mainnet() else { return };
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let data = data.to_str().unwrap();
    let window = ["--retention", "20", "--reorg-window", "10"];
    let import = ["import", "bitcoin", "--keep-all", "--data", data, blocks.to_str().unwrap()];
    printed(&[&import[..], &window].concat());
    let before = json(&["status", "--data", data, "--json"]);
    let plan = json(&["prune", "plan", "--data", data, "--json"]);
    assert_eq!(plan["blocked"], serde_json::Value::Null);
    let text = printed(&["prune", "plan", "--data", data]);
    assert!(!text.contains("delete none"), "{text}");
    let limited = json(&["prune", "plan", "--limit", "3", "--data", data, "--json"]);
    assert_eq!((&limited["looked_at"], &limited["complete"]), (&3.into(), &false.into()));
    assert!(refused(&["prune", "plan", "--limit", "0", "--data", data]).contains("limit"));
    let status = json(&["prune", "status", "--data", data, "--json"]);
    assert_eq!(status["totals"]["jobs"], 0, "looking starts no job");
    // The configuration that the directory is used with may keep every record.
    let config = directory.path().join("keep.toml");
    fs::write(&config, "[pruner]\ndelete_due = false\n").unwrap();
    let config = config.to_str().unwrap();
    let kept = printed(&["prune", "plan", "--data", data, "--config", config]);
    assert!(
        kept.contains("now it would delete none, because deleting is turned off by pruner.delete_due"),
        "{kept}"
    );
    let kept = json(&["prune", "now", "--data", data, "--config", config, "--json"]);
    assert_eq!(kept["counts"]["deleted"], 0, "{kept}");
    let explained = json(&["explain", "tx", TXID, "--data", data, "--json"]);
    assert_eq!(explained["blocked"], serde_json::Value::Null, "{explained}");
    let status = json(&["prune", "status", "--data", data, "--json"]);
    assert_eq!(status["backlog_records"], plan["records"], "what the store counts is what a job finds");
    printed(&["hold", "set", "audit", "--data", data, "--keep-from", "0", "--reason", "we look"]);
    let held = json(&["prune", "status", "--data", data, "--json"]);
    assert_eq!((&held["blocked"]["held"], &held["backlog_records"]), (&plan["records"], &0.into()));
    let text = printed(&["prune", "status", "--data", data]);
    assert!(
        text.contains(" held") && text.contains("; it retains ") && text.contains("due records"),
        "{text}"
    );
    printed(&["hold", "release", "audit", "--data", data]);
    let job = json(&["prune", "now", "--data", data, "--json"]);
    assert_eq!(job["counts"]["deleted"], plan["records"], "{job}");
    let after = json(&["status", "--data", data, "--json"]);
    let records = |status: &serde_json::Value| status["counts"]["records"].as_u64().unwrap();
    assert_eq!(records(&before) - records(&after), plan["records"].as_u64().unwrap());
    assert_eq!(json(&["prune", "plan", "--data", data, "--json"])["records"], 0);
}

#[test]
fn h8_https_is_spoken_with_the_authority_that_is_named() {
    let Some(blocks) = mainnet() else { return };
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let files = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| {
        let path = files.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let (certificate, key) =
        (file("certificate.pem", made.cert.pem()), file("key.pem", made.signing_key.serialize_pem()));
    let place = Place::new(&blocks, &format!("certificate = {certificate:?}\nkey = {key:?}"), "");
    fs::copy(&certificate, place.path("ca.pem")).unwrap();
    let node = place.run(4312);
    assert!(node.url.starts_with("https://"), "{}", node.url);
    assert_eq!(node.json(&["get", "tx", TXID])["mined_at"], 170);
    let untrusted = refused(&["status", "--url", &node.url, "--token", TOKEN]);
    assert!(untrusted.contains("is not trusted") && untrusted.contains("--ca"), "{untrusted}");
    // Its own directory says which certificate it shows.
    assert!(printed(&["status", "--data", &place.data()]).contains("4,312"));
    assert_eq!(node.json(&["hold", "set", "mine"])["name"], "mine");
    let log = node.stop();
    assert!(log.contains("https://") && !log.contains("http://"), "l18: {log}");
}

/// Certificates as they are made in the field: of an authority of one's own, and by a plain `openssl req -x509`, which is one itself.
#[test]
fn node_is_asked_whoever_signed_its_certificate() {
    let Some(blocks) = mainnet() else { return };
    let files = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| {
        let path = files.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let key = || rcgen::KeyPair::generate().unwrap();
    let names = || vec!["127.0.0.1".to_owned()];
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = rcgen::CertifiedIssuer::self_signed(authority, key()).unwrap();
    let leaf_key = key();
    let leaf = rcgen::CertificateParams::new(names()).unwrap().signed_by(&leaf_key, &authority).unwrap();
    let plain_key = key();
    let mut plain = rcgen::CertificateParams::new(vec!["node.example.org".to_owned()]).unwrap();
    plain.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let plain = plain.self_signed(&plain_key).unwrap();
    let ca = file("ca.pem", authority.pem());
    let other = file("other.pem", rcgen::generate_simple_self_signed(names()).unwrap().cert.pem());
    for (certificate, key, authority) in [(leaf, leaf_key, Some(&ca)), (plain, plain_key, None)] {
        let (certificate, key) =
            (file("certificate.pem", certificate.pem()), file("key.pem", key.serialize_pem()));
        let place = Place::new(&blocks, &format!("certificate = {certificate:?}\nkey = {key:?}"), "");
        fs::copy(&certificate, place.path("ca.pem")).unwrap();
        let node = place.run(4312);
        let ask = |ca: &str| run(&["status", "--url", &node.url, "--token", TOKEN, "--ca", ca]);
        for trusted in [Some(&certificate), authority].into_iter().flatten() {
            let output = ask(trusted);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        let refused = String::from_utf8(ask(&other).stderr).unwrap();
        assert!(refused.contains("is not trusted") && refused.contains("--ca"), "{refused}");
        assert!(printed(&["status", "--data", &place.data()]).contains("4,312"));
        // The file was replaced, and the node still shows the old one.
        fs::copy(&other, &certificate).unwrap();
        let replaced = String::from_utf8(run(&["status", "--data", &place.data()]).stderr).unwrap();
        assert!(replaced.contains("--ca") && !replaced.contains("serves no HTTP"), "{replaced}");
        node.stop();
    }
}

#[test]
fn blocks_are_looked_up_by_height_and_hash() {
    let Some(imported) = Imported::new() else { return };
    let data = imported.data();
    let block = json(&["get", "block", "170", "--data", &data, "--json"]);
    assert_eq!(
        (&block["height"], &block["tx_count"], &block["txids"][1]),
        (&170.into(), &2.into(), &TXID.into())
    );
    let hash = block["hash"].as_str().unwrap();
    assert_eq!(json(&["get", "block", hash, "--data", &data, "--json"]), block);
    let text = printed(&["get", "block", "170", "--limit", "1", "--data", &data]);
    assert!(text.contains(hash) && text.contains("1 of 2 transactions are shown"), "{text}");
    assert!(refused(&["get", "block", "5000", "--data", &data]).contains("the last applied one is 200"));
    assert!(refused(&["get", "block", "..", "--data", &data]).contains("not a name"));
}

/// The advice for a transaction that is not stored could not be followed on the command line.
#[test]
fn output_that_a_transaction_spends_can_be_named() {
    let Some(imported) = Imported::new() else { return };
    let data = imported.data();
    let unknown = "ab".repeat(32);
    for command in [["get", "tx"], ["explain", "tx"]] {
        let advice = refused(&[&command[..], &[&unknown, "--data", &data]].concat());
        assert!(advice.contains("--spends"), "{advice}");
        let spends = format!("{TXID}:0");
        let answer = refused(&[&command[..], &[&unknown, "--data", &data, "--spends", &spends]].concat());
        assert!(answer.contains("does not remember it as its spender"), "{answer}");
    }
}

#[test]
fn m17_fee_and_inputs_of_a_real_transaction_are_known() {
    let Some(blocks) = mainnet() else { return };
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let data = data.to_str().unwrap();
    printed(&["import", "bitcoin", "--data", data, "--stop-at", "200", blocks.to_str().unwrap()]);
    let tx = json(&["get", "tx", TXID, "--data", data, "--json"]);
    assert_eq!((&tx["fee"], &tx["inputs"][0]["value"]), (&"0".into(), &"5000000000".into()), "{tx}");
}

#[test]
fn m11_a_body_that_is_not_that_of_its_id_is_noticed() {
    let Some(blocks) = mainnet() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (data, config, file) = (path("data"), path("sapwood.toml"), path("file"));
    fs::write(&config, format!("[bodies]\nabove_kib = 0\ndirectory = {:?}\n", path("elsewhere"))).unwrap();
    let blocks = blocks.to_str().unwrap();
    printed(&["import", "bitcoin", "--data", &data, "--config", &config, "--stop-at", "200", blocks]);
    // Where bodies are is written down for the directory.
    let body = ["get", "tx", TXID, "--data", &data, "--body", &file];
    printed(&body);
    let bytes = fs::read(&file).unwrap();
    assert_eq!(bytes.len(), 275);
    let again = refused(&body);
    assert!(again.contains("--force"), "{again}");
    fs::write(&file, "old").unwrap();
    printed(&[&body[..], &["--force"]].concat());
    assert_eq!(fs::read(&file).unwrap(), bytes);
    assert!(printed(&["verify", "--data", &data]).contains("nothing is broken"));

    let mut damaged = bytes.clone();
    damaged[100] ^= 1;
    for (wrong, words) in
        [(damaged, "it is that of transaction"), (b"tampered".to_vec(), "it is no transaction")]
    {
        fs::write(directory.path().join(format!("elsewhere/f4/18/{TXID}.tx")), wrong).unwrap();
        let output = run(&["verify", "--data", &data]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(!output.status.success() && said.contains(words) && said.contains(TXID), "{said}");
        let refused = refused(&[&body[..], &["--force"]].concat());
        assert!(refused.contains(words), "{refused}");
    }
    assert_eq!(fs::read(&file).unwrap(), bytes, "the file is as it was");
}

#[test]
fn m14_a_directory_that_cannot_be_written_can_be_looked_at() {
    let Some(blocks) = mainnet() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let data = path.to_str().unwrap();
    printed(&["import", "bitcoin", "--data", data, "--stop-at", "200", blocks.to_str().unwrap()]);
    let files = || {
        let listed = Command::new("find").args([data, "-type", "f", "-printf", "%p %s %T@\\n"]).output();
        let text = String::from_utf8(listed.unwrap().stdout).unwrap();
        text.lines().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let looks_fine = || {
        assert!(printed(&["status", "--data", data]).contains("applied       200"));
        assert!(printed(&["get", "tx", TXID, "--data", data]).contains("mined at 170"));
        assert!(printed(&["get", "utxo-set", "--data", data]).contains("muhash"));
        assert!(printed(&["verify", "--data", data]).contains("nothing is broken"));
        assert!(printed(&["explain", "tx", TXID, "--data", data]).contains("verdict: "));
        assert!(printed(&["prune", "plan", "--data", data]).contains("a job would delete"));
        assert!(printed(&["hold", "list", "--data", data]).contains("reorg-window"));
    };
    let before = files();
    looks_fine();
    assert_eq!(files(), before, "looking changes nothing");
    if let Some(_read_only) = ReadOnly::mount(&path) {
        assert!(fs::write(path.join("new"), "").is_err(), "the case itself");
        looks_fine();
        let refusal = refused(&["prune", "now", "--data", data]);
        assert!(refusal.contains(data) && refusal.contains("Read-only"), "{refusal}");
    }
    assert_eq!(files(), before);

    fs::remove_dir_all(path.join("store")).unwrap();
    let missing = refused(&["status", "--data", data]);
    assert!(missing.contains("its store is missing"), "{missing}");
    assert!(!path.join("store").exists(), "none is made");
}

/// A directory that not even root can write to, until dropped.
struct ReadOnly<'a>(&'a Path);

impl<'a> ReadOnly<'a> {
    /// `None` where nothing can be mounted, which is told.
    fn mount(path: &'a Path) -> Option<Self> {
        let mount = |args: &[&str]| Command::new("mount").args(args).arg(path).status();
        let done = |args: &[&str]| mount(args).is_ok_and(|status| status.success());
        if !done(&["--bind", path.to_str().unwrap()]) {
            let demanded = std::env::var_os("SAPWOOD_DEMAND_MOUNT").is_some_and(|demand| demand == "1");
            assert!(!demanded, "SAPWOOD_DEMAND_MOUNT is set, but nothing can be mounted here");
            eprintln!("skipped: not looked at read-only, nothing can be mounted here; run as root");
            return None;
        }
        let read_only = Self(path);
        assert!(done(&["-o", "remount,ro,bind"]));
        Some(read_only)
    }
}

impl Drop for ReadOnly<'_> {
    fn drop(&mut self) {
        let done = Command::new("umount").arg("-l").arg(self.0).status();
        assert!(done.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

/// The first 200 blocks of mainnet, with an index of addresses.
struct Imported(tempfile::TempDir);

impl Imported {
    fn new() -> Option<Self> {
        let blocks = mainnet()?;
        let imported = Self(tempfile::tempdir().unwrap());
        let data = imported.data();
        let place = ["--data", &data, "--address-index", "--stop-at", "200", blocks.to_str().unwrap()];
        printed(&[&["import", "bitcoin"][..], &place].concat());
        Some(imported)
    }

    fn data(&self) -> String {
        self.0.path().join("data").to_str().unwrap().to_owned()
    }
}

const GENESIS: &str = "4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b";

#[test]
fn l18_rollback_above_the_tip_says_so() {
    let Some(imported) = Imported::new() else { return };
    let above = refused(&["rollback", "--data", &imported.data(), "--to", "5000"]);
    assert!(above.contains("the last applied block is 200") && !above.contains("lowest"), "{above}");
}

#[test]
fn l18_output_that_can_never_be_spent_is_told_as_such() {
    let Some(imported) = Imported::new() else { return };
    let tx = json(&["get", "tx", "--data", &imported.data(), "--json", GENESIS]);
    assert_eq!(tx["outputs"][0]["state"], "unspendable");
    let utxo = refused(&["get", "utxo", "--data", &imported.data(), &format!("{GENESIS}:0")]);
    assert!(utxo.contains("can never be spent"), "{utxo}");
}

#[test]
fn l18_empty_address_empty_page_and_negative_number_are_refused_plainly() {
    let Some(imported) = Imported::new() else { return };
    let data = imported.data();
    assert!(refused(&["get", "address", "--data", &data, ""]).contains("address is empty"));
    assert!(refused(&["get", "address", "--data", &data, "00", "--limit", "0"]).contains("limit"));
    let negative = refused(&["prune", "plan", "--data", &data, "--height", "-1"]);
    assert!(negative.contains("invalid value '-1'") && !negative.contains("-- -1"), "{negative}");
}

/// The address of the first payment's key: its outputs pay to the key itself, and an empty list has to say so.
#[test]
fn l18_list_of_an_address_says_that_outputs_to_its_key_are_not_in_it() {
    let Some(imported) = Imported::new() else { return };
    let address = "1Q2TWHE3GMdB6BZKafqwxXtWAWgFt5Jvm3";
    let page = printed(&["get", "address", "--data", &imported.data(), address]);
    assert!(page.contains("0 outputs") && page.contains("P2PK"), "{page}");
}

#[test]
fn l18_one_thing_is_told_in_the_singular() {
    let Some(blocks) = mainnet() else { return };
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let data = data.to_str().unwrap();
    let import = ["import", "bitcoin", "--data", data, "--address-index", blocks.to_str().unwrap()];
    let mut said = vec![printed(&[&import[..], &["--stop-at", "0"]].concat())];
    assert!(said[0].starts_with("1 block with 1 transaction in "), "{}", said[0]);
    said.push(printed(&[&import[..], &["--stop-at", "200"]].concat()));
    let script = json(&["get", "tx", TXID, "--data", data, "--json"])["outputs"][0]["script"]
        .to_string()
        .replace('"', "");
    let questions: [&[&str]; 10] = [
        &["explain", "tx", TXID],
        &["explain", "tx", GENESIS],
        &["get", "tx", TXID],
        &["get", "address", &format!("script:{script}")],
        &["status"],
        &["verify"],
        &["prune", "plan"],
        &["prune", "now"],
        &["prune", "jobs"],
        &["rollback", "--to", "199"],
    ];
    said.extend(questions.map(|question| printed(&[question, &["--data", data]].concat())));
    assert!(said[2].contains("1 of its outputs is not spent"), "{}", said[2]);
    assert!(said.last().unwrap().starts_with("1 block rolled back"), "{said:?}");
    for text in said {
        let words: Vec<&str> = text.split_whitespace().collect();
        let plural = |word: &str| word.trim_end_matches(|end| ",.;:)".contains(end)).ends_with('s');
        let wrong = words.windows(2).find(|pair| pair[0].trim_start_matches('(') == "1" && plural(pair[1]));
        assert_eq!(wrong, None, "{text}");
        assert!(!text.contains("1 of its outputs are"), "{text}");
    }
}

#[test]
fn counting_the_utxo_set_draws_nothing_where_there_is_no_terminal() {
    let Some(imported) = Imported::new() else { return };
    let counted = run(&["get", "utxo-set", "--data", &imported.data()]);
    assert!(counted.stderr.is_empty(), "{}", String::from_utf8_lossy(&counted.stderr));
}
