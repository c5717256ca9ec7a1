//! The commands as a user runs them, on real chains.

mod asking;
mod demo;
mod documents;
mod dump;
mod names;
mod node;
mod settings;
mod support;

use std::{fs, path::Path, process::Stdio, time::Duration};

use serde_json::Value;
use support::{MUHASH_4312, bitcoin, json, muhash, printed, refused, run, sapwood};

/// With a limit of nothing every transaction keeps its body outside.
#[test]
fn bodies_are_kept_outside_fetched_and_missed() {
    let Some(bitcoin) = bitcoin() else { return };
    let blocks = bitcoin.join("chain-mainnet-0-4312/blk00000.dat");
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (data, config, file) = (path("data"), path("sapwood.toml"), path("body"));
    fs::write(&config, format!("[bodies]\nabove_kib = 0\ndirectory = {:?}\n", path("bodies"))).unwrap();
    let places = ["--data", &data, "--config", &config];
    let import =
        [&["import", "bitcoin"], &places[..], &["--stop-at", "200", blocks.to_str().unwrap()]].concat();
    printed(&import);

    let verified = json(&[&["verify", "--json"], &places[..]].concat());
    assert_eq!((&verified["clean"], &verified["bodies"]), (&true.into(), &verified["records"]));
    assert_eq!(verified["bodies_without_record"], 0);
    // The first payment of all, 275 bytes.
    let txid = "f4184fc596403b9d638783cf57adfe4c75c605f6356fbc91338530e9831e9e16";
    let tx = json(&[&["get", "tx", txid, "--json", "--body", &file], &places[..]].concat());
    assert_eq!(tx["body"], format!("f4/18/{txid}.tx"));
    let body = fs::read(&file).unwrap();
    assert_eq!((body.len(), &body[..4]), (275, &[1, 0, 0, 0][..]));
    // A rollback forgets transactions, and the import brings them back.
    printed(&["rollback", "--data", &data, "--to", "160"]);
    assert!(
        json(&[&["verify", "--json"], &places[..]].concat())["bodies_without_record"].as_u64() > Some(40)
    );
    printed(&import);
    assert_eq!(json(&[&["verify", "--json"], &places[..]].concat()), verified);

    fs::remove_file(directory.path().join(format!("bodies/f4/18/{txid}.tx"))).unwrap();
    let output = run(&[&["verify"], &places[..]].concat());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && said.contains(&format!("{txid} has no body")), "{said}");
    let missing = refused(&[&["get", "tx", txid, "--body", &file], &places[..]].concat());
    assert!(missing.contains("there is no object"), "{missing}");
    // Another store keeps away from these bodies.
    let other = path("other");
    let import = ["import", "bitcoin", "--data", &other, "--config", &config, blocks.to_str().unwrap()];
    assert!(refused(&import).contains("bodies of another store"));
}

#[test]
fn mainnet_is_imported_looked_at_verified_and_taken_back() {
    let Some(bitcoin) = bitcoin() else { return };
    let blocks = bitcoin.join("chain-mainnet-0-4312/blk00000.dat");
    let blocks = blocks.to_str().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let data = data.to_str().unwrap();
    assert!(refused(&["status", "--data", data]).contains("holds no chain"));

    // In two goes, as if it had been interrupted.
    // Nothing is pruned, so that there is something to look at.
    let network = ["--network", "mainnet", "--keep-all"];
    let import = [&["import", "bitcoin", "--data", data, blocks][..], &network].concat();
    printed(&[&import[..], &["--address-index", "--stop-at", "2000"]].concat());
    assert_eq!(json(&["status", "--data", data, "--json"])["chain"]["lag_blocks"], 2312);
    let summary = json(&[&import[..], &["--json"]].concat());
    assert_eq!((&summary["blocks"], &summary["from"]), (&2312.into(), &2000.into()));

    let status = json(&["status", "--data", data, "--json"]);
    assert_eq!((&status["chain"]["state"], &status["chain"]["lag_blocks"]), (&"offline".into(), &0.into()));
    assert_eq!(status["chain"]["tip"]["height"], 4312);
    assert_eq!(status["chain"]["tip"], status["chain"]["applied"]);
    assert!(status["disk"]["total_bytes"].as_u64().unwrap() > 100_000);
    let set = json(&["get", "utxo-set", "--data", data, "--json"]);
    assert_eq!((&set["outputs"], &set["value"]), (&4149.into(), &"21560000000000".into()));
    assert_eq!(set["muhash"], MUHASH_4312);
    assert!(printed(&["verify", "--data", data]).contains("nothing is broken"));

    // The first payment of all, in block 170.
    let txid = "f4184fc596403b9d638783cf57adfe4c75c605f6356fbc91338530e9831e9e16";
    let tx = json(&["get", "tx", "--data", data, "--json", txid]);
    assert_eq!((&tx["mined_at"], &tx["outputs"].as_array().unwrap().len()), (&170.into(), &2));
    assert!(printed(&["get", "tx", "--data", data, txid]).contains("mined at 170"));
    let spent = json(&["get", "utxo", "--data", data, "--json", &format!("{txid}:1")]);
    assert_eq!((&spent["state"], &spent["spent_by"]["mined_at"]), (&"spent".into(), &181.into()));
    assert_eq!(tx["outputs"][0]["address"], Value::Null, "a payment to a public key has no address");
    let script = format!("script:{}", tx["outputs"][0]["script"].as_str().unwrap());
    let utxos = json(&["get", "address", "--data", data, "--json", &script]);
    assert_eq!(utxos["items"][0]["txid"], txid);
    assert!(refused(&["get", "tx", "--data", data, &"0".repeat(64)]).contains("is not stored"));
    assert!(refused(&["get", "utxo", "--data", data, txid]).contains("TXID:"));

    printed(&["rollback", "--data", data, "--to", "4300"]);
    assert_eq!(json(&["status", "--data", data, "--json"])["chain"]["applied"]["height"], 4300);
    assert!(
        refused(&["rollback", "--data", data, "--to", "100"])
            .contains("lowest height that can be reached is")
    );
    printed(&import);
    assert_eq!(muhash(data), MUHASH_4312);
}

