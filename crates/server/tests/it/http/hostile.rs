//! What nobody in their right mind sends.

use axum::{
    body::Body,
    http::{Request, header},
};
use sapwood_conformance::fixtures::coin;
use serde_json::json;

use crate::http::world::{ADMIN, World};

#[tokio::test]
async fn what_cannot_be_read_is_refused_by_name() {
    let world = World::new().await;
    let tx = coin("tx", 1);
    world.extend(&[&tx]).await;
    let id = tx.txid.to_string();
    let bad = [
        "/api/v1/utxos/zz/0".to_owned(),
        format!("/api/v1/utxos/{}/0", &id[1..]),
        format!("/api/v1/utxos/{id}0/0"),
        format!("/api/v1/utxos/{id}/-1"),
        format!("/api/v1/utxos/{id}/+1"),
        format!("/api/v1/utxos/{id}/4294967296"),
        format!("/api/v1/utxos/{id}/0?unknown=1"),
        format!("/api/v1/utxos/{id}/%ff"),
        "/api/v1/txs/%00".into(),
        format!("/api/v1/txs/{}/explain", "a".repeat(10_000)),
        "/api/v1/addresses/nothex/utxos".into(),
        "/api/v1/addresses/00/utxos?order=sideways".into(),
        "/api/v1/addresses/00/utxos?limit=abc".into(),
        "/api/v1/addresses/00/utxos?limit=-1".into(),
        "/api/v1/prune/jobs/abc".into(),
        "/api/v1/history?range=century".into(),
    ];
    for path in bad {
        let detail = world.get(&path).await.problem(400, "bad-request");
        assert!(!detail.is_empty(), "{path}");
    }
}

#[tokio::test]
async fn a_list_has_a_cap_that_is_not_passed_over_in_silence() {
    let world = World::new().await;
    for path in ["/api/v1/addresses/00/utxos", "/api/v1/prune/jobs"] {
        for limit in ["0", "1001", "18446744073709551615"] {
            let detail = world.get(&format!("{path}?limit={limit}")).await.problem(422, "not-allowed-value");
            assert!(detail.contains("1 to 1000"), "{detail}");
        }
        world.get(&format!("{path}?limit=1000")).await.ok();
    }
    world.get("/api/v1/prune/plan?limit=1000001").await.problem(422, "not-allowed-value");
}

#[tokio::test]
async fn m17_a_cursor_is_taken_only_by_the_list_and_order_it_was_given_for() {
    let world = World::new().await;
    for label in 0..3 {
        let tx = sapwood_conformance::fixtures::paying(&format!("{label}"), &[], &["alice", "bob"]);
        world.extend(&[&tx]).await;
    }
    let path = |owner: &str| {
        let script = sapwood_conformance::fixtures::script(owner);
        format!("/api/v1/addresses/{}/utxos?limit=1", sapwood_server::address::hex(&script))
    };
    for (order, other) in [("asc", "desc"), ("desc", "asc")] {
        let first = world.get(&format!("{}&order={order}", path("alice"))).await.ok();
        let cursor = first["cursor"].as_str().unwrap();
        world.get(&format!("{}&order={order}&cursor={cursor}", path("alice"))).await.ok();
        let refused = world.get(&format!("{}&order={other}&cursor={cursor}", path("alice"))).await;
        assert!(refused.problem(400, "bad-cursor").contains("other order"));
        let refused = world.get(&format!("{}&order={order}&cursor={cursor}", path("bob"))).await;
        refused.problem(400, "bad-cursor");
        // A digit that is changed, one that is missing, and what was never a cursor.
        let changed =
            format!("{}{}", &cursor[..cursor.len() - 1], if cursor.ends_with('0') { '1' } else { '0' });
        for garbage in [changed.as_str(), &cursor[2..], &cursor[1..], "00", "zz", ""] {
            let refused = world.get(&format!("{}&order={order}&cursor={garbage}", path("alice"))).await;
            refused.problem(400, "bad-cursor");
        }
    }
}

#[tokio::test]
async fn wrong_methods_and_paths_are_problems_too() {
    let world = World::new().await;
    for (method, path) in
        [("POST", "/api/v1/status"), ("DELETE", "/"), ("PUT", "/metrics"), ("PUT", "/api/v1/policy")]
    {
        let answer = world.send(method, path, Some(ADMIN), None).await;
        answer.problem(405, "method-not-allowed");
        assert!(answer.headers.contains_key(header::ALLOW), "{method} {path}");
    }
    for path in ["/nothing", "/api/v1/", "/api/v2/status", "/../etc/passwd", "/api/v1/utxos"] {
        world.get(path).await.problem(404, "no-such-path");
    }
    let head = world.send("HEAD", "/api/v1/status", None, None).await;
    assert!(head.status.is_success() && head.body.is_empty());
}

#[tokio::test]
async fn bodies_are_limited_and_must_be_what_they_say() {
    let world = World::new().await;
    let put = |content_type: Option<&str>, body: String| {
        let mut request =
            Request::put("/api/v1/prune/enabled").header(header::AUTHORIZATION, format!("Bearer {ADMIN}"));
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        world.call(request.body(Body::from(body)).unwrap())
    };
    let json = Some("application/json");
    let large = json!({ "enabled": true, "x": "y".repeat(2000) }).to_string();
    put(json, large).await.problem(413, "too-large");
    put(Some("text/plain"), json!({ "enabled": true }).to_string())
        .await
        .problem(415, "unsupported-media-type");
    put(None, json!({ "enabled": true }).to_string()).await.problem(415, "unsupported-media-type");
    put(json, "{".into()).await.problem(400, "bad-request");
    put(json, json!({ "enabled": "yes" }).to_string()).await.problem(422, "not-allowed-value");
    put(json, json!({ "enabled": true, "more": 1 }).to_string()).await.problem(422, "not-allowed-value");
    assert!(world.pruner.is_enabled(), "nothing of that changed anything");
}
