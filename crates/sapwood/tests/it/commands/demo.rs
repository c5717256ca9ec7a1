//! `sapwood demo`: what a newcomer starts first.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::TcpStream,
    process::Stdio,
};

use serde_json::Value;

use crate::commands::support::{refused, sapwood};

#[test]
fn l18_demo_says_where_it_can_be_asked_and_what_it_left_on_disk() {
    let free = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];
    let args = [&["demo", "--json", "--for", "3s"], &free[..]].concat();
    let mut child = sapwood(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    for door in ["status page: http://", "gRPC: http://"] {
        let mut line = String::new();
        let address = loop {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "it ended before it said {door}");
            if let Some(address) = line.strip_prefix(door) {
                break address.split(['/', ' ', '\n']).next().unwrap();
            }
        };
        assert!(!address.ends_with(":0"), "the port is the one that was taken: {address}");
        TcpStream::connect(address).unwrap_or_else(|error| panic!("{door}{address}: {error}"));
    }
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{rest}");
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["errors"], 0, "{rest}");
    // Each of its outputs takes more than fifty bytes, and the first block alone makes ten thousand.
    assert!(summary["disk_bytes"].as_u64() > Some(500_000), "{summary}");
    assert!(summary["disk_bytes_without_pruning"].as_u64() >= summary["disk_bytes"].as_u64(), "{summary}");
}

#[test]
fn l18_demo_names_the_option_that_is_wrong() {
    let refusal = refused(&["demo", "--txs", "0"]);
    assert!(refusal.contains("--txs") && !refusal.contains("txs_per_block"), "{refusal}");
}
