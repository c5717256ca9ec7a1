//! Blocks.

use sapwood_conformance::fixtures::coin;
use serde_json::{Value, json};

use crate::http::world::World;

fn heights(page: &Value) -> Vec<u64> {
    page["items"].as_array().unwrap().iter().map(|block| block["height"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn m17_blocks_are_listed_in_pages_in_both_orders() {
    let world = World::new().await;
    let empty = world.get("/api/v1/blocks").await.ok();
    assert_eq!(empty, json!({ "items": [], "cursor": null }));
    world.empty_blocks(4).await;
    assert_eq!(heights(&world.get("/api/v1/blocks").await.ok()), [3, 2, 1, 0], "the newest first");
    for (order, expected) in [("asc", [0, 1, 2, 3]), ("desc", [3, 2, 1, 0])] {
        let path = format!("/api/v1/blocks?order={order}&limit=3");
        let first = world.get(&path).await.ok();
        assert_eq!(heights(&first), expected[..3]);
        let cursor = first["cursor"].as_str().unwrap();
        let second = world.get(&format!("{path}&cursor={cursor}")).await.ok();
        assert_eq!((heights(&second), &second["cursor"]), (expected[3..].to_vec(), &Value::Null));
        let other = if order == "asc" { "desc" } else { "asc" };
        let refused = world.get(&format!("/api/v1/blocks?order={other}&cursor={cursor}")).await;
        assert!(refused.problem(400, "bad-cursor").contains("other order"));
    }
    for garbage in ["00", "zz", ""] {
        world.get(&format!("/api/v1/blocks?cursor={garbage}")).await.problem(400, "bad-cursor");
    }
    for limit in ["0", "101"] {
        world.get(&format!("/api/v1/blocks?limit={limit}")).await.problem(422, "not-allowed-value");
    }
}

#[tokio::test]
async fn m17_a_block_is_found_by_height_and_by_hash_with_its_transactions_and_time() {
    let world = World::new().await;
    world.empty_blocks(1).await;
    let (one, two) = (coin("one", 1), coin("two", 1));
    world.extend(&[&one, &two]).await;
    let by_height = world.get("/api/v1/blocks/1").await.ok();
    let (below, last) =
        (world.get("/api/v1/blocks/0").await.ok(), world.store.last_applied().await.unwrap().unwrap());
    let expected = json!({
        "height": 1, "hash": last.hash.to_string(), "parent": below["hash"], "time": 1_700_000_001, "tx_count": 2,
        "txids": [one.txid.to_string(), two.txid.to_string()],
    });
    assert_eq!(by_height, expected);
    assert_eq!(world.get(&format!("/api/v1/blocks/{}", last.hash)).await.ok(), expected);
    let part = world.get("/api/v1/blocks/1?from=1&limit=1").await.ok();
    assert_eq!((&part["txids"], &part["tx_count"]), (&json!([two.txid.to_string()]), &json!(2)));
    assert_eq!(below["parent"], Value::Null);
    world.get("/api/v1/blocks/2").await.problem(404, "not-found");
    world.get(&format!("/api/v1/blocks/{}", "0".repeat(64))).await.problem(404, "not-found");
    for wrong in ["-1", "+1", "x", "99999999999", "0x1"] {
        world.get(&format!("/api/v1/blocks/{wrong}")).await.problem(400, "bad-request");
    }
}

#[tokio::test]
async fn m17_what_was_rolled_back_or_lies_too_deep_is_not_shown() {
    let world = World::new().await;
    world.empty_blocks(3).await;
    let hash = |block: &Value| block["hash"].as_str().unwrap().to_owned();
    let (first, last) = (world.get("/api/v1/blocks/1").await.ok(), world.get("/api/v1/blocks/2").await.ok());
    // Found once, so that it is known where it was.
    world.get(&format!("/api/v1/blocks/{}", hash(&last))).await.ok();
    let target = world.store.block_at(sapwood_types::Height(1)).await.unwrap().unwrap().block;
    let target = sapwood_sources::ChainPoint::new(target.height, target.hash);
    world.chain.roll_back(Some(target)).await.unwrap();
    world.get(&format!("/api/v1/blocks/{}", hash(&last))).await.problem(404, "not-found");
    world.get("/api/v1/blocks/2").await.problem(404, "not-found");
    world.get(&format!("/api/v1/blocks/{}", hash(&first))).await.ok();
    world.empty_blocks(30).await;
    world.prune().await;
    world.get("/api/v1/blocks/1").await.problem(410, "pruned");
    world.get(&format!("/api/v1/blocks/{}", hash(&first))).await.problem(404, "not-found");
}
