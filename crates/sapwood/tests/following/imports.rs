//! `sapwood import` imports everything or says what is left, and comes to an end.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Output,
    time::Instant,
};

use serde_json::Value;

use crate::{
    process::{DEADLINE, Running, sapwood},
    regtest_maker::{coinbase, file, hash, longer, spoilt},
};

/// The shared data, which is not part of the repository. Says so if there is none; the test is skipped then.
fn bitcoin() -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = match env::var_os("SAPWOOD_TEST_DATA") {
        Some(dir) => Some(PathBuf::from(dir)),
        None => here.ancestors().map(|dir| dir.join("shared/data")).find(|dir| dir.is_dir()),
    };
    if found.is_none() {
        // Continuous integration sets it, so that a missing directory does not pass for a test that passed.
        let demanded = env::var_os("SAPWOOD_DEMAND_DATA").is_some_and(|demanded| demanded != "0");
        assert!(!demanded, "SAPWOOD_DEMAND_DATA is set, but there is no shared/data above this crate");
        eprintln!("skipped: no shared/data above this crate; set SAPWOOD_TEST_DATA to its path");
    }
    found.map(|dir| dir.join("bitcoin"))
}

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
        let status = self.status(data);
        let applied = [&status["applied"], &status["last_applied"], &status["chain"]["applied"]];
        applied.into_iter().find_map(|block| block["hash"].as_str()).unwrap().to_owned()
    }
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
    let options = ["--address-index", "--retention", "4000", "--coinbase-maturity", "7"];
    assert!(place.import("data", &part, &options).status.success());
    let made = fs::read_to_string(place.path("data/node.json")).unwrap();
    let output = place.import("data", &whole, &[]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(place.last("data"), hash(&chain[9]));
    assert_eq!(fs::read_to_string(place.path("data/node.json")).unwrap(), made);
    // The other way round it is a contradiction.
    assert!(place.import("plain", &part, &[]).status.success());
    let output = place.import("plain", &whole, &["--address-index"]);
    assert!(!output.status.success() && said(&output).contains("address index"), "{}", said(&output));
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
        let path = dir.join(format!("mainnet-367238-367240/block-{height}.json.zst"));
        let text = zstd::decode_all(fs::read(path).unwrap().as_slice()).unwrap();
        let hex: String = serde_json::from_slice(&text).unwrap();
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        blocks.extend([0xf9, 0xbe, 0xb4, 0xd9]);
        blocks.extend((bytes.len() as u32).to_le_bytes());
        blocks.extend(bytes);
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
    let packed = fs::read(dir.join("regtest-core/core-feature_block.blk.dat.zst")).unwrap();
    let all = zstd::decode_all(packed.as_slice()).unwrap();
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
    let packed = fs::read(dir.join("regtest-dense-0-360/blocks.blk.dat.zst")).unwrap();
    let place = Place::new();
    let blocks = place.write("blocks.dat", &zstd::decode_all(packed.as_slice()).unwrap());
    let options = ["--retention", "20", "--stop-at", "200"];
    assert!(place.import("pruned", &blocks, &options).status.success());
    let keep_all = [&options[..], &["--keep-all"]].concat();
    assert!(place.import("all", &blocks, &keep_all).status.success());
    let (pruned, all) = (place.status("pruned"), place.status("all"));
    assert_eq!(place.muhash("pruned"), place.muhash("all"), "no coin is lost");
    let records = |status: &Value| {
        let counts = [
            &status["counts"]["records"],
            &status["counts"]["transactions"],
            &status["records"]["transactions"],
        ];
        counts.into_iter().find_map(Value::as_u64)
    };
    let (pruned, all) = (records(&pruned).unwrap(), records(&all).unwrap());
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
    let packed = fs::read(dir.join("regtest-dense-0-360/blocks.blk.dat.zst")).unwrap();
    let expected: Value =
        serde_json::from_slice(&fs::read(dir.join("regtest-dense-0-360/expected.json")).unwrap()).unwrap();
    let last = expected.as_array().unwrap().last().unwrap();
    let place = Place::new();
    fs::create_dir(place.path("blocks")).unwrap();
    place.write("blocks/blk00000.dat", &zstd::decode_all(packed.as_slice()).unwrap());
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
