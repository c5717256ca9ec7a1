//! `sapwood run` and a source that does not hold still.

use std::fs;

use sapwood_sources::bitcoin::Network;
use serde_json::Value;

use crate::{
    fake_node::FakeNode,
    process::{Running, alerts, is_at, is_ready, sapwood},
    regtest_maker::{file, hash, longer, spoilt},
};

fn source_is(state: &str) -> impl Fn(&Value) -> bool {
    move |status| status["chain"]["source"]["state"] == state && !is_ready(status)
}

/// The page's alerts, the metrics and readiness say the same, and name it.
fn is_told(running: &Running, status: &Value, alert: &str, named: &[&str]) {
    assert!(alerts(status).contains(&alert), "{alert}: {:?}", alerts(status));
    assert_eq!(status["chain"]["state"], "stalled", "{alert}");
    assert_eq!(running.metric("sapwood_ready"), Some(0.0), "{alert}");
    assert_eq!(running.metric(&format!("sapwood_alert{{name=\"{alert}\"}}")), Some(1.0), "{alert}");
    let (code, reasons) = running.get("/health/ready").unwrap();
    assert_eq!(code, 503, "{alert}");
    for part in named {
        assert!(reasons.contains(part), "{part} is not in: {reasons}");
    }
}

/// The second bar of issue 12, with something that speaks like a node: stopped, started, invalidated, lower tip, deep reorg.
#[test]
fn c1_h4_h9_status_and_metrics_tell_the_truth_about_a_node_whatever_it_does() {
    let chain = longer(&[], "block", 60);
    let node = FakeNode::of(Network::Regtest, &file(&chain), &hash(&chain[40]));
    node.stop();
    let directory = tempfile::tempdir().unwrap();
    let lines = format!(
        "[policy]\nretention = 20\nreorg_window = 10\n\
         [source]\nkind = \"node\"\nnode_url = {:?}\nuser = \"user\"\npassword = \"secret\"\n",
        node.url
    );
    let mut running = Running::start(directory.path(), &lines);

    // Not there at the start: reads are served.
    let status = running.until("unreachable at the start", source_is("unreachable"));
    is_told(&running, &status, "source_unreachable", &["cannot be reached"]);
    assert_eq!(running.get("/health/live").unwrap().0, 200);
    node.start();
    let status = running.until("started", is_at(&hash(&chain[40])));
    assert_eq!((alerts(&status), running.metric("sapwood_ready")), (vec![], Some(1.0)));
    assert_eq!(running.get("/health/ready").unwrap().0, 200);

    // Stopped and started.
    node.stop();
    let status = running.until("stopped", source_is("unreachable"));
    is_told(&running, &status, "source_unreachable", &["cannot be reached"]);
    assert_eq!(status["chain"]["applied"]["height"], 40);
    assert!(running.metric("sapwood_source_errors_total").unwrap() >= 1.0);
    node.start();
    node.go_to(&hash(&chain[45]));
    running.until("started again", is_at(&hash(&chain[45])));

    // Invalidated: the same chain, lower; then another branch, still lower than it was.
    node.go_to(&hash(&chain[40]));
    running.until("lower tip", is_at(&hash(&chain[40])));
    let branch = longer(&chain[..40], "branch", 3);
    node.learn(&file(&branch[40..]));
    node.go_to(&hash(&branch[42]));
    running.until("lower branch", is_at(&hash(&branch[42])));
    assert_eq!(running.metric("sapwood_tip_height"), Some(42.0));

    // The node knows of headers whose blocks it has not got.
    node.state.lock().unwrap().headers = Some(142);
    let status = running.until("headers", |status| status["chain"]["lag_blocks"] == 100 && !is_ready(status));
    assert!(alerts(&status).contains(&"lag"), "{:?}", alerts(&status));
    assert_eq!(running.metric("sapwood_source_best_height"), Some(142.0));
    node.state.lock().unwrap().headers = None;
    running.until("no more headers", is_at(&hash(&branch[42])));

    // A reorganisation that is too deep, higher and lower.
    for deep in [longer(&chain[..5], "deep", 50), chain[..6].to_vec()] {
        node.learn(&file(&deep[5..]));
        node.go_to(&hash(deep.last().unwrap()));
        let status = running.until("deep", source_is("below_floor"));
        is_told(&running, &status, "fork_below_floor", &["import it into a new data directory"]);
        assert_eq!(status["chain"]["applied"]["hash"], hash(&branch[42]), "nothing is changed");
        assert_eq!(status["chain"]["tip"]["hash"], hash(deep.last().unwrap()));
        node.go_to(&hash(&branch[42]));
        running.until("back", is_at(&hash(&branch[42])));
    }

    // A block that cannot be applied, and more on it.
    let bad = longer(&spoilt(&branch, "bad"), "bad", 3);
    node.learn(&file(&bad[43..]));
    node.go_to(&hash(&bad[46]));
    let status = running.until("refused", source_is("refused"));
    let refused = &status["chain"]["source"]["refused"];
    assert_eq!((&refused["height"], &refused["descendants"]), (&43.into(), &3.into()));
    is_told(&running, &status, "block_refused", &[&hash(&bad[43]), "the subsidy and the fees", "3 blocks"]);
    assert_eq!(status["chain"]["lag_blocks"], 4);
    assert_eq!(running.metric("sapwood_refused_block_descendants"), Some(3.0));
    let good = longer(&branch, "good", 2);
    node.learn(&file(&good[43..]));
    node.go_to(&hash(&good[44]));
    running.until("a good chain", is_at(&hash(&good[44])));
    assert!(running.end().success());
}

