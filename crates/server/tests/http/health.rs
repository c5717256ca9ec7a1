//! Alive, ready, and why not.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use sapwood_chain::ChainState;
use sapwood_store::StoreWrite as _;
use sapwood_store_embedded::{EmbeddedOptions, Faults};

use crate::world::{Plan, World};

#[tokio::test]
async fn ready_means_reconciled() {
    let world = World::new().await;
    assert_eq!(world.get("/health/live").await.ok()["live"], true);
    let reasons = |answer: crate::world::Answer| {
        assert_eq!(answer.status, 503);
        answer.json()["reasons"].to_string()
    };
    assert!(reasons(world.get("/health/ready").await).contains("not reconciled"));
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
    plan.embedded = EmbeddedOptions { faults: Some(Arc::clone(&faults) as _), ..plan.embedded };
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
        .send("PUT", "/api/v1/holds/mine", Some(crate::world::ADMIN), Some(hold))
        .await
        .problem(503, "unavailable");
}
