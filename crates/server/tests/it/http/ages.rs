//! How long things have been waiting: the last block, what could be pruned, a report that does not come.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sapwood_chain::{Chain, ChainOptions, Events, Progress};
use sapwood_conformance::fixtures::burn;
use sapwood_ledger::AddressIndexing;
use sapwood_pruner::ManualClock;
use sapwood_rules::Hold;
use sapwood_server::{Node, NodeParts, address::ChainKind};
use sapwood_types::Height;
use serde_json::Value;

use crate::http::world::{Plan, World};

const NOW: u64 = 1_000_000;

fn alerts(status: &Value) -> Vec<&str> {
    status["alerts"].as_array().unwrap().iter().map(|alert| alert["name"].as_str().unwrap()).collect()
}

/// What another process tells about the same store, before it has applied a block.
fn after_a_restart(world: &World) -> Node {
    let store = world.store.clone();
    let chain = Chain::new(store.clone(), Events::default(), ChainOptions::default());
    Node::new(NodeParts {
        name: "started again".into(),
        store,
        chain,
        pruner: world.pruner.clone(),
        kind: ChainKind::Other("test".into()),
        address_index: AddressIndexing::default(),
        progress: Some(tokio::sync::watch::channel(Progress::default()).1),
        directory: None,
        ready_lag: 10,
        no_block_after: Some(Duration::from_secs(2 * 60 * 60)),
        disk_limit: None,
    })
}

#[tokio::test]
async fn time_since_the_last_block_survives_a_restart() {
    let world = World::new().await;
    let first = after_a_restart(&world).sample().await;
    assert!(first.chain.last_block_seconds < Some(3600.0), "no block: since the start");
    assert!(!first.alerts.iter().any(|alert| alert.name == "no_new_block"));
    world.empty_blocks(3).await;
    let made_at = 1_700_000_002;
    let report = after_a_restart(&world).sample().await;
    let age = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() - f64::from(made_at);
    let told = report.chain.last_block_seconds.unwrap();
    assert!(told <= age && told > age - 3600.0, "{told} instead of {age}");
    assert!(report.alerts.iter().any(|alert| alert.name == "no_new_block"), "{:?}", report.alerts);
}

#[tokio::test]
async fn age_of_the_oldest_prunable_record_is_told_in_blocks_and_seconds() {
    let world = World::new().await;
    world.empty_blocks(2).await;
    // Due five blocks after 2.
    world.extend(&[&burn("due", &[])]).await;
    let waits = async || {
        world.node.sample().await;
        let status = world.get("/api/v1/prune").await.ok();
        (status["oldest_prunable_blocks"].as_u64(), status["oldest_prunable_seconds"].as_u64())
    };
    world.empty_blocks(4).await;
    assert_eq!(waits().await, (None, None), "not due yet");
    world.empty_blocks(1).await;
    assert_eq!(waits().await, (Some(0), Some(0)), "due with the last block");
    world.empty_blocks(3).await;
    assert_eq!(waits().await, (Some(3), Some(3)), "a block is a second here");
    world.empty_blocks(6).await;
    assert_eq!(waits().await, (Some(9), Some(4)), "as far back as blocks can be rolled back");
    let hold = Hold {
        name: "audit".into(),
        owner: "the tests".into(),
        keep_from: Some(Height(7)),
        expires: None,
        reason: "it needs the past".into(),
    };
    world.pruner.holds().set(hold).await.unwrap();
    assert_eq!(waits().await, (None, None), "a hold retains it");
    world.pruner.holds().release("audit").await.unwrap();
    assert_eq!(waits().await, (Some(9), Some(4)));
    world.prune().await;
    assert_eq!(waits().await, (None, None), "it is deleted");
}

#[tokio::test]
async fn block_assembly_that_does_not_report_any_more_is_an_alert() {
    let clock = Arc::new(ManualClock::at(NOW));
    let world = World::planned(Plan { clock: Arc::clone(&clock) as _, ..Plan::default() }).await;
    world.empty_blocks(2).await;
    let state = async || {
        world.node.sample().await;
        let status = world.get("/api/v1/status").await.ok();
        let scraped = world.get("/metrics").await.text();
        let alert = scraped.contains("sapwood_alert{name=\"block_assembly_silent\"} 1");
        assert_eq!(alert, alerts(&status).contains(&"block_assembly_silent"));
        alert
    };
    clock.set(NOW + 1000);
    assert!(!state().await, "none is registered");
    world.pruner.report_block_assembly(true, Some(Height(1))).await.unwrap();
    clock.set(NOW + 1060);
    assert!(!state().await, "the last second counts");
    clock.set(NOW + 1061);
    assert!(state().await);
    world.pruner.report_block_assembly(false, None).await.unwrap();
    assert!(!state().await, "it reports that it does not run");
    clock.set(NOW + 2000);
    assert!(state().await);
    world.pruner.holds().release("block-assembly").await.unwrap();
    assert!(!state().await, "it is not registered any more");
}