/// At a start the same happens as live.
#[test]
fn h9_lower_tip_is_followed_at_a_start() {
    let chain = longer(&[], "block", 31);
    let node = FakeNode::of(Network::Regtest, &file(&chain), &hash(&chain[30]));
    let directory = tempfile::tempdir().unwrap();
    let lines = format!(
        "[source]\nkind = \"node\"\nnode_url = {:?}\nuser = \"user\"\npassword = \"secret\"\n",
        node.url
    );
    let mut running = Running::start(directory.path(), &lines);
    running.until("at the tip", is_at(&hash(&chain[30])));
    assert!(running.end().success());
    node.go_to(&hash(&chain[25]));
    let mut running = Running::start(directory.path(), &lines);
    running.until("lower", is_at(&hash(&chain[25])));
    assert!(running.end().success());
}

#[test]
fn h4_run_survives_a_directory_that_is_not_there_comes_goes_and_comes_back() {
    let chain = longer(&[], "block", 12);
    let directory = tempfile::tempdir().unwrap();
    let (blocks, gone) = (directory.path().join("blocks"), directory.path().join("gone"));
    let mut running = Running::start(directory.path(), &format!("[source]\nblocks = [{blocks:?}]\n"));
    let status = running.until("no directory", source_is("unreachable"));
    is_told(&running, &status, "source_unreachable", &["blocks"]);
    fs::create_dir(&blocks).unwrap();
    let no_files = |status: &Value| status["ready"]["reasons"].to_string().contains("has no block files");
    running.until("no files", no_files);
    fs::write(blocks.join("blk00000.dat"), file(&chain[..10])).unwrap();
    running.until("files", is_at(&hash(&chain[9])));
    fs::rename(&blocks, &gone).unwrap();
    let status = running.until("gone", source_is("unreachable"));
    is_told(&running, &status, "source_unreachable", &["blocks"]);
    assert_eq!(status["chain"]["applied"]["height"], 9);
    fs::rename(&gone, &blocks).unwrap();
    running.until("back", is_at(&hash(&chain[9])));
    fs::write(blocks.join("blk00001.dat"), file(&chain[10..])).unwrap();
    running.until("followed on", is_at(&hash(&chain[11])));
    assert!(running.end().success());
}

