//! Running commands, and the data they are run on.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

pub(crate) use sapwood_testing::data::bitcoin;

pub(crate) fn sapwood(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sapwood"));
    command
        .args(args)
        .stdin(Stdio::null())
        .env_remove("SAPWOOD_DATA")
        .env_remove("SAPWOOD_URL")
        .env_remove("SAPWOOD_TOKEN")
        .env("RUST_BACKTRACE", "0");
    command
}

pub(crate) fn run(args: &[&str]) -> Output {
    sapwood(args).output().unwrap()
}

/// What a command that must succeed prints.
pub(crate) fn printed(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn json(args: &[&str]) -> Value {
    serde_json::from_str(&printed(args)).unwrap()
}

/// What a command that must fail says.
pub(crate) fn refused(args: &[&str]) -> String {
    let output = run(args);
    assert!(!output.status.success(), "{args:?} should have failed");
    String::from_utf8(output.stderr).unwrap()
}

pub(crate) const MUHASH_4312: &str = "8ddda2747fb03d2bf57e08a23d4cab90f9e062c28bf5822760edc5238128a7e5";

pub(crate) fn muhash(data: &str) -> String {
    json(&["get", "utxo-set", "--data", data, "--json"])["muhash"].as_str().unwrap().to_owned()
}
