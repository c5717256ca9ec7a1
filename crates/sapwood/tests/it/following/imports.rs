//! `sapwood import` imports everything or says what is left, and comes to an end.

use std::{fs, path::Path, process::Output, time::Instant};

use sapwood_sources::bitcoin::Network;
use sapwood_testing::{
    data::{self, bitcoin},
    regtest::{coinbase, file, hash, longer, spoilt},
};
use serde_json::Value;

use crate::following::process::{DEADLINE, Running, sapwood};

/// A place for block files and data directories.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Imports a file of regtest into a data directory.
    fn import(&self, data: &str, file: &str, more: &[&str]) -> Output {
        self.import_of("regtest", data, file, more)
    }

    fn import_of(&self, network: &str, data: &str, file: &str, more: &[&str]) -> Output {
        let data = self.path(data);
        let base = ["import", "bitcoin", "--network", network, "--data", &data, file];
        let start = Instant::now();
        let mut child = sapwood(&[&base[..], more].concat())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        while child.try_wait().unwrap().is_none() {
            if start.elapsed() > 2 * DEADLINE {
                child.kill().unwrap();
                panic!("the import of {file} does not end");
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        child.wait_with_output().unwrap()
    }

    fn muhash(&self, data: &str) -> String {
        let set = self.json(&["get", "utxo-set", "--json", "--data", &self.path(data)]);
        set["muhash"].as_str().unwrap().to_owned()
    }

    /// Whether the UTXO set is `kept` with each block, or had to be `counted`.
    fn kept(&self, data: &str) -> String {
        let set = self.json(&["get", "utxo-set", "--json", "--data", &self.path(data)]);
        set["state"].as_str().unwrap().to_owned()
    }

    /// The policy in force, with where each number comes from.
    fn policy(&self, data: &str) -> Value {
        self.json(&["policy", "show", "--json", "--data", &self.path(data)])
    }

    fn status(&self, data: &str) -> Value {
        self.json(&["status", "--json", "--data", &self.path(data)])
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = sapwood(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The last applied block of a data directory.
    fn last(&self, data: &str) -> String {
        self.status(data)["chain"]["applied"]["hash"].as_str().unwrap().to_owned()
    }
}

/// The numbers of a policy.
fn numbers(policy: &Value) -> [u64; 6] {
    let names = [
        "retention",
        "reorg_window",
        "coinbase_maturity",
        "reassignment_delay",
        "unmined_retention",
        "parent_preservation",
    ];
    names.map(|name| policy[name].as_u64().unwrap())
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn m15_import_of_an_empty_file_exits_nonzero_and_makes_no_directory() {
    let place = Place::new();
    let empty = place.write("empty.dat", &[]);
    let output = place.import("data", &empty, &[]);
    assert!(!output.status.success() && said(&output).contains("no block"), "{}", said(&output));
    assert!(!Path::new(&place.path("data")).exists());
}

#[test]
fn m15_import_that_refuses_a_block_exits_nonzero_and_says_what_was_left() {
    let place = Place::new();
    let trunk = longer(&[], "trunk", 6);
    let bad = longer(&spoilt(&trunk, "bad"), "bad", 3);
    let blocks = place.write("blocks.dat", &file(&bad));
    for more in [&[][..], &["--asynchronous"], &["--json"]] {
        let data = format!("data {}", more.len() + more.concat().len());
        let output = place.import(&data, &blocks, more);
        assert!(!output.status.success(), "{more:?}");
        let said = said(&output);
        for part in ["not everything was imported", &hash(&bad[6]), "the subsidy and the fees", "3 blocks"] {
            assert!(said.contains(part), "{part} is not in: {said}");
        }
        assert_eq!(place.last(&data), hash(&trunk[5]), "what is good is imported");
    }
}

#[test]
fn m15_import_with_blocks_without_a_parent_exits_nonzero_and_names_the_missing_one() {
    let place = Place::new();
    let chain = longer(&[], "block", 10);
    let blocks = place.write("blocks.dat", &file(&[&chain[..6], &chain[7..]].concat()));
    let output = place.import("data", &blocks, &[]);
    assert!(!output.status.success());
    let said = said(&output);
    assert!(said.contains("3 blocks without a known parent") && said.contains(&hash(&chain[6])), "{said}");
    assert_eq!(place.last("data"), hash(&chain[5]));
    // The missing one comes, and all is well.
    let rest = place.write("rest.dat", &file(&chain[6..]));
    assert!(place.import("data", &rest, &[]).status.success());
    assert_eq!(place.last("data"), hash(&chain[9]));
}

#[test]
fn m15_bad_best_tip_does_not_end_the_import_when_there_is_a_good_sibling() {
    let place = Place::new();
    let trunk = longer(&[], "trunk", 5);
    let mut worse = longer(&trunk, "worse", 3);
    worse[6].txdata = vec![coinbase(6, "damaged", 1)];
    let good = longer(&trunk, "good", 2);
    let blocks = place.write("blocks.dat", &file(&[&worse[..], &good[5..]].concat()));
    let output = place.import("data", &blocks, &[]);
    assert!(!output.status.success() && said(&output).contains("merkle"), "{}", said(&output));
    assert_eq!(place.last("data"), hash(&good[6]));
}

#[test]
fn m15_repeated_import_need_not_repeat_what_the_directory_was_made_with() {
    let place = Place::new();
    let chain = longer(&[], "block", 10);
    let part = place.write("part.dat", &file(&chain[..5]));
    let whole = place.write("whole.dat", &file(&chain));
    let options =
        ["--address-index", "--retention", "200", "--reorg-window", "150", "--coinbase-maturity", "7"];
    assert!(place.import("data", &part, &options).status.success());
    let made = fs::read_to_string(place.path("data/node.json")).unwrap();
    let policy = place.policy("data");
    assert_eq!(numbers(&policy), [200, 150, 7, 1000, 100, 1440]);
    let output = place.import("data", &whole, &[]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(place.last("data"), hash(&chain[9]));
    assert_eq!(fs::read_to_string(place.path("data/node.json")).unwrap(), made);
    assert_eq!(place.policy("data"), policy, "and where each number comes from");
    // The other way round it is a contradiction.
    assert!(place.import("plain", &part, &[]).status.success());
    let output = place.import("plain", &whole, &["--address-index"]);
    assert!(!output.status.success() && said(&output).contains("address index"), "{}", said(&output));
}

#[test]
fn import_changes_only_the_numbers_of_the_policy_it_is_given() {
    let place = Place::new();
    let blocks = place.write("blocks.dat", &file(&longer(&[], "block", 5)));
    let made = ["--retention", "1000", "--reorg-window", "100", "--coinbase-maturity", "7"];
    assert!(place.import("data", &blocks, &made).status.success());
    let set = ["policy", "set", "--retention", "500", "--yes", "--json", "--data", &place.path("data")];
    let set = place.json(&set);
    assert_eq!(set["origins"]["retention"]["from"], "run_time", "{set}");
    assert!(place.import("data", &blocks, &[]).status.success());
    assert_eq!(place.policy("data"), set, "a change at run time stays as it is");
    assert!(place.import("data", &blocks, &["--retention", "2000"]).status.success());
    let longer = place.policy("data");
    assert_eq!(numbers(&longer), [2000, 100, 7, 1000, 1000, 1440]);
    let output = place.import("data", &blocks, &["--retention", "50"]);
    assert!(!output.status.success() && said(&output).contains("reorg window of 100"), "{}", said(&output));
    assert_eq!(place.policy("data"), longer, "what is refused changes nothing");
}

/// A new directory that never prunes could roll back one block.
#[test]
fn import_that_retains_everything_keeps_the_reorg_window_of_the_configuration() {
    let place = Place::new();
    let blocks = place.write("blocks.dat", &file(&longer(&[], "block", 5)));
    let output = place.import("data", &blocks, &["--retention", "0"]);
    assert!(output.status.success(), "{}", said(&output));
    let policy = place.policy("data");
    assert_eq!((&policy["retention"], &policy["reorg_window"]), (&0.into(), &288.into()), "{policy}");
}

#[test]
fn import_refuses_a_maturity_that_is_not_that_of_the_network() {
    let place = Place::new();
    let blocks = place.write("blocks.dat", &file(&longer(&[], "block", 5)));
    let output = place.import_of("mainnet", "data", &blocks, &["--coinbase-maturity", "5"]);
    assert!(!output.status.success() && said(&output).contains("maturity of 5"), "{}", said(&output));
    assert!(!Path::new(&place.path("data")).exists());
}

#[test]
fn import_works_as_the_configuration_says() {
    let Some(dir) = bitcoin() else { return };
    let place = Place::new();
    let dense = sapwood_testing::data::read(&dir.join("regtest-dense-0-360/blocks.blk.dat.zst"));
    let blocks = place.write("blocks.dat", &dense);
    let options = ["--retention", "20", "--stop-at", "200", "--json", "--config"];
    let import = |data: &str, config: &str| {
        let config = place.write("sapwood.toml", config.as_bytes());
        place.import(data, &blocks, &[&options[..], &[config.as_str()]].concat())
    };
    let pruned = |output: Output| {
        assert!(output.status.success(), "{}", said(&output));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["pruned"].clone()
    };
    assert!(pruned(import("plain", "")).as_u64() > Some(1000));
    assert_eq!(pruned(import("plain", "")), 0, "what an earlier import pruned does not count");
    assert_eq!(pruned(import("disabled", "[pruner]\nenabled = false\n")), 0);
    assert_eq!(pruned(import("undue", "[pruner]\ndelete_due = false\n")), 0);
    // The next import has the configuration written down.
    let again = place.import("undue", &blocks, &["--json"]);
    assert_eq!(pruned(again), 0);
    let output = import("other", "[store]\nwrite_buffers = 0\n");
    assert!(said(&output).contains("store.write_buffers"), "{}", said(&output));
    assert!(!Path::new(&place.path("other")).exists(), "nothing was made");
    // Of a new directory the configuration also says what it is, unless an option does.
    let config = "[chain]\nutxo_hash = true\naddress_index = true\n[policy]\nretention = 700\n";
    let output = import("made", config);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(numbers(&place.policy("made"))[..2], [20, 20]);
    assert_eq!(place.status("made")["node"]["features"]["address_index"], true);
    assert_eq!(place.kept("made"), "kept");
}

#[test]
fn the_utxo_set_is_kept_by_imports_and_rollbacks_that_do_not_ask_for_it() {
    let place = Place::new();
    let chain = longer(&[], "block", 10);
    let part = place.write("part.dat", &file(&chain[..5]));
    let whole = place.write("whole.dat", &file(&chain));
    assert!(place.import("data", &part, &["--utxo-hash"]).status.success());
    assert_eq!(place.kept("data"), "kept");
    assert!(place.import("data", &whole, &[]).status.success());
    assert_eq!(place.kept("data"), "kept");
    let back = sapwood(&["rollback", "--data", &place.path("data"), "--to", "7"]).output().unwrap();
    assert!(back.status.success(), "{}", said(&back));
    assert_eq!(place.kept("data"), "kept");
    assert!(place.import("plain", &place.write("eight.dat", &file(&chain[..8])), &[]).status.success());
    assert_eq!(place.kept("plain"), "counted", "it is not kept where it was never asked for");
    assert_eq!(place.muhash("data"), place.muhash("plain"));
    let verified = sapwood(&["verify", "--data", &place.path("data")]).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

#[test]
fn h6_import_after_ends_with_an_error_when_its_first_block_is_refused() {
    let place = Place::new();
    let trunk = longer(&[], "trunk", 5);
    let blocks = place.write("blocks.dat", &file(&longer(&spoilt(&trunk, "bad"), "bad", 2)[5..]));
    let after = format!("4:{}", hash(&trunk[4]));
    let output = place.import("data", &blocks, &["--after", &after]);
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(said(&output).contains("not everything was imported"), "{}", said(&output));
}

/// Three real blocks of 2015, which spend what is not here.
#[test]
fn h6_import_of_later_blocks_of_mainnet_ends_with_an_error() {
    let Some(dir) = bitcoin() else { return };
    let place = Place::new();
    let mut blocks = Vec::new();
    for height in 367_238..367_241 {
        let hex = data::json(&dir.join(format!("mainnet-367238-367240/block-{height}.json.zst")));
        blocks.extend(data::record(Network::Mainnet, &data::hex(hex.as_str().unwrap())));
    }
    let parent: String = blocks[12..44].iter().rev().map(|byte| format!("{byte:02x}")).collect();
    let file = place.write("blocks.dat", &blocks);
    let after = format!("367237:{parent}");
    let output = place.import_of("mainnet", "data", &file, &["--after", &after]);
    assert!(!output.status.success() && said(&output).contains("not everything"), "{}", said(&output));
}

/// The first 130 blocks of Bitcoin Core's block test, then the first 137: the case that was stuck for good.
#[test]
fn c2_repeated_imports_of_a_growing_file_end_where_one_import_does() {
    let Some(dir) = bitcoin() else { return };
    let all = data::read(&dir.join("regtest-core/core-feature_block.blk.dat.zst"));
    let mut ends = vec![0];
    while let Some(length) = ends.last().and_then(|at| all.get(at + 4..at + 8)) {
        ends.push(ends[ends.len() - 1] + 8 + u32::from_le_bytes(length.try_into().unwrap()) as usize);
    }
    let place = Place::new();
    for blocks in [130, 137, 150, 196] {
        let part = place.write("part.dat", &all[..ends[blocks]]);
        for data in ["grown".to_owned(), format!("straight {blocks}")] {
            let output = place.import(&data, &part, &[]);
            let said = said(&output);
            assert!(
                output.status.success() || said.contains("not everything was imported"),
                "{blocks}: {said}"
            );
        }
        assert_eq!(place.last("grown"), place.last(&format!("straight {blocks}")), "{blocks} blocks");
    }
}

#[test]
fn import_prunes_as_run_does_unless_it_keeps_all() {
    let Some(dir) = bitcoin() else { return };
    let place = Place::new();
    let blocks = place.write("blocks.dat", &data::read(&dir.join("regtest-dense-0-360/blocks.blk.dat.zst")));
    let options = ["--retention", "20", "--stop-at", "200"];
    let pruned_by = |output: Output| {
        assert!(output.status.success(), "{}", said(&output));
        let said = String::from_utf8(output.stdout).unwrap();
        said.lines().find_map(|line| line.strip_suffix(" records pruned").map(str::to_owned))
    };
    assert!(pruned_by(place.import("pruned", &blocks, &options)).is_some());
    // n4: a repeated import told of what the one before had pruned.
    assert_eq!(pruned_by(place.import("pruned", &blocks, &options)), None, "it imports nothing");
    let keep_all = [&options[..], &["--keep-all"]].concat();
    assert!(place.import("all", &blocks, &keep_all).status.success());
    let (pruned, all) = (place.status("pruned"), place.status("all"));
    assert_eq!(place.muhash("pruned"), place.muhash("all"), "no coin is lost");
    let records = |status: &Value| status["counts"]["records"].as_u64().unwrap();
    let (pruned, all) = (records(&pruned), records(&all));
    assert!(pruned + 1000 < all, "{pruned} of {all} records are left");
    // Nothing is left for a job afterwards.
    let output = sapwood(&["prune", "now", "--data", &place.path("pruned"), "--json"]).output().unwrap();
    let job: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(job["counts"]["deleted"], 0, "{job}");
}

/// Killed while many blocks wait in the queue: what was applied is whole, what was not is applied the next time.
#[test]
fn kill_with_a_filled_apply_queue_loses_nothing() {
    let Some(dir) = bitcoin() else { return };
    let expected = data::json(&dir.join("regtest-dense-0-360/expected.json"));
    let last = expected.as_array().unwrap().last().unwrap();
    let place = Place::new();
    fs::create_dir(place.path("blocks")).unwrap();
    place.write("blocks/blk00000.dat", &data::read(&dir.join("regtest-dense-0-360/blocks.blk.dat.zst")));
    let lines = format!(
        "[source]\nblocks = [{:?}]\n[apply]\nmode = \"async\"\nqueue = 64\nread_ahead = 32\n",
        place.path("blocks")
    );
    let mut filled = 0;
    for _ in 0..4 {
        let mut running = Running::start(place.0.path(), &lines);
        let status = running.until("the queue is filled, or all is applied", |status| {
            status["chain"]["queued"].as_u64() >= Some(16) || status["chain"]["applied"]["height"] == 360
        });
        filled += usize::from(status["chain"]["queued"].as_u64() >= Some(16));
        running.kill();
        let verified = sapwood(&["verify", "--data", &place.path("data")]).output().unwrap();
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    }
    assert!(filled > 0, "the queue was never filled: the test proves nothing");
    let mut running = Running::start(place.0.path(), &lines);
    running.until("all is applied", |status| status["chain"]["applied"]["height"] == 360);
    assert!(running.end().success());
    assert_eq!(Some(place.muhash("data").as_str()), last["muhash"].as_str());
}
