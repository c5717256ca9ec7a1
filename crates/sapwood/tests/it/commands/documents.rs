//! What the documents tell a user to type.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::commands::support::{bitcoin, json};

/// The first payment of all.
const TXID: &str = "f4184fc596403b9d638783cf57adfe4c75c605f6356fbc91338530e9831e9e16";

/// The lines of the README that say how to use a real chain.
fn lines_of_the_readme() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = fs::read_to_string(path).unwrap();
    let section = text.split("## Use it on a real chain").nth(1).unwrap();
    let block = section.split("```").nth(1).unwrap();
    block.trim().lines().map(|line| line.split(" #").next().unwrap().trim().to_owned()).collect()
}

/// A search path on which `sapwood` is the program under test.
fn search_path() -> std::ffi::OsString {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_sapwood"));
    let directories = [program.parent().unwrap().to_owned()];
    let all = env::var_os("PATH").unwrap_or_default();
    env::join_paths(directories.into_iter().chain(env::split_paths(&all))).unwrap()
}

#[test]
fn the_commands_of_the_readme_work_one_after_the_other() {
    let Some(bitcoin) = bitcoin() else { return };
    let home = tempfile::tempdir().unwrap();
    let blocks = home.path().join(".bitcoin/blocks");
    fs::create_dir_all(&blocks).unwrap();
    fs::copy(bitcoin.join("chain-mainnet-0-4312/blk00000.dat"), blocks.join("blk00000.dat")).unwrap();
    let shell = |line: &str, variables: &[(&str, &str)]| {
        let mut command = Command::new("sh");
        command
            .args(["-c", line])
            .current_dir(home.path())
            .env("HOME", home.path())
            .env("PATH", search_path());
        command.env_remove("SAPWOOD_DATA").env_remove("SAPWOOD_URL").env_remove("SAPWOOD_TOKEN");
        let output = command.envs(variables.iter().copied()).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{line}: {said}");
        String::from_utf8(output.stdout).unwrap()
    };
    let mut address = None;
    let mut ran = 0;
    for line in lines_of_the_readme() {
        // A node does not end by itself: what it is started with is looked at instead.
        if line == "sapwood run" {
            let source = format!("[{:?}]", blocks.display());
            shell("sapwood config check sapwood.toml", &[("SAPWOOD_SOURCE_BLOCKS", &source)]);
            continue;
        }
        let mut line = line.replace("TXID", TXID).replace("DIR", "data");
        if line.contains("ADDRESS") {
            let data = home.path().join("data");
            let args = ["get", "tx", TXID, "--json", "--data", data.to_str().unwrap()];
            let script = json(&args)["outputs"][0]["script"].as_str().unwrap().to_owned();
            address = Some(format!("script:{script}"));
            line = line.replace("ADDRESS", address.as_ref().unwrap());
        }
        let said = shell(&line, &[]);
        // What goes into a file is not printed.
        assert!(!said.is_empty() || line.contains('>'), "{line}");
        ran += 1;
    }
    assert!(ran >= 8 && address.is_some(), "{ran} commands");
}