#[test]
fn what_is_wrong_is_refused_with_the_fix_and_nothing_is_made() {
    let Some(bitcoin) = bitcoin() else { return };
    let blocks = bitcoin.join("chain-mainnet-0-4312/blk00000.dat");
    let blocks = blocks.to_str().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let data = data.to_str().unwrap();
    let wrong = refused(&["import", "bitcoin", "--data", data, "--network", "regtest", blocks]);
    assert!(wrong.contains("--network mainnet") || wrong.contains("mainnet"), "{wrong}");
    let garbage = directory.path().join("garbage.dat");
    fs::write(&garbage, b"this is not a block file at all, but it is long enough to look at").unwrap();
    refused(&["import", "bitcoin", "--data", data, garbage.to_str().unwrap()]);
    refused(&["import", "bitcoin", "--data", data, "/no/such/file"]);
    let window = ["--retention", "10", "--reorg-window", "20"];
    assert!(
        refused(&[&["import", "bitcoin", "--data", data, blocks][..], &window].concat())
            .contains("less than the reorg window")
    );
    assert!(!Path::new(data).exists(), "nothing was made");

    printed(&["import", "bitcoin", "--data", data, blocks, "--stop-at", "10"]);
    assert!(
        refused(&["import", "bitcoin", "--data", data, blocks, "--address-index"]).contains("address index")
    );
    assert!(refused(&["get", "address", "--data", data, "00"]).contains("no index by address"));

    // A configuration with a typing error, and one that is unsafe.
    let config = directory.path().join("sapwood.toml");
    let named = ["run", "--config", config.to_str().unwrap()];
    fs::write(&config, "[policy]\nretenton = 5\n").unwrap();
    assert!(refused(&named).contains("did you mean policy.retention?"));
    fs::write(&config, "[policy]\nretention = 5\n[source]\nblocks = [\"x\"]\n").unwrap();
    assert!(refused(&named).contains("less than the reorg window"));
    assert!(printed(&["config", "--config", config.to_str().unwrap()]).contains("retention = 5"));
}

/// A follower of files that grow, stopped by SIGTERM.
#[test]
fn run_follows_a_directory_and_stops_cleanly() {
    let Some(bitcoin) = bitcoin() else { return };
    let all = fs::read(bitcoin.join("chain-mainnet-0-4312/blk00000.dat")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let blocks = directory.path().join("blocks");
    fs::create_dir(&blocks).unwrap();
    fs::write(blocks.join("blk00000.dat"), &all[..300_000]).unwrap();
    let data = directory.path().join("data");
    let config = directory.path().join("sapwood.toml");
    let text = format!(
        "[data]\ndirectory = {data:?}\n[source]\nblocks = [{blocks:?}]\n[apply]\nmode = \"async\"\n[chain]\nutxo_hash = true\n\
         [log]\nlevel = \"info\"\n"
    );
    fs::write(&config, text).unwrap();
    let mut child =
        sapwood(&["run", "--config", config.to_str().unwrap()]).stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    fs::write(blocks.join("blk00000.dat"), &all).unwrap();
    std::thread::sleep(Duration::from_secs(4));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(muhash(data.to_str().unwrap()), MUHASH_4312);
}

/// A generator of numbers for moments to kill at. Fixed, so that a failure can be looked at.
fn moments(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    })
}

