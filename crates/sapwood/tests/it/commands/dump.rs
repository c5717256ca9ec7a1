//! A store as a whole: dumps, loads and migrations through the commands.

use std::{fs, io::Write as _, process::Stdio};

use sapwood_testing::fixture::Fixture;

use super::support::{bitcoin, json, muhash, printed, refused, sapwood};

#[test]
fn dump_of_a_chain_is_loaded_elsewhere_with_the_same_utxo_set() {
    let Some(bitcoin) = bitcoin() else { return };
    let blocks = bitcoin.join("chain-mainnet-0-4312/blk00000.dat");
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (data, other, piped, file) = (path("data"), path("other"), path("piped"), path("dump"));
    printed(&["import", "bitcoin", "--data", &data, "--stop-at", "300", blocks.to_str().unwrap()]);
    let said = printed(&["dump", "--data", &data, "--to", &file]);
    for part in [&file, "bitcoin mainnet", "schema version 4", "SHA-256"] {
        assert!(said.contains(part), "{part:?} is missing: {said}");
    }
    assert!(!directory.path().join("dump.partial").exists());
    assert!(refused(&["dump", "--data", &data, "--to", &file]).contains("--force"));
    printed(&["dump", "--data", &data, "--to", &file, "--force"]);
    assert!(printed(&["load", "--check", &file]).contains("bitcoin mainnet"));

    printed(&["load", "--data", &other, &file]);
    assert_eq!(muhash(&other), muhash(&data));
    let status = |data: &str| {
        let status = json(&["status", "--data", data, "--json"]);
        let chain = &status["chain"];
        [&chain["applied"], &chain["rollback_floor"], &chain["tip"], &status["counts"]].map(Clone::clone)
    };
    assert_eq!(status(&other), status(&data));
    assert!(json(&["verify", "--data", &other, "--json"])["clean"].as_bool().unwrap());
    assert!(refused(&["load", "--data", &other, &file]).contains("holds a chain already"));
    // It goes on where the other stopped.
    printed(&["import", "bitcoin", "--data", &other, "--stop-at", "400", blocks.to_str().unwrap()]);

    // Through a pipe.
    let dump = sapwood(&["dump", "--data", &data, "--to", "-"]).output().unwrap();
    assert!(dump.status.success() && dump.stdout == fs::read(&file).unwrap());
    let mut load = sapwood(&["load", "--data", &piped, "-"]);
    let mut load = load.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    load.stdin.take().unwrap().write_all(&dump.stdout).unwrap();
    assert!(load.wait().unwrap().success());
    assert_eq!(muhash(&piped), muhash(&data));
}

#[test]
fn damaged_dump_leaves_no_data_directory_that_opens() {
    let Some(bitcoin) = bitcoin() else { return };
    let blocks = bitcoin.join("chain-mainnet-0-4312/blk00000.dat");
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (data, other, file, bad) = (path("data"), path("other"), path("dump"), path("bad"));
    printed(&["import", "bitcoin", "--data", &data, "--stop-at", "50", blocks.to_str().unwrap()]);
    printed(&["dump", "--data", &data, "--to", &file]);
    let whole = fs::read(&file).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for (bytes, problem) in [
        (&whole[..whole.len() - 1], "cut short"),
        (&flipped, "checksum"),
        (&[&whole[..], b"x"].concat(), "bytes follow"),
    ] {
        fs::write(&bad, bytes).unwrap();
        assert!(refused(&["load", "--check", &bad]).contains(problem));
        assert!(refused(&["load", "--data", &other, &bad]).contains(problem));
        refused(&["status", "--data", &other]);
    }
    fs::write(&bad, b"not a dump").unwrap();
    assert!(refused(&["load", "--data", &path("never"), &bad]).contains("this is no dump"));
    // What is no dump makes no directory, and one that was begun can be loaded into again.
    assert!(!fs::exists(path("never")).unwrap());
    printed(&["load", "--data", &other, &file]);
    assert_eq!(muhash(&other), muhash(&data));
}

#[test]
fn older_data_directory_names_the_command_that_migrates_it() {
    let fixture = Fixture::unpack(2);
    let data = fixture.store().parent().unwrap().to_str().unwrap().to_owned();
    for _ in 0..2 {
        let said = refused(&["status", "--data", &data]);
        assert!(said.contains("schema version 2") && said.contains("sapwood upgrade"), "{said}");
    }
    assert!(printed(&["upgrade", "--data", &data]).contains("schema version 4"));
    assert_eq!(muhash(&data), fixture.text("utxo_hash"));
    assert_eq!(json(&["status", "--data", &data, "--json"])["chain"]["applied"]["height"], 144);
    assert!(json(&["verify", "--data", &data, "--json"])["clean"].as_bool().unwrap());
    assert!(printed(&["upgrade", "--data", &data]).contains("schema version 4"));
}
