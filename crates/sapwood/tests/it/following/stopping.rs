//! Stopping a node, and asking one that cannot work.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::Path,
    process::Stdio,
    sync::mpsc,
};

use rustix::process::{Pid, Signal, kill_process};
use sapwood_testing::regtest::{file, longer};

use crate::following::process::{DEADLINE, Running, alerts, is_ready, sapwood};

/// Writes the blocks of a chain into a directory, and returns the lines of a configuration that follows it.
fn blocks_in(directory: &Path, count: usize) -> String {
    let blocks = directory.join("blocks");
    fs::create_dir(&blocks).unwrap();
    fs::write(blocks.join("blk00000.dat"), file(&longer(&[], "block", count))).unwrap();
    format!("[source]\nblocks = [{blocks:?}]\n")
}

/// An object store that takes connections and never answers.
fn silent_server() -> (u16, mpsc::Receiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (connected, connections) = mpsc::channel();
    std::thread::spawn(move || {
        while let Ok((connection, _)) = listener.accept() {
            if connected.send(connection).is_err() {
                return;
            }
        }
    });
    (port, connections)
}

#[test]
fn a_node_stops_although_the_store_of_its_bodies_does_not_answer() {
    for mode in ["sync", "async"] {
        let directory = tempfile::tempdir().unwrap();
        let (port, connections) = silent_server();
        let source = blocks_in(directory.path(), 5);
        let lines = format!(
            "{source}[apply]\nmode = {mode:?}\n[bodies]\nkind = \"s3\"\nbucket = \"bodies\"\nabove_kib = 0\n\
             endpoint = \"http://127.0.0.1:{port}\"\nallow_http = true\naccess_key_id = \"a\"\nsecret_access_key = \"b\"\n"
        );
        let node = Running::start(directory.path(), &lines);
        let asked = connections.recv_timeout(DEADLINE).expect("a body is put");
        let log = directory.path().join("log");
        let status = node.end_within(DEADLINE).expect("it ends while the call is open");
        drop(asked);
        assert!(status.success(), "{mode}: {}", fs::read_to_string(log).unwrap());
    }
}

/// Blocks were applied to files that no longer existed, the node was ready, and it ended with 0.
#[test]
fn node_whose_store_is_deleted_is_not_ready_and_fails() {
    let directory = tempfile::tempdir().unwrap();
    let lines = blocks_in(directory.path(), 5);
    let mut node = Running::start(directory.path(), &lines);
    node.until("all is applied", |status| status["chain"]["applied"]["height"] == 4);
    fs::remove_dir_all(directory.path().join("data/store")).unwrap();
    let status = node.until("not ready", |status| !is_ready(status));
    assert!(alerts(&status).contains(&"store_refuses_writes"), "{status:#}");
    let said = status["ready"]["reasons"].to_string();
    assert!(said.contains("was deleted, moved or replaced"), "{said}");
    let log = directory.path().join("log");
    assert_eq!(node.end().code(), Some(1), "{}", fs::read_to_string(log).unwrap());
}

/// `import && next` went on with a part of the chain.
#[test]
fn import_that_is_stopped_ends_with_the_code_of_the_signal() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let directory = tempfile::tempdir().unwrap();
        let (port, connections) = silent_server();
        blocks_in(directory.path(), 5);
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let config = format!(
            "[chain]\nnetwork = \"regtest\"\n[bodies]\nkind = \"s3\"\nbucket = \"bodies\"\nabove_kib = 0\n\
             endpoint = \"http://127.0.0.1:{port}\"\nallow_http = true\naccess_key_id = \"a\"\nsecret_access_key = \"b\"\n"
        );
        fs::write(path("sapwood.toml"), config).unwrap();
        let (data, config, blocks) = (path("data"), path("sapwood.toml"), path("blocks"));
        let mut import = sapwood(&["import", "bitcoin", "--data", &data, "--config", &config, &blocks]);
        let child = import.env_remove("http_proxy").stdout(Stdio::piped()).spawn().unwrap();
        let asked = connections.recv_timeout(DEADLINE).expect("a body is put");
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        drop(asked);
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn prune_now_fails_if_its_job_does_not_run() {
    let directory = tempfile::tempdir().unwrap();
    let lines = blocks_in(directory.path(), 5);
    let data = directory.path().join("data");
    let prune = ["prune", "now", "--data", data.to_str().unwrap()];
    let mut node = Running::start(directory.path(), &lines);
    node.until("all is applied", |status| status["chain"]["applied"]["height"] == 4);
    assert!(sapwood(&prune).output().unwrap().status.success(), "a job that runs is a success");
    fs::rename(directory.path().join("blocks"), directory.path().join("gone")).unwrap();
    node.until("the source is gone", |status| status["chain"]["state"] == "stalled");
    let output = sapwood(&prune).output().unwrap();
    let (printed, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!output.status.success(), "{printed}");
    assert!(printed.contains("cancelled") && said.contains("the chain is stalled"), "{printed}{said}");
    assert!(node.end().success());
}