#[test]
fn c1_run_shows_a_refused_block_and_a_gap_of_its_files_also_after_a_restart() {
    let trunk = longer(&[], "trunk", 6);
    let bad = longer(&spoilt(&trunk, "bad"), "on it", 53);
    let directory = tempfile::tempdir().unwrap();
    let blocks = directory.path().join("blocks");
    fs::create_dir(&blocks).unwrap();
    fs::write(blocks.join("blk00000.dat"), file(&bad)).unwrap();
    let lines = format!("[source]\nblocks = [{blocks:?}]\n");
    for _ in 0..2 {
        let mut running = Running::start(directory.path(), &lines);
        let status = running.until("refused", source_is("refused"));
        is_told(
            &running,
            &status,
            "block_refused",
            &[&hash(&bad[6]), "53 blocks", "the subsidy and the fees"],
        );
        let chain = &status["chain"];
        assert_eq!((&chain["applied"]["height"], &chain["lag_blocks"]), (&5.into(), &54.into()));
        assert!(running.end().success());
    }
    // A good branch with more work, but for one block.
    let good = longer(&trunk, "good", 60);
    fs::write(blocks.join("blk00001.dat"), file(&[&good[6..60], &good[61..]].concat())).unwrap();
    let mut running = Running::start(directory.path(), &lines);
    let status =
        running.until("gap", |status| !status["chain"]["source"]["gap"].is_null() && !is_ready(status));
    assert_eq!(status["chain"]["source"]["gap"]["missing"], hash(&good[60]));
    is_told(&running, &status, "source_gap", &[&hash(&good[60])]);
    fs::write(blocks.join("blk00002.dat"), file(&good[60..61])).unwrap();
    running.until("filled", is_at(&hash(&good[65])));
    assert!(running.end().success());
}

#[test]
fn c2_run_starts_on_a_longer_bad_branch_and_follows_the_best_good_one() {
    let trunk = longer(&[], "trunk", 9);
    let old = longer(&trunk, "old", 2);
    let directory = tempfile::tempdir().unwrap();
    let blocks = directory.path().join("blocks");
    fs::create_dir(&blocks).unwrap();
    fs::write(blocks.join("blk00000.dat"), file(&old)).unwrap();
    let lines = format!("[source]\nblocks = [{blocks:?}]\n");
    let mut running = Running::start(directory.path(), &lines);
    running.until("old", is_at(&hash(&old[10])));
    assert!(running.end().success());
    fs::write(blocks.join("blk00001.dat"), file(&longer(&spoilt(&trunk, "bad"), "bad", 2)[9..])).unwrap();
    let mut running = Running::start(directory.path(), &lines);
    let stays = |status: &Value| {
        status["chain"]["source"]["state"] == "refused"
            && status["chain"]["applied"]["hash"] == hash(&old[10])
    };
    running.until("still old", stays);
    assert!(running.end().success());
    let good = longer(&trunk, "good", 3);
    fs::write(blocks.join("blk00002.dat"), file(&good[9..])).unwrap();
    let mut running = Running::start(directory.path(), &lines);
    running.until("good", is_at(&hash(&good[11])));
    assert!(running.end().success());
}

#[test]
fn h4_address_that_cannot_be_one_is_refused_at_once_and_its_password_is_not_shown() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("sapwood.toml");
    let text = format!(
        "[data]\ndirectory = {:?}\n[source]\nkind = \"node\"\nnode_url = \"http://bob:hunter2@127.0.0.1:1\"\n",
        directory.path().join("data")
    );
    fs::write(&config, text).unwrap();
    let output = sapwood(&["run", "--config", config.to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("source.user"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
}

/// A real node, where the environment names one: `SAPWOOD_BITCOIND=/path/to/bitcoind`.
#[test]
fn c1_real_node_that_is_stopped_is_told() {
    let Some(bitcoind) = std::env::var_os("SAPWOOD_BITCOIND") else {
        eprintln!("skipped: SAPWOOD_BITCOIND names no bitcoind");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let data = directory.path().join("bitcoin");
    fs::create_dir(&data).unwrap();
    let launch = || {
        std::process::Command::new(&bitcoind)
            .args(["-regtest", "-server", "-listen=0", "-rpcuser=user", "-rpcpassword=secret"])
            .arg(format!("-datadir={}", data.display()))
            .arg(format!("-rpcport={port}"))
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut node = launch();
    let lines = format!(
        "[source]\nkind = \"node\"\nnode_url = \"http://127.0.0.1:{port}\"\nuser = \"user\"\npassword = \"secret\"\n"
    );
    let mut running = Running::start(directory.path(), &lines);
    running
        .until("following", |status| status["chain"]["source"]["state"] == "following" && is_ready(status));
    let pid = rustix::process::Pid::from_child(&node);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    node.wait().unwrap();
    running.until("stopped", source_is("unreachable"));
    let mut node = launch();
    running.until("following again", |status| {
        status["chain"]["source"]["state"] == "following" && is_ready(status)
    });
    assert!(running.end().success());
    node.kill().unwrap();
    node.wait().unwrap();
}
