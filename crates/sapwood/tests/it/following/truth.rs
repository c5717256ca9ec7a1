//! Whatever becomes of a node, the status that the page reads, `/metrics` and readiness tell the truth about it within five seconds.

use serde_json::Value;

use crate::following::{
    acting::{Acting, Bitcoind, Recorded},
    nodes::{is_told, node_lines, source_is},
    process::{Running, alerts, is_at},
};

/// Follows this block and is ready, at every door.
fn follows(running: &mut Running, what: &str, hash: &str) -> Value {
    let status = running.soon(what, is_at(hash));
    assert_eq!((alerts(&status), running.metric("sapwood_ready")), (vec![], Some(1.0)), "{what}");
    let height = status["chain"]["applied"]["height"].as_f64();
    for metric in ["sapwood_tip_height", "sapwood_applied_height", "sapwood_source_best_height"] {
        assert_eq!(running.metric(metric), height, "{what}: {metric}");
    }
    assert_eq!(running.metric("sapwood_lag_blocks"), Some(0.0), "{what}");
    assert_eq!(running.get("/health/ready").unwrap().0, 200, "{what}");
    status
}

/// Stopped, started, invalidated, lower tip, deep reorg.
fn truth_is_told_of(node: &mut dyn Acting) {
    let tip = node.mine(40);
    node.stop();
    let directory = tempfile::tempdir().unwrap();
    let lines = format!("[policy]\nretention = 20\nreorg_window = 10\n{}", node_lines(&node.url()));
    let mut running = Running::start_with(directory.path(), "", &lines);

    // Not there at the start: reads are served.
    let status = running.until("unreachable at the start", source_is("unreachable"));
    is_told(&running, &status, "source_unreachable", &["cannot be reached"]);
    assert_eq!(running.get("/health/live").unwrap().0, 200);
    // However long it was away.
    running.until("away for long", |status| {
        status["chain"]["source"]["unreachable"]["attempts"].as_u64() >= Some(7)
    });
    node.start();
    follows(&mut running, "started", &tip);

    node.stop();
    let status = running.soon("stopped", source_is("unreachable"));
    is_told(&running, &status, "source_unreachable", &["cannot be reached"]);
    assert_eq!(status["chain"]["applied"]["hash"], tip.as_str());
    assert!(running.metric("sapwood_source_errors_total").unwrap() >= 1.0);
    node.start();
    follows(&mut running, "started again", &tip);
    let tip = node.mine(5);
    follows(&mut running, "higher", &tip);

    // The same chain, lower; then another branch, still lower than it was; then the first one again.
    let lower = node.invalidate(41);
    let status = follows(&mut running, "invalidated", &lower);
    assert_eq!(status["chain"]["applied"]["height"], 40);
    let branch = node.mine(3);
    let status = follows(&mut running, "lower branch", &branch);
    assert_eq!(status["chain"]["applied"]["height"], 43);
    assert_eq!(node.reconsider(), tip);
    follows(&mut running, "reconsidered", &tip);

    // A reorganisation that is too deep: the same chain, another one that is lower, one that is higher.
    for blocks in [0, 2, 50] {
        let mut deep = node.invalidate(6);
        if blocks > 0 {
            deep = node.mine(blocks);
        }
        let what = format!("deep, {blocks} blocks");
        let status = running.soon(&what, source_is("below_floor"));
        is_told(&running, &status, "fork_below_floor", &["import it into a new data directory"]);
        assert_eq!(status["chain"]["applied"]["hash"], tip.as_str(), "nothing is changed");
        assert_eq!(status["chain"]["tip"]["hash"], deep.as_str(), "{what}");
        assert_eq!(node.reconsider(), tip);
        follows(&mut running, "back", &tip);
    }
    // What Rust prints for itself is not for people: a reorganisation was told as `fork:"Some(127)"`.
    assert!(!running.log().contains("Some("), "l18: {}", running.log());
    assert!(running.end().success());
}

#[test]
fn c1_h4_h9_truth_is_told_of_a_recorded_node_within_five_seconds() {
    truth_is_told_of(&mut Recorded::new());
}

#[test]
fn c1_h4_h9_truth_is_told_of_a_real_bitcoind_within_five_seconds() {
    match Bitcoind::new() {
        Some(mut node) => truth_is_told_of(&mut node),
        None => eprintln!("skipped: no real node; set SAPWOOD_BITCOIND to the path of a bitcoind"),
    }
}