fn kill_after(args: &[&str], wait: Duration) -> bool {
    let mut child = sapwood(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(wait);
    let killed = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    killed
}

/// The blocks of a file, each with its magic and length.
fn records(file: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    let mut rest = file;
    while let Some(length) = rest.get(4..8) {
        let (record, after) = rest.split_at(8 + u32::from_le_bytes(length.try_into().unwrap()) as usize);
        records.push(record);
        rest = after;
    }
    records
}

/// Files are imported one after the other, each beginning where the one before ended, in any order and again: nothing is taken back.
#[test]
fn files_of_a_later_part_go_on_from_what_is_applied_and_those_of_an_earlier_part_change_nothing() {
    let Some(dir) = bitcoin() else { return };
    let whole = fs::read(dir.join("chain-mainnet-0-4312/blk00000.dat")).unwrap();
    let records = records(&whole);
    assert_eq!(records.len(), 4313);
    let temporary = tempfile::tempdir().unwrap();
    let part = |name: &str, range: std::ops::Range<usize>| {
        let path = temporary.path().join(name);
        fs::write(&path, records[range].concat()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let data = temporary.path().join("data");
    let data = data.to_str().unwrap();
    let import = |file: &str| ["import", "bitcoin", "--data", data, file].map(str::to_owned);
    let run_import = |file: &str| printed(&import(file).each_ref().map(String::as_str));
    let refuse_import = |file: &str, more: &[&str]| {
        refused(&[&import(file).each_ref().map(String::as_str)[..], more].concat())
    };
    let height =
        || json(&["status", "--data", data, "--json"])["chain"]["applied"]["height"].as_u64().unwrap();
    let (first, second, overlapping, last) =
        (part("a", 0..200), part("b", 200..2000), part("c", 1900..3000), part("d", 3000..4313));

    // With nothing applied there is nothing to go on from, and no directory is made.
    let error = refuse_import(&second, &[]);
    assert!(error.contains("of 1,800 blocks") && !Path::new(data).exists(), "{error}");

    run_import(&first);
    assert_eq!(height(), 199);
    assert!(refuse_import(&overlapping, &[]).contains("of 1,100 blocks"));
    let elsewhere = format!("400:{}", "17".repeat(32));
    assert!(refuse_import(&last, &["--after", &elsewhere]).contains("not applied here"));
    assert_eq!(height(), 199);
    run_import(&second);
    assert_eq!(height(), 1999);
    // A part of what is applied.
    run_import(&first);
    run_import(&part("e", 0..1950));
    assert_eq!(height(), 1999);
    run_import(&overlapping);
    assert_eq!(height(), 2999);
    run_import(&last);
    assert_eq!(height(), 4312);
    run_import(&last);
    assert_eq!(muhash(data), MUHASH_4312);
}

/// Killed with SIGKILL at random moments, 60 times in the middle of an import.
#[test]
fn killed_during_import_the_final_hash_is_right() {
    let Some(bitcoin) = bitcoin() else { return };
    let blocks = bitcoin.join("chain-mainnet-0-4312/blk00000.dat");
    let mut kills = 0;
    let mut moments = moments(7);
    while kills < 60 {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let data = data.to_str().unwrap();
        let import = ["import", "bitcoin", "--data", data, blocks.to_str().unwrap(), "--utxo-hash"];
        for moment in moments.by_ref().take(12) {
            if !kill_after(&import, Duration::from_millis(moment % 250)) {
                break;
            }
            kills += 1;
        }
        printed(&import);
        assert_eq!(muhash(data), MUHASH_4312);
        printed(&["verify", "--data", data]);
    }
}

/// The block test of Bitcoin Core has branches up to three blocks deep. Its file is given in two parts, so that the second import
/// begins on a branch that loses, and is killed in the middle: 40 times.
#[test]
fn killed_during_reorganisations_the_final_hash_is_right() {
    let Some(bitcoin) = bitcoin() else { return };
    let all = sapwood_testing::data::read(&bitcoin.join("regtest-core/core-feature_block.blk.dat.zst"));
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let whole = file("whole.dat", &all);
    let import = |data: &str, blocks: &str| {
        let args = ["import", "bitcoin", "--network", "regtest", "--data", data, "--utxo-hash", blocks];
        args.map(str::to_owned).to_vec()
    };
    // Many of its blocks are bad, so the exit code says that not everything was imported.
    let run_import = |args: &[String]| {
        let output = run(&args.iter().map(String::as_str).collect::<Vec<_>>());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() || said.contains("not everything was imported"), "{said}");
    };
    let straight = directory.path().join("straight");
    let straight = straight.to_str().unwrap();
    run_import(&import(straight, &whole));
    let expected = muhash(straight);
    let mut moments = moments(11);
    let mut kills = 0;
    for round in 0.. {
        if kills >= 40 {
            break;
        }
        let data = directory.path().join(format!("data {round}"));
        let data = data.to_str().unwrap();
        let part = all.len() / 4 + moments.next().unwrap() as usize % (all.len() / 2);
        run_import(&import(data, &file("part.dat", &all[..part])));
        let second = import(data, &whole);
        let named: Vec<&str> = second.iter().map(String::as_str).collect();
        for moment in moments.by_ref().take(8) {
            if !kill_after(&named, Duration::from_millis(5 + moment % 120)) {
                break;
            }
            kills += 1;
        }
        run_import(&second);
        assert_eq!(muhash(data), expected, "in round {round}");
    }
}
