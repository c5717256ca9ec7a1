//! Running commands, and the data they are run on.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// The shared data, which is not part of the repository. Says so if there is none; the test is skipped then.
pub(crate) fn bitcoin() -> Option<PathBuf> {
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
