//! Alive, ready, and why not.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use sapwood_chain::{ChainState, Progress, SourceHealth};
use sapwood_ledger::Faults;

use crate::http::world::{Plan, World};

#[tokio::test]
async fn ready_means_reconciled() {
    let world = World::new().await;
    assert_eq!(world.get("/health/live").await.ok()["live"], true);
    let reasons = |answer: crate::http::world::Answer| {
        assert_eq!(answer.status, 503);
        answer.json()["reasons"].to_string()
    };
    assert!(reasons(world.get("/health/ready").await).contains("not set running yet"));
    for (state, ready) in [
        (ChainState::Running, true),
        (ChainState::CatchingUp, true),
        (ChainState::Reorganising, true),
        (ChainState::Stopped, false),
    ] {
        world.chain.events().enter(state);
        world.node.sample().await;
        assert_eq!(world.get("/health/ready").await.status == 200, ready, "{state}");
    }
}

#[derive(Default)]
struct Broken(AtomicBool);

impl Faults for Broken {
    fn reached(&self, _point: &'static str) -> Result<(), String> {
        if self.0.load(Ordering::Relaxed) { Err("the disk is full".into()) } else { Ok(()) }
    }
}

#[tokio::test]
async fn a_store_that_refuses_writes_is_not_ready_and_says_why() {
    let faults = Arc::new(Broken::default());
    let mut plan = Plan::default();
    plan.embedded = plan.embedded.ledger(|ledger| ledger.faults = Some(Arc::clone(&faults) as _));
    let world = World::planned(plan).await;
    world.chain.events().enter(ChainState::Running);
    world.node.sample().await;
    assert_eq!(world.get("/health/ready").await.status, 200);
    faults.0.store(true, Ordering::Relaxed);
    world.store.put_notes(vec![("x".into(), Some("y".into()))]).await.unwrap_err();
    world.node.sample().await;
    let answer = world.get("/health/ready").await;
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains("the disk is full"), "{}", answer.text());
    let status = world.get("/api/v1/status").await.ok();
    assert_eq!(status["alerts"][0]["name"], "store_refuses_writes");
    // Reading goes on, changing does not.
    world.get("/api/v1/holds").await.ok();
    let hold = serde_json::json!({ "owner": "me", "reason": "because" });
    world
        .send("PUT", "/api/v1/holds/mine", Some(crate::http::world::ADMIN), Some(hold))
        .await
        .problem(503, "unavailable");
}

/// A source that answers and has nothing new for longer than the operator allows may be cut off from its network.
#[tokio::test]
async fn c1_a_node_whose_source_is_silent_for_too_long_is_not_ready_and_says_so_everywhere() {
    let source = SourceHealth { last_contact: Some(Instant::now()), ..SourceHealth::default() };
    let progress = || {
        let (sender, progress) = tokio::sync::watch::channel(Progress::default());
        sender.send_modify(|progress| progress.source = source.clone());
        progress
    };
    let plan = |limit| Plan { progress: Some(progress()), no_block_after: limit, ..Plan::default() };
    let moment = Duration::from_millis(1);
    for (limit, silent) in [(Some(moment), true), (Some(Duration::from_secs(3600)), false), (None, false)] {
        let world = World::planned(plan(limit)).await;
        world.empty_blocks(1).await;
        world.chain.events().enter(ChainState::Running);
        tokio::time::sleep(2 * moment).await;
        world.node.sample().await;
        let status = world.get("/api/v1/status").await.ok();
        let state = if silent { "silent" } else { "following" };
        assert_eq!(status["chain"]["source"]["state"], state, "{limit:?}");
        assert_eq!(status["chain"]["state"], "running", "pruning goes on");
        let ready = world.get("/health/ready").await;
        assert_eq!(ready.status == 503, silent, "{limit:?}: {}", ready.text());
        assert_eq!(ready.text().contains("source.no_block_alert"), silent);
        let alert = status["alerts"].as_array().unwrap().iter().find(|alert| alert["name"] == "no_new_block");
        assert_eq!(alert.map(|alert| alert["level"] == "critical"), silent.then_some(true));
        let metrics = world.get("/metrics").await.text();
        let line = format!("sapwood_source_state{{state=\"silent\"}} {}", u8::from(silent));
        assert!(metrics.contains(&line), "{line}");
    }
}
