//! `sapwood run` and a source that does not hold still.

use std::fs;

use sapwood_sources::bitcoin::Network;
use sapwood_testing::{
    data,
    fake_node::{FakeNode, LOGIN},
    regtest::{file, hash, longer, spoilt},
};
use serde_json::Value;

use crate::following::process::{Running, alerts, is_at, is_ready, sapwood};

/// The lines of a configuration that follow a node.
pub(crate) fn node_lines(url: &str) -> String {
    format!("[source]\nkind = \"node\"\nnode_url = {url:?}\nuser = \"user\"\npassword = \"secret\"\n")
}

pub(crate) fn source_is(state: &str) -> impl Fn(&Value) -> bool {
    move |status| status["chain"]["source"]["state"] == state && !is_ready(status)
}

/// The page's alerts, the metrics and readiness say the same, and name it.
pub(crate) fn is_told(running: &Running, status: &Value, alert: &str, named: &[&str]) {
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

/// What only something that speaks like a node does: headers without blocks, and a block that no node would have.
#[test]
fn c1_headers_without_blocks_and_a_refused_block_are_told() {
    let chain = longer(&[], "block", 43);
    let node = FakeNode::of(Network::Regtest, &file(&chain), &hash(&chain[42]));
    let directory = tempfile::tempdir().unwrap();
    let mut running = Running::start(directory.path(), &node_lines(&node.url));
    running.until("at the tip", is_at(&hash(&chain[42])));
    node.state.lock().unwrap().headers = Some(142);
    let status = running.soon("headers", |status| status["chain"]["lag_blocks"] == 100 && !is_ready(status));
    assert!(alerts(&status).contains(&"lag"), "{:?}", alerts(&status));
    assert_eq!(running.metric("sapwood_source_best_height"), Some(142.0));
    node.state.lock().unwrap().headers = None;
    running.soon("no more headers", is_at(&hash(&chain[42])));

    let bad = longer(&spoilt(&chain, "bad"), "bad", 3);
    node.learn(&file(&bad[43..]));
    node.go_to(&hash(&bad[46]));
    let status = running.soon("refused", source_is("refused"));
    let refused = &status["chain"]["source"]["refused"];
    assert_eq!((&refused["height"], &refused["descendants"]), (&43.into(), &3.into()));
    is_told(&running, &status, "block_refused", &[&hash(&bad[43]), "the subsidy and the fees", "3 blocks"]);
    assert_eq!(status["chain"]["lag_blocks"], 4);
    assert_eq!(running.metric("sapwood_refused_block_descendants"), Some(3.0));
    let good = longer(&chain, "good", 2);
    node.learn(&file(&good[43..]));
    node.go_to(&hash(&good[44]));
    running.soon("a good chain", is_at(&hash(&good[44])));
    assert!(running.end().success());
}

/// At a start the same happens as live.
#[test]
fn h9_lower_tip_is_followed_at_a_start() {
    let chain = longer(&[], "block", 31);
    let node = FakeNode::of(Network::Regtest, &file(&chain), &hash(&chain[30]));
    let directory = tempfile::tempdir().unwrap();
    // The blocks are years old, and none is applied after the restart.
    let lines = format!("{}no_block_alert = \"0s\"\n", node_lines(&node.url));
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
    let followed_again = |running: &Running| running.log().matches("following again").count();
    let before = followed_again(&running);
    fs::rename(&blocks, &gone).unwrap();
    let status = running.until("gone", source_is("unreachable"));
    is_told(&running, &status, "source_unreachable", &["blocks"]);
    assert_eq!(status["chain"]["applied"]["height"], 9);
    // It stays gone, and that is counted and logged once.
    running.until("still gone", |status| {
        status["chain"]["source"]["unreachable"]["attempts"].as_u64() >= Some(4)
    });
    assert_eq!(followed_again(&running), before, "{}", running.log());
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
    let status = running.until("gap", |status| {
        !status["chain"]["source"]["gap"].is_null() && status["chain"]["state"] == "stalled"
    });
    assert_eq!(status["chain"]["source"]["gap"]["missing"], hash(&good[60]));
    is_told(&running, &status, "source_gap", &[&hash(&good[60])]);
    assert_eq!(running.log().matches("the source has a gap").count(), 1, "{}", running.log());
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

/// What only the node knows: that the password is not its own, or that it is a node of another network.
#[test]
fn h4_wrong_password_and_wrong_network_are_told_once_and_following_begins_when_they_are_right() {
    let chain = longer(&[], "block", 12);
    let ours = FakeNode::of(Network::Regtest, &file(&chain), &hash(&chain[11]));
    ours.state.lock().unwrap().login = "Basic of another password".to_owned();
    let mainnet = Network::Mainnet;
    let genesis = mainnet.genesis_block();
    let other = FakeNode::of(mainnet, &data::record(mainnet, &genesis), &mainnet.genesis().to_string());
    for (node, words) in [
        (&ours, ["refuses the password", "check user \\\"user\\\""]),
        (&other, ["is a node of main, not of regtest", "change the network or the address"]),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let mut running = Running::start(directory.path(), &node_lines(&node.url));
        let status = running.soon(words[0], source_is("unreachable"));
        is_told(&running, &status, "source_unreachable", &words);
        assert_eq!(running.get("/health/live").unwrap().0, 200, "reads are served");
        running.until("tried again", |status| {
            status["chain"]["source"]["unreachable"]["attempts"].as_u64() >= Some(5)
        });
        let log = running.log();
        let told = |line: &&str| line.contains("cannot be followed") && line.contains(words[0]);
        assert_eq!(log.lines().filter(told).count(), 1, "{log}");
        assert!(!log.replace("has a secret in it", "").contains("secret"), "{log}");
        if std::ptr::eq(node, &ours) {
            node.state.lock().unwrap().login = LOGIN.to_owned();
            running.soon("the right password", is_at(&hash(&chain[11])));
            assert!(running.log().contains("following again"), "{}", running.log());
        }
        assert!(running.end().success());
    }
}

/// An operator who reads the log sees what is wrong now, not what was wrong first.
#[test]
fn h4_another_trouble_of_a_source_is_logged_at_once() {
    let chain = longer(&[], "block", 12);
    let node = FakeNode::of(Network::Regtest, &file(&chain), &hash(&chain[11]));
    node.stop();
    let directory = tempfile::tempdir().unwrap();
    let mut running = Running::start(directory.path(), &node_lines(&node.url));
    running.until("not there", source_is("unreachable"));
    assert!(running.log().contains("cannot be reached"), "{}", running.log());
    node.state.lock().unwrap().login = "Basic of another password".to_owned();
    node.start();
    running.until("refused", |status| {
        status["chain"]["source"]["unreachable"]["error"].to_string().contains("refuses the password")
    });
    assert!(running.log().contains("refuses the password"), "{}", running.log());
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
